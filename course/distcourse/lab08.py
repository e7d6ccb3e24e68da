"""Lab 08: what limits a data-parallel step, messages of fewer bytes, training on a slow network."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from distlearn.comm import Network, ring_all_reduce
from distlearn.comm.base import RankError, ignore_report
from distlearn.comm.network.cost import sent_bytes
from distlearn.comm.waiting import count_cores
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.nn.conv import Conv2d
from distlearn.nn.linear import Linear
from distlearn.nn.models import model_named
from distlearn.optim import RULES, Optimizer
from distlearn.parallel.data.bucket import group_params
from distlearn.parallel.planning.search import CAP_BYTES
from distlearn.sim import Roofline, SimWorld
from distlearn.tables import Table, format_time, quantity
from distlearn.train.fit import DivergedError
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

from .exercise import named
from .flat import as_one
from .lab02 import tune
from .lab07 import first_ranks
from .scaling import simulate_step
from .study import Study, label_ticks

# -- What answers to lab 08's exercises give, for their checks.


def run_layer_cost(layer_cost, **case):
    return named(layer_cost(*case.values()), "values", "operations")


def run_step_parts(step_parts, **case):
    return named(step_parts(*case.values()), "computing", "bandwidth", "latency")


def run_needed_bandwidth(needed_bandwidth, **case):
    return {"bandwidth": needed_bandwidth(*case.values())}


CODECS = {
    "encode_8bit": {"scale": "float32 (1,)", "levels": "int8 ({n},)"},
    "decode_8bit": {},
    "encode_1bit": {"means": "float32 (2,)", "bits": "uint8 ({bytes},)"},
    "decode_1bit": {},
    "encode_top": {"places": "uint32 ({k},)", "values": "float32 ({k},)"},
    "decode_top": {},
}
"""The six functions of the exercise, and what an encoder returns."""


def run_codecs(*answers, of, **case):
    """Call one of the six; of the k largest values any may be sent that are as large as the others."""
    with np.errstate(invalid="warn"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = dict(zip(CODECS, answers, strict=True))[of](*case.values())
    if of.startswith("decode"):
        return {f"x of {of}": got}
    n = len(case["x"])
    sizes = {"n": n, "bytes": -(-n // 8), "k": case.get("k")}
    wanted = {name: kind.format(**sizes) for name, kind in CODECS[of].items()}
    found = named(got, *wanted)
    kinds = {k: f"{a.dtype} {a.shape}" if hasattr(a, "dtype") else type(a).__name__ for k, a in found.items()}
    told = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    if "str" in kinds.values():  # not two of them
        told = next(iter(found.values()))
    if any("in cast" in str(w.message) for w in warned):
        told += " of NaN, which no int8 can hold: what if all values are 0?"
    if kinds != wanted:
        return {f"arrays of {of}": told}
    if of == "encode_top":
        places, values = found["places"], found["values"]
        inside = places[places < n]
        found = {
            "places, each counted once": len(set(inside.tolist())),
            "magnitudes": np.sort(np.abs(values)),
            "values that are those at their places": int((case["x"][inside] == values[: len(inside)]).sum()),
        }
    return {f"arrays of {of}": told} | found


CODES = {
    "every third value": (
        lambda x: (first := np.abs(x).argmax(keepdims=True), np.roll(x, -first[0])[::3].copy()),
        lambda first, values, n: np.roll(np.kron(values, np.float32([1, 0, 0]))[:n], first[0]),
    ),
    "multiples of the mean size": (
        lambda x: (size := np.abs(x).mean(keepdims=True), np.rint(x / size).astype(np.int16)),
        lambda size, counts, n: counts * size,
    ),
}
"""Encoders and decoders, each of two arrays, for the check of an all-reduce."""


def run_compressed_all_reduce(answer, code, ranks, n, calls, first_error=0.0, seed=1):
    """Call it several times on simulated ranks; the error is that of the call before."""

    def program(comm):
        rng = np.random.default_rng([seed, comm.rank])
        error, sums, errors, same = np.float32(first_error * rng.normal(size=n)), [], [], True
        for _ in range(calls):
            x = np.float32(rng.normal(size=n))
            before = x.copy()
            sums.append(copy(answer(comm, x, error, *CODES[code])))
            errors.append(error.copy())
            same &= np.array_equal(x, before)
        return sums, errors, same

    world, found = SimWorld(ranks), {}
    for rank, (sums, errors, same) in enumerate(world.run(program)):
        found |= {f"sums on rank {rank}": sums, f"errors on rank {rank}": errors, f"x on rank {rank} is kept": same}
    return found | {"bytes sent": world.trace.bytes_sent}


def run_diloco_round(answer, ranks, n, rounds, dtype="float64", seed=1, **rates):
    def program(comm):
        rng, found = np.random.default_rng(seed), []
        start, velocity = rng.normal(size=(2, n)).astype(dtype)
        for _ in range(rounds):
            end = (start + rng.normal(size=(comm.size, n))[comm.rank]).astype(dtype)
            given = start.copy(), end.copy()
            after = copy(answer(comm, start, end, velocity, *rates.values()))
            found.append((after, velocity.copy(), *map(np.array_equal, (start, end), given)))
            start = (given[0] - 0.3).astype(dtype)  # the same whatever was returned
        return zip(("w", "velocity", "start is kept", "end is kept"), map(list, zip(*found, strict=True)), strict=True)

    return {f"{name}, rank {r}": part for r, own in enumerate(SimWorld(ranks).run(program)) for name, part in own}


# -- The layers of a network that have weights, as the numbers that their cost depends on.


class LayerShape(NamedTuple):
    """A convolution; a dense layer is one of 1 x 1 on an image of one pixel."""

    kind: str
    """"convolution" or "dense"."""
    kernel: int
    c_in: int
    c_out: int
    pixels: int
    """Of an output image."""
    groups: int


def layer_shapes(name: str) -> list[LayerShape]:
    """Return the convolutions and dense layers of a model by name, such as "alexnet"."""
    known = model_named(name)
    return list(_shapes(known.build(seed=None), (1, *known.sample)))


def _shapes(layer, shape):
    if isinstance(layer, Conv2d):
        pixels = math.prod(layer.output_shape(shape)[1:3])
        yield LayerShape("convolution", layer.geometry.size[0], layer.c_in, layer.c_out, pixels, layer.groups)
    elif isinstance(layer, Linear):
        yield LayerShape("dense", 1, *layer.W.data.shape, 1, 1)
    elif hasattr(layer, "parts"):
        for part, part_shape in layer.parts(shape):
            yield from _shapes(part, part_shape)


# -- What limits a data-parallel step, by ranks and bandwidth: a formula as a map, simulated and measured steps on it.


PARTS = ("computing", "bandwidth", "latency")
"""What a step can be limited by."""


def limit_of(parts) -> str:
    """Name what limits a step: computing, or the longer part of the network's time if that takes longer."""
    computing, moving, waiting = parts
    return PARTS[0 if computing >= moving + waiting else 1 if moving >= waiting else 2]


