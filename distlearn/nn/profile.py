"""Where the time of a training step goes, layer by layer."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np

from ..backend import get_xp
from .base import Layer
from .container import Sequential
from .models import model_named
from .table import Table, quantity, seconds

BATCHES = (1, 4, 16, 64, 256, 1024)


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


class Profile:
    """The layers of a model with their times; prints as a table.

    Attributes
    ----------
    layers : list of LayerTime
    batch : int
    """

    def __init__(self, layers: list[LayerTime], batch: int):
        self.layers, self.batch = layers, batch

    @property
    def seconds(self) -> float:
        """Forward and backward through all layers."""
        return sum(t.seconds for t in self.layers)

    @property
    def samples_per_second(self) -> float:
        """Samples trained on per second, the update left out."""
        return self.batch / self.seconds

    def shares(self) -> dict[str, float]:
        """Return every layer's share of the step, by name; they add up to 1."""
        return {t.name: t.seconds / self.seconds for t in self.layers}

    def table(self) -> Table:
        """Return the layers as a table."""
        rows = [
            [
                t.name,
                seconds(t.forward),
                seconds(t.backward),
                f"{share:.1%}",
                quantity(t.flop_rate, "flop/s"),
                quantity(t.byte_rate, "B/s"),
            ]
            for t, share in zip(self.layers, self.shares().values(), strict=True)
        ]
        total = [
            "sum",
            seconds(sum(t.forward for t in self.layers)),
            seconds(sum(t.backward for t in self.layers)),
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

    def __str__(self):
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self):
        return self.table()._repr_html_()


def profile(model: Layer, x, *, repeats: int = 5) -> Profile:
    """Time every layer's forward and backward pass; the median of some repetitions after one to warm up.

    Parameters
    ----------
    model : Layer
        The layers of a `Sequential` are timed one by one, any other layer as one.
    x : (batch, ...) array
    repeats : int

    Returns
    -------
    profile : Profile
        Gradients are left as they were.
    """
    layers = model.layers if isinstance(model, Sequential) else [model]
    kept = [p.grad.copy() for p in model.params]
    steps = [_step(layers, x) for _ in range(repeats + 1)][1:]
    for p, grad in zip(model.params, kept, strict=True):
        p.grad[...] = grad
    rows, shape = [], x.shape
    for i, layer in enumerate(layers):
        forward, backward = (statistics.median(step[i][direction] for step in steps) for direction in (0, 1))
        work = layer.flops(shape) + layer.backward_flops(shape)
        moved = 3 * layer.bytes_moved(shape, x.dtype.itemsize)
        rows.append(LayerTime(layer.name or type(layer).__name__, forward, backward, work, moved))
        shape = layer.output_shape(shape)
    return Profile(rows, len(x))


def _step(layers, x):
    """One forward and backward pass; the seconds of every layer in both directions."""
    times, saved, xp = [[0.0, 0.0] for _ in layers], [], get_xp(x)
    for i, layer in enumerate(layers):
        began = _now(xp)
        x, s = layer.forward(x)
        times[i][0] = _now(xp) - began
        saved.append(s)
    dy = xp.ones_like(x)
    for i in reversed(range(len(layers))):
        if dy is None:
            break
        began = _now(xp)
        dy = layers[i].backward(dy, saved[i])
        times[i][1] = _now(xp) - began
    return times


def _now(xp):
    """The time when everything asked of the device is done."""
    if xp.__name__ == "cupy":
        xp.cuda.get_current_stream().synchronize()
    return time.perf_counter()


def profile_sweep(
    model: str | Layer, sample=None, batches=BATCHES, *, repeats: int = 3, dtype="float32"
) -> list[Profile]:
    """Profile a model at several batch sizes: why batching pays, and which layers gain.

    Parameters
    ----------
    model : str or Layer
        A name such as "alexnet", or a model.
    sample : tuple of int, optional
        Shape of one sample; known for models by name.
    batches : sequence of int
    repeats : int
    dtype : dtype

    Returns
    -------
    profiles : list of Profile
        One per batch size; `samples_per_second` over the first one's is the speed-up by batching.
    """
    if isinstance(model, str):
        known = model_named(model)
        model, sample = known.build(dtype=dtype), known.sample if sample is None else sample
    if sample is None:
        raise ValueError("profile_sweep: sample is None, expected the shape of one sample")
    rng = np.random.default_rng(0)
    xp = get_xp(model.params[0].data)
    return [profile(model, xp.asarray(rng.random((n, *sample), dtype)), repeats=repeats) for n in batches]


class Product(NamedTuple):
    """A matrix product that was timed."""

    batch: int
    seconds: float
    flop_rate: float
    """flop/s."""
    intensity: float
    """Flops per byte that must at least be moved."""


def skinny_products(
    batches=BATCHES, d_in=4096, d_out=9192, *, repeats: int = 5, dtype="float32", xp=np
) -> list[Product]:
    """Time (batch, d_in) @ (d_in, d_out) for several batch sizes.

    A small batch reads the whole matrix for a few products.

    Parameters
    ----------
    batches : sequence of int
    d_in, d_out : int
    repeats : int
        The median of so many.
    dtype : dtype
    xp : module
        numpy or cupy.

    Returns
    -------
    products : list of Product
    """
    matrix = xp.ones((d_in, d_out), dtype)
    products = []
    for n in batches:
        x, times = xp.ones((n, d_in), dtype), []
        y = x @ matrix
        for _ in range(repeats):
            began = _now(xp)
            xp.matmul(x, matrix, out=y)
            times.append(_now(xp) - began)
        took, flops = statistics.median(times), 2 * n * d_in * d_out
        products.append(Product(n, took, flops / took, flops / (x.nbytes + matrix.nbytes + y.nbytes)))
    return products
