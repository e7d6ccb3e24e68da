"""What the collectives check before they send anything."""

from __future__ import annotations

from ..protocol import check_op, check_output, check_reducible


def check_reduction(what: str, x, op: str, rank: int) -> None:
    """Raise unless `x` is a buffer that can be reduced in place by `op`."""
    check_op(op, rank)
    check_output(what, x, rank)
    check_reducible(what, x, op, rank)
