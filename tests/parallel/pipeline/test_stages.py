"""Stages by balanced cost: no cut is better."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.nn import MLP, Conv2d, Flatten, Linear, Parallel, Sequential, Tanh
from distlearn.parallel import balance, layer_costs
from distlearn.parallel.pipeline.stages import as_stages, inseparable


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.data())
@settings(max_examples=100, deadline=None)
def test_no_cut_has_a_cheaper_slowest_stage_nor_an_evener_one_of_those(costs, data):
    n = data.draw(st.integers(1, len(costs)))
    stages = [costs[part] for part in balance(costs, n)]
    assert sum(stages, start=[]) == costs  # noqa: RUF017
    assert all(stages)

    def worth(cuts):
        sums = [sum(costs[a:b]) for a, b in pairwise([0, *cuts, len(costs)])]
        return max(sums), sum(s * s for s in sums)

    best = min(worth(cuts) for cuts in combinations(range(1, len(costs)), n - 1))
    sums = [sum(stage) for stage in stages]
    assert (max(sums), sum(s * s for s in sums)) == best


@given(st.lists(st.floats(0, 1e12), min_size=4, max_size=12))
@settings(max_examples=50, deadline=None)
def test_costs_need_not_be_whole_numbers(costs):
    parts = balance(costs, 3)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(costs)))


@pytest.mark.parametrize(
    ("costs", "n", "message"),
    [([1, 2], 3, "3 stages of 2 layers"), ([1, -1], 1, "0 or more"), ([1, np.nan], 1, "0 or more"), ([], 1, "of 0")],
)
def test_what_cannot_be_cut_is_refused(costs, n, message):
    with pytest.raises(ValueError, match=message):
        balance(costs, n)


def test_costs_are_operations_of_forward_and_backward():
    model = Sequential(Linear(10, 20, 0), Tanh(), Linear(20, 5, 1))
    costs = layer_costs(model, (4, 10))
    assert sum(costs) == model.flops((4, 10)) + model.backward_flops((4, 10))
    assert len(costs) == 3
    assert as_stages(None, model, 2, (4, 10)) == balance(costs, 2)
    assert as_stages(None, model, 2) == [slice(0, 1), slice(1, 3)]
    assert as_stages([0, 5, 5], model, 2) == [slice(0, 2), slice(2, 3)]
    assert as_stages([slice(0, 2), slice(2, None)], model, 2) == [slice(0, 2), slice(2, 3)]


def test_stages_are_cut_by_operations_where_the_shape_is_known():
    """Convolutions have few parameters and most operations, dense layers the reverse."""
    model = Sequential(Conv2d(1, 8, 3), Conv2d(8, 1, 3), Flatten(), Linear(16, 40, 2))
    assert as_stages(None, model, 2, (4, 8, 8, 1)) == [slice(0, 1), slice(1, 4)]
    assert as_stages(None, model, 2) == [slice(0, 2), slice(2, 4)]


def test_a_layer_without_a_gradient_is_found_inside_others():
    tower = Sequential(Tanh(), Linear(4, 4, 0, input_gradient=False), Linear(4, 4, 1))
    assert inseparable(Sequential(Tanh(), Parallel(tower, Linear(4, 4, 2)), Tanh())) == 2
    assert inseparable(MLP((4, 3, 2))) == 1
    assert balance([1, 1, 1, 1, 4], 2, together=3) == [slice(0, 4), slice(4, 5)]
    assert balance([9, 1, 1, 1, 1], 3, together=2) == [slice(0, 2), slice(2, 3), slice(3, 5)]


def test_only_layers_in_a_row_can_be_cut():
    with pytest.raises(TypeError, match="expected a Sequential, whose layers can be cut apart, got a Parallel"):
        as_stages(None, Parallel(Linear(2, 2), Linear(2, 2)), 2)
