"""What limits a data-parallel step, what moves the border: phase diagrams, limited links, messages of fewer bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from distlearn.comm import Network, ring_all_reduce
from distlearn.comm.base import RankError
from distlearn.comm.network.formulas import sent_bytes
from distlearn.comm.waiting import count_cores
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.nn.conv import Conv2d
from distlearn.nn.layer import Layer
from distlearn.nn.linear import Linear
from distlearn.nn.models import model_named
from distlearn.optim import RULES, Optimizer
from distlearn.sim import Roofline, SimWorld
from distlearn.tables import Table, format_time, quantity, table
from distlearn.train.fit import DivergedError

from .flat import flat
from .lab02 import tune
from .lab08_figures import plot_messages, plot_phases, plot_recipes, plot_sent  # noqa: F401  (as lab cells name them)
from .scaling import CAP_BYTES, simulate_step

# -- Checks of a student's codecs, compressed all-reduce and DiLoCo round against plain NumPy.


def encode_8bit(x):
    """Scale to -127 ... 127, round to the nearest."""
    scale = np.abs(x).max(keepdims=True).astype(np.float32)
    return scale, np.rint(x * (127 / np.where(scale > 0, scale, 1))).astype(np.int8)


def decode_8bit(scale, levels, n):
    """Scale back."""
    return levels * (scale / np.float32(127))


def encode_1bit(x):
    """Signs, and the mean of each side."""
    above = x >= 0
    means = [x[side].mean() if side.any() else 0 for side in (above, ~above)]
    return np.array(means, np.float32), np.packbits(above)


def decode_1bit(means, bits, n):
    """The mean of each value's side."""
    return np.where(np.unpackbits(bits)[:n] == 1, means[0], means[1])


def encode_top(x, k):
    """The k largest by size, and where they are."""
    places = np.argsort(-np.abs(x), kind="stable")[:k].astype(np.uint32)
    return places, x[places]


def decode_top(places, values, n):
    """Zero everywhere else."""
    x = np.zeros(n, np.float32)
    x[places] = values
    return x


CODECS = {
    "8 bit": (encode_8bit, decode_8bit),
    "1 bit": (encode_1bit, decode_1bit),
    "top k": (encode_top, decode_top),
}


def _wrong(kind: str, x, k) -> dict:
    """What arrives by known mistakes."""
    size = np.abs(x).max()
    if kind == "8 bit":
        scaled = x * (127 / (size or 1))
        return {
            "round to the nearest level (np.rint); astype alone cuts off": np.trunc(scaled) * size / 127,
            "the scale is the largest of abs(x), not of x": np.clip(np.rint(x / x.max() * 127), -127, 127)
            * (x.max() / 127)
            if x.max() > 0
            else np.nan,
        }
    if kind == "1 bit":
        signs = np.where(x >= 0, 1.0, -1.0)
        return {
            "each side has its own mean": signs * np.abs(x).mean(),
            "signs alone do not say how large": signs,
            "the means belong to the other side": decode_1bit(encode_1bit(x)[0][::-1], encode_1bit(x)[1], len(x)),
        }
    largest, rest = np.argsort(-x)[:k], np.argsort(np.abs(x))[:k]
    return {
        "the largest in magnitude: abs(x)": decode_top(largest, x[largest], len(x)),
        "these are the smallest": decode_top(rest, x[rest], len(x)),
    }


def _away_from_halves(x):
    """Move values that lie between two levels onto one: how they are rounded depends on the order of operations."""
    level = np.abs(x).max() / np.float32(127)
    if not level:
        return x
    scaled = x / level
    between = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) < 1e-3
    return np.where(between, np.trunc(scaled) * level, x).astype(x.dtype)


