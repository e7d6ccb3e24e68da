"""Measure layers: seconds of forward and backward, alone and over a sweep of batch sizes."""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ...backend import get_xp
from ...tables import Table, Tabular, format_time, quantity
from ..container import Sequential
from ..embedding import Embedding
from ..layer import Layer, nbytes
from ..models import model_named

# -- profile -----------------------------------------------------------------------------------------------------------
# Where the time of a training step goes, layer by layer.


class LayerTime(NamedTuple):
    """Time and work of one layer in one training step."""

    name: str
    forward: float
    """Seconds."""
    backward: float
    """Seconds."""
    flops: int
    """Of forward and backward."""
    nbytes: int
    """Bytes that forward and backward must at least move: three times the forward pass's."""
    slices: int = 1
    """Parts in which the batch went through the layer, because it did not fit into memory at once."""

    @property
    def seconds(self) -> float:
        """Forward and backward together."""
        return self.forward + self.backward

    @property
    def flop_rate(self) -> float:
        """Achieved flop/s."""
        return self.flops / self.seconds

    @property
    def byte_rate(self) -> float:
        """Achieved bytes/s."""
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
        """Forward and backward through all layers."""
        return sum(t.seconds for t in self.layers)

    @property
    def samples_per_second(self) -> float:
        """Samples trained on per second, without the update."""
        return self.batch / self.seconds

    def shares(self) -> dict[str, float]:
        """Return every layer's share of the step, by name; their sum is 1."""
        return {t.name: t.seconds / self.seconds for t in self.layers}

    def table(self) -> Table:
        """Return the layers as a table."""
        rows = [
            [
                t.name + (f" ({t.slices} slices)" if t.slices > 1 else ""),
                format_time(t.forward),
                format_time(t.backward),
                f"{share:.1%}",
                quantity(t.flop_rate, "flop/s"),
                quantity(t.byte_rate, "B/s"),
            ]
            for t, share in zip(self.layers, self.shares().values(), strict=True)
        ]
        total = [
            "sum",
            format_time(sum(t.forward for t in self.layers)),
            format_time(sum(t.backward for t in self.layers)),
            "100.0%",
        ]
        rates = [
            quantity(sum(getattr(t, f) for t in self.layers) / self.seconds, u)
            for f, u in (("flops", "flop/s"), ("nbytes", "B/s"))
        ]
        header = ["layer", "forward", "backward", "share", "flop/s", "bytes/s"]
        return Table(
            header, [*rows, total + rates], f"batch {self.batch}: {quantity(self.samples_per_second)} samples/s"
        )


def profile(model: Layer, x, *, repeats: int = 5) -> Profile:
    """Time every layer's forward and backward pass; the median of some repetitions after one to warm up.

    Parameters
    ----------
    model : Layer
        The layers of a `Sequential` are timed one by one, any other layer as one.
    x : (batch, ...) array

    Returns
    -------
    profile : Profile
        Gradients and running statistics are restored.
    """
    layers = timed_layers(model)
    with untouched(model):
        steps = [_step(layers, x) for _ in range(repeats + 1)][1:]
    rows, shape = [], x.shape
    for i, layer in enumerate(layers):
        forward, backward = (statistics.median(step[i][direction] for step in steps) for direction in (0, 1))
        rows.append(layer_time(layer, shape, x.dtype.itemsize, forward, backward))
        shape = layer.output_shape(shape)
    return Profile(rows, len(x))


def timed_layers(model: Layer) -> list[Layer]:
    """Return the layers to time: those of a `Sequential`, any other layer as a whole."""
    return model.layers if isinstance(model, Sequential) else [model]


def layer_time(layer: Layer, shape, itemsize: int, forward: float, backward: float, slices: int = 1) -> LayerTime:
    """Combine a layer's work on an input of `shape` with its measured seconds."""
    work = layer.flops(shape) + layer.backward_flops(shape)
    moved = 3 * layer.bytes_moved(shape, itemsize)
    return LayerTime(layer.name or type(layer).__name__, forward, backward, work, moved, slices)


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


