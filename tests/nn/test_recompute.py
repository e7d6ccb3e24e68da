"""Plans of what is kept and what is computed again: the best one is a theorem's, and gradients are the same."""

import itertools
import math
import random

import numpy as np
import pytest

from distlearn.nn import MLP, Dropout, Linear, Planned, Sequential, SoftmaxCrossEntropy, Tanh, best_plan, plan_cost


def revolve(n, s):
    """Forward steps of Griewank and Walther's schedule for n steps and s stored states."""
    t = next(t for t in itertools.count() if math.comb(s + t, s) >= n)
    return t * n - math.comb(s + t, s + 1)


def every_plan(i, j):
    """All plans of layers i to j - 1."""
    yield list(range(i, j))
    for k in range(i + 1, j):
        yield from itertools.product(every_plan(i, k), every_plan(k, j))


def test_uniform_chains_take_as_many_steps_as_revolve():
    """One layer's savings at a time fit beside s inputs: that layer's own, and s - 1 besides the first of all."""
    for n in (1, 2, 3, 7, 20, 34):
        for s in range(1, 13):
            chain, saved = [1] * n, [100] * n
            plan = best_plan(chain, chain, saved, 100 + s)
            peak, again = plan_cost(plan, chain, chain, saved)
            assert again == revolve(n, s), (n, s)
            assert peak <= 100 + s


def test_uneven_chains_are_as_good_as_the_best_of_all_plans():
    rng = random.Random(0)
    for _ in range(60):
        n = rng.randint(1, 6)
        forward, inputs, saved = ([rng.randint(1, 9) for _ in range(n)] for _ in range(3))
        costs = [plan_cost(plan, forward, inputs, saved) for plan in every_plan(0, n)]
        budget = rng.choice(sorted({peak for peak, _ in costs}))
        peak, again = plan_cost(best_plan(forward, inputs, saved, budget), forward, inputs, saved)
        assert peak <= budget
        assert again == min(again for peak, again in costs if peak <= budget)


def test_a_pair_may_be_a_list():
    chain = [3, 5, 2], [8, 8, 8], [8, 4, 8]
    assert plan_cost([[0], [[1], [2]]], *chain) == plan_cost(([0], ([1], [2])), *chain)
    assert Planned(Tanh(), Tanh(), Tanh(), plan=[[0], [[1], [2]]]).plan == ([0], ([1], [2]))


def test_what_no_plan_can_do_and_what_is_no_plan():
    with pytest.raises(ValueError, match="budget is 4 bytes, and no plan of these 2 layers fits"):
        best_plan([1, 1], [4, 4], [4, 8], 4)
    for plan, message in (
        ([0, 2], r"its layers are \[0, 2\], expected 0 to 2 in order"),
        (([0], [], [1, 2]), "expected a list of layer numbers or a pair"),
        (([], [0, 1, 2]), r"\[\], expected a list of layer numbers"),
        (([0, 1], 2), "expected a list of layer numbers or a pair"),
        ((0, 1, 2), "expected a list of layer numbers or a pair"),
    ):
        with pytest.raises(ValueError, match=message):
            Planned(Tanh(), Tanh(), Tanh(), plan=plan)


@pytest.mark.parametrize("plan", [[0, 1, 2, 3, 4, 5], ([0, 1], ([2], [3, 4, 5])), ((([0], [1]), [2, 3]), ([4], [5]))])
def test_gradients_and_masks_are_those_of_the_layers(plan):
    def layers():
        return [Linear(5, 7, 0), Tanh(), Dropout(0.4, 1), Linear(7, 6, 2), Dropout(0.3, 3), Linear(6, 3, 4)]

    plain, planned = Sequential(*layers()), Planned(*layers(), plan=plan)
    x, seen = np.random.default_rng(5).normal(size=(8, 5)).astype("f4"), []
    for _ in range(2):  # the second time generators must be where a plain pass leaves them
        for model, options in ((plain, {}), (planned, {"on_grad": seen.append})):
            y, saved = model.forward(x)
            dx = model.backward(SoftmaxCrossEntropy()(y, np.zeros(8, int))[1], saved, **options)
            model.found = y, dx, *(p.grad for p in model.params)
        for want, got in zip(plain.found, planned.found, strict=True):
            np.testing.assert_array_equal(got, want)
    assert [p.name for p in seen[:6]] == [p.name for p in reversed(planned.params)]
    assert planned.eval().forward(x)[0].shape == (8, 3)


def test_a_plan_keeps_what_it_says():
    mlp = MLP((64,) * 9)
    n = len(mlp.layers)
    kept = [len(Planned(*mlp.layers, plan=plan).forward(np.zeros((4, 64), "f4"))[1]) for plan in (
        list(range(n)), (list(range(n - 1)), [n - 1]))]  # fmt: skip
    assert kept == [n, 2]
