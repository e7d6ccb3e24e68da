"""How an array is cut into one share per rank, and what the collectives check before they send anything."""

from __future__ import annotations

from itertools import pairwise

from ..protocol import check_op, check_output, check_reducible


def shares(n: int, size: int) -> list[slice]:
    """Cut n elements into `size` slices whose lengths differ by at most one, the longer ones first.

    Examples
    --------
    >>> shares(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    base, extra = divmod(n, size)
    cuts = [r * base + min(r, extra) for r in range(size + 1)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def check_reduction(what: str, x, op: str, rank: int) -> None:
    """Raise unless `x` is a buffer that can be reduced in place by `op`."""
    check_op(op, rank)
    check_output(what, x, rank)
    check_reducible(what, x, op, rank)