class MapPoint(NamedTuple):
    """A step whose three parts were simulated or measured."""

    ranks: int
    bandwidth: float
    """[bytes/s]"""
    parts: tuple[float, float, float]
    """Seconds of computing, of moving bytes, of latencies."""
    kind: str
    """"simulated" or "measured"."""


class Map(NamedTuple):
    """What limits a step by `formula(ranks, bandwidth)`, which returns its three parts, and points to compare."""

    formula: Callable
    points: tuple[MapPoint, ...] = ()
    ranks: tuple[float, float] = (1, 1024)
    bandwidths: tuple[float, float] = (1e6, 1e12)

    def predicted(self, point: MapPoint) -> str:
        """Return what limits a point by the formula."""
        return limit_of(self.formula(point.ranks, point.bandwidth))


def point_table(maps: dict[str, Map]) -> Table:
    """Return the points of several maps, by name, as one table."""
    header = ["", "", "ranks", "bandwidth", *(f"{part}, time" for part in PARTS), "limited by", "formula"]
    rows = [
        [name, p.kind, str(p.ranks), f"{quantity(8 * p.bandwidth)}bit/s", *map(format_time, p.parts),
         limit_of(p.parts), m.predicted(p)]
        for name, m in maps.items() for p in m.points
    ]  # fmt: skip
    return Table(header, rows, f"{sum(row[-1] == row[-2] for row in rows)} of {len(rows)} points as predicted")


