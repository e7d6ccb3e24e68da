"""Queues of tasks in virtual time."""

from distlearn.parallel.pipeline.schedule.play import play_queues


def test_a_task_waits_for_its_queue_and_for_what_it_needs():
    needs = {"b": [("x", 0.5)], "y": [("a", 0.0), ("x", 0.25)]}
    times, at = play_queues([["a", "b"], ["x", "y"]], {"a": 1, "b": 1, "x": 2, "y": 3}.get, lambda t: needs.get(t, []))
    assert times == {"a": (0, 1), "x": (0, 2), "b": (2.5, 3.5), "y": (2.25, 5.25)}
    assert at == [2, 2]


def test_a_task_in_two_queues_occupies_both():
    seconds = {"a": 1, "m": 2, "b": 4, "c": 1}
    times, _ = play_queues([["a", "m", "c"], ["b", "m"]], seconds.get)
    assert times == {"a": (0, 1), "b": (0, 4), "m": (4, 6), "c": (6, 7)}


def test_queues_that_wait_for_each_other_stop():
    times, at = play_queues([["m", "n"], ["n", "m"], ["a"]], lambda task: 1.0)
    assert times == {"a": (0, 1)}
    assert at == [0, 0, 1]
    times, at = play_queues([["a", "b"]], lambda task: 1.0, lambda task: [("b", 0.0)] if task == "a" else [])
    assert (times, at) == ({}, [0])
