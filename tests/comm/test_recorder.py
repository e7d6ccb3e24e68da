"""The flight recorder: kinds of hang, each with the rank that is to blame, on simulated ranks and engines."""

import functools
import time

import numpy as np
import pytest

from distlearn.comm.base import ANY, LENGTH, CommError, Record
from distlearn.comm.recorder import who_is_missing
from distlearn.sim import SimWorld
from distlearn.world import EngineWorld
from distlearn.world.outcome import RankTimeoutError

CALLS = {
    "all_reduce": lambda comm: comm.all_reduce(np.ones(4)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.ones(8)),
    "all_gather": lambda comm: comm.all_gather(np.ones(2)),
    "all_to_all": lambda comm: comm.all_to_all(np.ones((comm.size, 2))),
    "barrier": lambda comm: comm.barrier(),
}
"""Collectives in which every rank waits for every other."""


def skips(comm, name, rank, number):
    """One rank does not make the last of some calls."""
    for _ in range(number - (comm.rank == rank)):
        CALLS[name](comm)


def hang(world, fn, *args):
    with pytest.raises(CommError):
        world.run(fn, *args)
    return who_is_missing(world.records)


@pytest.mark.parametrize(("size", "rank", "number"), [(2, 0, 1), (3, 1, 2), (4, 3, 5), (5, 2, LENGTH + 9)])
@pytest.mark.parametrize("name", CALLS)
def test_a_rank_that_skips_a_collective_is_missing(name, size, rank, number):
    verdict = hang(SimWorld(size), skips, name, rank, number)
    assert verdict[:2] == ("missing", (rank,))
    assert f"number {number}" in verdict.text
    if number > 1:
        assert f"it was last in {name}" in verdict.text
    else:
        assert "nothing is known" in verdict.text


def skips_a_part(comm):
    part = comm.split(comm.rank % 2)
    part.barrier()
    if comm.rank != 3:
        part.barrier()
    comm.barrier() if comm.rank != 3 else None


def sends_to_the_busy(comm):
    """Rank 0 waits for 1, which waits for 2, which has returned: 2 is to blame, though 0 does not wait for it."""
    if comm.rank < 2:
        comm.recv(np.empty(1), comm.rank + 1)


def circle(comm):
    comm.send(np.ones(1), (comm.rank + 1) % comm.size)
    comm.recv(np.empty(1), (comm.rank - 1) % comm.size)


def inside_and_outside(comm):
    """Two ranks wait in a collective, the third in a message from one of them."""
    comm.recv(np.empty(1), 0) if comm.rank == 2 else comm.barrier()


def waits_for_an_object(comm, source=2):
    """The barrier and the array are done: what rank 0 waits for is the object."""
    comm.barrier()
    if comm.rank == 1:
        comm.send(np.ones(1), 0)
    elif comm.rank == 0:
        comm.recv(np.empty(1), 1)
        comm.recv_obj(source)


def never_waits_for_work(comm):
    if comm.rank != 1:
        comm.iall_reduce(np.ones(4)).wait()


@pytest.mark.parametrize(
    ("program", "size", "kind", "ranks"),
    [
        (skips_a_part, 4, "missing", (3,)),
        (sends_to_the_busy, 3, "missing", (2,)),
        (circle, 2, "deadlock", (0, 1)),
        (circle, 4, "deadlock", (0, 1, 2, 3)),
        (inside_and_outside, 3, "deadlock", (0, 2)),
        (never_waits_for_work, 3, "missing", (1,)),
        (waits_for_an_object, 3, "missing", (2,)),
        (functools.partial(waits_for_an_object, source=ANY), 3, "missing", (1, 2)),
    ],
)
def test_who_is_to_blame(program, size, kind, ranks):
    assert hang(SimWorld(size), program)[:2] == (kind, ranks)


def test_calls_that_differ():
    same = Record(range(3), 2, "barrier()", state="waiting")
    records = {0: [same], 1: [same._replace(call="all_gather((2,), float64)")], 2: [same]}
    text = "rank 1 calls all_gather((2,), float64), number 2 where rank 0 calls barrier(), number 2"
    assert who_is_missing(records) == ("mismatch", (1,), text)


def test_ranks_without_records_are_missing():
    waiting = Record(range(4), 7, "barrier()", state="waiting")
    verdict = who_is_missing({0: [waiting], 2: [waiting]})
    assert verdict[:2] == ("missing", (1, 3))
    assert "nothing is known" in verdict.text


def test_nobody_waits():
    world = SimWorld(3)
    world.run(CALLS["barrier"])
    assert who_is_missing(world.records).kind == "none"
    assert [str(r) for r in world.records[1]] == ["barrier(), number 1 (test_recorder.py, line 20, in <lambda>)"]


def sleeps(comm, name, rank):
    for _ in range(3):
        CALLS[name](comm)
    if comm.rank == rank:
        time.sleep(60)
    CALLS[name](comm)


@pytest.mark.engines
def test_engines_name_the_rank_that_sleeps():
    with EngineWorld(3, progress=False) as world:
        for name, rank in (("barrier", 1), ("all_reduce", 2)):
            with pytest.raises(RankTimeoutError, match=f"rank {rank} is missing at {name}.*number 4"):
                world.run(functools.partial(sleeps, name=name, rank=rank), timeout=3)
            assert who_is_missing(world.records).ranks == (rank,)
