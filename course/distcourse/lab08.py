"""Lab 08: what limits a data-parallel step, messages of fewer bytes, training on a slow network; and its checks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
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

from .flat import flat
from .lab07 import first_ranks
from .scaling import simulate_step
from .study import Study

# -- Checks of the costs of a layer, and of what limits a step.


def check_cost(check, layer_cost, what, kernel, c_in, c_out, size, groups=1):
    """Learned values and operations of a convolution, against the library's layer."""
    layer, pixels = Conv2d(c_in, c_out, kernel, "zeros", groups=groups), size * size
    want = sum(p.size for p in layer.params), layer.flops((1, size + kernel - 1, size + kernel - 1, c_in))
    products = kernel * kernel * c_in // groups
    values, operations = got = check.call(layer_cost, kernel, c_in, c_out, pixels, groups)
    weights = {
        "the kernel is k x k": products // kernel * c_out,
        "the kernel's size is an argument": 9 * c_in // groups * c_out,
        "an output channel sees c_in / G channels, not all": products * groups * c_out,
        "divided by G twice: all c_out channels together have k^2 c_in / G c_out weights": products // groups * c_out,
        "times c_out: these are the weights of one output channel": products,
        "weights are shared by all pixels: not times pixels": products * c_out * pixels,
    }
    suspects = {
        "the biases are missing": products * c_out,
        "a bias for each output channel: c_out, not c_in": products * c_out + c_in,
        "this is the number of operations: return values, operations": want[1],
        "one bias for each output channel: c_out of them": products * c_out + 1,
    }
    suspects |= {text: n + c_out for text, n in weights.items()}
    check.close(f"values, {what}", values, want[0], suspects=suspects)
    suspects = {
        "a multiplication and an addition are two operations": want[1] // 2,
        "the bias does not count as an operation": want[1] + c_out * pixels,
        "the bias does not count as an operation: 2 products, not 2 values": want[1] + 2 * c_out * pixels,
        "as many additions as multiplications": want[1] - c_out * pixels,
        "each pixel of the output takes as many: times pixels": want[1] // pixels,
        "this is the forward pass and the backward pass": 3 * want[1],
        "these are the learned values: return values, operations": want[0],
    }
    suspects |= {text: 2 * n * pixels for text, n in weights.items()}
    check.close(f"operations, {what}", operations, want[1], suspects=suspects)
    whole = all(isinstance(n, (int, np.integer)) for n in got)
    check.true(f"whole numbers, {what}", whole, "both are whole numbers: / gives a float, // does not")


def check_parts(check, step_parts, p, beta, t, n, alpha, k):
    """The three parts of a data-parallel step."""
    ring, what = 2 * (p - 1), f"p = {p}, k = {k}"
    computing, moving, waiting = check.call(step_parts, p, beta, t, n, alpha, k)
    move, wait = ring / p * n / beta, ring * alpha * k
    suspects = {
        "p ranks divide the batch: seconds / ranks": t,
        "seconds are those of one rank for the whole batch": t * p,
        "return computing, moving, waiting": move,
    }
    check.close(f"computing, {what}", computing, t / p, suspects=suspects)
    suspects = {
        "each of the messages has n / p bytes": ring * n / beta,
        "bits taken for bytes: all is in bytes here": 8 * move,
        "2 (p - 1) messages, not 2 p": 2 * n / beta,
        "there and back: twice p - 1 messages": move / 2,
        "divide by the bandwidth": ring / p * n * beta,
        "k buckets have n bytes together": move * k,
        "a bucket has n / k bytes, and there are k of them": move / k,
        "latency is a part of its own": move + wait,
        "return computing, moving, waiting": t / p,
        "p may be a fraction: no int(), no //": 2 * (int(p) - 1) / int(p) * n / beta,
    }
    check.close(f"bandwidth, {what}", moving, move, suspects=suspects)
    suspects = {
        "each of the 2 (p - 1) messages has a latency": alpha * k,
        "each bucket is a ring with messages of its own": ring * alpha,
        "there and back: twice p - 1 messages": wait / 2,
        "messages come one after the other: not divided by p": wait / p,
        "2 (p - 1) messages, not 2 p": 2 * p * alpha * k,
        "return computing, moving, waiting": move,
        "p may be a fraction: no int(), no //": 2 * (int(p) - 1) * alpha * k,
    }
    check.close(f"latency, {what}", waiting, wait, suspects=suspects)


