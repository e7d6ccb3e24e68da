"""Where the time of a training step goes, layer by layer."""

from __future__ import annotations

import math
import os
import statistics
import time
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ...backend import get_xp
from ...tables import Table, Tabular, format_time, quantity
from ..container import Sequential
from ..layer import Layer


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
