"""DiLoCo: local SGD with an outer optimizer; equal to what its parts are where they can be told apart."""

from functools import partial

import numpy as np
import pytest

from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import SGD, AdamW, Optimizer
from distlearn.parallel import DiLoCo, LocalSGD
from distlearn.parallel.checkpoint.state import capture, restore
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params

from .programs import averaged_by_hand, run, serial
from .test_data_parallel import Batch, X, Y, cut, model_of


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["plain", "tied", "frozen"])
def test_with_an_outer_step_of_one_it_is_local_sgd(size, kind, monkeypatch):
    want = SimWorld(size).run(run, partial(LocalSGD, every=2), kind=kind, uneven=size > 1)
    monkeypatch.setattr(DiLoCo, "outer", SGD())
    got = SimWorld(size).run(run, partial(DiLoCo, every=2, outer_lr=1.0), kind=kind, uneven=size > 1)
    assert_same_params(got[0].params, want[0].params)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.losses, b.losses, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_averaging_at_every_step_it_is_the_outer_rule_on_the_gradient(size):
    """One inner step of SGD at rate 0.5 moves by half a gradient; the outer rule takes that for its gradient."""
    want = SimWorld(1).run(run, serial, rule="nesterov", lr=0.35)[0]
    got = SimWorld(size).run(run, partial(DiLoCo, every=1, outer_lr=0.7), rule="sgd", lr=0.5, uneven=size > 1)[0]
    assert_same_params(got.params, want.params)


@pytest.mark.parametrize(("size", "every", "steps"), [(1, 3, 7), (2, 2, 6), (3, 3, 9), (4, 5, 6)])
def test_it_is_what_the_paper_says(size, every, steps):
    results = SimWorld(size).run(run, partial(DiLoCo, every=every), rule="adamw", lr=0.01, steps=steps, batch=20)
    want = averaged_by_hand(size, every, steps, 20, lambda params: Optimizer(params, AdamW(), 0.01), momentum=0.9)
    assert_same_params(results[0].params, want)
    assert len({r.output.tobytes() for r in results}) == 1


def train(comm, steps, state=None, first=0):
    """Take some steps, from a state if one is given; return the state and the parameters."""
    model = model_of("plain")
    strategy = DiLoCo(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, AdamW(), 0.01), every=3)
    start = [p.data.copy() for p in model.params]
    if state is not None:
        restore(strategy, *comm.broadcast_obj(state if comm.rank == 0 else None))
    bounds = cut(20, comm.size, False)
    for step in range(first, steps):
        rows = (np.arange(bounds[comm.rank], bounds[comm.rank + 1]) + step * 20) % len(X)
        strategy.step(Batch(X[rows], Y[rows], 20))
    assert any((p.data != w).any() for p, w in zip(model.params, start, strict=True))
    state = capture(strategy)
    return state, {p.name: p.data.copy() for p in model.params}


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_resumed_run_continues_bit_for_bit(stop):
    want = SimWorld(3).run(train, 8)
    state = SimWorld(3).run(train, stop)[0][0]
    got = SimWorld(3).run(train, 8, state, stop)
    for (_, a), (_, b) in zip(got, want, strict=True):
        for name in b:
            np.testing.assert_array_equal(a[name], b[name])


def test_another_number_of_ranks_continues_from_the_average():
    state = SimWorld(3).run(train, 4)[0][0]

    def load(comm):
        model = model_of("plain")
        strategy = DiLoCo(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, AdamW(), 0.01), every=3)
        restore(strategy, *state)
        return {p.name: p.data.copy() for p in model.params}

    for params in SimWorld(2).run(load):
        for name, data in params.items():
            np.testing.assert_allclose(data, state[0][f"param/{name}"], rtol=1e-12)


@pytest.mark.parametrize(("options", "error"), [({"outer_lr": 0}, "outer_lr is 0"), ({"every": 0}, "every is 0")])
def test_wrong_options_are_named(options, error):
    def make(comm):
        model = model_of("plain")
        DiLoCo(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1), **options)

    with pytest.raises(Exception, match=error):
        SimWorld(1).run(make)
