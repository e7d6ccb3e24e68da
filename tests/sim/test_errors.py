"""What a student sees of an error, an interrupt, a deadlock and a print on simulated ranks."""

import traceback

import numpy as np
import pytest

from distlearn import SimWorld
from distlearn.comm.base import DeadlockError, RankError


def shown(error):
    """The frames that a notebook shows: (function, line), without those that hide themselves."""
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_locals.get("__tracebackhide__"):
            frames.append((frame.f_code.co_name, line))
    return [name for name, _ in frames]


def program(comm):
    return helper(comm, np.zeros(3))


def helper(comm, x):
    if comm.rank == 1:
        return x[5]
    comm.all_reduce(x)


def test_an_error_shows_the_program_of_the_rank_and_nothing_that_runs_it():
    with pytest.raises(RankError, match="rank 1: IndexError") as caught:
        SimWorld(3).run(program)
    error = caught.value
    assert shown(error) == ["test_an_error_shows_the_program_of_the_rank_and_nothing_that_runs_it", "program", "helper"]
    assert isinstance(error.original, IndexError)
    text = "".join(traceback.format_exception(error))
    assert "return x[5]" in text
    assert "direct cause" not in text, "one traceback, not two"


def test_an_interrupt_shows_where_the_rank_was():
    def interrupted(comm):
        if comm.rank == 1:
            raise KeyboardInterrupt
        comm.barrier()

    with pytest.raises(KeyboardInterrupt) as caught:
        SimWorld(2).run(interrupted)
    assert shown(caught.value)[1:] == ["interrupted"]
    assert caught.value.__notes__ == ["rank 1 was running"]


def test_the_last_line_of_a_deadlock_is_the_call_that_waits():
    def stuck(comm):
        x = np.zeros(3)
        comm.recv(x, 1 - comm.rank)

    with pytest.raises(DeadlockError) as caught:
        SimWorld(2).run(stuck)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.name, last.line) == ("stuck", "comm.recv(x, 1 - comm.rank)")


def test_prints_carry_their_rank(capsys):
    def talk(comm):
        print("begin")
        comm.barrier()
        print("no", "newline", end="")
        comm.barrier()
        print(" yet\nend")
        return SimWorld(2).run(lambda inner: print("inside", inner.rank))

    SimWorld(2).run(talk)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["[rank 0] begin", "[rank 1] begin"]
    assert all(line.startswith("[rank ") for line in lines)
    assert "[rank 0] end" in lines
    SimWorld(1).run(lambda comm: print("alone"))
    assert capsys.readouterr().out == "alone\n"
