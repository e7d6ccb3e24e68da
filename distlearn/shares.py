"""How n things are shared by p ranks, one way for all: samples, gradients, layers, neurons."""

from __future__ import annotations


def share(n: int, rank: int, size: int) -> slice:
    """Return the contiguous part of n things that is a rank's, as `numpy.array_split` cuts them.

    Parameters
    ----------
    n : int
        Number of things, 0 or more.
    rank : int
        From 0 to size - 1.
    size : int
        Number of ranks.

    Returns
    -------
    part : slice
        The first n mod size parts have one more than the others; with more ranks than things the last are empty.

    Examples
    --------
    >>> share(10, 2, 4)
    slice(6, 8, None)
    """
    each, extra = divmod(n, size)
    start = rank * each + min(rank, extra)
    return slice(start, start + each + (rank < extra))


def shares(n: int, size: int) -> list[slice]:
    """Return the parts of all ranks.

    Examples
    --------
    >>> shares(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    return [share(n, rank, size) for rank in range(size)]
