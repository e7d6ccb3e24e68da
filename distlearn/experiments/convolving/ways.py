"""Which way to convolve is the fastest, by the shape of the layer: by counted work, and by the clock."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...nn import ALGORITHMS, Conv2d, conv_cost, fuse
from ...nn.costs.profile import fewest_seconds


class Way(NamedTuple):
    """One algorithm on one layer."""

    name: str
    work: float
    """Multiply-adds of the forward pass; 0 for the fused layer, which chooses for itself."""
    seconds: float
    """Of one forward pass on one thread: the fastest of some."""


def time_ways(shape, c_out: int, k: int = 3, *, repeats: int = 5, seed: int = 0) -> list[Way]:
    """Time the forward pass of every algorithm that can compute a layer, and of `nn.fuse`'s.

    Parameters
    ----------
    shape : (n, h, w, c_in)
        Of the images.
    c_out, k : int
        Channels of the output; rows and columns of the kernel. Padding "same", stride 1, float32.
    repeats : int
        Passes of each.
    seed : int

    Returns
    -------
    ways : list of Way
        The plain ones first, "fused" last.
    """
    n, h, w, c_in = shape
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    names = [name for name in ALGORITHMS if k == 3 or not name.startswith("winograd")]
    layers = {name: Conv2d(c_in, c_out, k, seed, padding="same", algorithm=name) for name in names}
    layers["fused"] = fuse(Conv2d(c_in, c_out, k, seed, padding="same"))
    seconds = {name: fewest_seconds(layer.forward, x, repeats=repeats) for name, layer in layers.items()}
    works = {"fused": 0.0}
    for name in names:
        kind, m = (name[:-1], int(name[-1])) if name.startswith("winograd") else (name, 2)
        works[name] = conv_cost(kind, n, c_in, c_out, h, w, k, m).work
    return [Way(name, works[name], seconds[name]) for name in layers]
