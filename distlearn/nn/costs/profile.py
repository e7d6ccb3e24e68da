"""Measure layers: seconds of forward and backward, alone and over a sweep of batch sizes."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from ...backend import get_xp
from ...bounds import check_positive, expected_number
from ...tables import Table, Tabular, format_time, quantity
from ..container import Sequential
from ..layer import Layer
from ..linear import Embedding
from ..models import model_named

# -- profile -----------------------------------------------------------------------------------------------------------
# Where the time of a training step goes, layer by layer.


class LayerTime(NamedTuple):
    """Time and work of one layer in one training step."""

    name: str
    forward: float  # Seconds.
    backward: float  # Seconds.
    flops: int  # Of forward and backward.
    nbytes: int  # Bytes that forward and backward must at least move: three times the forward pass's.

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    @property
    def flop_rate(self) -> float:
        return self.flops / self.seconds

    @property
    def byte_rate(self) -> float:
        return self.nbytes / self.seconds


class Profile(Tabular):
    """The layers of a model with their times; prints as a table.

    Attributes
    ----------
    layers : list of LayerTime
        In the order of the model.
    """

    def __init__(self, layers: list[LayerTime], batch: int):
        self.layers, self.batch = layers, batch

    @property
    def seconds(self) -> float:
        return sum(t.seconds for t in self.layers)

    @property
    def samples_per_second(self) -> float:
        return self.batch / self.seconds

    def shares(self) -> dict[str, float]:
        """Return every layer's share of the step, by name; their sum is 1."""
        return {t.name: t.seconds / self.seconds for t in self.layers}

    def table(self) -> Table:
        sums = (sum(getattr(t, field) for t in self.layers) for field in ("forward", "backward", "flops", "nbytes"))
        header = ["layer", "forward", "backward", "share", "flop/s", "bytes/s"]
        title = f"batch {self.batch}: {quantity(self.samples_per_second)} samples/s"
        return Table(header, [self._cells(t) for t in [*self.layers, LayerTime("sum", *sums)]], title)

    def _cells(self, t: LayerTime) -> list[str]:
        rates = quantity(t.flop_rate, "flop/s"), quantity(t.byte_rate, "B/s")
        return [t.name, format_time(t.forward), format_time(t.backward), f"{t.seconds / self.seconds:.1%}", *rates]


@contextmanager
def untouched(layer: Layer):
    """Restore gradients and running statistics afterwards."""
    kept = [(p, p.grad.copy(), p.data.copy() if p.frozen else None) for p in layer.params]
    try:
        yield
    finally:
        for p, grad, data in kept:
            p.grad[...] = grad
            if data is not None:
                p.data[...] = data


def now(xp) -> float:
    """Wait for the device, and return the time [s]."""
    if xp.__name__ == "cupy":
        xp.cuda.get_current_stream().synchronize()
    return time.perf_counter()


def fewest_seconds(function, *args, repeats: int = 5, xp=np) -> float:
    """Time some calls on one thread, after one to warm up; return the seconds of the fastest.

    Parameters
    ----------
    xp : module
        numpy, whose seconds are processor time, or cupy.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return min(seconds_of(lambda: function(*args), repeats, clock_of(xp, 1)))


def seconds_of(call, repeats: int, clock) -> list[float]:
    """Time some calls, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        began = clock()
        call()
        times.append(clock() - began)
    return times


def clock_of(xp, threads: int | None):
    """Return a clock: the thread's processor time where its resolution is a microsecond, else `now`."""
    return time.thread_time if xp is np and threads == 1 else lambda: now(xp)


# -- sweep -------------------------------------------------------------------------------------------------------------
# The gain of larger batches on one device: networks measured layer by layer at several batch sizes.
#
# The activations of AlexNet for 1,024 images take 8 GB, those of GoogLeNet 37. But the time of a layer depends on the
# shape of its input alone: so every layer is measured alone, on random values, and dropped before the next one.
# Memory is then that of the one layer that needs most, with its gradients: 1.5 and 3 GB for 256 images.

BATCHES = (1, 4, 16, 64, 256, 1024)
ENOUGH = 0.5  # Seconds after which a layer is not repeated again: long times vary little.
DRAWN = 16  # Samples that are drawn; a larger batch repeats them.


