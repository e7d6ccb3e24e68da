"""The flight recorder: kinds of hang, each with the rank that is to blame, on simulated ranks and engines."""

import functools
import re
import time

import pytest

from distlearn.comm.base import CommError
from distlearn.comm.recorder import LENGTH, Record, who_is_missing
from distlearn.sim import SimWorld
from distlearn.world import EngineWorld
from distlearn.world.outcome import RankTimeoutError

from .hangs import COLLECTIVES, HANGS, skips


def hang(world, fn):
    with pytest.raises(CommError):
        world.run(fn)
    return who_is_missing(world.records)


@pytest.mark.parametrize("name", HANGS)
def test_who_is_to_blame_on_simulated_ranks(name):
    program, kind, ranks = HANGS[name]
    assert hang(SimWorld(3), program)[:2] == (kind, ranks)


def sleeps(comm):
    for _ in range(3):
        comm.barrier()
    if comm.rank == 1:
        time.sleep(60)
    comm.barrier()


@pytest.mark.nightly
@pytest.mark.engines
@pytest.mark.timeout(400)
def test_who_is_to_blame_on_engines():
    with EngineWorld(3, progress=False, patience=0.5, strict=False) as world:
        for name, (program, *want) in HANGS.items():
            assert list(hang(world, program)[:2]) == want, name
        with pytest.raises(RankTimeoutError, match=r"rank 1 is missing at barrier.*number 4"):
            world.run(sleeps, timeout=2)


@pytest.mark.parametrize("size", [2, 4, 5])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_verdict_says_which_call_and_where_the_missing_rank_was(name, size):
    for number in (1, LENGTH + 9):
        program = functools.partial(skips, call=COLLECTIVES[name], rank=size - 1, number=number)
        verdict = hang(SimWorld(size), program)
        assert verdict[:2] == ("missing", (size - 1,))
        assert f"number {number}" in verdict.text
        assert (f"it was last in {name}" if number > 1 else "it made no call") in verdict.text


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
    world.run(lambda comm: comm.barrier())
    assert who_is_missing(world.records).kind == "none"
    (record,) = world.records[1]
    assert re.fullmatch(r"barrier\(\), number 1 \(test_recorder.py, line \d+, in <lambda>\)", str(record))
