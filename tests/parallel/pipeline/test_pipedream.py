"""PipeDream equals a serial run that applies the same late gradients, and stashes no more weights than it needs."""

from types import SimpleNamespace

import numpy as np
import pytest

from distlearn.comm import Network, RankError
from distlearn.data import Batch
from distlearn.nn import MLP, Linear, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import PipeDream, interleaved
from distlearn.sim import Roofline, SimWorld

from ..programs import X, Y, assert_same_params

ROWS = [slice(0, 7), slice(7, 14), slice(14, 21), slice(21, 28), slice(28, 34), slice(34, 40)]  # 40 samples in 6


def model_of(frozen=False):
    model = MLP((7, 9, 6, 8, 5, 6, 4), "tanh", seed=2, dtype="float64")
    model.params[2].frozen = model.params[7].frozen = frozen
    return model


def train(comm, rule="momentum", frozen=False, steps=2, **options):
    model = model_of(frozen)
    optimizer = Optimizer(model.params, RULES[rule](), lambda step: 0.3 / (1 + step))
    options = {"n_microbatches": len(ROWS), **options}
    strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, **options)
    losses = [strategy.step(Batch(X[20 * k : 20 * k + 40], Y[20 * k : 20 * k + 40], 40)) for k in range(steps)]
    return SimpleNamespace(
        params=strategy.gather_params(), losses=losses, output=strategy.predict(X), strategy=strategy
    )


def reference(slices, version, rule="momentum", frozen=False, steps=2, stashing=True):
    """Train serially with late gradients: mini-batch t finds stage s as it was after `version(s, t)` updates.

    Written with whole copies of the weights and nothing else of the library than layers and optimizer.
    """
    model = model_of(frozen)
    optimizer = Optimizer(model.params, RULES[rule](), lambda step: 0.3 / (1 + step))
    stage_of = {p.name: s for s, part in enumerate(slices) for layer in model.layers[part] for p in layer.params}
    losses = []
    for k in range(steps):
        versions = [{p.name: p.data.copy() for p in model.params}]
        losses.append(0.0)
        for t, rows in enumerate(ROWS):
            for p in model.params:
                p.data[...] = versions[version(stage_of[p.name], t)][p.name]
            optimizer.zero_grad()
            y, saved = model.forward(X[20 * k :][rows])
            loss, dy = SoftmaxCrossEntropy()(y, Y[20 * k :][rows], len(y))
            if not stashing:
                for p in model.params:
                    p.data[...] = versions[t][p.name]
            model.backward(dy, saved)
            for p in model.params:
                p.data[...] = versions[t][p.name]
            optimizer.step()
            versions.append({p.name: p.data.copy() for p in model.params})
            losses[-1] += loss * len(y) / 40
    return SimpleNamespace(params={p.name: p.data for p in model.params}, losses=losses, output=model.forward(X)[0])


def assert_same(results, want):
    assert_same_params(results[0].params, want.params)
    for result in results:
        np.testing.assert_allclose(result.losses, want.losses, atol=1e-12)
        np.testing.assert_allclose(result.output, want.output, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(("rule", "frozen"), [("sgd", False), ("momentum", True), ("adam", False)])
def test_equals_a_serial_run_with_the_same_delays(size, rule, frozen):
    results = SimWorld(size, Network(1e-4, 1e7), Roofline(1e8)).run(train, rule, frozen)
    version = lambda s, t: max(0, t - (size - 1 - s))  # noqa: E731
    assert_same(results, reference(results[0].strategy.slices, version, rule, frozen))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_without_stashing_backward_uses_the_newest_weights(size):
    results = SimWorld(size).run(train, stashing=False)
    slices = results[0].strategy.slices
    assert_same(results, reference(slices, lambda s, t: max(0, t - (size - 1 - s)), stashing=False))
    assert all(result.strategy.versions_held == {stage: 1} for stage, result in enumerate(results))
    for stage, result in enumerate(results):  # as stale as with stashing: the order is the same
        assert [result.strategy.staleness[stage, t] for t in range(6)] == [min(t, size - 1 - stage) for t in range(6)]
    other = SimWorld(size).run(train)[0].params
    assert (np.abs(results[0].params["0.W"] - other["0.W"]).max() > 1e-6) == (size > 1)


def test_with_gpipes_order_the_first_update_comes_last():
    """All forward first: every mini-batch uses version 0, so gradient t is t updates late on every stage."""
    results = SimWorld(3).run(train, schedule="gpipe", steps=1)
    assert_same(results, reference(results[0].strategy.slices, lambda s, t: 0, steps=1))
    assert [results[0].strategy.staleness[0, t] for t in range(6)] == list(range(6))
    assert results[0].strategy.versions_held == {0: 2}  # the first one, which all need, and the newest


def test_staleness_and_stashed_weights_are_those_of_the_docstring():
    for stage, result in enumerate(SimWorld(4).run(train)):
        strategy = result.strategy
        assert [strategy.staleness[stage, t] for t in range(6)] == [min(t, 3 - stage) for t in range(6)]
        assert strategy.versions_held == {stage: 4 - stage}
        assert strategy.peak_in_flight == 4 - stage


def test_several_stages_on_a_rank_have_versions_of_their_own():
    results = SimWorld(2).run(train, schedule=interleaved, steps=1)
    stale = results[0].strategy.staleness | results[1].strategy.staleness
    assert_same(results, reference(results[0].strategy.slices, lambda s, t: t - stale[s, t], steps=1))
    assert [max(stale[s, t] for t in range(6)) for s in range(4)] == [3, 2, 1, 0]


def test_no_bubble_but_at_the_ends_of_a_step():
    """As many updates as mini-batches; only the first way there and the last way back are waited for."""

    def program(comm, m):
        model = Sequential(*(Linear(16, 16, i) for i in range(4)))
        optimizer = Optimizer(model.params, RULES["sgd"](), 0.1)
        strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m)
        strategy.step(Batch(np.ones((4 * m, 16), "float32"), np.zeros(4 * m, int), 4 * m))
        return optimizer.steps, [o.steps for o in strategy._optimizers.values()]

    for m in (4, 32):
        world = SimWorld(4, compute=Roofline(1e9))
        assert world.run(program, m) == [(0, [m])] * 4
        for rank in range(4):
            busy = world.trace.total(rank=rank, lane="stage")
            one = (busy - world.trace.total(rank=rank, name="update")) / m  # gradients leave before the update
            assert world.makespan == pytest.approx(busy + 3 * one)


def tied():
    shared = Linear(6, 6, 5, dtype="float64")
    return Sequential(Linear(7, 6, 4, dtype="float64"), shared, Tanh(), shared, Linear(6, 4, 6, dtype="float64"))


@pytest.mark.parametrize(
    ("model", "n", "clip", "message"),
    [
        (tied, 60, None, "stages share 1.W, 1.b, but update at different times"),
        (model_of, 60, 1.0, "clip_norm is 1.0"),
        (model_of, 90, None, "60 of a batch of 90 samples"),
    ],
)
def test_what_would_not_be_pipedream_is_refused(model, n, clip, message):
    def program(comm):
        made = model()
        optimizer = Optimizer(made.params, RULES["sgd"](), 0.1, clip_norm=clip)
        PipeDream(comm, made, SoftmaxCrossEntropy(), optimizer).step(Batch(X, Y, n))

    with pytest.raises(RankError, match=message):
        SimWorld(2).run(program)
