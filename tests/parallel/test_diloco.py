"""DiLoCo: local SGD with an outer optimizer; equal to what its parts are where they can be told apart."""

from functools import partial

import numpy as np
import pytest

from distlearn.optim import SGD, AdamW, Optimizer
from distlearn.parallel import DiLoCo, LocalSGD
from distlearn.sim import SimWorld

from .programs import assert_same_params, averaged_by_hand, run


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["plain", "tied", "frozen"])
def test_with_an_outer_step_of_one_it_is_local_sgd(size, kind, monkeypatch):
    want = SimWorld(size).run(run, partial(LocalSGD, every=2), kind=kind, uneven=size > 1)
    monkeypatch.setattr(DiLoCo, "outer", SGD())
    got = SimWorld(size).run(run, partial(DiLoCo, every=2, outer_lr=1.0), kind=kind, uneven=size > 1)
    assert_same_params(got[0].params, want[0].params)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.losses, b.losses, atol=1e-12)


@pytest.mark.parametrize(("size", "every", "steps"), [(1, 3, 7), (2, 2, 6), (3, 1, 5), (3, 3, 9), (4, 5, 6)])
def test_it_is_what_the_paper_says(size, every, steps):
    results = SimWorld(size).run(run, partial(DiLoCo, every=every), rule="adamw", lr=0.01, steps=steps, batch=20)
    want = averaged_by_hand(size, every, steps, 20, lambda params: Optimizer(params, AdamW(), 0.01), momentum=0.9)
    assert_same_params(results[0].params, want)
    assert len({r.output.tobytes() for r in results}) == 1
