"""The layers that work on several ranks, one by one: what they compute, hold, send and refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn import nn
from distlearn.backend import to_numpy
from distlearn.comm import Network
from distlearn.comm.base import RankError
from distlearn.nn import MockDeviceArray
from distlearn.nn.layer import move
from distlearn.parallel import parallelize
from distlearn.parallel.sharding import gather_parts, reduce_scatter_parts, take_part
from distlearn.parallel.tensor import (
    AxisSharding,
    PathParallel,
    RowParallelLinear,
    SiameseParallel,
    StackParallel,
)
from distlearn.parallel.tensor.blocks import assign_by_cost
from distlearn.sim import Roofline, SimWorld
from tests.comm.on_device import off_strict

from .cases import MODELS, F, batches


def linear(d_in=7, d_out=5):
    return nn.Linear(d_in, d_out, 1, **F)


def grus(n=4):
    return [nn.GRU(3 if i == 0 else 4, 4, i, **F) for i in range(n)]


def sent(world, rank=0):
    return [(s.name, s.nbytes) for s in world.trace.select(rank=rank, lane="comm")]


def test_twins_send_outputs_and_gradients():
    body = nn.Sequential(nn.Linear(7, 3, 1, **F), nn.Tanh())

    def program(comm):
        layer = SiameseParallel(comm, nn.Siamese(nn.Sequential(nn.Linear(7, 3, 1, **F), nn.Tanh())))
        y, saved = layer.forward(np.ones((6, 2, 7)))
        layer.backward(np.ones((6, 2, 3)), saved)
        layer.backward(np.ones((6, 2, 3)), layer.forward(np.ones((6, 2, 7)))[1])  # gradients add up
        return y, [p.grad for p in layer.params]

    world = SimWorld(2)
    (y, grads), (_, others) = world.run(program)
    siamese = nn.Siamese(body)
    want, saved = siamese.forward(np.ones((6, 2, 7)))
    siamese.backward(np.ones((6, 2, 3)), saved)
    np.testing.assert_allclose(y, want, atol=1e-13)
    for p, mine, other in zip(body.params, grads, others, strict=True):
        np.testing.assert_allclose(mine, 2 * p.grad, atol=1e-12)
        np.testing.assert_array_equal(mine, other)
    once = [("all_gather", 6 * 2 * 3 * 8), ("all_reduce", (7 * 3 + 3) * 8), ("all_gather", 6 * 2 * 7 * 8)]
    assert sorted(sent(world)) == sorted(once + once)


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


@given(
    n=st.integers(1, 20), size=st.integers(1, 6), times=st.integers(1, 3), rows=st.integers(0, 3), seed=st.integers()
)
@settings(max_examples=25, deadline=None)
def test_gather_and_reduce_scatter_of_any_cut(n, size, times, rows, seed):
    """Also cuts that are not contiguous, with ranks that have nothing."""
    rng = np.random.default_rng(abs(seed))
    owner = rng.integers(0, size, n)
    cut = AxisSharding([np.flatnonzero(owner == r) for r in range(size)]).repeat(times)
    x = rng.normal(size=(rows, n * times))

    def program(comm):
        whole = gather_parts(comm, take_part(x, -1, cut.parts[comm.rank]), -1, cut.parts)
        return whole, reduce_scatter_parts(comm, x * (comm.rank + 1), -1, cut.parts)

    for rank, (whole, part) in enumerate(SimWorld(size).run(program)):
        np.testing.assert_array_equal(whole, x)
        np.testing.assert_allclose(part, x[:, cut.parts[rank]] * size * (size + 1) / 2, atol=1e-12)


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


DRAWING = ("dropout", "residual", "few filters", "flat dropout", "siamese with dropout")
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