def simulate_points(
    model, bandwidths, *, alpha: float, batch: int, ranks=(2, 8, 128), **options
) -> tuple[MapPoint, ...]:
    """Simulate the library's data-parallel step and take it apart, by leaving out one cost at a time."""
    found = []
    for p in ranks:
        late = simulate_step(model, p, Network(alpha, 1e18), batch=batch, **options).communicating
        for beta in bandwidths:
            step = simulate_step(model, p, Network(0.0, beta), batch=batch, **options)
            found.append(MapPoint(p, beta, (step.computing, step.communicating, late), "simulated"))
    return tuple(found)


def cluster(model: str, nbytes: float, *, batch: int, alpha: float) -> dict:
    """Return the inputs of a step-time formula for a model on simulated GPUs, except ranks and bandwidth."""
    seconds = simulate_step(model, 1, Network(), batch=batch).seconds
    buckets = len(
        group_params(model_named(model).build(seed=None).params, CAP_BYTES)
    )  # whole layers: fewer than n / cap
    return {"seconds": seconds, "nbytes": nbytes, "alpha": alpha, "buckets": buckets}


REGIONS = ("#fbe9a9", "#8fb8d8", "#a5658f")
"""Backgrounds of computing, bandwidth, latency: light, medium, dark."""
_MARKS = {"simulated": "o", "measured": "s"}


