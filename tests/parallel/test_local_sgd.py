"""Local SGD: data parallelism where it averages at every step, and an H-th of the messages where it does not."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.data import Batch
from distlearn.nn import MLP, SoftmaxCrossEntropy, move
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import LocalSGD
from distlearn.sim import SimWorld
from distlearn.train import evaluate

from .programs import assert_same_params, averaged_by_hand, messages_of_steps, model_of, run


@given(
    size=st.integers(1, 5),
    every=st.sampled_from([None, 2, 3, 7]),
    steps=st.integers(1, 7),
    batch=st.sampled_from([3, 7, 20]),
)
@settings(max_examples=25, deadline=None)
def test_it_is_what_the_definition_says(size, every, steps, batch):
    want = averaged_by_hand(size, every, steps, batch, lambda params: Optimizer(params, SGD(), 0.3))
    results = SimWorld(size).run(run, partial(LocalSGD, every=every), steps=steps, batch=batch)
    assert_same_params(results[0].params, want)
    assert len({r.output.tobytes() for r in results}) == 1  # finish() has averaged over all ranks


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("every", "averages"), [(1, 6), (2, 3), (4, 2), (None, 1)])
def test_messages_and_bytes_on_a_ring_are_the_docstrings(size, every, averages):
    """Two averages for H = 4: one after four steps, one by `finish` after the two that are left."""

    values = sum(p.size for p in model_of("plain").params) + 2
    sent = messages_of_steps(size, partial(LocalSGD, every=every), 6)
    assert tuple(sent) == (averages * 2 * (size - 1), averages * 2 * (size - 1) * 8 * values)


def test_averages_in_half_precision_count_thousands_of_samples():
    """Weights times samples, and the number of samples itself, were too large for it."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4_001, 7)).astype("float16"), rng.integers(0, 4, 4_001)

    def program(comm):
        model = move(MLP((7, 4), seed=0), lambda a: a.astype("float16"))
        model.params[0].data += 20
        strategy = LocalSGD(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.0), every=1)
        part = np.array_split(np.arange(4_001), comm.size)[comm.rank]
        before = model.params[0].data.copy()
        strategy.step(Batch(x[part], y[part], 4_001))
        return np.array_equal(model.params[0].data, before)

    assert SimWorld(2).run(program) == [True, True]


def test_between_averages_the_average_is_evaluated_and_gathered_and_no_replica_changes():
    x, y = np.random.default_rng(0).normal(size=(24, 7)), np.arange(24) % 4

    def program(comm):
        model = MLP((7, 4), seed=0, dtype="float64")
        strategy = LocalSGD(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 2.0), every=None)
        part = np.array_split(np.arange(24), comm.size)[comm.rank]
        strategy.step(Batch(x[part], y[part], 24))
        replica = [p.data.copy() for p in model.params]
        accuracy, params = evaluate(strategy, x, y), strategy.gather_params()
        assert all(map(np.array_equal, replica, [p.data for p in model.params]))
        return replica, accuracy, params

    replicas, accuracies, (params, *_) = zip(*SimWorld(3).run(program), strict=True)
    W, b = (np.mean(arrays, axis=0) for arrays in zip(*replicas, strict=True))
    np.testing.assert_allclose(next(iter(params.values())), W, rtol=1e-12)
    assert accuracies == (np.mean((x @ W + b).argmax(axis=1) == y),) * 3