def judge_codec(check, kind: str, encode, decode, x, *k, what: str = "") -> None:
    """Compare a codec with the one of the lab's text, on one array, in one line.

    Parameters
    ----------
    kind : {"8 bit", "1 bit", "top k"}
    encode : callable
        `encode(x, *k)` returns two arrays.
    decode : callable
        `decode(first, second, n)` returns what arrives.
    x : (n,) array of float32
    *k : int
        For "top k": how many values are sent.
    what : str
        Of what kind the array is.
    """
    of = ", ".join(filter(None, [kind, what, f"n = {len(x)}", *(f"k = {count}" for count in k)]))
    with check.group(of):
        _judge_codec(check, kind, encode, decode, x, *k, of=of)


def _judge_codec(check, kind, encode, decode, x, *k, of) -> None:
    right_encode, right_decode = CODECS[kind]
    if kind == "8 bit":
        x = _away_from_halves(x)
    n, want = len(x), right_encode(x, *k)
    code = check.call(encode, x, *k)
    pair = isinstance(code, (tuple, list)) and len(code) == 2 and all(isinstance(a, np.ndarray) for a in code)
    check.true(f"encode returns two arrays ({of})", pair, f"it returned {type(code).__name__}, wanted a pair of arrays")
    if pair:
        types = tuple(str(a.dtype) for a in code), tuple(a.shape for a in code)
        check.equal(
            f"dtypes and shapes ({of})", types, (tuple(str(a.dtype) for a in want), tuple(a.shape for a in want))
        )
        if types[1] == tuple(a.shape for a in want):
            arrived = right_decode(code[0], code[1].astype(want[1].dtype), n)
            check.close(
                f"what arrives ({of})", arrived, right_decode(*want, n), rtol=1e-5, suspects=_wrong(kind, x, *k or [0])
            )
            if kind != "top k":  # whose places may come in any order
                check.close(f"{'means' if kind == '1 bit' else 'scale'} ({of})", code[0], want[0], rtol=1e-5)
            if kind == "1 bit":
                check.equal(f"bits, 1 where x >= 0 ({of})", code[1].tolist(), want[1].tolist())
    got = check.call(decode, *want, n)
    check.close(f"decode ({of})", got, right_decode(*want, n), rtol=1e-5)


def right_all_reduce(comm, x, error, encode, decode):
    """Sum over ranks of what arrives; keep what does not."""
    given = x + error
    code = encode(given)
    error[...] = given - decode(*code, len(x))
    rows = [comm.all_gather(part) for part in code]
    return sum(decode(*(part[rank] for part in rows), len(x)) for rank in range(comm.size))


def _forgetful(comm, x, error, encode, decode):
    """The error is kept and not used."""
    kept = np.zeros_like(error)
    total = right_all_reduce(comm, x, kept, encode, decode)
    error[...] = kept
    return total


def _renaming(comm, x, error, encode, decode):
    """The new error is in another array, which the caller never sees."""
    return right_all_reduce(comm, x, error.copy(), encode, decode)


def _overwriting(comm, x, error, encode, decode):
    """The error of the gradient alone: what was left before is lost."""
    code = encode(x + error)
    error[...] = x - decode(*code, len(x))
    rows = [comm.all_gather(part) for part in code]
    return sum(decode(*(part[rank] for part in rows), len(x)) for rank in range(comm.size))


def _averaging(comm, x, error, encode, decode):
    return right_all_reduce(comm, x, error, encode, decode) / comm.size


MISTAKES = {
    "the error of the last call is not added": _forgetful,
    "error = ... makes a new array: write into this one, error[...] = ...": _renaming,
    "the new error is that of x + error, not that of x": _overwriting,
    "a sum over ranks, not a mean": _averaging,
}