def check_border(check, needed_bandwidth, p, t, n, alpha, k):
    """The bandwidth at which the network takes as long as computing."""
    late, volume, what = 2 * (p - 1) * alpha * k, 2 * (p - 1) / p * n, f"p = {p}, alpha = {alpha:.3g}, k = {k}"
    got, left = check.call(needed_bandwidth, p, t, n, alpha, k), t / p - late
    if left <= 0 and p > 1:
        suspects = {
            "latencies alone take as long, or longer: np.inf": volume / left if left else np.nan,
            "latencies take longer than computing, so no bandwidth is enough: np.inf, not 0": 0,
        }
        return check.equal(f"latencies take too long, {what}", got, np.inf, suspects=suspects)
    suspects = {
        "each rank computes seconds / ranks": volume / (t - late),
        "the latencies take their share of the time": volume / (t / p),
        "they add to the network's time": volume / (t / p + late),
        "this is its reciprocal": left / volume if volume else np.nan,
        "each bucket has latencies of its own": volume / (t / p - late / k),
        "each of the 2 (p - 1) messages has n / p bytes": volume * p / left,
        "there and back: 2 (p - 1) messages": volume / 2 / left,
        "one rank sends nothing: 0": np.inf,
    }
    return check.close(what, got, volume / left, suspects=suspects)


# -- Checks of codecs, a compressed all-reduce and a DiLoCo round, against plain NumPy.


def encode_8bit(x):
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


def gradients(rng, n) -> dict[str, np.ndarray]:
    """Arrays of all kinds, by name."""
    x = rng.normal(size=n).astype(np.float32)
    positive = np.abs(x) + np.float32(0.1)
    arrays = {"both signs": x, "mostly negative": x - np.float32(1.5), "all positive": positive}
    zeros = np.where(np.arange(n) % 3 == 0, np.float32(0), -positive)
    ties = np.float32(0.5) * rng.choice([-2, -1, 1, 2], n).astype(np.float32)
    return arrays | {"none positive": zeros, "all zero": 0 * x, "many ties": ties}


def check_codec(check, kind, encode, decode, x, *k, what=""):
    """A codec on one array, in one line; `k`, for "top k", is how many values are sent."""
    of = ", ".join(filter(None, [kind, what, f"n = {len(x)}", *(f"k = {count}" for count in k)]))
    with check.group(of):
        _check_codec(check, kind, encode, decode, x, *k, of=of)


