"""What a larger batch gains on one device: networks measured layer by layer at several batch sizes.

The activations of AlexNet for 1,024 images take 8 GB, those of GoogLeNet 37. But the time of a layer depends on the
shape of its input alone: so every layer is measured by itself, on random values, and dropped before the next one.
Memory is then that of the one layer that needs most (6 and 12 GB, with its gradients), and where even that is too much,
the batch is processed in slices.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ...backend import get_xp
from ..embedding import Embedding
from ..layer import Layer, nbytes
from ..models import model_named
from .profile import LayerTime, Profile, clock_of, layer_time, timed_layers, untouched

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
