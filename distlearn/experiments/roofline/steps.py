"""The training step of a small network: what it computes, moves, starts and copies, and what it takes."""

from __future__ import annotations

import functools
import statistics
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...backend import get_xp, to_device
from ...data import Batch
from ...nn import MLP, MockDeviceArray, SoftmaxCrossEntropy, move
from ...nn.costs.count import counting
from ...nn.costs.profile import clock_of
from ...optim import SGD, Optimizer
from ...parallel import Serial

COPIES = ("none", "batch", "products")


class StepWork(NamedTuple):
    """Work of one training step.

    Attributes
    ----------
    flops : int
        Of forward, backward and update.
    nbytes : int
        Bytes of memory that they must at least move.
    calls : int
        Array operations, each of which a GPU launches as a kernel, and copies.
    copied : int
        Bytes between host and card.
    """

    flops: int
    nbytes: int
    calls: int
    copied: int


def step_work(width: int, batch: int, copies: str = "none", *, sizes=None) -> StepWork:
    """Count the work of a training step: two hidden layers of sigmoids on images of 28 x 28 pixels, plain SGD.

    Parameters
    ----------
    width : int
        Of both hidden layers.
    batch : int
    copies : {"none", "batch", "products"}
        What travels between host and card: nothing, the batch, or the operands and the result of every matrix product,
        as if products alone were done on the card.
    sizes : tuple of int, optional
        All layers' widths, in place of (784, width, width, 10).

    Returns
    -------
    work : StepWork

    Examples
    --------
    >>> step_work(100, 32).copied, step_work(100, 32, "batch").copied == 32 * (784 * 4 + 8)
    (0, True)
    """
    if copies not in COPIES:
        raise ValueError(f"step_work: copies is {copies!r}, expected one of {', '.join(COPIES)}")
    sizes = (784, width, width, 10) if sizes is None else tuple(sizes)
    layers = list(pairwise(sizes))
    weights, outputs = sum((k + 1) * n for k, n in layers), sum(sizes[1:])
    products = [2 + (i > 0) for i in range(len(layers))]  # forward and backward; the data need no gradient
    flops = sum(times * 2 * batch * k * n for times, (k, n) in zip(products, layers, strict=True)) + 2 * weights
    activations = sum(sizes[1:-1])
    flops += 6 * batch * activations  # a sigmoid's 4 there and 2 back
    values = batch * (sizes[0] + outputs + 3 * activations)
    nbytes = 4 * (3 * (values + weights) + 3 * weights)  # the update reads weight and gradient, and writes
    calls, copied = _calls(len(sizes)), 0
    if copies == "batch":
        calls, copied = calls + 2, batch * (4 * sizes[0] + 8)
    elif copies == "products":
        calls += 3 * sum(products)
        matrices = [batch * (k + n) + k * n for k, n in layers]
        copied = 4 * sum(times * size for times, size in zip(products, matrices, strict=True))
    return StepWork(flops, nbytes, calls, copied)


@functools.cache
def _calls(n_sizes: int) -> int:
    """Array operations of a step, which do not depend on widths or batch."""
    step = _trainer((2,) * n_sizes, 2, MockDeviceArray)
    with counting() as counter:
        step()
    return counter["calls"]


def _trainer(sizes, batch, convert):
    """A function that trains one step on random data, arrays made by `convert`, the batch anew in every step."""
    rng = np.random.default_rng(0)
    x, y = rng.random((batch, sizes[0]), np.float32), rng.integers(sizes[-1], size=batch)
    model = move(MLP(sizes, "sigmoid"), convert)
    trainer = Serial(model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.01))
    return lambda: trainer.step(Batch(convert(x), convert(y), batch))


def step_times(widths, batch: int, *, device="cpu", sizes=None, repeats: int = 15) -> list[float]:
    """Measure training steps on one core or on a GPU, the batch copied to it in every step.

    Parameters
    ----------
    widths : sequence of int
        Of the hidden layers, as in `step_work`.
    batch : int
    device : "cpu" or "gpu"
    sizes : tuple of int, optional
        As in `step_work`; the number of measurements is that of the widths.
    repeats : int

    Returns
    -------
    seconds : list of float
        Medians; on a CPU, processor time of one thread, in which other programs do not count.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        return [_seconds(sizes or (784, w, w, 10), batch, device, repeats) for w in widths]


def _seconds(sizes, batch, device, repeats) -> float:
    step, times = _trainer(tuple(sizes), batch, lambda a: to_device(a, device)), []
    clock = clock_of(get_xp(to_device(np.zeros(1), device)), 1)
    step()
    for _ in range(repeats):
        began = clock()
        step()
        times.append(clock() - began)
    return statistics.median(times)
