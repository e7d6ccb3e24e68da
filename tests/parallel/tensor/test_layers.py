"""The layers that work on several ranks, one by one: what they compute, hold, send and refuse."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import to_numpy
from distlearn.comm import Network
from distlearn.comm.base import RankError
from distlearn.nn import MockDeviceArray
from distlearn.nn.layer import move
from distlearn.parallel import parallelize
from distlearn.parallel.tensor import (
    AxisSharding,
    PathParallel,
    RowParallelLinear,
    StackParallel,
)
from distlearn.parallel.tensor.blocks import assign_by_cost
from distlearn.sim import Roofline, SimWorld
from tests.comm.on_device import off_strict

from .cases import MODELS, F, batches, frozen_siamese


def linear(d_in=7, d_out=5):
    return nn.Linear(d_in, d_out, 1, **F)


def grus(n=4):
    return [nn.GRU(3 if i == 0 else 4, 4, i, **F) for i in range(n)]


def sent(world, rank=0):
    return [(s.name, s.nbytes) for s in world.trace.select(rank=rank, lane="comm")]


def test_gradients_of_twins_add_up_over_passes():
    def program(comm):
        model = parallelize(frozen_siamese(), comm)
        for _ in range(2):
            y, saved = model.forward(np.ones((6, 2, 7)))
            model.backward(np.ones_like(y), saved)
        return [p.grad for p in model.params if not p.frozen]

    (want,) = SimWorld(1).run(program)
    for grads in SimWorld(2).run(program):
        for got, p in zip(grads, want, strict=True):
            np.testing.assert_allclose(got, p, atol=1e-12)


@pytest.mark.parametrize(("n_layers", "size", "n_blocks"), [(4, 4, 8), (4, 2, 4), (3, 3, 1)])
def test_the_wavefront_takes_as_long_as_its_docstring_says(n_layers, size, n_blocks):
    """(m + p - 1) / m times a rank's share of the work, forward and backward; messages are free here."""
    x = np.ones((2, 16, 4))

    def program(comm):
        layer = StackParallel(comm, [nn.GRU(4, 4, i, **F) for i in range(n_layers)], n_blocks)
        y, saved = layer.forward(x)
        middle = comm.clock.now()
        layer.backward(y, saved)
        return middle, comm.clock.now() - middle

    # the messages are those of the layer itself
    world = SimWorld(size, Network(), Roofline(1e9), collectives="formula")
    forward, backward = (max(times) for times in zip(*world.run(program), strict=True))
    a_layer = nn.GRU(4, 4).flops(x.shape) / 1e9
    want = a_layer * n_layers / size * (n_blocks + size - 1) / n_blocks
    assert forward == pytest.approx(want)
    assert backward == pytest.approx(2 * want)
    messages = [m for m in world.trace.messages if m.nbytes]
    assert len(messages) == 2 * (size - 1) * n_blocks
    assert sum(m.nbytes for m in messages) == 2 * (size - 1) * 2 * 16 * 4 * 8


def test_paths_are_assigned_by_cost():
    assert assign_by_cost([5, 5, 4, 4, 3, 3, 3], 3) == [[0, 4, 6], [1, 5], [2, 3]]
    assert assign_by_cost([0, 0, 7], 3) == [[2], [0], [1]]

    def program(comm):
        return PathParallel(comm, nn.Inception(192, 64, 96, 128, 16, 32, 32, nn.init.seeds(None))).paths

    assert SimWorld(2).run(program) == [[1], [0, 2, 3]]  # the 3 x 3 path costs more than all others
    assert SimWorld(4).run(program) == [[1], [2], [0], [3]]


REFUSED = {
    "cannot tell the shape of its input": lambda comm: PathParallel(comm, nn.Parallel(*[nn.ReLU()] * 4)),
    "3 layers for 4 ranks": lambda comm: StackParallel(comm, grus(3)),
    "cannot be stacked on": lambda comm: StackParallel(comm, [*grus(3), nn.GRU(5, 4)]),
    "n_blocks is 0": lambda comm: StackParallel(comm, grus(4), 0),
    r"expected an input of shape \(batch, 2\), got \(3, 7\)": lambda comm: RowParallelLinear(
        comm, linear(), AxisSharding.even(7, 4)
    ).forward(np.ones((3, 7))),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_work_is_refused(message):
    with pytest.raises(RankError, match=message):
        SimWorld(4).run(REFUSED[message])


DRAWING = ("dropout", "residual", "flat dropout", "siamese with dropout")
"""Models whose masks, drawn on a device, are others."""


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in DRAWING])
def test_runs_on_arrays_that_behave_like_a_gpus(kind):
    x = next(batches(kind, 1)).x

    def program(comm, convert):
        model = move(MODELS[kind](), convert)
        model = model if comm is None else parallelize(model, off_strict(comm))
        y, saved = model.forward(convert(x))
        model.backward(y.copy(), saved)
        return y

    want = program(None, np.copy)
    got = SimWorld(2).run(program, lambda array: MockDeviceArray(to_numpy(array).copy()))
    np.testing.assert_allclose(got[0].get(), want, atol=1e-12)
