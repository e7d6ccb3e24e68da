"""A mixture of experts: each row by the experts that it chose and that had a place, as a loop over rows says it."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn.experts import kept_counts, places_before

F = {"dtype": "float64"}


def mixture(n_experts, k, capacity):
    return nn.MixtureOfExperts(4, [nn.Linear(4, 4, e, **F) for e in range(n_experts)], k, capacity=capacity, rng=9, **F)


def by_rows(layer, x):
    """The definition: first choices before second ones, rows in order, an expert's places run out."""
    scores = x @ layer.gate.W.data + layer.gate.b.data
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    best = np.argsort(-p, axis=1)[:, : layer.k]
    free, y, left_out = [layer.room(len(x))] * len(layer.experts), np.zeros_like(x), 0
    for choice in range(layer.k):
        for i, row in enumerate(x):
            e = best[i, choice]
            if free[e]:
                free[e] -= 1
                y[i] += p[i, e] * layer.experts[e].forward(row[None])[0][0]
            else:
                left_out += 1
    return y, left_out


@pytest.mark.parametrize(("n_experts", "k"), [(1, 1), (4, 1), (5, 2), (3, 3)])
@pytest.mark.parametrize("capacity", [0.3, 1.0, 1.25, 50.0])
@pytest.mark.parametrize("bias", [0.0, 30.0], ids=["", "all rows at one expert"])
def test_it_is_what_a_loop_over_rows_computes(n_experts, k, capacity, bias):
    layer, x = mixture(n_experts, k, capacity), np.random.default_rng(1).normal(size=(17, 4))
    layer.gate.b.data[-1] = bias
    want, left_out = by_rows(layer, x)
    np.testing.assert_allclose(layer.forward(x)[0], want, atol=1e-12)
    if capacity in (0.3, 50.0):
        assert (left_out > 0) == (capacity == 0.3), left_out


def test_places_are_given_in_the_order_of_choices_then_ranks():
    counts = np.array([[[2, 0], [1, 1]], [[1, 2], [0, 3]]])  # two ranks, two choices, two experts
    assert places_before(counts).tolist() == [[[0, 0], [3, 2]], [[2, 0], [4, 3]]]
    assert kept_counts(counts, 3).tolist() == [[2, 1], [1, 2]]
    assert kept_counts(counts, 99).tolist() == counts.sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 5}, "k is 5 of 2 experts"),
        ({"k": 0}, "k is 0 of 2 experts"),
        ({"capacity": 0}, "capacity is 0, expected a factor above 0"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        nn.MixtureOfExperts(4, [nn.Linear(4, 4, 0), nn.Linear(4, 4, 1)], **change)
