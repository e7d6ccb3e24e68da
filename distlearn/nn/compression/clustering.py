"""Model compression: a network in a fraction of the bytes, for storing, sending and predicting.

This module: weights that share a few values. 8-bit integers are in `quantization`.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from ...backend import get_xp, to_numpy
from ..layer import Layer


class Clustered(NamedTuple):
    """An array whose values are drawn from a short list."""

    codebook: np.ndarray
    """(clusters,) values."""
    codes: np.ndarray
    """Index of every element's value, packed: bits bits each."""
    shape: tuple[int, ...]
    bits: int

    @property
    def nbytes(self) -> int:
        """Bytes of codes and codebook."""
        return self.codes.nbytes + self.codebook.nbytes

    def restore(self) -> np.ndarray:
        """Return the array with every element replaced by its cluster's value."""
        return self.codebook[_unpack(self.codes, math.prod(self.shape), self.bits)].reshape(self.shape)


def cluster(x, clusters: int = 16, *, rounds: int = 50) -> Clustered:
    r"""Replace the elements of an array by `clusters` values that are chosen by k-means.

    .. math:: \min_{c_1 \dots c_k} \sum_i \min_j (x_i - c_j)^2

    Lloyd's algorithm from values that are evenly spread between the smallest and the largest, which keeps the few
    large weights that matter most. In one dimension clusters are intervals, so a sorted array makes each round two
    sums per cluster.

    Parameters
    ----------
    x : array
    clusters : int
        From 2 to 256; 16 take 4 bits an element.
    rounds : int
        At most so many; fewer if the clusters no longer change.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3.

    Examples
    --------
    >>> c = cluster(np.array([0.0, 0.1, 5.0, 5.2], "float32"), 2)
    >>> c.restore()
    array([0.05, 0.05, 5.1 , 5.1 ], dtype=float32)
    """
    if not isinstance(clusters, (int, np.integer)) or not 2 <= clusters <= 256:
        raise ValueError(f"cluster: clusters is {clusters!r}, expected a whole number from 2 to 256")
    x = to_numpy(x)
    values = np.sort(x, axis=None).astype(np.float64)
    if not len(values):
        raise ValueError("cluster: the array is empty")
    sums = np.concatenate([[0.0], np.cumsum(values)])
    centres = np.linspace(values[0], values[-1], clusters)
    for _ in range(rounds):
        edges = np.concatenate([[0], np.searchsorted(values, (centres[1:] + centres[:-1]) / 2), [len(values)]])
        counts = np.diff(edges)
        moved = np.where(counts > 0, np.diff(sums[edges]) / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    codes = np.searchsorted((centres[1:] + centres[:-1]) / 2, x.reshape(-1))
    bits = next(b for b in (1, 2, 4, 8) if 2**b >= clusters)
    return Clustered(centres.astype(x.dtype), _pack(codes.astype(np.uint8), bits), x.shape, bits)


def _pack(codes, bits):
    """Pack several codes of 1, 2, 4 or 8 bits into every byte, the first one lowest."""
    per_byte = 8 // bits
    padded = np.zeros(-(-len(codes) // per_byte) * per_byte, np.uint8)
    padded[: len(codes)] = codes
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)


def _unpack(packed, n, bits):
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    return ((packed[:, None] >> shifts) & np.uint8(2**bits - 1)).reshape(-1)[:n]


class Compressed(NamedTuple):
    """A model with fewer bytes."""

    model: Layer
    """A copy; the original is unchanged."""
    before: int
    """Bytes of the parameters."""
    after: int
    """Bytes that the compressed parameters take when stored."""

    @property
    def ratio(self) -> float:
        """Original bytes / compressed bytes."""
        return self.before / self.after


def share_weights(model: Layer, clusters: int = 16, *, rounds: int = 50) -> Compressed:
    """Let the weights of every matrix and kernel share `clusters` values; biases are unchanged.

    Parameters
    ----------
    clusters : int
        16 values need 4 bits an index, an eighth of float32.
    rounds : int
        Of k-means.

    Returns
    -------
    compressed : Compressed
        The model computes with the shared values. Evaluate it to see the loss of accuracy.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3.
    """
    smaller, after = copy.deepcopy(model), 0
    for p in smaller.params:
        if p.data.ndim < 2:
            after += p.nbytes
            continue
        clustered = cluster(p.data, clusters, rounds=rounds)
        p.data[...] = get_xp(p.data).asarray(clustered.restore())
        after += clustered.nbytes
    return Compressed(smaller, sum(p.nbytes for p in model.params), after)
