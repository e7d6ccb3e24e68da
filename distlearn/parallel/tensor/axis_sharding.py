"""How the values of an axis are sharded over ranks, and the two collectives that move such activations."""

from __future__ import annotations

import math

import numpy as np

from ...backend import get_xp
from ...shares import shares


class AxisSharding:
    """Which values of an axis each rank holds.

    Parameters
    ----------
    parts : list of (width,) array of int
        Indices on the axis, by rank; each index once.

    Attributes
    ----------
    n : int
        Length of the axis.
    widths : list of int
        Number of values by rank.
    widest : int
        The largest of them: to which every rank's block is padded in messages.

    Examples
    --------
    >>> sharding = AxisSharding.even(7, 3)
    >>> sharding.widths, sharding.parts[1].tolist()
    ([3, 2, 2], [3, 4])
    """

    def __init__(self, parts):
        self.parts = [np.asarray(part, int) for part in parts]
        self.widths = [len(part) for part in self.parts]
        self.n, self.widest = sum(self.widths), max(self.widths)
        self._places = [_place(part) for part in self.parts]
        self._repeated: dict[int, AxisSharding] = {}

    def __eq__(self, other):
        return isinstance(other, AxisSharding) and all(map(np.array_equal, self.parts, other.parts))

    __hash__ = None

    def __reduce__(self):
        return AxisSharding, (self.parts,)

    @classmethod
    def even(cls, n: int, size: int) -> AxisSharding:
        """Shard n values over ranks as `numpy.array_split` does: contiguous, the longer parts first."""
        return cls([np.arange(part.start, part.stop) for part in shares(n, size)])

    def repeat(self, times: int) -> AxisSharding:
        """Return the sharding of `times` such axes in a row: an image's channels after `Flatten`."""
        if times == 1:
            return self
        if times not in self._repeated:
            starts = np.arange(times)[:, None] * self.n
            self._repeated[times] = AxisSharding([(starts + part).ravel() for part in self.parts])
        return self._repeated[times]

    def index(self, rank: int, like=None):
        """Return a rank's indices, for indexing `like`: a slice where they are contiguous, else an array beside it."""
        place = self._places[rank]
        if isinstance(place, slice) or like is None or isinstance(like, np.ndarray):
            return place
        return get_xp(like).asarray(place)

    def take(self, x, rank: int, axis: int = -1):
        """Return a rank's part of an array, as a contiguous copy."""
        place = (slice(None),) * (axis % x.ndim) + (self.index(rank, x),)
        return get_xp(x).array(x[place], copy=True, order="C")


def _place(part):
    """Return contiguous indices as a slice: indexing by it gives a view and not a copy."""
    contiguous = len(part) and (np.diff(part) == 1).all()
    return slice(int(part[0]), int(part[-1]) + 1) if contiguous else part


def gather_last(comm, x, sharding: AxisSharding):
    """Gather the parts of all ranks along the last axis: one all-gather.

    Parameters
    ----------
    comm : Communicator
    x : (..., width) array
        This rank's part.
    sharding : AxisSharding

    Returns
    -------
    y : (..., n) array
        The whole, on every rank. Blocks of unequal width are padded to the widest, so the all-gather moves `size`
        blocks of rows times `widest` values.
    """
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    blocks = comm.all_gather(_filled(x, sharding.widest))
    y = xp.empty((*lead, sharding.n), x.dtype)
    for rank, width in enumerate(sharding.widths):
        y[..., sharding.index(rank, y)] = blocks[rank][..., :width]
    return y


def reduce_scatter_last(comm, x, sharding: AxisSharding):
    """Sum an array over ranks and keep this rank's part of the last axis: one reduce-scatter.

    Parameters
    ----------
    comm : Communicator
    x : (..., n) array
        This rank's summand.
    sharding : AxisSharding

    Returns
    -------
    y : (..., width) array
        The bytes are those of `gather_last`, whose gradient this is.
    """
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    blocks = xp.zeros((comm.size, *lead, sharding.widest), x.dtype)
    for rank, width in enumerate(sharding.widths):
        blocks[rank][..., :width] = x[..., sharding.index(rank, x)]
    mine = comm.reduce_scatter(blocks.reshape(-1)).reshape(*lead, sharding.widest)
    return xp.ascontiguousarray(mine[..., : sharding.widths[comm.rank]])


def gathered_values(shape, sharding: AxisSharding) -> int:
    """Values that `gather_last` and `reduce_scatter_last` move where this rank has an array of `shape`."""
    rows = math.prod(shape[:-1])
    return rows * sharding.widest * len(sharding.parts)


def _filled(x, width: int):
    """Return `x` with its last axis padded with zeros to `width`."""
    if x.shape[-1] == width:
        return get_xp(x).ascontiguousarray(x)
    block = get_xp(x).zeros((*x.shape[:-1], width), x.dtype)
    block[..., : x.shape[-1]] = x
    return block
