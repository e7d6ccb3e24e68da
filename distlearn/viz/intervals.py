"""Sets of time intervals as pairs of arrays, for traces of a hundred thousand spans."""

from __future__ import annotations

import numpy as np


def union(start, end):
    """Merge overlapping intervals."""
    order = np.argsort(start, kind="stable")
    start, end = np.asarray(start)[order], np.maximum.accumulate(np.asarray(end)[order])
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > end[:-1]
    return start[first], end[np.append(first[1:], True)[: len(end)]]


def gaps(start, end, low: float, high: float):
    """Return the gaps between disjoint, ordered intervals from `low` to `high`."""
    free_start, free_end = np.append(low, end), np.append(start, high)
    kept = free_end > free_start
    return free_start[kept], free_end[kept]


def pieces(start, end, inside_start, inside_end):
    """Cut intervals down to what lies inside others."""
    # start, end: Intervals to cut; they may overlap.
    # inside_start, inside_end: Disjoint and in order.
    # index: Which interval each piece is of.
    # start, end: (k,) array
    first = np.searchsorted(inside_end, start, side="right")
    count = np.maximum(np.searchsorted(inside_start, end, side="left") - first, 0)
    index = np.repeat(np.arange(len(start)), count)
    inside = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count) + first[index]
    return index, np.maximum(start[index], inside_start[inside]), np.minimum(end[index], inside_end[inside])


def length(start, end) -> float:
    """Time that at least one of the intervals covers."""
    start, end = union(start, end)
    return float((end - start).sum())
