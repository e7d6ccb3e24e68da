"""How fast can a layer be, on this machine and on a named card: bounds from counted work, beside measured times."""

from __future__ import annotations

import functools
import math
import statistics
from itertools import pairwise
from numbers import Integral
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import NullFormatter

from distlearn.backend import get_xp, has_gpu, to_device
from distlearn.cuda.cards import CARDS, Card
from distlearn.cuda.kernel import RawKernel
from distlearn.cuda.kernels.matmul import ANY_TILE, BLOCKED, NAIVE, TILED
from distlearn.cuda.kernels.variant import source
from distlearn.cuda.report import Report
from distlearn.data import Batch
from distlearn.nn import MLP, MODELS, MockDeviceArray, SoftmaxCrossEntropy, fuse, move, profile_sweep
from distlearn.nn.costs.count import counting
from distlearn.nn.costs.profile import LayerTime, Profile, clock_of, fewest_seconds
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import Serial
from distlearn.tables import format_time
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

from . import recorded
from .exercise import named

# -- The worst and the best shape of a dense layer, judged by the bytes it needs and by those the emulator counts.


COUNTED = 1 << 17
"""Multiply-adds up to which a product is run in the emulator: more takes seconds."""


def least_bytes(batch: int, d_in: int, d_out: int) -> int:
    """Return the fewest bytes that a product (batch, d_in) times (d_in, d_out) can move: each number of 4 bytes once.

    Examples
    --------
    >>> least_bytes(1, 10, 20)
    920
    """
    return 4 * (batch * d_in + d_in * d_out + batch * d_out)


