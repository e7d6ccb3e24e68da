"""Shards of the samples, and batches that are the same for any number of ranks.

All ranks draw the same permutation from (seed, epoch) and cut it into the same global batches; each takes its shard of
every batch. Nothing is communicated, and the union over the ranks is exactly the batch of a serial run.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..backend import get_xp
from ..bounds import check_number, check_positive
from ..shares import share
from .dataset import check_arrays
from .loader import Loader


def shard(n: int, rank: int, size: int) -> slice:
    """Return the shard of a rank: a contiguous slice of n samples, all shards as equal as possible.

    Parameters
    ----------
    n : int
        Number of samples.
    rank : int
        From 0 to size - 1.
    size : int
        Number of ranks.

    Returns
    -------
    part : slice
        The first n mod size ranks have one sample more than the others, as in `numpy.array_split`.

    Examples
    --------
    >>> [shard(10, rank, 4) for rank in range(4)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """
    check_number("shard", whole=True, least=0, n=n, rank=rank)
    check_positive("shard", size=size)
    if rank >= size:
        raise ValueError(f"shard: rank is {rank}, expected 0 to {size - 1} (size {size})")
    if size > n:
        raise ValueError(f"shard: {n} samples for {size} ranks, expected at least one sample for each rank")
    return share(n, rank, size)


class Batch(NamedTuple):
    """A rank's part of one global batch.

    Parameters
    ----------
    n : int
        Samples of the global batch, over all ranks; the divisor of the loss.
    """

    x: np.ndarray
    y: np.ndarray
    n: int


class Batches:
    """A data set cut into batches, epoch after epoch; every rank gets its part of each.

    Parameters
    ----------
    x : (n, ...) array or Loader
        The whole data set, the same on every rank.
    batch_size : int
        Samples of a global batch. More than n means all of them: full-batch.
    rank, size : int
        Which shard of every batch to return. Shards differ by one sample at most; a batch smaller than `size` leaves
        the highest ranks an `x` of shape (0, ...), so that they still take part in the step's communication.
    seed : int
        The order depends on (seed, epoch) alone, never on the number of ranks.

    Examples
    --------
    >>> x, y = np.arange(10.0).reshape(10, 1), np.arange(10)
    >>> [len(batch.y) for batch in Batches(x, y, 4).epoch(0)]
    [4, 4, 2]
    >>> [len(batch.y) for batch in Batches(x, y, 4, rank=1, size=2).epoch(0)]
    [2, 2, 1]
    """

    def __init__(self, x: Any, y: Any, batch_size: int, *, rank: int = 0, size: int = 1, seed: int = 0):
        check_arrays("Batches", x=x, y=y)
        if len(x) != len(y):
            raise ValueError(f"Batches: x holds {len(x)} samples and y {len(y)} labels, expected equal numbers")
        shard(len(x), rank, size)  # refuses a wrong rank and more ranks than samples
        self.x, self.y = x, y
        check_positive("Batches", batch_size=batch_size)
        self.batch_size = min(batch_size, len(x))
        self.rank, self.size = operator.index(rank), operator.index(size)
        check_number("Batches", whole=True, least=0, seed=seed)
        self.seed = seed
        self.clock = None  # records the waiting for a `Loader` as spans "load" on the lane "disk"

    def __len__(self) -> int:
        return -(-len(self.x) // self.batch_size)

    def __repr__(self) -> str:
        return (
            f"Batches({len(self)} of {self.batch_size} from {tuple(self.x.shape)} {self.x.dtype}, "
            f"rank {self.rank} of {self.size}, seed {self.seed})"
        )

    def order(self, epoch: int) -> np.ndarray:
        """Return the order in which an epoch visits the samples.

        Parameters
        ----------
        epoch : int
            0 or more.

        Returns
        -------
        order : (n,) array of int
            A permutation, identical on all ranks.
        """
        check_number("Batches", whole=True, least=0, epoch=epoch)
        rng = np.random.default_rng([self.seed, epoch])
        return self.x.order(rng) if isinstance(self.x, Loader) else rng.permutation(len(self.x))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this rank's part of every batch of an epoch.

        Parameters
        ----------
        epoch : int
            0 or more; epochs can be requested in any order, which a restart needs.
        start : int
            Number of batches to skip: those that were trained on before a restart.

        Yields
        ------
        batch : Batch
            `x` and `y` are C-contiguous if the data set is.
        """
        check_number("Batches", whole=True, least=0, start=start)
        # here, not in the generator: a wrong epoch is refused at the call, and a GPU gets the order once an epoch
        return self._batches(get_xp(self.x).asarray(self.order(epoch)), start)

    def _batches(self, order, first: int) -> Iterator[Batch]:
        parts, sizes = [], []
        for start in range(first * self.batch_size, len(self.x), self.batch_size):
            sizes.append(min(self.batch_size, len(self.x) - start))
            part = share(sizes[-1], self.rank, self.size)
            parts.append(order[start + part.start : start + part.stop])
        for x, part, n in zip(rows_of(self.x, parts, self.clock), parts, sizes, strict=True):
            yield Batch(x, self.y.take(part, axis=0), n)


def rows_of(x, parts, clock=None) -> Iterator[Any]:
    """Yield parts, which are slices or numbers of rows, of an array or of a `Loader`."""
    if isinstance(x, Loader):
        yield from x.stream(parts, clock)
    else:
        for part in parts:
            # take: 10 % faster than x[rows]; with out= it is no faster and a batch would not outlive its step
            yield x[part] if isinstance(part, slice) else x.take(part, axis=0)