@styled
def plot_maps(maps: dict[str, Map], *, borders=None, title=None):
    """Draw what limits a step, by ranks and bandwidth, a panel for each map.

    A point's filling says what limits it, its background what the formula says; a cross is on those where the two
    differ.

    Parameters
    ----------
    borders : dict of str to callable, optional
        `border(ranks) -> bandwidth` in bytes/s, by its label: lines in every panel.
    title : str, optional
        Of the first panel.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import FixedLocator, LogLocator

    axes = new_axes(len(maps), figsize=(8.8, 4.4), sharey=True)
    labels = {
        f"limited by {part}": Patch(facecolor=fill, edgecolor=MUTED) for part, fill in zip(PARTS, REGIONS, strict=True)
    }
    for ax, (name, drawn) in zip(axes, maps.items(), strict=True):
        ranks, betas = (np.geomspace(*ends, 120) for ends in (drawn.ranks, drawn.bandwidths))
        limits = [[PARTS.index(limit_of(drawn.formula(float(p), float(beta)))) for p in ranks] for beta in betas]
        look = {"cmap": ListedColormap(REGIONS), "vmin": -0.5, "vmax": 2.5, "shading": "nearest", "rasterized": True}
        ax.pcolormesh(ranks, 8 * betas, limits, **look)
        for (label, border), line in zip((borders or {}).items(), LINES, strict=False):
            bits = np.minimum([8 * border(float(p)) or np.nan for p in ranks], 1e20)  # infinite: beyond the top
            (labels[label],) = ax.plot(ranks, bits, color=INK, linestyle=line, linewidth=1.8)
        right = 0
        for point in drawn.points:
            look = {"marker": _MARKS[point.kind], "markersize": 9, "markeredgecolor": INK, "linestyle": ""}
            limit, x, y = limit_of(point.parts), [point.ranks], [8 * point.bandwidth]
            ax.plot(x, y, color=REGIONS[PARTS.index(limit)], zorder=4, **look)
            labels[point.kind] = Line2D([], [], color="white", **look)
            right += drawn.predicted(point) == limit
            if drawn.predicted(point) != limit:
                ax.plot(x, y, marker="x", color=INK, markersize=6, zorder=5)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        label_ticks(ax.xaxis, FixedLocator(2.0 ** np.arange(11), nbins=7), "{:.0f}".format)
        label_ticks(ax.yaxis, LogLocator(numticks=12), lambda bits: f"{quantity(bits)}bit/s")
        ax.set(xlabel="ranks", xlim=drawn.ranks, ylim=(8 * drawn.bandwidths[0], 8 * drawn.bandwidths[1]))
        ax.grid(False)
        told = f"{name}: {right} of {len(drawn.points)} points as predicted" if drawn.points else name
        write_title(ax, told, title if ax is axes[0] else None)
    axes[0].set_ylabel("bandwidth")
    axes[0].figure.legend(labels.values(), labels, loc="outside lower center", ncols=4)
    return axes


# -- Steps of real ranks behind a limited link, taken apart into computing, moving bytes and latencies.


FEW = 4
"""Small all-reduces in a row: how long one takes depends on when the ranks look."""


def timed_steps(comm, widths, batch: int, repeats: int):
    """Train some steps; return the seconds of computing and of two all-reduces, step by step."""
    model, loss, rng = MLP(widths), SoftmaxCrossEntropy(), np.random.default_rng(comm.rank)
    mine = batch // comm.size
    x = rng.normal(size=(mine, widths[0])).astype(np.float32)
    y = rng.integers(widths[-1], size=mine)
    gradients = np.zeros(sum(param.size for param in model.params), np.float32)
    few, seconds, now = np.zeros(comm.size, np.float32), [], comm.clock.now
    with threadpool_limits(1):
        ring_all_reduce(comm, few)  # makes connections
        model.forward(x)
        for _ in range(repeats):
            comm.barrier()
            began = now()
            logits, saved = model.forward(x)
            model.backward(loss(logits, y, batch)[1], saved)
            computed = now()
            comm.barrier()
            ready = now()
            ring_all_reduce(comm, gradients)
            reduced = now()
            comm.barrier()
            again = now()
            for _ in range(FEW):
                ring_all_reduce(comm, few)
            seconds.append((computed - began, reduced - ready, (now() - again) / FEW))
    return np.array(seconds)


def measure_points(world, widths, batch: int, *, ranks, repeats: int = 4):
    """Measure data-parallel steps behind links of 400, 100 and 25 Mb/s: seconds of one rank, alpha, points.

    Latency is an all-reduce of one number for each rank, bandwidth what the one of all gradients takes longer.
    """

    def median(p):
        slowest = np.max(world.run(first_ranks, p, timed_steps, widths, batch, repeats)[:p], axis=0)
        return *np.median(slowest[:, :2], axis=0), slowest[:, 2].mean()  # a rank looks for messages now and then

    points = []
    for limit in (400e6, 100e6, 25e6):
        world.limit(limit)
        for p in ranks:
            computing, full, late = median(p)
            points.append(MapPoint(p, limit / 8, (computing, max(full - late, 0.0), late), "measured"))
    world.limit(None)
    alpha = float(np.mean([point.parts[2] / (2 * point.ranks - 2) for point in points]))
    return float(median(1)[0]), alpha, points


def machine_map(formula, widths, batch: int, alone: float, alpha: float, points) -> Map:
    """Draw up the map of this machine from the seconds of one rank and the mean latency of measured points.

    `formula(ranks, bandwidth, seconds, nbytes, alpha)` returns the parts of a step; ranks that share a core take turns.
    """
    cores, model = count_cores(), MLP(widths)
    work = model.flops((batch, widths[0])) + model.backward_flops((batch, widths[0]))
    ends = min(point.bandwidth for point in points), max(point.bandwidth for point in points)
    more = []
    for p in (8, 32):
        card = Roofline(work / alone * min(1, cores / p))
        more += simulate_points(model, ends, ranks=(p,), alpha=alpha, batch=batch, sample=(widths[0],), compute=card)

    def parts(p, beta):
        return formula(p, beta, alone * max(1, p / cores), sum(param.nbytes for param in model.params), alpha)

    return Map(parts, (*points, *more), (1, 64), (1e5, 1e9))


# -- Ways to train on a slow network, as plain functions that exchange arrays: loss against samples, seconds and bytes.


SAMPLES, EPOCHS, RANKS = 1280, 8, 4
SLOW = Network(1e-3, 12.5e6)
"""A millisecond to a message, and 100 Mb/s."""
PEAK = 1e9
"""How fast a rank computes [flop/s]: the small network's step then takes as long as a large one's on a real card."""
TARGET = 0.1


@dataclass(frozen=True)
class Recipe:
    """One way to train on several ranks.

    Parameters
    ----------
    exchange : callable, optional
        `exchange(comm, gradient, error)` returns the sum of the ranks' gradients, a flat array; `error` is an array of
        its shape, zeros at first, that it may keep something in. By default `comm.all_reduce`.
    every : int
        0: exchange gradients in every step. Else: take so many steps alone, then call `outer`.
    outer : callable, optional
        `outer(comm, start, end, velocity)` returns the parameters with which all ranks go on, flat; `start` are those
        with which they began the round, `end` this rank's own, `velocity` is zeros at first. By default the mean.
    batch : int
        Samples of all ranks together.
    rule : str
        Update rule of every rank.
    lr : float
        Its learning rate.
    scale : float
        Factor on the loss, as in mixed-precision training; gradients are divided by it after the exchange.
    """

    exchange: Callable | None = None
    every: int = 0
    outer: Callable | None = None
    batch: int = 64
    rule: str = "sgd"
    lr: float = 0.4
    scale: float = 1.0

    def but(self, **changes) -> Recipe:
        """Return the same recipe with some fields changed."""
        return replace(self, **changes)


class Run(NamedTuple):
    """What a run gave, as seen by rank 0."""

    samples: np.ndarray
    """Drawn so far by all ranks, at each look."""
    seconds: np.ndarray
    losses: np.ndarray
    """On all training samples, of the parameters that all ranks share."""
    accuracy: float
    """On the test set [%]."""
    megabytes: float
    """Sent by rank 0."""

    def seconds_to(self) -> float:
        """Return the seconds after which the loss is first at most `TARGET`; infinite if it never is."""
        there = np.flatnonzero(self.losses <= TARGET)
        return float(self.seconds[there[0]]) if len(there) else math.inf


def train_with(comm, recipe: Recipe, seed: int = 0, samples: int = SAMPLES * EPOCHS, looks: int = 20):
    """Train a small network on digits by a recipe, on any communicator; rank 0 looks at the loss now and then."""
    data = load("digits")
    x, y = data.x_train[:SAMPLES], data.y_train[:SAMPLES]
    model, loss = MLP((x.shape[1], 128, 64, 10), seed=seed), SoftmaxCrossEntropy()
    params = as_one(model.params)
    optimizer = Optimizer([params], RULES[recipe.rule](), recipe.lr)
    rng, rows, looked = np.random.default_rng(seed + 100), [], 0.0
    error, velocity, start = np.zeros_like(params.data), np.zeros_like(params.data), params.data.copy()
    steps, shape = samples // recipe.batch, (len(range(comm.rank, recipe.batch, comm.size)), x.shape[1])
    work = model.flops(shape) + model.backward_flops(shape)
    alone, pause = recipe.every > 0, max(recipe.every, steps // looks, 1)
    comm.barrier()
    with threadpool_limits(1), np.errstate(all="ignore"):
        for step in range(1, steps + 1):
            drawn = rng.integers(SAMPLES, size=recipe.batch)  # the same numbers on every rank
            mine = drawn[comm.rank :: comm.size]
            params.grad[...] = 0
            with comm.clock.span("gradient", flops=work):
                logits, saved = model.forward(x[mine])
                dy = loss(logits, y[mine], len(mine) if alone else recipe.batch)[1]
                model.backward(dy * np.float32(recipe.scale), saved)
            if not alone:
                exchange = recipe.exchange or (lambda comm, g, error: comm.all_reduce(g))
                params.grad[...] = exchange(comm, params.grad, error) / recipe.scale
            optimizer.step()
            if alone and (step % recipe.every == 0 or step == steps):
                outer = recipe.outer or (lambda comm, start, end, velocity: comm.all_reduce(end) / comm.size)
                start = outer(comm, start, params.data.copy(), velocity)
                params.data[...] = start
            if comm.rank == 0 and (step == steps or (step % pause == 0 and (not alone or step % recipe.every == 0))):
                began = comm.clock.now()
                value = loss(model.forward(x)[0], y, SAMPLES)[0]
                rows.append((step * recipe.batch, began - looked, value))
                if not math.isfinite(value):
                    raise DivergedError(f"the loss is {value} after {step} of {steps} steps")
                looked += comm.clock.now() - began  # the time of looking does not count
    accuracy = 100 * float((model.forward(data.x_test)[0].argmax(axis=1) == data.y_test).mean())
    return np.array(rows), accuracy


def run_recipe(recipe: Recipe, seed: int = 0, *, world=None, **options) -> Run:
    """Run a recipe on a world of four ranks, by default simulated behind a slow network.

    Parameters
    ----------
    seed : int
        Of the weights and of the samples drawn.
    **options
        Of `train_with`: samples, looks.

    Raises
    ------
    DivergedError
        If the loss is no longer finite.
    """
    if world is None:
        world = SimWorld(RANKS, SLOW, Roofline(PEAK), collectives="formula")
    try:
        rows, accuracy = world.run(train_with, recipe, seed, **options)[0]
    except RankError as error:
        if isinstance(error.original, DivergedError):
            raise error.original from None
        raise
    spans = world.trace.select(rank=0, lane="comm")
    sent = sum(sent_bytes(s.name, s.nbytes, world.size) for s in spans if s.name in ("all_reduce", "all_gather"))
    return Run(*rows.T, accuracy, sent / 1e6)


_simulated = functools.cache(run_recipe)  # what two comparisons share is run once


def compare(recipe: Callable, over: dict, *, seeds: int = 5, report=ignore_report, **options) -> tuple[Study, dict]:
    """Run recipes from several seeds.

    Parameters
    ----------
    recipe : callable
        `recipe(**setting)` returns a `Recipe`.
    over : dict of str to sequence
        The values of each setting.
    report : callable
        As for `Study`.
    **options
        Of `run_recipe`.

    Returns
    -------
    study : Study
    runs : dict of tuple to list of Run
        By the values of the settings, in their order.
    """
    runs = {}

    def run(seed, **setting):
        way = recipe(**setting)
        made = _simulated(way, seed, **options)
        runs.setdefault(tuple(setting.values()), []).append(made)
        kilobytes = 1e3 * made.megabytes * way.batch / made.samples[-1]
        found = {"rate": way.lr, "kB per step": kilobytes, f"seconds to {TARGET}": made.seconds_to()}
        return found | {"loss at the end": made.losses[-1], "accuracy [%]": made.accuracy}

    return Study(run, over, seeds, report), runs


@functools.cache
def tuned(recipe: Recipe, **options) -> Recipe:
    """Return a recipe at its best rate: half and twice it end at a higher loss. The search begins at its rate."""

    def loss(lr, most):
        try:
            return run_recipe(recipe.but(lr=lr), 99, **options | {"looks": 1}).losses[-1]
        except DivergedError:
            return math.inf

    losses = tune(loss, recipe.lr)
    return recipe.but(lr=min(losses, key=losses.get))


@styled
def plot_recipes(runs: dict):
    """Draw the loss of several recipes against time (left) and against samples: medians over the seeds, and bands."""
    from matplotlib.ticker import LogLocator

    left, right = axes = new_axes(2, figsize=(8.8, 4.0), sharey=True)
    for i, (key, seeds) in enumerate(runs.items()):
        losses = np.array([run.losses for run in seeds])
        look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6], "markevery": 2}
        for ax, x in ((left, np.median([run.seconds for run in seeds], axis=0)), (right, seeds[0].samples)):
            ax.plot(x, np.median(losses, axis=0), label=" ".join(key), linewidth=1.6, markersize=5, **look)
            ax.fill_between(x, losses.min(axis=0), losses.max(axis=0), color=look["color"], alpha=0.13, linewidth=0)
    for ax in axes:
        ax.set_yscale("log")
        ax.axhline(TARGET, color=MUTED, linewidth=1)
    left.set(xscale="log", xlabel="time [s]", ylabel="training loss")
    label_ticks(left.yaxis, LogLocator(subs=(1, 3)), "{:g}".format)
    label_ticks(left.xaxis, LogLocator(subs=(1, 2, 5)), "{:g}".format)
    right.set(xlabel="samples drawn by all ranks")
    left.figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    times = {" ".join(key): np.median([run.seconds_to() for run in seeds]) for key, seeds in runs.items()}
    write_title(left, f"First at a loss of {TARGET}: {min(times, key=times.get)}")
    write_title(right, "The same runs, by samples")
    return axes


def bytes_sent(exchange, ranks: int) -> float:
    """Count the bytes that a rank sends, on average, in one `Recipe.exchange` of 4,096 values in single precision."""
    world, n = SimWorld(ranks), 4096
    world.run(lambda comm: exchange(comm, np.ones(n, np.float32), np.zeros(n, np.float32)))
    return world.trace.bytes_sent / ranks
