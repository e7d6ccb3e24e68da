"""Engines behind a link of limited bandwidth."""

import os

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.world import LimitedWorld, RankDeadlockError

BYTES = 2_000_000


def seconds_of_all_reduce(comm):
    x = np.full(BYTES // 8, comm.rank + 1.0)
    comm.all_reduce(np.zeros(2))  # connections are made here
    comm.barrier()
    began = comm.clock.now()
    comm.all_reduce(x)
    assert np.all(x == 3)
    return comm.clock.now() - began


@pytest.mark.nightly
@pytest.mark.mpi
@pytest.mark.engines
def test_the_link_is_as_slow_as_asked():
    with LimitedWorld(2, progress=False, timeout=60) as world:
        with pytest.raises(ValueError, match="limit: bits_per_second is 0, expected a number above 0"):
            world.limit(0)
        world.limit(40e6)
        slow = min(world.run(seconds_of_all_reduce))  # two messages of half the bytes
        assert slow > 0.9 * BYTES * 8 / 40e6, "a burst of each message may go at once"
        world.limit(None)
        with pytest.raises(RankError, match="ZeroDivisionError"):
            world.run(lambda comm: 1 / 0)
        assert world.run(lambda comm: comm.size) == [2, 2]


def wait_for_each_other(comm):
    comm.recv(np.zeros(1), 1 - comm.rank)


@pytest.mark.nightly
@pytest.mark.mpi
@pytest.mark.engines
def test_a_deadlock_and_a_death_end_with_their_run():
    with LimitedWorld(2, progress=False, timeout=60) as world:
        world.limit(40e6)
        with pytest.raises(RankDeadlockError, match=r"(?s)rank 0.*wait_for_each_other.*rank 1.*wait_for_each_other"):
            world.run(wait_for_each_other)
        with pytest.raises(RankError, match="rank 1"):
            world.run(lambda comm: os._exit(3) if comm.rank == 1 else comm.barrier())
        assert world.run(lambda comm: comm.size) == [2, 2]
