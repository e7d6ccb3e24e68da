"""What lab 12 is made of: crashes of a disk that is a dictionary, records of hangs, step times, clusters that fail."""

import math

import numpy as np
import pytest
from distcourse import lab12

import distlearn as dl
from distlearn.comm.recorder import who_is_missing
from distlearn.trace import length

from ..course.submissions import answered


def test_a_crash_may_come_after_any_operation_and_in_any_write():
    operations = [("write", "new", b"abcdef"), ("remove", "old"), ("rename", "new", "old")]
    states = [files for _, files in lab12.crashes({"old": b"x"}, operations)]
    assert {"old": b"x"} in states
    assert {"old": b"x", "new": b""} in states
    assert {"old": b"x", "new": b"abc"} in states
    assert {"new": b"abcdef"} in states
    assert states[-1] == {"old": b"abcdef"}
    with pytest.raises(ValueError, match="operation 0 is 'append'"):
        lab12.execute({}, [("append", "old", b"")])


@pytest.mark.parametrize("program", "ABC")
def test_a_fault_is_survived_or_named(program):
    assert lab12.outcome(program, ("crash", 0)) == "step 1, as it was saved"
    assert "wrong data" in lab12.outcome(program, ("flip", "checkpoint", 100))
    for fault in (("burn", 1), ("crash", 9), ("tear", 0, 99), ("flip", "new", 1), "crash"):
        with pytest.raises(ValueError, match="cannot happen"):
            lab12.outcome(program, fault)


def test_made_records_accuse_as_those_of_a_world_do():
    def program(comm):
        comm.barrier()
        if comm.rank != 1:
            comm.all_reduce(np.ones(2))

    world = dl.SimWorld(3)
    with pytest.raises(dl.DeadlockError):
        world.run(program)
    boxes = lab12.in_short(world.records)
    assert boxes[0][-1] == (2, "all_reduce", "waiting")
    assert boxes[1][-1] == (1, "barrier", "done")
    assert who_is_missing(world.records).ranks == (1,)
    made = lab12.black_boxes(3, {1}, 20, silent={1})
    assert made[1] == []
    assert [n for n, *_ in made[0]] == list(range(13, 21))


def test_the_reference_raises_the_alarms_that_were_asked_for():
    slow_nodes = answered("lab12", "slow_nodes")["slow_nodes"]
    healthy = [slow_nodes(lab12.step_times(seed=[1, i]), 0.1) for i in range(400)]
    assert 0.05 < np.mean([len(found) > 0 for found in healthy]) < 0.18
    assert slow_nodes(lab12.step_times(slow=7), 0.01) == [7]


def test_work_done_twice_finds_a_bad_rank_after_one_over_the_product():
    steps = [lab12.silent_corruption(0.05, flips=0.5, seed=i) for i in range(300)]
    assert np.mean(steps) == pytest.approx(1 / (0.05 * 0.5), rel=0.2)
    assert lab12.silent_corruption(0.05, flips=0.0) is None


def test_a_constant_interval_keeps_what_the_formula_says():
    share = np.mean([lab12.play(lambda *_: 300.0, 20_000, 5, 60, seed=s) for s in range(20)])
    assert share == pytest.approx(1 - 5 / 300 - 150 / 20_000 - 60 / 20_000, abs=0.004)


def test_restarts_that_interrupt_each_other_leave_more_than_the_first_order_formula():
    together, apart = (np.mean([lab12.quorum_share(n, 1080, 600, seed=s) for s in range(5)]) for n in (1, 32))
    assert together == pytest.approx(math.exp(-600 / 1080), abs=0.02)
    assert apart == pytest.approx(math.exp(-600 / 1080 / 32), abs=0.01)
    end, rng = 200 * 3600, np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1080, int(2 * end / 1080) + 50))
    down = length((t, min(t + 600, end)) for t in times if t < end)
    assert lab12.quorum_share(1, 1080, 600) == pytest.approx(1 - down / end, abs=0.01)