def tiled_report(batch: int, d_in: int, d_out: int, tile: int) -> Report:
    """Run a product in square tiles of shared memory in the emulator.

    Parameters
    ----------
    tile : int
        Up to 32: a block has tile x tile threads.
    """
    a, b, c = _matrices(batch, d_in, d_out)
    grid, sizes = (-(-d_out // tile), -(-batch // tile)), np.array([batch, d_out, d_in], np.int32)
    kernel = RawKernel(source(ANY_TILE.file), ANY_TILE.kernel)
    return kernel.check(grid, (tile, tile), (a, b, c, *sizes), shared_mem=8 * tile * tile)


def counted(batch: int, d_in: int, d_out: int) -> Report:
    """Run a product by the library's kernels in the emulator; return the report that moves the fewest bytes."""
    a, b, c = _matrices(batch, d_in, d_out)
    kernels = (BLOCKED,) if min(batch, d_out) >= 16 else (NAIVE, TILED)  # a block is no use for one row or column
    return min((kernel.check(a, b, c) for kernel in kernels), key=lambda report: report.bytes_moved)


def _matrices(batch, d_in, d_out):
    return [np.ones(shape, np.float32) for shape in ((batch, d_in), (d_in, d_out), (batch, d_out))]


def run_product_cost(product_cost, least_time, of, **case):
    if of == "least_time":
        return {"seconds": least_time(**case)}
    return named(product_cost(**case), "flops", "bytes")


def run_seconds(seconds, card, **case):
    return {"seconds": seconds(CARDS["A100"]._replace(**card), **case)}


def run_two_layers(two_layers, n, ridge=8.0):
    """Say what the two shapes of a layer with n multiply-adds reach of the peak of a machine with this ridge."""
    got = two_layers(n)
    if not (isinstance(got, (tuple, list)) and len(got) == 2):
        return {"shapes": f"a {type(got).__name__}, wanted two"}
    return {
        "bad": judge_shape(got[0], n, ridge, low=0.05) or "less than 5 % of the peak",
        "good": judge_shape(got[1], n, ridge, high=0.5) or "more than half of the peak",
    }


def judge_shape(shape, n: int, ridge: float, *, low: float | None = None, high: float | None = None) -> str:
    """Say what is wrong with a dense layer's shape: its multiply-adds, or the share of a machine's peak; "" if nothing.

    Parameters
    ----------
    shape : (batch, d_in, d_out)
    n : int
        Multiply-adds that it must have.
    ridge : float
        Of the machine: operations per byte at which arithmetic becomes the limit.
    low, high : float, optional
        The share must be under `low`, or over `high`, by the fewest bytes. If n is small enough for the emulator it
        must be over `high` also by the bytes that it counts; they are never fewer, so `low` needs no emulator.
    """
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    if not (len(sizes) == 3 and all(isinstance(s, Integral) and s >= 1 for s in sizes)):
        return f"{shape!r}: expected three whole numbers of 1 or more"
    sizes = tuple(int(s) for s in sizes)
    if math.prod(sizes) != n:
        return f"{sizes} has {math.prod(sizes):,} multiply-adds, wanted exactly {n:,}"
    moved = {"at best": least_bytes}
    if high is not None and n <= COUNTED:
        moved["counted by the emulator"] = lambda *sizes: counted(*sizes).bytes_moved
    for how, nbytes in moved.items():
        share = min(1.0, 2 * n / nbytes(*sizes) / ridge)
        if share >= low if low is not None else share <= high:
            return f"{sizes} reaches {share:.2%} of the peak {how}"
    return ""


# -- The training step of a small network: what it computes, moves, starts and copies, and what it takes.


class StepWork(NamedTuple):
    """Work of one training step."""

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
    copies : {"none", "batch", "products"}
        What travels between host and card: nothing, the batch, or the operands and the result of every matrix product,
        as if products alone were done on the card.
    sizes : tuple of int, optional
        All layers' widths, in place of (784, width, width, 10).

    Examples
    --------
    >>> step_work(100, 32).copied, step_work(100, 32, "batch").copied == 32 * (784 * 4 + 8)
    (0, True)
    """
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
    trainer = Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.01))
    return lambda: trainer.step(Batch(convert(x), convert(y), batch))


def step_times(widths, batch: int, *, device="cpu", sizes=None, repeats: int = 15) -> list[float]:
    """Measure training steps on one core or on a GPU, the batch copied to it in every step.

    Parameters
    ----------
    widths : sequence of int
        Of the hidden layers, as in `step_work`.
    sizes : tuple of int, optional
        As in `step_work`; the number of measurements is that of the widths.

    Returns
    -------
    seconds : list of float
        Medians; on a CPU, processor time of one thread, in which other programs do not count.
    """
    from threadpoolctl import threadpool_limits

    clock, medians = clock_of(get_xp(to_device(np.zeros(1), device)), 1), []
    with threadpool_limits(1, user_api="blas"):
        for width in widths:
            step, times = _trainer(sizes or (784, width, width, 10), batch, lambda a: to_device(a, device)), []
            step()
            for _ in range(repeats):
                began = clock()
                step()
                times.append(clock() - began)
            medians.append(statistics.median(times))
    return medians


# -- A machine in the numbers of a card: peak, bandwidth, what starting an operation costs, and the link to the host.


def measure_cpu() -> Card:
    """Measure one core of this machine.

    The peak is that of large matrix products, the bandwidth that of reading two long vectors for their scalar
    product, and the overhead of an operation the time of a training step with one sample and one neuron, divided by its
    operations. Peak and bandwidth are the best of several measurements, since bounds are made of them; the overhead is
    a median.

    Returns
    -------
    card : Card
        With an infinite `link`: nothing needs to be copied.
    """
    elements, width, repeats = 2**25, 1024, 15  # vectors of 128 MiB: together several times as large as the last cache
    a, b = np.ones((2, width, width), np.float32)
    out = np.empty_like(a)
    x, y = np.ones((2, elements), np.float32)
    seconds = fewest_seconds(lambda: np.matmul(a, b, out=out), repeats=repeats)
    reading = fewest_seconds(lambda: x.dot(y), repeats=repeats)
    small = step_times([1], batch=1, sizes=(1, 1), repeats=50)[0] / step_work(1, 1, sizes=(1, 1)).calls
    return Card(
        "this CPU", 2 * width**3 / seconds, 2 * x.nbytes / reading, "measured, one core",
        link=float("inf"), overhead=small,
    )  # fmt: skip


def measure_gpu() -> Card:
    """Measure a GPU as `measure_cpu` measures a core, and its link to the host's memory.

    Returns
    -------
    card : Card
        The link with ordinary memory of the host; page-locked memory is faster.
    """
    elements, width, xp = 2**26, 4096, get_xp(to_device(np.zeros(1), "gpu"))
    host = np.ones(elements, np.float32)
    a, x, tiny = xp.ones((width, width), "float32"), xp.asarray(host), xp.ones(1, "float32")
    out, y = xp.empty_like(a), xp.empty_like(x)

    def many():
        for _ in range(1000):
            xp.add(tiny, 1, out=tiny)

    timed = functools.partial(fewest_seconds, repeats=7, xp=xp)
    seconds, moving = timed(lambda: xp.matmul(a, a, out=out)), timed(lambda: xp.add(x, 1, out=y))
    copying, launching = timed(lambda: xp.asarray(host.copy())) - timed(host.copy), timed(many) / 1000
    return Card(
        "this GPU", 2 * width**3 / seconds, 2 * x.nbytes / moving, "measured",
        link=host.nbytes / max(copying, 1e-9), overhead=launching,
    )  # fmt: skip


# -- What a card took: of the machine where it has one, else recorded.


def by_kind(profiles) -> list[Profile]:
    """Add up the layers of each kind: convolutions, dense layers, ... as `recorded.profiles` has them."""
    found = []
    for p in profiles:
        kinds = {}
        for t in p.layers:
            kind = t.name.partition(".")[2]
            kinds[kind] = [a + b for a, b in zip(kinds.get(kind, (0, 0, 0, 0)), t[1:5], strict=True)]
        found.append(Profile([LayerTime(kind, *kinds[kind]) for kind in sorted(kinds)], p.batch))
    return found


def card_layers(model: str, batches, device=None) -> list[Profile]:
    """Return profiles by kind of layer: measured on a GPU (or `device`) if there is one, else those of an H100."""
    if device is None and not has_gpu():
        return recorded.profiles(model)
    known = MODELS[model]
    moved = move(known.build(), lambda a: to_device(a, device or "gpu"))
    return by_kind(profile_sweep(moved, known.sample, batches, repeats=3))


def card_steps(device=None) -> tuple[str, list[tuple]]:
    """Return a card's name, and (model, batch, seconds of a step, the least that the work takes on an H100) of models.

    They are measured on a GPU (or `device`) if there is one, and recorded ones elsewhere.
    """
    here, rows = has_gpu() or device is not None, []
    for step in recorded.STEPS:
        if step.model in ("mlp", "cnn", "lenet"):
            known = MODELS[step.model]
            model, shape = known.build(), (step.batch, *known.sample)
            seconds = _card_step(known, step.batch, device or "gpu") if here else step.ms / 1e3
            flops = model.flops(shape) + model.backward_flops(shape)
            least = CARDS[recorded.DATA["name"]].least_time(flops, 3 * model.bytes_moved(shape))
            rows.append((step.model, step.batch, seconds, least))
    return "this GPU" if here else recorded.DATA["name"], rows


def _card_step(known, batch, device) -> float:
    rng, on = np.random.default_rng(0), lambda a: to_device(a, device)
    x, y = on(rng.random((batch, *known.sample), np.float32)), on(rng.integers(10, size=batch))
    model = fuse(move(known.build(), on))
    trainer = Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.01))
    return fewest_seconds(lambda: trainer.step(Batch(x, y, batch)), xp=get_xp(x))


@styled
def plot_steps(card: str, steps, title=""):
    """Draw the time of training steps by batch, and dashed the least that their work needs."""
    ax = new_axes(figsize=(7.2, 4.0))[0]
    for i, name in enumerate(dict.fromkeys(step[0] for step in steps)):
        batches, seconds, least = zip(*(row for model, *row in steps if model == name), strict=True)
        ax.plot(batches, seconds, color=COLORS[i], marker=MARKERS[i], linestyle=LINES[0], label=f"{name}, {card}")
        ax.plot(batches, least, color=COLORS[i], marker=MARKERS[i], mfc="white", linestyle=LINES[1],
                label=f"{name}, its work at least")  # fmt: skip
    ticks = sorted({step[1] for step in steps})
    ax.set(xscale="log", yscale="log", xlabel="batch [samples]", ylabel="time of a step", xticks=ticks)
    ax.set_xticklabels([str(n) for n in ticks])
    ax.yaxis.set_major_formatter(lambda v, _: format_time(v))
    ax.minorticks_off()
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_title(ax, title)
    return ax


# -- Which device is the fastest, by the size of the work.


@styled
def plot_devices(sizes, seconds, *, measured=None, xlabel="size"):
    """Draw predicted times of the same work on several devices, and up to which size the first one is the fastest.

    Parameters
    ----------
    seconds : dict of str to sequence of float
        Of every device, by size; the first one is compared with the others.
    measured : dict of str to (sizes, seconds), optional
        Measured points, by device.
    xlabel : str
        What the sizes are, with the unit.
    """
    ax = new_axes(figsize=(7.2, 4.2))[0]
    first, wins = next(iter(seconds)), {}
    for i, (name, values) in enumerate(seconds.items()):
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        label = name
        if name != first:
            wins[name] = faster_from(list(sizes), seconds[first], values)
            label += f": faster from {wins[name]:,}" if wins[name] is not None else ": not faster"
        ax.plot(sizes, values, color=color, linestyle=LINES[i % len(LINES)], label=label)
        if name in (measured or {}):
            ax.plot(*measured[name], color=color, marker=marker, linestyle="", label=f"{name}, measured")
        if wins.get(name) is not None:
            at = list(sizes).index(wins[name])
            ax.plot([sizes[at]], [values[at]], marker=marker, color=color, markersize=6.5, linestyle="", zorder=4)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="time")
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:,g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(lambda v, _: format_time(v))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(loc="upper left", labelcolor=INK)
    ax.tick_params(colors=MUTED)
    low = min((w for w in wins.values() if w is not None), default=None)
    where = "at every size" if low is None else "at no size" if low == sizes[0] else f"below {low:,} {xlabel}"
    write_title(ax, f"Predicted: {first} fastest {where}")
    return ax


def faster_from(sizes, before, after):
    """Return the smallest size from which on `after` takes less time than `before` at every size, or None.

    Examples
    --------
    >>> faster_from([1, 2, 4, 8], [1, 2, 4, 8], [3, 3, 3, 3])
    4
    """
    slower = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b >= a]
    start = slower[-1] + 1 if slower else 0
    return sizes[start] if start < len(sizes) else None
