"""Queues of tasks in virtual time, and parameter-server policies whose order is known beforehand as such queues."""

import pytest

from distlearn.parallel.asynchronous.param_server import Speeds, bsp, simulate, ssp
from distlearn.parallel.play import play_queues


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


@pytest.mark.parametrize("law", ["constant", "lognormal", "pareto"])
@pytest.mark.parametrize("policy", [bsp(), ssp(0), ssp(2)], ids=str)
def test_policies_with_a_known_order_are_played_alike(policy, law):
    """BSP: an update occupies all workers. SSP(s): step c waits until all workers have ended step c - s - 1."""
    n, steps = 5, 12
    speeds = Speeds(n, law=law, slow={1: 3.0}, seed=2)
    events = simulate(policy, speeds, steps)
    rounds = int(events.step.max()) + 1
    if policy.waits:
        workers = [[task for c in range(rounds) for task in ((w, c), ("update", c))] for w in range(n)]
        gates, needs = [], lambda task: []
    else:
        workers = [[(w, c) for c in range(rounds)] for w in range(n)]
        gates = [[("all", c)] for c in range(rounds)]

        def needs(task):
            who, c = task
            if who == "all":
                return [((w, c), 0.0) for w in range(n)]
            return [(("all", c - policy.bound - 1), 0.0)] if c > policy.bound else []

    times = play_queues([*workers, *gates], lambda t: 0.0 if isinstance(t[0], str) else speeds(*t), needs).times
    found = zip(events.worker.tolist(), events.step.tolist(), events.time.tolist(), strict=True)
    assert {(w, c): end for w, c, end in found} == {
        (w, c): times[w, c][1] for w, c in zip(events.worker.tolist(), events.step.tolist(), strict=True)
    }
