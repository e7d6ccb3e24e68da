"""Which positions of a sequence a rank has.

    contiguous, 4 ranks:   0 0 1 1 2 2 3 3
    zigzag, 4 ranks:       0 1 2 3 3 2 1 0

Under a causal mask late positions have more to compute than early ones. In the contiguous order the first rank is soon
done and waits for the last; in the zigzag order every rank has an early and a late piece, and equally much to do.
"""

from __future__ import annotations

from ...backend import get_xp

ORDERS = ("contiguous", "zigzag")


def positions(length: int, rank: int, size: int, order: str = "zigzag") -> list[slice]:
    """Return the pieces of a sequence that a rank has, in their order.

    Parameters
    ----------
    length : int
        A multiple of the ranks (zigzag: of twice the ranks): equal pieces keep all ranks equally busy.
    order : {"contiguous", "zigzag"}

    Examples
    --------
    >>> positions(16, 1, 4, "zigzag")
    [slice(2, 4, None), slice(12, 14, None)]
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}, expected one of {', '.join(map(repr, ORDERS))}")
    n_pieces = size if order == "contiguous" else 2 * size
    if length % n_pieces:
        raise ValueError(
            f"sequence parallelism: the length is {length}, expected a multiple of {n_pieces} "
            f"({size} ranks in {order} order)"
        )
    n = length // n_pieces
    pieces = [rank] if order == "contiguous" else [rank, n_pieces - 1 - rank]
    return [slice(i * n, (i + 1) * n) for i in pieces]


def cut(x, rank: int, size: int, order: str = "zigzag"):
    """Return a rank's positions of sequences, (batch, length, ...), as a contiguous copy."""
    xp = get_xp(x)
    return xp.concatenate([x[:, piece] for piece in positions(x.shape[1], rank, size, order)], axis=1)


def put_together(parts, order: str):
    """Return whole sequences from all ranks' parts, stacked by rank: (size, batch, length / size, ...)."""
    size, batch, n = parts.shape[:3]
    whole = get_xp(parts).empty((batch, size * n, *parts.shape[3:]), parts.dtype)
    for rank in range(size):
        start = 0
        for piece in positions(size * n, rank, size, order):
            stop = start + piece.stop - piece.start
            whole[:, piece] = parts[rank][:, start:stop]
            start = stop
    return whole
