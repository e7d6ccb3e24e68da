"""Counting operations: how much a computation really computes, and how long its longest chain of operations is.

Strict arrays report every operation here, and store the length of the chain that produced them.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

_counters: list[Counter] = []

_MOVES = {
    *("reshape", "transpose", "swapaxes", "astype", "copy", "ravel", "empty", "zeros", "ones", "full", "empty_like"),
    *("zeros_like", "ones_like", "full_like", "ascontiguousarray", "concatenate", "stack", "tile", "repeat", "copyto"),
    *(
        "asarray",
        "array",
        "arange",
        "eye",
        "as_strided",
        "broadcast_to",
        "expand_dims",
        "squeeze",
        "view",
        "take",
        "split",
    ),
    *(
        "pad",
        "sliding_window_view",
        "roll",
        "real",
        "conj",
        "default_rng",
        "may_share_memory",
        "moveaxis",
        "flip",
        "searchsorted",
        "packbits",
        "unpackbits",
    ),
}
"""Functions that move values without computing."""


_VIEWS = {
    *("reshape", "transpose", "swapaxes", "ravel", "broadcast_to", "expand_dims", "squeeze", "view", "split"),
    *(
        "sliding_window_view",
        "moveaxis",
        "flip",
        "as_strided",
        "empty",
        "empty_like",
        "asarray",
        "array",
        "default_rng",
        "may_share_memory",
    ),
}
"""Those that start nothing on a device: the values stay where they are."""


def record(name, inputs, result, options):
    """Count an operation's work, given its keyword arguments, and that it was started ("calls"); return its depth."""
    if name not in _VIEWS:
        for counter in _counters:
            counter["calls"] += 1
    if name in _MOVES:
        return 0
    size = getattr(result, "size", 1)
    if name == "matmul":
        inner = inputs[0].shape[-1]
        kind, work, depth = "multiply_adds", size * inner, 1 + math.ceil(math.log2(max(1, inner)))
        if result.dtype.kind == "c":
            work, depth = 4 * work, depth + 1
    elif name in ("fft2", "ifft2", "rfft2", "irfft2"):
        x, axes = inputs[0], options.get("axes", (-2, -1))
        sizes = inputs[1] if len(inputs) > 1 else options.get("s")
        if sizes is None:  # of the side that is not a half spectrum
            sizes = [(result if name == "irfft2" else x).shape[a] for a in axes]
        points = math.prod(sizes)
        kind, depth = "transforms", 2 * sum(math.ceil(math.log2(n)) for n in sizes)
        work = points * math.log2(points) * (x.size // math.prod(x.shape[a] for a in axes))
    elif name in ("sum", "mean", "max", "min"):
        kind, work = "others", getattr(inputs[0], "size", getattr(inputs[-1], "size", 1))
        depth = math.ceil(math.log2(max(1, work // max(1, size))))
    else:
        kind, work, depth = "others", size, 1
    for counter in _counters:
        counter[kind] += work
    return depth


class Counted(NamedTuple):
    """Operations of a computation."""

    multiply_adds: int
    """In matrix products; a complex one counts as 4."""
    transforms: float
    """Sum of N log2 N over all Fourier transforms of N points."""
    others: int
    """Results of element-wise operations and terms of sums."""
    depth: int
    """Operations on the longest chain, with sums of products added up as trees."""


@contextmanager
def counting():
    """Context manager: count the operations on strict arrays; yields a Counter."""
    counter: Counter = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


def count_operations(function, *arrays) -> Counted:
    """Run a function on copies of NumPy arrays that count what it computes.

    Parameters
    ----------
    function : callable
        Takes arrays, returns an array or a tuple whose first element is one. It computes with operators, NumPy's
        functions, or those of `get_xp(x)`.
    *arrays : numpy arrays

    Examples
    --------
    >>> count_operations(lambda a, b: a @ b + 1, np.ones((2, 4)), np.ones((4, 3)))
    Counted(multiply_adds=24, transforms=0, others=6, depth=4)

    A layer's weights must be strict arrays, too:

    >>> from distlearn.nn import Linear, MockDeviceArray, move
    >>> count_operations(move(Linear(4, 3), MockDeviceArray).forward, np.ones((2, 4), "float32"))
    Counted(multiply_adds=24, transforms=0, others=6, depth=4)
    """
    from .strict import CountedArray, MockDeviceArray  # which need this module

    with counting() as counter:
        result = function(*(CountedArray(np.array(a)) for a in arrays))
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, MockDeviceArray):
        raise TypeError(f"count_operations: the function returned {type(first).__name__}, expected a counted array")
    return Counted(counter["multiply_adds"], counter["transforms"], counter["others"], first._chain[0])