def judge_all_reduce(
    check, all_reduce, *, ranks=3, n=40, steps=3, kind="top k", seed=1, dtype="float32", left=False
) -> None:
    """Compare a compressed all-reduce with error feedback with the right one, over some calls on simulated ranks.

    Parameters
    ----------
    all_reduce : callable
        `all_reduce(comm, x, error, encode, decode)` returns the sum, and changes `error` in place.
    kind : {"8 bit", "1 bit", "top k"}
    left : bool
        Begin with an error other than zero.
    """
    encode, decode = CODECS[kind]
    if kind == "top k":
        k = max(1, n // 10)
        encode = lambda x: encode_top(x, k)  # noqa: E731

    def program(comm, function):
        rng = np.random.default_rng([seed, comm.rank])
        error = rng.normal(size=n).astype(dtype) * left
        found, same = [], True
        for _ in range(steps):
            x = rng.normal(size=n).astype(dtype)
            before = x.copy()
            total = function(comm, x, error, encode, decode)
            same &= bool(np.array_equal(x, before))
            found.append((None if total is None else np.array(total), error.copy()))
        return found, same

    def run(function):
        world = SimWorld(ranks)
        return world.run(program, function), world.trace.bytes_sent

    of = f"{kind}, {ranks} rank" + "s" * (ranks != 1)
    want, sent = run(right_all_reduce)
    wrong = {text: run(function)[0] for text, function in MISTAKES.items()}
    got = check.call(run, all_reduce)
    if got is None:
        return
    found, bytes_sent = got
    calls = [(step, rank) for step in range(steps) for rank in sorted({0, ranks - 1})]
    with check.group(f"sum and error in {steps} calls ({of})"):
        for step, rank in calls:
            where = f"({of}, rank {rank}, call {step + 1})"
            suspects = {text: result[rank][0][step][0] for text, result in wrong.items()}
            check.close(f"sum {where}", found[rank][0][step][0], want[rank][0][step][0], rtol=1e-5, suspects=suspects)
            suspects = {text: result[rank][0][step][1] for text, result in wrong.items()}
            check.close(f"error {where}", found[rank][0][step][1], want[rank][0][step][1], atol=1e-6, suspects=suspects)
    check.true(f"x is unchanged ({of})", all(same for _, same in found), "x changed: x = x + error makes a new array")
    check.equal(f"bytes sent by all ranks ({of})", int(bytes_sent), int(sent))


def right_round(comm, start, end, velocity, lr=0.7, mu=0.9):
    """Step along the mean difference, with Nesterov's momentum."""
    delta = start - comm.all_reduce(end.copy()) / comm.size
    velocity[...] = mu * velocity + delta
    return start - lr * (delta + mu * velocity)


def _with(step):
    """A round with another last line."""

    def round_(comm, start, end, velocity, lr=0.7, mu=0.9):
        delta = start - comm.all_reduce(end.copy()) / comm.size
        velocity[...] = mu * velocity + delta
        return step(start, delta, velocity, lr, mu)

    return round_


def _turned(comm, start, end, velocity, lr=0.7, mu=0.9):
    """Delta from the start to the mean, in velocity and step."""
    delta = comm.all_reduce(end.copy()) / comm.size - start
    velocity[...] = mu * velocity + delta
    return start - lr * (delta + mu * velocity)


ROUND_MISTAKES = {
    "delta points from the mean back to the start: start - mean": _turned,
    "this is momentum: Nesterov moves by delta + mu v": _with(lambda w, d, v, lr, mu: w - lr * v),
    "delta points from the mean back to the start, and is subtracted": _with(
        lambda w, d, v, lr, mu: w + lr * (d + mu * v)
    ),
    "go on from start, not from the mean": _with(lambda w, d, v, lr, mu: w - d - lr * (d + mu * v)),
    "this is local SGD: the mean itself": _with(lambda w, d, v, lr, mu: w - d),
}


def judge_round(check, function, *, ranks=3, n=5, steps=3, seed=1, **options) -> None:
    """Compare a DiLoCo round with the right one, over some rounds on simulated ranks.

    Parameters
    ----------
    function : callable
        `function(comm, start, end, velocity, lr=, mu=)` returns the parameters to go on with; `velocity` changes in
        place, the others do not.
    **options
        lr, mu.
    """

    def program(comm, call):
        rng = np.random.default_rng(seed)
        start, velocity, found, same = rng.normal(size=n), rng.normal(size=n), [], True
        for _ in range(steps):
            end = start + rng.normal(size=(comm.size, n))[comm.rank]
            before = start.copy(), end.copy()
            after = call(comm, start, end, velocity, **options)
            same &= bool(np.array_equal(start, before[0]) and np.array_equal(end, before[1]))
            found.append((None if after is None else np.array(after), velocity.copy()))
            start = before[0] - 0.3  # the same whatever was returned
        return found, same

    of = f"{ranks} rank" + "s" * (ranks != 1)
    _, first = np.random.default_rng(seed).normal(size=(2, n))
    want = SimWorld(ranks).run(program, right_round)
    wrong = {text: SimWorld(ranks).run(program, call) for text, call in ROUND_MISTAKES.items()}
    found = check.call(lambda: SimWorld(ranks).run(program, function))
    if found is None:
        return
    with check.group(f"parameters and velocity in {steps} rounds ({of})"):
        for step in range(steps):
            where = f"({of}, round {step + 1})"
            suspects = {text: result[0][0][step][0] for text, result in wrong.items()}
            check.close(f"parameters {where}", found[0][0][step][0], want[0][0][step][0], suspects=suspects)
            suspects = {"velocity = ... makes a new array: change this one in place": first}
            suspects |= {text: result[0][0][step][1] for text, result in wrong.items()}
            check.close(f"velocity {where}", found[0][0][step][1], want[0][0][step][1], suspects=suspects)
    last = [result[0][-1][0] for result in found]
    check.true(f"all ranks have the same w ({of})", all(np.array_equal(a, last[0]) for a in last), "ranks differ")
    check.true(f"start and end are unchanged ({of})", all(same for _, same in found), "all_reduce sums in place: copy")


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


def _shapes(layer: Layer, shape):
    if isinstance(layer, Conv2d):
        pixels = math.prod(layer.output_shape(shape)[1:3])
        yield LayerShape("convolution", layer.geometry.size[0], layer.c_in, layer.c_out, pixels, layer.groups)
    elif isinstance(layer, Linear):
        yield LayerShape("dense", 1, *layer.W.data.shape, 1, 1)
    elif hasattr(layer, "parts"):
        for part, part_shape in layer.parts(shape):
            yield from _shapes(part, part_shape)


# -- What limits a data-parallel step, by ranks and bandwidth: a formula as a phase diagram, simulated steps beside it.


PARTS = ("computing", "bandwidth", "latency")
"""What a step can be limited by."""

HEADER = ["", "ranks", "bandwidth", *(f"{part}, time" for part in PARTS), "limited by", "formula"]


class PhasePoint(NamedTuple):
    """A step whose three parts were simulated or measured."""

    ranks: int
    bandwidth: float
    """[bytes/s]"""
    parts: tuple[float, float, float]
    """Seconds of computing, of moving bytes, of latencies."""
    kind: str
    """"simulated" or "measured"."""

    @property
    def limit(self) -> str:
        """The longest part."""
        return PARTS[int(np.argmax(self.parts))]


@dataclass(frozen=True, repr=False)
class PhaseDiagram:
    """Which part of a step is the longest, by ranks and bandwidth."""

    ranks: np.ndarray
    bandwidths: np.ndarray
    limits: np.ndarray
    formula: object
    points: tuple[PhasePoint, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What a step can be limited by, in the order of `limits`."""
        return PARTS

    def predicted(self, point: PhasePoint) -> str:
        """Return what limits a point by the formula."""
        return PARTS[int(np.argmax(self.formula(point.ranks, point.bandwidth)))]

    @property
    def agreeing(self) -> int:
        """How many points are limited by what the formula says."""
        return sum(self.predicted(p) == p.limit for p in self.points)

    def table(self, title: str = "") -> Table:
        """Return the points as a table."""
        rows = [
            [
                p.kind,
                f"{p.ranks}",
                f"{quantity(8 * p.bandwidth)}bit/s",
                *map(format_time, p.parts),
                p.limit,
                self.predicted(p),
            ]
            for p in self.points
        ]
        return Table(HEADER, rows, title or f"{self.agreeing} of {len(self.points)} points are limited as predicted")


def phase_diagram(formula, *, ranks=(1, 1024), bandwidths=(1e6, 1e11), points=(), size: int = 160) -> PhaseDiagram:
    """Evaluate a formula for the parts of a step on a grid of ranks and bandwidths."""
    p = np.geomspace(*ranks, size)
    betas = np.geomspace(*bandwidths, size)
    limits = np.empty((size, size), int)
    for i, beta in enumerate(betas):
        for j, n in enumerate(p):
            parts = formula(float(n), float(beta))
            if np.shape(parts) != (3,) or not all(map(math.isfinite, parts)):
                raise ValueError(f"phase_diagram: the formula returned {parts!r}, expected three finite numbers")
            limits[i, j] = int(np.argmax(parts))
    return PhaseDiagram(p, betas, limits, formula, tuple(points))


def simulate_points(model, ranks, bandwidths, *, alpha: float, batch: int, **options) -> list[PhasePoint]:
    """Simulate the library's data-parallel step and take it apart, by leaving out one cost at a time."""
    found = []
    for p in ranks:
        late = simulate_step(model, p, Network(alpha, 1e18), batch=batch, **options).communicating
        for beta in bandwidths:
            step = simulate_step(model, p, Network(0.0, beta), batch=batch, **options)
            found.append(PhasePoint(p, beta, (step.computing, step.communicating, late), "simulated"))
    return found


def cluster(model: str, nbytes: float, *, batch: int, alpha: float) -> dict:
    """Return the inputs of a step-time formula for a model on simulated GPUs, except ranks and bandwidth.

    Parameters
    ----------
    nbytes : float
        Of its gradients.
    batch : int
        Images of all ranks together.
    alpha : float
        Latency of a message [s].

    Returns
    -------
    told : dict
        seconds (of the whole batch on one rank), nbytes, alpha, buckets.
    """
    seconds = simulate_step(model, 1, Network(), batch=batch).seconds
    return {"seconds": seconds, "nbytes": nbytes, "alpha": alpha, "buckets": math.ceil(nbytes / CAP_BYTES)}


def cluster_diagrams(formula, clusters: dict, *, batch: int, ranks=(2, 8, 32, 128), gbits=(1, 10, 100)) -> dict:
    """Evaluate a formula for several models on a grid, with simulated points.

    Parameters
    ----------
    formula : callable
        `formula(ranks, bandwidth, **told)` returns the three parts of a step.
    clusters : dict of str to dict
        What `cluster` returned, by model.
    ranks, gbits : sequence
        Where steps are simulated; bandwidths in Gb/s.
    """
    diagrams = {}
    for model, told in clusters.items():
        points = simulate_points(model, ranks, [g * 1e9 / 8 for g in gbits], alpha=told["alpha"], batch=batch)
        parts = partial(formula, **told)
        diagrams[model] = phase_diagram(parts, bandwidths=(1e6, 1e12), points=points)
    return diagrams


def point_table(diagrams: dict) -> Table:
    """Return the points of several diagrams, by name, as one table."""
    rows = [[name, *row] for name, diagram in diagrams.items() for row in diagram.table().rows]
    return Table(["network", "", *HEADER[1:]], rows, "The points of the map")


# -- Steps of real ranks behind a limited link, taken apart into computing, moving bytes and latencies.


FEW = 4
"""Small all-reduces in a row: how long one takes depends on when the ranks look."""


def timed_steps(comm, p: int, widths, batch: int, repeats: int):
    """Train some steps on the first p ranks; return the seconds of computing and of two all-reduces, step by step."""
    part = comm.split(0 if comm.rank < p else None)
    if part is None:
        return None
    model, loss, rng = MLP(widths), SoftmaxCrossEntropy(), np.random.default_rng(comm.rank)
    mine = batch // p
    x = rng.normal(size=(mine, widths[0])).astype(np.float32)
    y = rng.integers(widths[-1], size=mine)
    gradients = np.zeros(sum(param.size for param in model.params), np.float32)
    few, seconds, now = np.zeros(p, np.float32), [], comm.clock.now
    with threadpool_limits(1):
        for _ in range(repeats + 1):
            part.barrier()
            began = now()
            logits, saved = model.forward(x)
            model.backward(loss(logits, y, batch)[1], saved)
            computed = now()
            part.barrier()
            ready = now()
            ring_all_reduce(part, gradients)
            reduced = now()
            part.barrier()
            again = now()
            for _ in range(FEW):
                ring_all_reduce(part, few)
            seconds.append((computed - began, reduced - ready, (now() - again) / FEW))
    return np.array(seconds[1:])  # the first makes connections


def measure_points(world, widths, batch: int, *, ranks=(2, 4), limits=(400e6, 100e6, 25e6), repeats: int = 4):
    """Measure data-parallel steps of a small network behind links of several bandwidths.

    Parameters
    ----------
    widths : tuple of int
        Of the network's layers.
    batch : int
        Samples of all ranks together.
    limits : sequence of float
        Bandwidths [bit/s].
    repeats : int
        Steps that are timed; the median counts, for latencies the mean.

    Returns
    -------
    alone : float
        Seconds of a step of one rank.
    points : list of PhasePoint
        Latency is an all-reduce of one number for each rank, bandwidth what the one of all gradients takes longer.
    """

    def median(p):
        found = [seconds for seconds in world.run(timed_steps, p, widths, batch, repeats) if seconds is not None]
        slowest = np.max(found, axis=0)
        return *np.median(slowest[:, :2], axis=0), slowest[:, 2].mean()  # a rank looks for messages now and then

    points = []
    for limit in limits:
        world.limit(limit)
        for p in ranks:
            computing, full, late = median(p)
            points.append(PhasePoint(p, limit / 8, (computing, max(full - late, 0.0), late), "measured"))
    world.limit(None)
    return float(median(1)[0]), points


def machine_diagram(formula, widths, batch: int, alone: float, points, simulated=(8, 32)) -> PhaseDiagram:
    """Draw up the map of this machine from two measured numbers, with the measured points and simulated ones.

    Parameters
    ----------
    formula : callable
        `formula(ranks, bandwidth, seconds, nbytes, alpha)` returns the three parts of a step.
    widths, batch
        As for `measure_points`.
    alone : float
        Seconds of a step of one rank.
    points : list of PhasePoint
        The measured ones; the latency of a message is their mean.
    simulated : sequence of int
        Ranks to simulate, at the lowest and at the highest bandwidth of `points`.

    Returns
    -------
    diagram : PhaseDiagram
        Ranks that share a core take turns.
    """
    cores, model = count_cores(), MLP(widths)
    alpha = float(np.mean([point.parts[2] / (2 * point.ranks - 2) for point in points]))
    work = model.flops((batch, widths[0])) + model.backward_flops((batch, widths[0]))
    ends = min(point.bandwidth for point in points), max(point.bandwidth for point in points)
    more = []
    for p in simulated:
        card = Roofline(work / alone * min(1, cores / p))
        more += simulate_points(model, (p,), ends, alpha=alpha, batch=batch, sample=(widths[0],), compute=card)

    def parts(p, beta):
        return formula(p, beta, alone * max(1, p / cores), sum(param.nbytes for param in model.params), alpha)

    return phase_diagram(parts, ranks=(1, 64), bandwidths=(1e5, 1e9), points=[*points, *more])


# -- Ways to train on a slow network, as plain functions that exchange arrays: loss against samples, seconds and bytes.


SAMPLES, EPOCHS, RANKS = 1280, 8, 4
SLOW = Network(1e-3, 12.5e6)
"""A millisecond to a message, and 100 Mb/s."""
PEAK = 1e9
"""How fast a rank computes [flop/s]: the small network's step then takes as long as a large one's on a real card."""


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
        Its learning rate; where the search for the best one begins.
    scale : float
        Factor on the loss, as in mixed-precision training; gradients are divided by it after the exchange.
    """

    exchange: Callable | None = None
    every: int = 0
    outer: Callable | None = None
    batch: int = 64
    rule: str = "adam"
    lr: float = 0.01
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

    def seconds_to(self, target: float) -> float:
        """Return the seconds after which the loss is first at most `target`; infinite if it never is."""
        there = np.flatnonzero(self.losses <= target)
        return float(self.seconds[there[0]]) if len(there) else math.inf


def mean_of_ranks(comm, start, end, velocity):
    """Continue from the mean of the ranks' parameters: local SGD."""
    return comm.all_reduce(end.copy()) / comm.size


def train_with(comm, recipe: Recipe, seed: int = 0, samples: int = SAMPLES * EPOCHS, looks: int = 40):
    """Train a small network on digits by a recipe, on any communicator."""
    data = load("digits")
    x, y = data.x_train[:SAMPLES], data.y_train[:SAMPLES]
    model, loss = MLP((x.shape[1], 128, 64, 10), seed=seed), SoftmaxCrossEntropy()
    params = model.params
    optimizer = Optimizer(params, RULES[recipe.rule](), recipe.lr)
    rng, rows, looked = np.random.default_rng(seed + 100), [], 0.0
    error, velocity = np.zeros_like(flat(params)), np.zeros_like(flat(params))
    start, steps = flat(params), samples // recipe.batch
    alone, pause = recipe.every > 0, max(recipe.every, steps // looks, 1)
    comm.barrier()
    with threadpool_limits(1), np.errstate(all="ignore"):
        for step in range(1, steps + 1):
            drawn = rng.integers(SAMPLES, size=recipe.batch)  # the same numbers on every rank
            mine = drawn[comm.rank :: comm.size]
            optimizer.zero_grad()
            logits, saved = model.forward(x[mine], clock=comm.clock)
            dy = loss(logits, y[mine], len(mine) if alone else recipe.batch)[1]
            model.backward(dy * np.float32(recipe.scale), saved, clock=comm.clock)
            if not alone:
                gradient = flat(params, "grad")
                exchange = recipe.exchange or (lambda comm, g, error: comm.all_reduce(g))
                _write(params, exchange(comm, gradient, error) / recipe.scale, "grad")
            optimizer.step()
            if alone and (step % recipe.every == 0 or step == steps):
                start = (recipe.outer or mean_of_ranks)(comm, start, flat(params), velocity)
                _write(params, start)
            if step == steps or (step % pause == 0 and (not alone or step % recipe.every == 0)):
                began = comm.clock.now()
                value = loss(model.forward(x)[0], y, SAMPLES)[0]
                rows.append((step * recipe.batch, began - looked, value))
                if not math.isfinite(value):
                    raise DivergedError(f"the loss is {value} after {step} of {steps} steps")
                looked += comm.clock.now() - began  # the time of looking does not count
    accuracy = 100 * float((model.forward(data.x_test)[0].argmax(axis=1) == data.y_test).mean())
    return np.array(rows), accuracy


def run_recipe(recipe: Recipe, seed: int = 0, *, world=None, network: Network = SLOW, **options) -> Run:
    """Run a recipe on a world of four ranks, by default simulated behind a slow network.

    Parameters
    ----------
    seed : int
        Of the weights and of the samples drawn.
    network : Network
        Of the simulated world.
    **options
        Of `train_with`: samples, looks.

    Raises
    ------
    DivergedError
        If the loss is no longer finite.
    """
    if world is None:
        world = SimWorld(RANKS, network, Roofline(PEAK), collectives="formula")
    try:
        rows, accuracy = world.run(train_with, recipe, seed, **options)[0]
    except RankError as error:
        if isinstance(error.original, DivergedError):
            raise error.original from None
        raise
    spans = world.trace.select(rank=0, lane="comm")
    sent = sum(sent_bytes(s.name, s.nbytes, world.size) for s in spans if s.name in ("all_reduce", "all_gather"))
    return Run(*rows.T, accuracy, sent / 1e6)


def tune_recipe(recipe: Recipe, seed: int = 99, **options) -> Recipe:
    """Return a recipe at its best learning rate: by the loss at the end, in steps of a factor of two."""

    def score(lr, most):
        try:
            return float(run_recipe(recipe.but(lr=lr), seed, **options).losses[-1])
        except DivergedError:
            return math.inf

    scores = tune(score, recipe.lr)
    return recipe.but(lr=min(scores, key=scores.get))


def compare_recipes(recipes: dict, seeds=(0, 1, 2), *, report=None, tuned: bool = True, **options) -> dict:
    """Run several recipes on the same number of samples, each at its own best learning rate, from several seeds.

    Parameters
    ----------
    report : callable, optional
        Gets `report(done, total)`.
    tuned : bool
        Whether to search the learning rates first.
    **options
        Of `run_recipe`.
    """
    runs = {}
    for i, (name, recipe) in enumerate(recipes.items()):
        best = tune_recipe(recipe, **options) if tuned else recipe
        runs[name] = [run_recipe(best, seed, **options) for seed in seeds]
        if report is not None:
            report(i + 1, len(recipes))
    return runs


def _write(params, flat, what: str = "data") -> None:
    offset = 0
    for p in params:
        getattr(p, what)[...] = flat[offset : offset + p.size].reshape(p.data.shape)
        offset += p.size


def recipe_table(runs: dict, target: float, *, title: str = "") -> Table:
    """Return what `compare_recipes` found as a table, with the seconds to a target loss: medians over the seeds."""
    rows = [
        {
            "": name,
            f"seconds to {target:g}": np.median([run.seconds_to(target) for run in some]),
            "seconds in all": some[0].seconds[-1],
            "MB": some[0].megabytes,
            "final loss": np.median([run.losses[-1] for run in some]),
            "accuracy [%]": np.mean([run.accuracy for run in some]),
        }
        for name, some in runs.items()
    ]
    return table(rows, title=title)


class CodeResult(NamedTuple):
    """What training with one code for the messages gave."""

    kilobytes: float
    """That a rank sends in a step."""
    accuracies: list[float]
    """Of every seed [%]."""
    lr: float


def compare_codes(
    recipes: dict, rates=(0.3, 0.6), seeds=(0, 1, 2), *, tuning: int = 99, report=None, **options
) -> dict:
    """Run recipes whose messages are coded, each at the better of some learning rates, from several seeds.

    Parameters
    ----------
    recipes : dict of (str, bool or None) to Recipe
        By the name of the code, and whether errors are fed back; None where nothing is lost.
    tuning : int
        Seed of the runs by which the rate is chosen.
    report : callable, optional
        Gets `report(done, total)`.
    **options
        Of `run_recipe`.

    Returns
    -------
    results : dict of (str, bool or None) to CodeResult
    """

    def final(recipe):
        try:
            return run_recipe(recipe, tuning, **options).losses[-1]
        except DivergedError:
            return math.inf

    results = {}
    for key, recipe in recipes.items():
        best = min((recipe.but(lr=lr) for lr in rates), key=final)
        runs = [run_recipe(best, seed, **options) for seed in seeds]
        steps = runs[0].samples[-1] / best.batch
        results[key] = CodeResult(1e3 * runs[0].megabytes / steps, [run.accuracy for run in runs], best.lr)
        if report is not None:
            report(len(results), len(recipes))
    return results


def code_table(results: dict, *, title: str = "") -> Table:
    """Return what `compare_codes` found as a table."""
    rows = [
        {
            "code": name,
            "kB per step": result.kilobytes,
            "feedback": {None: "not needed", True: "yes", False: "no"}[fed],
            "rate": result.lr,
            "accuracy [%]": np.mean(result.accuracies),
            "lowest": min(result.accuracies),
            "highest": max(result.accuracies),
        }
        for (name, fed), result in results.items()
    ]
    return table(rows, title=title)


def bytes_sent(exchange, ranks: int, n: int = 4096) -> float:
    """Count the bytes that a rank sends, on average, in one exchange of n values in single precision.

    Parameters
    ----------
    exchange : callable
        That of a `Recipe`.
    """
    world = SimWorld(ranks)
    world.run(lambda comm: exchange(comm, np.ones(n, np.float32), np.zeros(n, np.float32)))
    return world.trace.bytes_sent / ranks
