"""The communicator contract on the communicators that need no other process."""

import pytest

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