def _check_codec(check, kind, encode, decode, x, *k, of):
    (right_encode, right_decode), n = CODECS[kind], len(x)
    want = right_encode(x, *k)
    first, second = code = check.call(encode, x, *k)
    cast = [w for w in check.warned if "in cast" in str(w.message)]
    check.true(f"numbers, {of}", not cast, "0 / 0 is NaN, which no int8 can hold: what if all values are 0?")
    told = [f"{getattr(a, 'dtype', type(a).__name__)} {np.shape(a)}" for a in code]
    wanted = [f"{a.dtype} {a.shape}" for a in want]
    wrong = {
        "in the other order: see Returns": told if told == wanted[::-1] else None,
        "keepdims=True, or [...], makes an array of one": ["float32 ()", wanted[1]],
        "np.packbits puts 8 bits into a byte": [wanted[0], f"uint8 ({n},)"],
        "np.packbits puts 8 bits into a byte, a bool is a byte": [wanted[0], f"bool ({n},)"],
    }
    pairs = [
        (a, b) for a, b in zip(told, wanted, strict=False) if a != b and a.partition(" ")[2] == b.partition(" ")[2]
    ]
    wrong |= {f"{a} is not {b}: astype": told for a, b in pairs}
    if k and len(told) == 2 and np.shape(first) != want[0].shape:
        wrong["k values are sent, neither more nor fewer, also if some are equally large"] = told
    check.equal(f"dtypes and shapes, {of}", told, wanted, suspects=wrong)
    if told == wanted:
        arrived = right_decode(first, second, n)
        if kind == "8 bit":
            scaled = x * (127 / np.where(want[0] > 0, want[0], 1))
            level, top = want[0] / 127, x.max()
            suspects = {
                "round to the nearest level (np.rint): astype alone cuts off": np.trunc(scaled) * level,
                "round to the nearest level (np.rint), not down": np.floor(scaled) * level,
                "the largest becomes 127": np.rint(scaled * (126 / 127)) * level,
                "this has 255 levels on one side: int8 ends at 127": (scaled * (255 / 127)).astype(int).astype(np.int8)
                * level,
                "the scale is the largest of abs(x), not of x": right_decode(*encode_8bit(x * 0 + top), n),
            }
            check.close(f"scale, {of}", first, want[0], suspects={"the largest of abs(x), not of x": top})
            check.close(f"what arrives, {of}", arrived, x, rtol=0, atol=0.502 * float(level[0]), suspects=suspects)
        elif kind == "1 bit":
            above, positive = x >= 0, x > 0
            means = {
                "the means belong to the other side": want[0][::-1],
                "a side without values has mean 0": np.where([above.any(), not above.all()], want[0], np.nan),
                "0 belongs to the side of bit 1: x >= 0": [
                    x[side].sum() / max(side.sum(), 1) for side in (positive, ~positive)
                ],
                "each side has its own mean": [np.abs(x).mean(), -np.abs(x).mean()],
                "signs alone do not say how large": [1, -1],
                "the mean of a side, not its sum": [x[above].sum(), x[~above].sum()],
                "the mean of those on that side, not of all": [np.maximum(x, 0).mean(), np.minimum(x, 0).mean()],
            }
            check.close(f"means, {of}", first, want[0], rtol=1e-5, suspects=means)
            bits = {
                "0 has bit 1: x >= 0": positive,
                "the bit is 1 where x >= 0": ~above,
                "the first value is the first bit, as np.packbits has it": np.unpackbits(
                    np.packbits(above, bitorder="little")
                ),
            }
            suspects = {text: np.packbits(a).tolist() for text, a in bits.items()}
            check.equal(f"bits, {of}", second.tolist(), want[1].tolist(), suspects=suspects)
        else:
            largest, smallest = np.sort(x)[::-1][: k[0]], np.sort(np.abs(x))[: k[0]]
            mine, sizes = np.sort(np.abs(second))[::-1], np.sort(np.abs(want[1]))[::-1]
            sorted_sizes = {
                "the largest in magnitude: abs(x)": np.sort(np.abs(largest))[::-1],
                "these are the smallest": smallest[::-1],
            }
            check.close(f"magnitudes, {of}", mine, sizes, suspects=sorted_sizes)
            apart = "each place once, and at each place its value"
            check.true(f"places, {of}", len(set(first.tolist())) == k[0] and first.max() < n, apart)
            if first.max() < n:
                signs = {"the values have lost their signs": np.abs(x[first])}
                check.close(f"values, {of}", second, x[first], suspects=signs)
    right = right_decode(*want, n)
    suspects = {"0 wherever nothing was sent": np.where(right == 0, 1, right)}
    if kind == "8 bit":
        suspects = {"the largest level is 127": want[1] * (want[0] / 128), "times the scale": want[1] / 127}
        suspects["divide by 127, the largest level"] = want[1] * want[0]
    if kind == "1 bit":
        suspects = {"n values, without the bits that fill the last byte: [:n]": decode_1bit(*want, -(-n // 8) * 8)}
        suspects["bit 1 has the first mean"] = decode_1bit(want[0][::-1], want[1], n)
    got = check.call(decode, *want, n)
    check.close(f"decode, {of}", got, right, rtol=1e-5, dtype="float32", suspects=suspects)


def coded_sum(comm, x, error, encode, decode, given=np.add, left=lambda x, e, y: x + e - y, total=None):
    """The compressed all-reduce of the exercise; other functions in place of the last three make the known mistakes."""
    code = encode(given(x, error))
    arrived = [decode(*parts, len(x)) for parts in zip(*(comm.all_gather(part) for part in code), strict=True)]
    own = arrived[comm.rank]
    error[...] = left(x, error, own)
    return sum(arrived) if total is None else total(arrived, own, error)


MISTAKES = {
    "the error of the last call is not added": {"given": lambda x, e: x, "left": lambda x, e, y: x - y},
    "encode x + error, not x": {"given": lambda x, e: x},
    "error = ... makes a new array: write into this one, error[...] = ...": {"left": lambda x, e, y: e},
    "the new error is that of x + error, not that of x": {"left": lambda x, e, y: x - y},
    "the error is what was meant minus what arrives": {"left": lambda x, e, y: y - x - e},
    "if the error is what was meant minus what arrives, add it": {
        "given": np.subtract,
        "left": lambda x, e, y: x - e - y,
    },
    "the new error replaces the old one: it is in x + error already": {"left": lambda x, e, y: e + x + e - y},
    "the error is what the message left out: minus what arrives": {"left": lambda x, e, y: x + e},
    "a sum over ranks, not a mean": {"total": lambda arrived, own, error: sum(arrived) / len(arrived)},
    "this rank's own code belongs to the sum": {"total": lambda arrived, own, error: sum(arrived) - own},
    "each rank's code is another: decode all of them": {"total": lambda arrived, own, error: own * len(arrived)},
    "this is what arrives from this rank alone": {"total": lambda arrived, own, error: own},
    "the codes of all ranks, not of three": {"total": lambda arrived, own, error: sum(arrived[:3])},
    "the error is sent next time, not now": {"total": lambda arrived, own, error: sum(arrived) + error},
}


def check_all_reduce(check, all_reduce, *, ranks=3, n=40, steps=3, kind="top k", seed=1, left=False):
    """A compressed all-reduce over some calls on simulated ranks; `left`: begin with an error other than zero."""
    encode, decode = CODECS[kind]
    if kind == "top k":
        k = max(1, n // 10)
        encode = lambda x: encode_top(x, k)  # noqa: E731

    def program(comm, function, options):
        rng = np.random.default_rng([seed, comm.rank])
        error = rng.normal(size=n).astype("float32") * left
        found, same = [], True
        for _ in range(steps):
            x = rng.normal(size=n).astype("float32")
            before = x.copy()
            total = function(comm, x, error, encode, decode, **options)
            same &= bool(np.array_equal(x, before))
            found.append((total if total is None else np.array(total), error.copy()))
        return found, same

    def run(function, **options):
        world = SimWorld(ranks)
        return world.run(program, function, options), world.trace.bytes_sent

    of = f"{kind}, {ranks} rank" + "s" * (ranks != 1)
    want, sent = run(coded_sum)
    wrong = {text: run(coded_sum, **mistake)[0] for text, mistake in MISTAKES.items()}
    found, bytes_sent = check.call(run, all_reduce)
    with check.group(f"sum and error in {steps} calls ({of})"):
        for step in range(steps):
            for rank in sorted({0, ranks - 1}):
                for i, name in enumerate(("sum", "error")):
                    suspects = {text: result[rank][0][step][i] for text, result in wrong.items()}
                    got, right = found[rank][0][step][i], want[rank][0][step][i]
                    if step:  # the first call tells which mistake it is
                        suspects = {text: a for text, a in suspects.items() if not np.allclose(a, right)}
                    check.close(f"{name} ({of}, rank {rank}, call {step + 1})", got, right, rtol=1e-5, atol=1e-6,
                                dtype="float32", suspects=suspects)  # fmt: skip
    check.true(f"x is unchanged ({of})", all(same for _, same in found), "x changed: x = x + error makes a new array")
    told = f"wanted {sent:,.0f}, got {bytes_sent:,.0f}: all_gather each array of the code once, and nothing else"
    check.true(f"bytes sent by all ranks ({of})", bytes_sent == sent, told)


def right_round(comm, start, end, velocity, lr=0.7, mu=0.9, mean=lambda total, end, p: total / p,
                gain=lambda v, d, mu: mu * v + d, step=lambda w, d, v, lr, mu: w - lr * (d + mu * v)):  # fmt: skip
    """A DiLoCo round; other functions in place of the last three make the known mistakes."""
    delta = start - mean(comm.all_reduce(end.copy()), end, comm.size)
    velocity[...] = gain(velocity, delta, mu)
    return step(start, delta, velocity, lr, mu)


ROUND_MISTAKES = {
    "delta points from the mean back to the start: start - mean": {
        "gain": lambda v, d, mu: mu * v - d,
        "step": lambda w, d, v, lr, mu: w - lr * (-d + mu * v),
    },
    "delta points from start to mean, and is added: then the velocity is start - mean, too": {
        "gain": lambda v, d, mu: mu * v - d,
        "step": lambda w, d, v, lr, mu: w + lr * (-d + mu * v),
    },
    "this is momentum: Nesterov moves by delta + mu v": {"step": lambda w, d, v, lr, mu: w - lr * v},
    "delta points from the mean back to the start, and is subtracted": {
        "step": lambda w, d, v, lr, mu: w + lr * (d + mu * v)
    },
    "go on from start, not from the mean": {"step": lambda w, d, v, lr, mu: w - d - lr * (d + mu * v)},
    "this is local SGD: the mean itself": {"step": lambda w, d, v, lr, mu: w - d},
    "the velocity is missing": {"step": lambda w, d, v, lr, mu: w - lr * d},
    "mu times the velocity is added to delta": {"step": lambda w, d, v, lr, mu: w - lr * (d + v)},
    "lr multiplies both: lr (delta + mu v)": {"step": lambda w, d, v, lr, mu: w - (lr * d + mu * v)},
    "the rate is missing": {"step": lambda w, d, v, lr, mu: w - (d + mu * v)},
    "any number of ranks, not at most three: comm.size": {"mean": lambda total, end, p: total / min(p, 3)},
    "all_reduce sums: divide by the number of ranks": {"mean": lambda total, end, p: total},
    "this rank's own end: the mean needs an all_reduce": {"mean": lambda total, end, p: end},
    "the velocity fades: mu v + delta": {"gain": lambda v, d, mu: v + d},
    "delta is added in full: mu v + delta": {"gain": lambda v, d, mu: mu * v + (1 - mu) * d},
    "the velocity has no rate: mu v + delta": {"gain": lambda v, d, mu: mu * v + 0.7 * d},
    "what was before is lost: mu v + delta": {"gain": lambda v, d, mu: d},
    "lr and mu are arguments: 0.7 and 0.9 are defaults": {
        "gain": lambda v, d, mu: 0.9 * v + d,
        "step": lambda w, d, v, lr, mu: w - 0.7 * (d + 0.9 * v),
    },
}


def check_round(check, function, *, ranks=3, n=5, steps=3, seed=1, dtype="float64", **options):
    """A DiLoCo round, over some rounds on simulated ranks, with the given lr and mu."""

    def program(comm, call, more):
        rng = np.random.default_rng(seed)
        (start, velocity), found, same = rng.normal(size=(2, n)).astype(dtype), [], [True, True]
        for _ in range(steps):
            end = (start + rng.normal(size=(comm.size, n))[comm.rank]).astype(dtype)
            before = start.copy(), end.copy()
            after = call(comm, start, end, velocity, **options, **more)
            same = [a and bool(np.array_equal(*b)) for a, *b in zip(same, (start, end), before, strict=True)]
            found.append((after if after is None else np.array(after), velocity.copy()))
            start = (before[0] - 0.3).astype(dtype)  # the same whatever was returned
        return found, same

    def run(function, **more):
        return SimWorld(ranks).run(program, function, more)

    of, want = f"{ranks} rank" + "s" * (ranks != 1) + f", {dtype}", run(right_round)
    wrong = {text: run(right_round, **mistake) for text, mistake in ROUND_MISTAKES.items()}
    found = check.call(run, function)
    first = np.random.default_rng(seed).normal(size=(2, n))[1].astype(dtype)
    with check.group(f"parameters and velocity in {steps} rounds ({of})"):
        for step in range(steps):
            for i, name in enumerate(("velocity", "parameters"), 1):
                suspects = {text: result[0][0][step][i % 2] for text, result in wrong.items()}
                if i == 1:
                    suspects = {"velocity = ... makes a new array: change this one in place": first} | suspects
                got, right = found[0][0][step][i % 2], want[0][0][step][i % 2]
                check.close(f"{name} ({of}, round {step + 1})", got, right, dtype=dtype, suspects=suspects)
    last = [result[0][-1][0] for result in found]
    check.true(f"all ranks have the same w ({of})", all(np.array_equal(a, last[0]) for a in last), "ranks differ")
    kept = [all(same[i] for _, same in found) for i in range(2)]
    check.true(f"start is unchanged ({of})", kept[0], "start changed: start = start - ..., not start -= ...")
    check.true(f"end is unchanged ({of})", kept[1], "end changed: all_reduce sums in place, so give it end.copy()")


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
            bits = 8 * np.array([border(float(p)) for p in ranks])
            bits[~np.isfinite(bits) | (bits <= 0)] = np.nan
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
        ax.xaxis.set_major_locator(FixedLocator(2.0 ** np.arange(11), nbins=7))
        ax.yaxis.set_major_locator(LogLocator(numticks=12))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda b, _: f"{quantity(b)}bit/s"))
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
    """Measure data-parallel steps behind links of 400, 100 and 25 Mb/s; return the seconds of one rank, and points.

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
    return float(median(1)[0]), points


def machine_map(formula, widths, batch: int, alone: float, points, simulated=(8, 32)) -> Map:
    """Draw up the map of this machine from the seconds of one rank and the mean latency of measured points.

    `formula(ranks, bandwidth, seconds, nbytes, alpha)` returns the parts of a step; ranks that share a core take turns.
    """
    cores, model = count_cores(), MLP(widths)
    alpha = float(np.mean([point.parts[2] / (2 * point.ranks - 2) for point in points]))
    work = model.flops((batch, widths[0])) + model.backward_flops((batch, widths[0]))
    ends = min(point.bandwidth for point in points), max(point.bandwidth for point in points)
    more = []
    for p in simulated:
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

    def seconds_to(self, target: float = TARGET) -> float:
        """Return the seconds after which the loss is first at most `target`; infinite if it never is."""
        there = np.flatnonzero(self.losses <= target)
        return float(self.seconds[there[0]]) if len(there) else math.inf


def train_with(comm, recipe: Recipe, seed: int = 0, samples: int = SAMPLES * EPOCHS, looks: int = 40):
    """Train a small network on digits by a recipe, on any communicator; rank 0 looks at the loss now and then."""
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
                outer = recipe.outer or (lambda comm, start, end, velocity: comm.all_reduce(end) / comm.size)
                start = outer(comm, start, flat(params), velocity)
                _write(params, start)
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


def _write(params, flat, what: str = "data") -> None:
    offset = 0
    for p in params:
        getattr(p, what)[...] = flat[offset : offset + p.size].reshape(p.data.shape)
        offset += p.size


_simulated = functools.cache(run_recipe)  # what two comparisons share is run once


def compare(recipe: Callable, over: dict, *, seeds: int = 5, report=ignore_report, **options) -> tuple[Study, dict]:
    """Run recipes from several seeds, each at its own best learning rate, found with a seed that is not used again.

    Parameters
    ----------
    recipe : callable
        `recipe(**setting)` returns a `Recipe`, for equal settings an equal one: it is tuned once. The search begins at
        its rate, and ends where half and twice are worse.
    over : dict of str to sequence
        The values of each setting.
    report : callable
        As for `Study`.
    **options
        Of `run_recipe`.

    Returns
    -------
    study : Study
        At the best rates.
    runs : dict of tuple to list of Run
        By the values of the settings, in their order.
    """
    runs = {}

    def run(seed, **setting):
        best = tuned(recipe(**setting), **options)
        made = _simulated(best, seed, **options)
        runs.setdefault(tuple(setting.values()), []).append(made)
        kilobytes = 1e3 * made.megabytes * best.batch / made.samples[-1]
        found = {"rate": best.lr, "kB per step": kilobytes, f"seconds to {TARGET}": made.seconds_to()}
        return found | {"loss at the end": made.losses[-1], "accuracy [%]": made.accuracy}

    return Study(run, over, seeds, report), runs


@functools.cache
def tuned(recipe: Recipe, seed: int = 99, **options) -> Recipe:
    """Return a recipe at the rate with the least loss at the end: half and twice that rate are worse."""

    @functools.cache
    def loss(lr):
        try:
            return run_recipe(recipe.but(lr=lr), seed, **options | {"looks": 1}).losses[-1]
        except DivergedError:
            return math.inf

    lr = recipe.lr
    while (better := min(lr, lr / 2, 2 * lr, key=loss)) != lr:
        lr = better
    return recipe.but(lr=lr)


@styled
def plot_recipes(runs: dict, *, title=None):
    """Draw the loss of several recipes against time (left) and against samples: medians over the seeds, and bands."""
    left, right = axes = new_axes(2, figsize=(8.8, 4.0), sharey=True)
    for i, (key, seeds) in enumerate(runs.items()):
        losses = np.array([run.losses for run in seeds])
        look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6], "markevery": 4}
        for ax, x in ((left, np.median([run.seconds for run in seeds], axis=0)), (right, seeds[0].samples)):
            ax.plot(x, np.median(losses, axis=0), label=" ".join(key), linewidth=1.6, markersize=5, **look)
            ax.fill_between(x, losses.min(axis=0), losses.max(axis=0), color=look["color"], alpha=0.13, linewidth=0)
    for ax in axes:
        ax.set_yscale("log")
        ax.axhline(TARGET, color=MUTED, linewidth=1)
    left.set(xscale="log", xlabel="time [s]", ylabel="training loss")
    for axis, subs in ((left.yaxis, (1, 3)), (left.xaxis, (1, 2, 5))):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    right.set(xlabel="samples drawn by all ranks")
    left.figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    times = {" ".join(key): np.median([run.seconds_to() for run in seeds]) for key, seeds in runs.items()}
    write_title(left, f"First at a loss of {TARGET}: {min(times, key=times.get)}", title)
    write_title(right, "" if title else "The same runs, by samples")
    return axes


def bytes_sent(exchange, ranks: int, n: int = 4096) -> float:
    """Count the bytes that a rank sends, on average, in one `Recipe.exchange` of n values in single precision."""
    world = SimWorld(ranks)
    world.run(lambda comm: exchange(comm, np.ones(n, np.float32), np.zeros(n, np.float32)))
    return world.trace.bytes_sent / ranks
