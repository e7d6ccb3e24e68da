"""Sets of intervals against a grid of cells, on which they are plain sets of numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distlearn.trace import gaps, length, pieces, union

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=12)


def arrays(pairs):
    start = np.array([a for a, _ in pairs], int)
    return start, start + np.array([n for _, n in pairs], int)


def cells(start, end):
    return {c for a, b in zip(start, end, strict=True) for c in range(a, b)}


@given(spans)
def test_union_covers_the_same_with_disjoint_intervals(pairs):
    start, end = arrays(pairs)
    a, b = union(start, end)
    assert cells(a, b) == cells(start, end)
    assert (a[1:] > b[:-1]).all()
    assert length(zip(start, end, strict=True)) == len(cells(start, end))


@given(spans)
def test_gaps_are_what_is_left(pairs):
    start, end = arrays(pairs)
    a, b = gaps(*union(start, end), 0, 40)
    assert cells(a.astype(int), b.astype(int)) == set(range(40)) - cells(start, end)


@given(spans, spans)
def test_pieces_are_the_intersections(pairs, others):
    start, end = arrays(pairs)
    inside = union(*arrays(others))
    index, a, b = pieces(start, end, *inside)
    assert (b > a).all()
    for i in range(len(start)):
        mine = index == i
        assert cells(a[mine], b[mine]) == cells(start[i : i + 1], end[i : i + 1]) & cells(*inside)
