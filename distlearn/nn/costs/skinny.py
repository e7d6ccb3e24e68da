"""Skinny matrix products: what a dense layer of AlexNet's size gains from a larger batch."""

from __future__ import annotations

import statistics
from typing import NamedTuple

import numpy as np

from ...backend import get_xp
from .profile import clock_of
from .sweep import BATCHES, batch_sizes


class Product(NamedTuple):
    """A matrix product that was timed."""

    batch: int
    seconds: float
    flop_rate: float
    """flop/s."""
    intensity: float
    """Flops per byte of the least memory traffic."""


def skinny_products(
    batches=BATCHES, d_in=4096, d_out=9192, *, repeats: int = 5, dtype="float32", xp=np, threads: int | None = 1
) -> list[Product]:
    """Time (batch, d_in) @ (d_in, d_out) for several batch sizes.

    A small batch reads the whole matrix for a few products.

    Parameters
    ----------
    repeats : int
        The median of so many.
    xp : module
        numpy or cupy.
    threads : int, optional
        As in `profile_sweep`.
    """
    from threadpoolctl import threadpool_limits

    batches = batch_sizes("skinny_products", batches)
    matrix, clock = xp.ones((d_in, d_out), dtype), clock_of(xp, threads)
    with threadpool_limits(threads, user_api="blas"):
        return [_time_product(xp.ones((n, d_in), dtype), matrix, repeats, clock) for n in batches]


def _time_product(x, matrix, repeats, clock) -> Product:
    """Median seconds of x @ matrix."""
    xp, times = get_xp(x), []
    y = x @ matrix
    for _ in range(repeats):
        began = clock()
        xp.matmul(x, matrix, out=y)
        times.append(clock() - began)
    took, flops = statistics.median(times), 2 * x.size * matrix.shape[1]
    return Product(len(x), took, flops / took, flops / (x.nbytes + matrix.nbytes + y.nbytes))
