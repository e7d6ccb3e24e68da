"""Several kinds of parallelism at once equal serial training, and send what they say."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.comm import Network
from distlearn.comm.base import RankError
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import DataParallel, Hybrid, OneWeirdTrick, hybrid
from distlearn.parallel.data import replicas
from distlearn.parallel.meta import meta_batch, meta_copy, meta_loss
from distlearn.sim import Roofline, SimWorld
from tests.comm.on_device import off_strict

from .programs import X, Y, parts
from .tensor.cases import Batch, F
from .tensor.test_tensor import COLLECTIVES

# -- one weird trick


def step_on_alexnet(way, size=4, batch=256):
    """Run one step on AlexNet without numbers; return what rank 0 gave to collectives."""

    def program(comm):
        model = meta_copy(outline)
        strategy = way(comm, model, meta_loss, Optimizer(model.params, Momentum(), 0.1))
        comm.barrier()
        began = comm.clock.now()
        strategy.step(meta_batch(batch, (227, 227, 3), strategy.rank, strategy.size))
        return began

    outline = meta_copy(nn.build("alexnet", seed=None))
    world = SimWorld(size, Network(1e-6, 1e9), Roofline(1e12))
    began = world.run(program)[0]
    calls = world.trace.window(began).select(rank=0, lane="comm")
    return [(s.name, s.nbytes) for s in calls if s.name in COLLECTIVES]


def test_trick_sends_less_than_data_parallelism_on_alexnet():
    """Krizhevsky's point: convolutions' gradients and dense layers' activations are small."""
    calls = step_on_alexnet(OneWeirdTrick)
    everything = step_on_alexnet(DataParallel)
    seam = 256 * 9216 * 4
    assert {("all_gather", seam), ("reduce_scatter", seam)} <= set(calls)
    assert sum(nbytes for _, nbytes in everything) == 243_860_896 + 8  # all parameters, loss and rows
    assert sum(nbytes for _, nbytes in calls) < 243_860_896 / 5


def test_trick_needs_both_kinds_of_layers():
    def program(comm, model):
        OneWeirdTrick(comm, *parts(model, Momentum()))

    with pytest.raises(RankError, match="before the first Linear, got Linear, ReLU, Linear; use TensorParallel"):
        SimWorld(2).run(program, nn.MLP((7, 5, 4)))
    with pytest.raises(RankError, match="use DataParallel"):
        SimWorld(2).run(program, nn.build("squeezenet28", seed=None))


def test_trick_refuses_a_layer_on_both_sides_of_the_seam():
    def program(comm):
        shared = nn.Linear(4, 4, 1)
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GlobalAvgPool(), nn.Residual(shared), shared)
        OneWeirdTrick(comm, *parts(model, Momentum()))

    with pytest.raises(RankError, match=r"2\.0\.W, 2\.0\.b is used both before and after the first dense layer"):
        SimWorld(2).run(program)


# -- data x pipeline x tensor


def test_hybrid_sums_its_own_parameters_along_dp():
    """Buckets of a rank hold 1 / (pp tp) of the model; tp neighbours are ranks 0 and 1."""

    def program(comm):
        strategy = Hybrid(comm, *parts(nn.MLP((16, 64, 16, 64, 16), seed=1, **F), Momentum()), dp=2, pp=2, tp=-1)
        x = np.ones((4, 16))
        strategy.step(Batch(x, np.zeros(4, int), 8))
        held = sum(p.size for p in strategy.pipeline.params)
        return held, sum(b.flat.size for b in strategy.reducer.buckets), strategy.mesh.tp.rank, strategy.rank

    results = SimWorld(8).run(program)
    a_stage = 16 * 64 + 64 + 64 * 16 + 16
    for held, summed, _, _ in results:
        assert held == (a_stage - 16) // 2 + 16
        assert summed == held + 2  # loss and rows ride along
    assert [tp for _, _, tp, _ in results] == [0, 1] * 4
    assert [dp for _, _, _, dp in results] == [0] * 4 + [1] * 4


def test_a_stage_without_parameters_keeps_its_numbers_on_the_device(monkeypatch):
    """They are summed with those of stages that have some: a NumPy array would not do."""
    for module in (hybrid, replicas):  # where copying to the host is meant
        monkeypatch.setattr(module, "to_numpy", lambda x: x.get())

    def program(comm):
        model = nn.move(nn.Sequential(nn.Linear(7, 4, 0, **F), nn.ReLU()), lambda a: nn.MockDeviceArray(a.copy()))
        optimizer = Optimizer(model.params, Momentum(), 0.01, clip_norm=0.1)
        made = Hybrid(off_strict(comm), model, nn.SoftmaxCrossEntropy(), optimizer, pp=2)
        losses = [made.step(Batch(nn.MockDeviceArray(X[:12]), nn.MockDeviceArray(Y[:12]), 12)) for _ in range(2)]
        return type(made.reducer.sums).__name__, len(made.pipeline.params), losses

    first, second = SimWorld(2).run(program)
    assert (first[:2], second[:2]) == (("MockDeviceArray", 2), ("MockDeviceArray", 0))
    assert first[2] == second[2]
