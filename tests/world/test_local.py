import numpy as np
import pytest

from distlearn.comm.base import CommError, RankError
from distlearn.comm.local import DisconnectedComm
from distlearn.sim import SimWorld
from distlearn.trace import WallClock
from distlearn.world import LocalWorld, World


def work(comm, factor):
    with comm.clock.span("work", flops=10):
        return comm.all_reduce(np.full(2, factor)).tolist()


def test_runs_here():
    world = LocalWorld()
    assert isinstance(world, World)
    assert world.run(work, factor=3.0) == [[3.0, 3.0]]
    assert [(s.rank, s.name, s.flops) for s in world.trace] == [(0, "work", 10)]


def test_error_is_the_simulators():
    def boom(comm):
        comm.all_reduce([1])

    errors = []
    for world in (LocalWorld(), SimWorld(1)):
        with pytest.raises(RankError) as caught:
            world.run(boom)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0].rank == 0
    assert isinstance(errors[0].original, TypeError)


def test_reports_are_handed_on():
    seen = []
    LocalWorld(report=lambda *args, **values: seen.append((args, values))).run(lambda comm: comm.report(1, 2, loss=3))
    assert seen == [((1, 2), {"loss": 3})]


def test_unconnected_ranks_know_themselves_and_nothing_else():
    comm = DisconnectedComm(2, 4, WallClock(2), print, "no cable")
    assert (comm.rank, comm.size) == (2, 4)
    with pytest.raises(CommError, match="rank 2: all_reduce needs a connection between the ranks: no cable"):
        comm.all_reduce(np.zeros(1))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = comm.nonsense


def test_a_number_of_ranks_is_refused():
    with pytest.raises(TypeError, match=r"report=4, expected a callable; a world of several ranks is SimWorld"):
        LocalWorld(4)
