import numpy as np
import pytest

from distlearn.comm.base import RankError
from distlearn.sim import SimWorld
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