def profile_sweep(
    model: str | Layer,
    sample: tuple[int, ...] | None = None,
    batches: Sequence[int] = BATCHES[:-1],
    *,
    repeats: int = 5,
) -> list[Profile]:
    """Profile a model at several batch sizes: why batching pays, and which layers gain.

    Parameters
    ----------
    model : str or Layer
        A name such as "alexnet", or a model.
    sample : tuple of int, optional
        Shape of one sample; known for models by name.
    repeats : int
        Number of passes whose median is taken, but no further one once a layer has taken half a second at a batch size;
        one pass before them warms up.

    Returns
    -------
    profiles : list of Profile
        One per batch size; `samples_per_second` over the first one's is the speed-up by batching. Interrupted, it warns
        and returns the batch sizes that are complete.

    Examples
    --------
    >>> small, large = profile_sweep("mlp", batches=(1, 64))
    >>> small.batch, large.batch, [t.name for t in large.layers[:2]]
    (1, 64, ['0.Linear', '1.ReLU'])
    """
    from threadpoolctl import threadpool_limits

    if isinstance(model, str):
        known = model_named(model)
        model, sample = known.build(), known.sample if sample is None else sample
    if sample is None:
        raise ValueError("profile_sweep: sample is None, expected the shape of one sample")
    batches = batch_sizes("profile_sweep", batches)
    check_positive("profile_sweep", repeats=repeats)
    like = model.params[0].data
    clock, profiles = clock_of(get_xp(like), 1), []
    for p in model.params:
        p.data *= 1  # zeros that nobody has written lie in one page, which stays in a cache: they would be too fast
    parts = model.parts if isinstance(model, Sequential) else lambda shape: [(model, shape)]
    try:
        with threadpool_limits(1, user_api="blas"):
            for n in batches:
                rows = []
                for layer, shape in parts((n, *sample)):
                    with untouched(layer):
                        rows.append(_time_layer(layer, shape, like, repeats, clock))
                profiles.append(Profile(rows, n))
    except KeyboardInterrupt:
        if not profiles:
            raise
        warnings.warn(f"profile_sweep: interrupted; measured up to a batch of {profiles[-1].batch:,}", stacklevel=2)
    return profiles


def batch_sizes(where: str, batches) -> tuple[int, ...]:
    """Return one batch size or several as a tuple; raise unless they are whole numbers of 1 or more."""
    found = tuple(np.atleast_1d(np.asarray(batches)).tolist())
    if not found or any(expected_number(n, whole=True, least=1) for n in found):
        raise ValueError(f"{where}: batches are {batches!r}, expected one or more batch sizes of 1 or more")
    return found


def _time_layer(layer, shape, like, repeats, clock) -> LayerTime:
    """Median seconds of one layer on an input of `shape`."""
    x, runs = _random_input(layer, shape, like), []
    _pass(layer, x, clock)
    while len(runs) < repeats and sum(map(sum, runs)) < ENOUGH:
        runs.append(_pass(layer, x, clock))
    forward, backward = (statistics.median(times) for times in zip(*runs, strict=True))
    work, moved = layer.flops(shape) + layer.backward_flops(shape), 3 * layer.bytes_moved(shape, like.dtype.itemsize)
    return LayerTime(layer.name or type(layer).__name__, forward, backward, work, moved)


def _pass(layer, x, clock):
    for p in layer.params:
        p.zero_grad()
    began = clock()
    y, saved = layer.forward(x)
    forward = clock() - began
    dy = get_xp(y).ones_like(y)
    del y
    began = clock()
    layer.backward(dy, saved)
    return forward, clock() - began


def _random_input(layer, shape, like):
    """Draw a typical input of a layer: symbols for an embedding, else normally distributed values."""
    rng, drawn, xp = np.random.default_rng(0), (min(shape[0], DRAWN), *shape[1:]), get_xp(like)
    if isinstance(layer, Embedding):
        x = rng.integers(layer.n_symbols, size=drawn)
    else:
        x = rng.standard_normal(drawn, np.float32).astype(like.dtype)
    return xp.resize(xp.asarray(x), shape)


# -- skinny ------------------------------------------------------------------------------------------------------------
# Skinny matrix products: the gain of a larger batch for a dense layer of AlexNet's size.


class Product(NamedTuple):
    """A matrix product that was timed."""

    batch: int
    seconds: float
    flop_rate: float  # flop/s.
    intensity: float  # Flops per byte of the least memory traffic.


def skinny_products(
    batches: Sequence[int] = BATCHES, d_in: int = 4096, d_out: int = 9192, *, repeats: int = 5, threads: int | None = 1
) -> list[Product]:
    """Time (batch, d_in) @ (d_in, d_out) for several batch sizes.

    A small batch reads the whole matrix for a few products.

    Parameters
    ----------
    repeats : int
        Number of products whose median is taken.
    threads : int, optional
        Threads of BLAS; None leaves them as they are. One thread's times are its own processor time, so the time of
        other programs does not count. With several, a small product that waits for a busy core may take a hundred
        times as long.
    """
    from threadpoolctl import threadpool_limits

    batches = batch_sizes("skinny_products", batches)
    check_positive("skinny_products", d_in=d_in, d_out=d_out, repeats=repeats)
    matrix, clock, products = np.ones((d_in, d_out), np.float32), clock_of(np, threads), []
    with threadpool_limits(threads, user_api="blas"):
        for n in batches:
            x, y = np.ones((n, d_in), np.float32), np.empty((n, d_out), np.float32)
            took = statistics.median(seconds_of(partial(np.matmul, x, matrix, out=y), repeats, clock))
            flops = 2 * x.size * d_out
            products.append(Product(n, took, flops / took, flops / (x.nbytes + matrix.nbytes + y.nbytes)))
    return products