def _step(layers, x):
    """One forward and backward pass; the seconds of every layer in both directions."""
    times, saved, xp = [[0.0, 0.0] for _ in layers], [], get_xp(x)
    for p in (p for layer in layers for p in layer.params):
        p.zero_grad()
    for i, layer in enumerate(layers):
        began = now(xp)
        x, s = layer.forward(x)
        times[i][0] = now(xp) - began
        saved.append(s)
    dy = xp.ones_like(x)
    for i in reversed(range(len(layers))):
        if dy is None:
            break
        began = now(xp)
        dy = layers[i].backward(dy, saved[i])
        times[i][1] = now(xp) - began
    return times


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

    clock, fewest = clock_of(xp, 1), math.inf
    with threadpool_limits(1):
        function(*args)
        for _ in range(repeats):
            began = clock()
            function(*args)
            fewest = min(fewest, clock() - began)
    return fewest


def clock_of(xp, threads: int | None):
    """Return a clock: the thread's processor time where its resolution is a microsecond, else `now`."""
    own = xp is np and threads == 1 and os.name == "posix"
    return time.thread_time if own else lambda: now(xp)


# -- sweep -------------------------------------------------------------------------------------------------------------
# What a larger batch gains on one device: networks measured layer by layer at several batch sizes.
#
# The activations of AlexNet for 1,024 images take 8 GB, those of GoogLeNet 37. But the time of a layer depends on the
# shape of its input alone: so every layer is measured by itself, on random values, and dropped before the next one.
# Memory is then that of the one layer that needs most (6 and 12 GB, with its gradients), and where even that is too
# much, the batch is processed in slices.

BATCHES = (1, 4, 16, 64, 256, 1024)
ENOUGH = 0.5
"""Seconds after which a layer is not repeated again: long times vary little."""
DRAWN = 16
"""Samples that are drawn; a larger batch repeats them."""


def profile_sweep(
    model: str | Layer,
    sample=None,
    batches=BATCHES,
    *,
    repeats: int = 5,
    dtype="float32",
    threads: int | None = 1,
    memory: float | None = None,
    seconds: float | None = None,
    progress: Callable | None = None,
) -> list[Profile]:
    """Profile a model at several batch sizes: why batching pays, and which layers gain.

    Parameters
    ----------
    model : str or Layer
        A name such as "alexnet", or a model.
    sample : tuple of int, optional
        Shape of one sample; known for models by name.
    repeats : int
        The median of so many passes, but no further one once a layer has taken half a second at a batch size; one
        pass before them warms up.
    threads : int, optional
        Threads of BLAS; None leaves them as they are. One thread's times are its own processor time, so what other
        programs take meanwhile does not count. With several, a small product that waits for a busy core may take a
        hundred times as long.
    memory : float, optional
        Bytes that the measured layer may take, beside the model itself; half of what is free by default. A layer that
        would take more gets its batch in slices, and the table says so.
    seconds : float, optional
        Stop after about this time.
    progress : callable, optional
        `progress(percent, 100, batch=..., layer=...)` before every layer; percent of the work, in flops.
        `distlearn.world.progress.Bar(unit="%")` shows a bar.

    Returns
    -------
    profiles : list of Profile
        One per batch size; `samples_per_second` over the first one's is the speed-up by batching. Stopped early, by an
        interrupt or for lack of time, it warns and returns the batch sizes that are complete.

    Examples
    --------
    >>> small, large = profile_sweep("mlp", batches=(1, 64))
    >>> small.batch, large.batch, [t.name for t in large.layers[:2]]
    (1, 64, ['0.Linear', '1.ReLU'])
    """
    from threadpoolctl import threadpool_limits

    if isinstance(model, str):
        known = model_named(model)
        model, sample = known.build(dtype=dtype), known.sample if sample is None else sample
    if sample is None:
        raise ValueError("profile_sweep: sample is None, expected the shape of one sample")
    batches = batch_sizes("profile_sweep", batches)
    xp = get_xp(model.params[0].data)
    memory = free_memory(xp) / 2 if memory is None else memory
    how = _How(xp, np.dtype(dtype), repeats, memory, clock_of(xp, threads))
    watch = _Watch(sum(model.flops((n, *sample)) for n in batches), seconds, progress)
    profiles = []
    try:
        with threadpool_limits(threads, user_api="blas"):
            for n in batches:
                profiles.append(Profile(_time_layers(model, (n, *sample), how, watch), n))
    except (KeyboardInterrupt, TimeoutError):
        if not profiles:
            raise
        warnings.warn(f"profile_sweep: stopped; measured up to a batch of {profiles[-1].batch:,}", stacklevel=2)
    return profiles


