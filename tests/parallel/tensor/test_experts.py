"""Experts on ranks: equal to the serial mixture, forward and backward, whatever is chosen and left out."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.data import Batch
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import TensorParallel, parallelize
from distlearn.parallel.tensor import ExpertParallel
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params

from ..programs import serial

F = {"dtype": "float64"}


def mixture(n_experts=5, k=2, capacity=1.25, bias=0.0):
    experts = [
        nn.Sequential(nn.Linear(6, 5, 10 + e, **F), nn.Tanh(), nn.Linear(5, 6, 30 + e, **F)) for e in range(n_experts)
    ]
    layer = nn.MixtureOfExperts(6, experts, k, capacity=capacity, rng=3, **F)
    layer.gate.b.data[1] = bias
    return layer


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(("n_experts", "k", "capacity"), [(4, 1, 0.5), (5, 2, 1.25), (7, 2, 9.0), (4, 4, 1.0)])
@pytest.mark.parametrize(
    ("rows", "bias"), [(13, 0.0), (2, 0.0), (13, 1e3)], ids=["13", "fewer than ranks", "one expert"]
)
def test_outputs_and_gradients_are_those_of_the_serial_layer(size, n_experts, k, capacity, rows, bias):
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, rows, 6))
    serial = mixture(n_experts, k, capacity, bias)
    y, saved = serial.forward(x)
    dx = serial.backward(dy.copy(), saved)
    gradients = {p.name: p.grad for p in serial.params}
    assert any(g.any() for g in gradients.values())

    def program(comm):
        layer = ExpertParallel(comm, mixture(n_experts, k, capacity, bias))
        y, saved = layer.forward(x)
        return y, layer.backward(dy.copy(), saved), {p.name: p.grad for p in layer.params}

    seen = set()
    for got in SimWorld(size).run(program):
        np.testing.assert_allclose(got[0], y, atol=1e-12)
        np.testing.assert_allclose(got[1], dx, atol=1e-12)
        for name, gradient in got[2].items():
            np.testing.assert_allclose(gradient, gradients[name], atol=1e-12, err_msg=name)
        seen |= set(got[2])
    assert seen == set(gradients), "every expert is on a rank"


def model(n_experts):
    body = nn.Residual(mixture(n_experts, 2, 1.0))
    return nn.Sequential(nn.Linear(7, 6, 1, **F), nn.Tanh(), body, nn.Linear(6, 4, 2, **F))


def train(comm, make, n_experts):
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(3, 11, 7)), rng.integers(4, size=(3, 11))
    net = model(n_experts)
    before = [p.data.copy() for p in net.params]
    strategy = make(comm, net, nn.SoftmaxCrossEntropy(), Optimizer(net.params, Adam(), 0.01, clip_norm=0.5))
    losses = [strategy.step(Batch(a, b, 11)) for a, b in zip(x, y, strict=True)]
    return strategy.gather_params(), losses, strategy.predict(x[0]), before


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n_experts", [3, 5])
def test_tensor_parallel_training_equals_serial_training(size, n_experts):
    """Three experts on four ranks stay on every rank; five on four are unequal parts."""
    params, losses, output, before = SimWorld(1).run(train, serial, n_experts)[0]
    assert sum(not np.allclose(a, b) for a, b in zip(params.values(), before, strict=True)) >= len(before) - 4
    results = SimWorld(size).run(train, TensorParallel, n_experts)
    assert_same_params(results[0][0], params, tol=1e-10)
    for _, found, predicted, _ in results:
        np.testing.assert_allclose(found, losses, rtol=1e-10)
        np.testing.assert_allclose(predicted, output, atol=1e-10)


def test_what_it_holds_and_sends():
    """Two all-to-alls in each direction, of whole blocks; a rank has its own experts and the gate."""
    x = np.random.default_rng(5).normal(size=(16, 6))

    def program(comm):
        made = parallelize(nn.Sequential(mixture(4, 1, 9.0)), comm)
        y, saved = made.forward(x)
        made.backward(y, saved)
        return type(made.layers[0]), made.hows[0], sum(p.size for p in made.params)

    world = SimWorld(2, collectives="formula")
    results = world.run(program)
    gate, expert = 6 * 4 + 4, 6 * 5 + 5 + 5 * 6 + 6
    assert results == [(ExpertParallel, "experts over ranks, rows sent to theirs", gate + 2 * expert)] * 2
    names = [s.name for s in world.trace.select(rank=0, lane="comm")]
    forward, backward = ["all_to_all"] * 2 + ["all_gather"], ["all_to_all"] * 2 + ["all_reduce", "all_gather"]
    assert names == ["all_gather", *forward, *backward]  # the first: how many rows chose each expert
    blocks = {s.nbytes for s in world.trace.select(rank=0, name="all_to_all")}
    assert len(blocks) == 1
    assert blocks.pop() % (2 * 2 * 6 * 8) == 0
