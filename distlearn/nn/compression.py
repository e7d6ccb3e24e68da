"""Fewer bytes for a model: weights that are shared or rounded."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from ..backend import get_xp, to_numpy
from .formats import BlockFormat, Format
from .layer import Layer

# -- clustering --------------------------------------------------------------------------------------------------------
# Model compression: a network in a fraction of the bytes, for storing, sending and predicting.


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


def cluster(x, clusters: int = 16) -> Clustered:
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
    if not isinstance(clusters, (int, np.integer)) or not 2 <= clusters <= 256:
        raise ValueError(f"cluster: clusters is {clusters!r}, expected a whole number from 2 to 256")
    x = to_numpy(x)
    values = np.sort(x, axis=None).astype(np.float64)
    if not len(values):
        raise ValueError("cluster: the array is empty")
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


class Compressed(NamedTuple):
    """A model with fewer bytes."""

    model: Layer  # A copy; the original is unchanged.
    before: int  # Bytes of the parameters.
    after: int  # Bytes that the compressed parameters take when stored.

    @property
    def ratio(self) -> float:
        return self.before / self.after


def round_weights(model: Layer, to: int | Format | BlockFormat = 16) -> Compressed:
    """Round the weights of every matrix and kernel; biases are unchanged.

    Parameters
    ----------
    to : int, Format or BlockFormat
        To so many values that they share (16 need 4 bits an index, an eighth of float32), or to those of a format, its
        blocks along the inputs of an output.

    Returns
    -------
    compressed : Compressed
        The model computes with the rounded values. Evaluate it to see the loss of accuracy.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3: shared values.

    Examples
    --------
    >>> from distlearn.nn import MXFP4, build
    >>> lenet = build("lenet")
    >>> round(round_weights(lenet).ratio, 1), round(round_weights(lenet, MXFP4).ratio, 1)
    (7.7, 7.3)
    """
    smaller, after = copy.deepcopy(model), 0
    for p in smaller.params:
        if p.data.ndim < 2:
            after += p.nbytes
            continue
        W = p.data.reshape(-1, p.data.shape[-1])
        if isinstance(to, Format | BlockFormat):
            values, nbytes = to.round(W, axis=0), to.nbytes(W.shape, 0)
        else:
            shared = cluster(W, to)
            values, nbytes = get_xp(W).asarray(shared.restore()), shared.nbytes
        p.data[...] = values.reshape(p.data.shape)
        after += nbytes
    return Compressed(smaller, sum(p.nbytes for p in model.params), after)
