"""Data parallelism equals serial training, however the batch is dealt, and costs what its docstring says."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network, Roofline, SimWorld
from distlearn.nn import MLP, Linear, Param, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import DataParallel, Serial, make_buckets
from distlearn.testing import assert_same_as_serial, assert_same_params

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 7)), RNG.integers(0, 4, 60)


class Batch(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    n: int


def cut(n, size, uneven):
    """Where each rank's part begins: even, or growing with the rank (the first may be empty)."""
    weights = np.arange(size) if uneven and size > 1 else np.ones(size)
    return np.concatenate([[0], np.round(np.cumsum(weights) / weights.sum() * n).astype(int)])


def model_of(kind):
    if kind == "tied":
        shared = Linear(6, 6, 5, dtype="float64")
        first, last = Linear(7, 6, 4, dtype="float64"), Linear(6, 4, 6, dtype="float64")
        return Sequential(first, shared, Tanh(), shared, Tanh(), last)
    model = MLP((7, 9, 6, 4), "sigmoid", seed=2, dtype="float64")
    if kind == "frozen":
        model.params[2].frozen = True
    return model


def train(comm, kind="plain", rule="momentum", steps=6, batch=20, uneven=False, **options):
    model = model_of(kind)
    before = {p.name: p.data.copy() for p in model.params}
    strategy = DataParallel(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES[rule](), 0.3), **options)
    losses = []
    for step in range(steps):
        bounds = cut(batch, comm.size, uneven)
        rows = (np.arange(bounds[comm.rank], bounds[comm.rank + 1]) + step * batch) % len(X)
        losses.append(strategy.step(Batch(X[rows], Y[rows], batch)))
    params = {p.name: p.data.copy() for p in model.params}
    for p in model.params:
        assert np.array_equal(params[p.name], before[p.name]) == p.frozen, p.name  # the others must have changed
    return SimpleNamespace(params=params, losses=losses, buckets=len(strategy.buckets))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["plain", "tied", "frozen"])
@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_equals_serial(size, kind, uneven, overlap):
    world = SimWorld(size, Network(1e-4, 1e7), Roofline(1e8))
    assert_same_as_serial(world, lambda comm: train(comm, kind, uneven=uneven and comm.size > 1, overlap=overlap))


@given(size=st.integers(1, 6), batch=st.integers(1, 30), cap=st.sampled_from([1, 100, 300, 1e9]))
@settings(max_examples=40, deadline=None)
def test_equals_serial_for_any_batch_and_bucket(size, batch, cap):
    world = SimWorld(size)
    want = SimWorld(1).run(train, batch=batch, steps=3)[0]
    for result in world.run(train, batch=batch, steps=3, cap_bytes=cap):
        assert_same_params(result.params, want.params)
        np.testing.assert_allclose(result.losses, want.losses, atol=1e-12)


def test_serial_strategy_is_the_reference():
    model = model_of("plain")
    strategy = Serial(model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES["momentum"](), 0.3))
    losses = []
    for step in range(6):
        rows = (np.arange(20) + step * 20) % len(X)
        losses.append(strategy.step(Batch(X[rows], Y[rows], 20)))
    want = SimWorld(3).run(train)[0]
    assert_same_params({p.name: p.data for p in model.params}, want.params)
    np.testing.assert_allclose(losses, want.losses, atol=1e-12)


def test_ranks_that_start_apart_are_brought_together():
    def program(comm):
        model = MLP((7, 4), seed=comm.rank, dtype="float64")
        DataParallel(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES["sgd"](), 0.1))
        return model.params[0].data

    first, *others = SimWorld(3).run(program)
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_one_all_reduce_per_bucket_and_step():
    world = SimWorld(2)
    buckets = world.run(train, steps=3, cap_bytes=300)[0].buckets
    spans = world.trace.select(rank=0, name="all_reduce")
    values = sum(p.size for p in model_of("plain").params) + 1  # the loss rides along
    assert buckets > 1
    assert len(spans) == 3 * buckets
    assert sum(s.nbytes for s in spans) == 3 * 8 * values


def test_overlap_hides_communication():
    """On a network about as slow as backward, less than half of the communication is left exposed."""

    def exposed(overlap):
        world = SimWorld(4, Network(1e-6, 2e9), Roofline(1e9))
        began = max(world.run(wide, overlap))
        return world.trace.window(began).exposed(0), world.makespan

    (with_overlap, fast), (without, slow) = exposed(True), exposed(False)
    assert with_overlap < without / 2
    assert fast < slow


def wide(comm, overlap):
    model = MLP((64,) * 8 + (4,), seed=0)
    strategy = DataParallel(
        comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES["sgd"](), 0.1), cap_bytes=1, overlap=overlap
    )
    began = comm.clock.now()
    strategy.step(Batch(np.ones((64, 64), "float32"), np.zeros(64, int), 64 * comm.size))
    return began


def test_buckets_hold_views_in_reverse_order():
    params = [Param(np.ones((2, 3)), "a"), Param(np.ones(4), "b"), Param(np.ones(5), "c")]
    params.append(Param(np.ones(1, "float32"), "d"))
    buckets = make_buckets(params, cap_bytes=80, extra=1)
    assert [[p.name for p in b.params] for b in buckets] == [["d"], ["c", "b"], ["a"]]
    assert [b.flat.size for b in buckets] == [1, 9, 7]
    params[1].grad[...] = 3
    assert buckets[1].flat.tolist() == [0] * 5 + [3] * 4
    buckets[1].clear()
    buckets[1].settle()
    assert (buckets[1].flat == 0).all()
    assert (params[1].grad == 0).all()
    assert buckets[1].pending == 2


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), cap=st.integers(1, 600))
def test_buckets_hold_every_parameter_once_and_respect_the_cap(sizes, cap):
    params = [Param(np.zeros(n), str(i)) for i, n in enumerate(sizes)]
    buckets = make_buckets(params, cap)
    assert [p for b in buckets for p in b.params] == params[::-1]
    for b in buckets:
        assert b.flat.nbytes <= cap or len(b.params) == 1


class _Unused(Linear):
    """A layer that leaves its bias out."""

    def forward(self, x):
        return x @ self.W.data, x

    def backward(self, dy, saved):
        self.W.add_product(saved.T, dy)
        return dy @ self.W.data.T


@pytest.mark.parametrize("overlap", [False, True])
def test_a_gradient_that_nothing_was_added_to_is_zero_in_every_step(overlap):
    def program(comm):
        model = Sequential(_Unused(7, 4, 0, dtype="float64"))
        optimizer = Optimizer(model.params, RULES["sgd"](), 0.3)
        strategy = DataParallel(comm, model, SoftmaxCrossEntropy(), optimizer, overlap=overlap)
        strategy.buckets[0].flat[...] = 5.0  # left by an earlier step
        for _ in range(2):
            strategy.step(Batch(X[comm.rank :: 2], Y[comm.rank :: 2], len(X)))
        return model.params[1].data, model.params[0].data

    for b, w in SimWorld(2).run(program):
        assert (b == 0).all()
        assert np.abs(w).max() < 2


def test_a_cap_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="cap_bytes is 0"):
        make_buckets([Param(np.zeros(1))], 0)