def batch_sizes(where: str, batches) -> tuple[int, ...]:
    """Return one batch size or several as a tuple; raise unless they are whole numbers of 1 or more."""
    found = tuple(np.atleast_1d(np.asarray(batches)).tolist())
    if not found or not all(isinstance(n, int) and n >= 1 for n in found):
        raise ValueError(f"{where}: batches are {batches!r}, expected one or more batch sizes of 1 or more")
    return found


class _How(NamedTuple):
    """Settings shared by all measurements."""

    xp: ModuleType
    dtype: np.dtype
    repeats: int
    memory: float
    clock: Callable[[], float]


class _Watch:
    """Reports progress, and stops the sweep when the time is up."""

    def __init__(self, total, seconds, progress):
        self.total, self.seconds, self.progress = total, seconds, progress
        self.began, self.done = time.perf_counter(), 0

    def begin(self, layer, shape) -> None:
        """Call before every layer."""
        if self.seconds is not None and time.perf_counter() - self.began > self.seconds:
            raise TimeoutError(f"profile_sweep: not even the smallest batch was done within {self.seconds:g} s")
        if self.progress is not None:
            self.progress(int(100 * self.done / self.total), 100, batch=shape[0], layer=layer.name)
        self.done += layer.flops(shape)


def _time_layers(model, shape, how, watch) -> list[LayerTime]:
    """All layers' times, one after the other, each on its own input."""
    rows = []
    for layer in timed_layers(model):
        watch.begin(layer, shape)
        with untouched(layer):
            rows.append(_time_layer(layer, shape, how))
        shape = layer.output_shape(shape)
    return rows


def _time_layer(layer, shape, how) -> LayerTime:
    """Median seconds of one layer on an input of `shape`, in slices if it needs too much memory."""
    n = shape[0]
    few = _random_input(layer, (min(n, 2), *shape[1:]), how)
    part = min(n, max(1, int(how.memory * len(few) // memory_of(layer, few))))
    x, runs = _random_input(layer, (part, *shape[1:]), how), []
    _pass(layer, x, how.clock)
    while len(runs) < how.repeats and sum(map(sum, runs)) < ENOUGH:
        slices = [_pass(layer, x[: n - start], how.clock) for start in range(0, n, part)]
        runs.append([sum(times) for times in zip(*slices, strict=True)])
    forward, backward = (statistics.median(times) for times in zip(*runs, strict=True))
    return layer_time(layer, shape, how.dtype.itemsize, forward, backward, slices=-(-n // part))


def memory_of(layer: Layer, x) -> int:
    """Bytes that a forward and a backward pass of `x` keep alive: what forward leaves, and gradients as large."""
    y, saved = layer.forward(x)
    return 2 * nbytes([x, y, saved])


def _pass(layer, x, clock):
    """Seconds of one layer's forward and backward pass."""
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


def _random_input(layer, shape, how):
    """Draw a typical input of a layer: symbols for an embedding, else normally distributed values."""
    rng, drawn = np.random.default_rng(0), (min(shape[0], DRAWN), *shape[1:])
    if isinstance(layer, Embedding):
        x = rng.integers(layer.n_symbols, size=drawn)
    else:
        x = rng.standard_normal(drawn, np.float32).astype(how.dtype)
    return how.xp.resize(how.xp.asarray(x), shape)


def free_memory(xp) -> int:
    """Return the free memory in bytes: of the GPU for CuPy, of the machine for NumPy."""
    if xp is not np:
        return xp.cuda.Device().mem_info[0]
    import psutil

    return psutil.virtual_memory().available


# -- skinny ------------------------------------------------------------------------------------------------------------
# Skinny matrix products: what a dense layer of AlexNet's size gains from a larger batch.


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
