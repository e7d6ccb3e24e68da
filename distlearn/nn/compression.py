"""Fewer bytes for a model: weights that share a few values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..backend import Array, to_numpy
from ..bounds import check_number

ROUNDS = 50  # Of k-means at most; fewer where clusters no longer change.


class Clustered(NamedTuple):
    """An array whose values are drawn from a short list."""

    codebook: np.ndarray  # (clusters,) values.
    codes: np.ndarray  # Index of every element's value, packed: bits bits each.
    shape: tuple[int, ...]
    bits: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.codebook.nbytes

    def restore(self) -> np.ndarray:
        n = math.prod(self.shape) * self.bits
        bits = np.unpackbits(self.codes, count=n, bitorder="little").reshape(-1, self.bits)
        return self.codebook[np.packbits(bits, axis=1, bitorder="little")].reshape(self.shape)


def cluster(x: Array, clusters: int = 16) -> Clustered:
    r"""Replace the elements of an array by `clusters` values that are chosen by k-means.

    .. math:: \min_{c_1 \dots c_k} \sum_i \min_j (x_i - c_j)^2

    Lloyd's algorithm from values that are evenly spread between the smallest and the largest, which keeps the few
    large weights that matter most. In one dimension clusters are intervals, so a sorted array makes each round two
    sums per cluster.

    Parameters
    ----------
    clusters : int
        From 2 to 256; 16 take 4 bits an element.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3.

    Examples
    --------
    >>> c = cluster(np.array([0.0, 0.1, 5.0, 5.2], "float32"), 2)
    >>> c.restore()
    array([0.05, 0.05, 5.1 , 5.1 ], dtype=float32)
    """
    check_number("cluster", whole=True, least=2, most=256, clusters=clusters)
    x = to_numpy(x)
    values = np.sort(x, axis=None).astype(np.float64)
    if x.dtype.kind != "f" or not len(values) or not np.isfinite(values[[0, -1]]).all():
        raise ValueError(f"cluster: x is {x!r:.60}, expected finite floating-point numbers")
    sums = np.concatenate([[0.0], np.cumsum(values)])
    centres = np.linspace(values[0], values[-1], clusters)
    for _ in range(ROUNDS):
        edges = np.concatenate([[0], np.searchsorted(values, (centres[1:] + centres[:-1]) / 2), [len(values)]])
        counts = np.diff(edges)
        moved = np.where(counts > 0, np.diff(sums[edges]) / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    codes = np.searchsorted((centres[1:] + centres[:-1]) / 2, x.reshape(-1))
    bits = next(b for b in (1, 2, 4, 8) if 2**b >= clusters)
    packed = np.unpackbits(codes.astype(np.uint8)[:, None], axis=1, count=bits, bitorder="little")
    return Clustered(centres.astype(x.dtype), np.packbits(packed, bitorder="little"), x.shape, bits)
