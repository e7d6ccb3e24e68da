"""The communicator contract on the communicators that need no other process."""

import numpy as np
import pytest

from distlearn.comm.base import RankError
from distlearn.comm.point_to_point import LocalComm
from distlearn.sim import SimWorld

from .contract import CONTRACT


@pytest.mark.parametrize("name", CONTRACT)
def test_local(name):
    CONTRACT[name](LocalComm())


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CONTRACT)
def test_simulator(name, size):
    SimWorld(size).run(CONTRACT[name])


def test_simulator_eager():
    """With every message buffered, as a real MPI does with small ones."""
    for check in CONTRACT.values():
        SimWorld(3, eager_limit=1 << 30).run(check)


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "gather", "reduce_scatter", "isend"])
def test_masked_arrays_are_refused(name):
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(RankError, match=rf"{name.lstrip('i')} would move what is masked, too: pass x\.filled\(value\)"):
        SimWorld(2).run(lambda comm: getattr(comm, name)(masked, *[1 - comm.rank] * (name == "isend")))


def test_parts_of_unequal_length_are_told_of_objects():
    with pytest.raises(RankError, match="in the same order; arrays of different shapes go by gather_obj"):
        SimWorld(2).run(lambda comm: comm.gather(np.arange(2.0 + comm.rank)))
