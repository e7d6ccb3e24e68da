"""How the values of an axis are dealt to ranks, and the two collectives that move activations cut that way."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp


class Cut:
    """Which values of an axis each rank holds.

    Parameters
    ----------
    parts : list of (width,) array of int
        Places on the axis, by rank; together each place once.

    Attributes
    ----------
    n : int
        Length of the axis.
    widths : list of int
        Values by rank.
    widest : int
        The largest of them: what every rank's block is filled up to on the wire.

    Examples
    --------
    >>> cut = Cut.even(7, 3)
    >>> cut.widths, cut.parts[1].tolist()
    ([3, 2, 2], [3, 4])
    """

    def __init__(self, parts):
        self.parts = [np.asarray(part, int) for part in parts]
        self.widths = [len(part) for part in self.parts]
        self.n, self.widest = sum(self.widths), max(self.widths)

    @classmethod
    def even(cls, n: int, size: int) -> Cut:
        """Deal n values to ranks as `numpy.array_split` does: contiguous, the longer parts first."""
        return cls(np.array_split(np.arange(n), size))

    def repeat(self, times: int) -> Cut:
        """Return the cut of `times` axes of this length, one behind the other: an image's channels after `Flatten`."""
        starts = np.arange(times)[:, None] * self.n
        return self if times == 1 else Cut([(starts + part).ravel() for part in self.parts])

    def index(self, rank: int):
        """Return a rank's places: a slice where they are contiguous, which is a view and not a copy."""
        part = self.parts[rank]
        if len(part) and (np.diff(part) == 1).all():
            return slice(int(part[0]), int(part[-1]) + 1)
        return part

    def take(self, x, rank: int, axis: int = -1):
        """Return a rank's part of an array, as a contiguous array of its own."""
        place = (slice(None),) * (axis % x.ndim) + (self.index(rank),)
        return get_xp(x).array(x[place], copy=True, order="C")


def gather_last(comm, x, cut: Cut):
    """Put the parts of all ranks together along the last axis: one all-gather.

    Parameters
    ----------
    comm : Communicator
    x : (..., width) array
        This rank's part.
    cut : Cut

    Returns
    -------
    y : (..., n) array
        The whole, on every rank. Blocks of unequal width are filled up to the widest, so the all-gather moves `size`
        blocks of rows times `widest` values.
    """
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    blocks = comm.all_gather(_filled(x, cut.widest))
    y = xp.empty((*lead, cut.n), x.dtype)
    for rank, width in enumerate(cut.widths):
        y[..., cut.index(rank)] = blocks[rank][..., :width]
    return y


def reduce_scatter_last(comm, x, cut: Cut):
    """Sum an array over ranks and keep this rank's part of the last axis: one reduce-scatter.

    Parameters
    ----------
    comm : Communicator
    x : (..., n) array
        This rank's summand.
    cut : Cut

    Returns
    -------
    y : (..., width) array
        The bytes are those of `gather_last`, whose gradient this is.
    """
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    blocks = xp.zeros((comm.size, *lead, cut.widest), x.dtype)
    for rank, width in enumerate(cut.widths):
        blocks[rank][..., :width] = x[..., cut.index(rank)]
    mine = comm.reduce_scatter(blocks.reshape(-1)).reshape(*lead, cut.widest)
    return xp.ascontiguousarray(mine[..., : cut.widths[comm.rank]])


def gathered_values(shape, cut: Cut) -> int:
    """Values that `gather_last` and `reduce_scatter_last` move where this rank has an array of `shape`."""
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    return rows * cut.widest * len(cut.parts)


def _filled(x, width: int):
    """Return `x` with zeros behind its last axis, up to `width`."""
    if x.shape[-1] == width:
        return get_xp(x).ascontiguousarray(x)
    block = get_xp(x).zeros((*x.shape[:-1], width), x.dtype)
    block[..., : x.shape[-1]] = x
    return block
