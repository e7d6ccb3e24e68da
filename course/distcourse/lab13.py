"""Lab 13, memory: its checks, the network of its puzzle, and its studies on fewer bits."""

from __future__ import annotations

import functools
import itertools

import numpy as np

import distlearn as dl
from distlearn.data import Batch, load
from distlearn.nn import formats
from distlearn.optim import SGD, Adam, Cosine, Momentum, Optimizer
from distlearn.parallel import record_memory
from distlearn.parallel.meta import meta_batch

from .study import Study

# -- Sections 1 and 5: a step, predicted and measured.


def samples(n, shape, dtype="float32", rng=None):
    """A batch of n samples for `record_memory`: on NumPy arrays if a generator is given, else without data."""
    if rng is None:
        return meta_batch(n, shape, 0, 1, dtype)
    return Batch(rng.normal(size=(n, *shape)).astype(dtype), rng.integers(2, size=n), n)


def strategy(rule, kind=None, **options):
    """A function that makes a strategy with an optimizer's rule, for `record_memory`."""

    def make(comm, model):
        parts = model, dl.nn.SoftmaxCrossEntropy(), Optimizer(model.params, rule, 0.01)
        return kind(comm, *parts, **options) if kind else dl.Serial(comm, *parts)

    return make


def owned(sample) -> dict[str, int]:
    """The bytes of a moment by owner, those saved by all layers together."""
    saved = sum(n for owner, n in sample.owners.items() if owner.startswith("saved by"))
    return {k: n for k, n in sample.owners.items() if not k.startswith("saved by")} | {"saved": saved}


@functools.cache
def allocated(sizes, batch, arrays, itemsize):
    """What NumPy has allocated when the forward pass of such a step ends [bytes]."""
    dtype = f"float{8 * itemsize}"
    make, rng = strategy((SGD(), Momentum(), Adam(eps=1e-4))[arrays]), np.random.default_rng(0)
    record = record_memory(make, dl.nn.MLP(sizes, dtype=dtype), samples(batch, sizes[:1], dtype, rng))
    return next(s for s in reversed(record.samples) if s.at.startswith("forward")).total


def run_step_bytes(step_bytes, sizes, batch, arrays, **itemsize):
    """Bytes by owner, and together beside what NumPy allocates for such a step."""
    held = step_bytes(tuple(sizes), batch, arrays, **itemsize)
    if not isinstance(held, dict):
        return {"held": held}
    real = allocated(tuple(sizes), batch, arrays, itemsize.get("itemsize", 4))
    return {"held": held, "together, less what NumPy allocates": sum(held.values()) - real}


def zero_step(stage, overlap, sizes=(1024,) * 9 + (10,), n=4096, network="infiniband-hdr", peak=1e13):
    """One simulated step of ZeRO with Adam on 4 ranks: its memory record, and a row of a table."""
    make, where = strategy(Adam(), dl.ZeRO, stage=stage, overlap=overlap), {"network": network, "size": 4}
    model, batch = dl.nn.MLP(sizes, seed=None), samples(n, sizes[:1])
    record = record_memory(make, model, batch, compute=dl.Roofline(peak), **where)
    held = owned(record.peak)
    lasting = {k: held.get(k, 0) / 1e6 for k in ("parameters", "gradients", "optimizer", "saved")}
    row = {"stage": stage, "overlap": overlap, "peak [MB]": record.peak.total / 1e6, **lasting,
           "step [ms]": 1e3 * record.trace.makespan, "exposed [ms]": 1e3 * record.trace.exposed(0)}  # fmt: skip
    return record, row


# -- Section 2: a transformer layer.

GPTS = {"22B": (64, 6144), "175B": (96, 12288), "530B": (128, 20480), "1T": (160, 25600)}
"""Heads and width of the models of Korthikanti et al. (2022), table 3: sequences of 2,048, each layer on 8 ranks."""
WAYS = {
    "sequence parallel": {"sequence": True}, "selective recomputation": {"selective": True},
    "both": {"sequence": True, "selective": True}, "full recomputation": {"full": True},
}  # fmt: skip
FIGURE_7 = {
    "22B": (66.84, 49.42, 16.18, 7.64), "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42), "1T": (58.31, 62.04, 20.27, 9.42),
}  # fmt: skip
"""Their figure 7, read off the drawing: activations in % of those with tensor parallelism alone, by the ways above."""


def run_layer_bytes(layer_bytes, s, b, h, a, **ways):
    return {"bytes": layer_bytes(s, b, h, a, **ways)}


# -- Sections 3 and 4: recomputation, and plans.


def dense(sizes, dtype="float32"):
    """Dense layers, each with its ReLU, that pass on the gradient of their input."""
    pairs = enumerate(itertools.pairwise(sizes))
    layers = [(dl.nn.Linear(a, b, [0, i], dtype=dtype), dl.nn.ReLU()) for i, (a, b) in pairs]
    return dl.nn.Sequential(*(layer for both in layers for layer in both))


def nbytes_of(saved) -> int:
    """Bytes of the arrays in nested lists, tuples and dicts."""
    parts = list(saved.values()) if isinstance(saved, dict) else saved
    return sum(map(nbytes_of, parts)) if isinstance(parts, (list, tuple)) else getattr(saved, "nbytes", 0)


class Counted:
    """A block that counts its passes, forward and backward, in an array: a copy for an answer shares it."""

    def __init__(self, body):
        self.body, self.passes = body, np.zeros(2, int)

    def forward(self, x):
        self.passes[0] += 1
        return self.body.forward(x)

    def backward(self, dy, saved):
        self.passes[1] += 1
        return self.body.backward(dy.copy(), saved)  # a ReLU writes into its dy


def run_light_forward(light_forward, light_backward, sizes, n, dtype, seed=0):
    """Three batches under way in one block; the second comes back first, then the third."""
    block, rng, found, kept = Counted(dense(sizes, dtype)), np.random.default_rng(seed), {}, {}
    for i in range(3):
        found[f"y of batch {i}"], kept[i] = light_forward(block, rng.normal(size=(n, sizes[0])).astype(dtype))
        found[f"bytes kept of batch {i}"] = nbytes_of(kept[i])
    for i in (1, 2, 0):
        dy = rng.normal(size=(n, sizes[-1])).astype(dtype)
        found[f"dx of batch {i}"] = light_backward(block, dy, kept[i])
    forward, backward = block.passes.tolist()
    return found | {
        **{f"gradient of {p.name}": p.grad for p in block.body.params},
        "forward passes of the block": forward,
        "backward passes of the block": backward,
    }


def drawn_chain(layers, room, size=1, seed=0):
    """An uneven chain (forward, inputs, saved, budget): the least budget at room 0, all fits at 1."""
    rng = np.random.default_rng(seed)
    forward = (size * np.exp(rng.normal(2, 1.2, layers))).astype(int) + 1
    inputs, saved = rng.integers(1, 9, layers), rng.integers(2, 20, layers)
    inputs[0] = 97  # is not counted
    least = int((inputs + saved)[1:].max(initial=saved[0]))
    return forward.tolist(), inputs.tolist(), saved.tolist(), least + int(room * (saved.sum() - least))


def run_plan(plan, forward=(), inputs=(), saved=(), budget=0, **chain):
    """Whether a plan is one and fits, and what it does again: several plans may be equally good."""
    if chain:
        forward, inputs, saved, budget = drawn_chain(**chain)
    got = plan(forward, inputs, saved, budget)
    try:
        peak, again = dl.nn.plan_cost(got, forward, inputs, saved)
    except (ValueError, TypeError, IndexError) as error:
        return {"plan": "None" if got is None else f"{got}: {error}"}
    return {
        "plan": "has every layer",
        "peak": "fits into the budget" if peak <= budget else f"{peak:,} bytes",
        "operations done again": again,
    }


WIDTHS = (64, 96, 128, 96, 64, 48, 64, 96, 128, 160, 128, 96, 64, 48, 64, 96, 128, 96, 64, 48, 10)


def deep():
    """The 20 layers of a deep network for the digits: each is a dense layer with its ReLU, the last one without."""
    *hidden, last, _ = dense(WIDTHS).layers
    return [dl.nn.Sequential(*both) for both in zip(hidden[::2], hidden[1::2], strict=True)] + [last]


def chain_of(layers, x):
    """Lists (forward, inputs, saved) of layers on a batch: operations, and bytes."""
    rows = []
    for layer in layers:
        y, saved = layer.forward(x)
        rows.append((layer.flops(x.shape), x.nbytes, nbytes_of(saved) - x.nbytes))
        x = y
    return tuple(map(list, zip(*rows, strict=True)))


# -- Section 6: fewer bits.


e4m3 = formats.E4M3.round


def unpacked(codes, n):
    """The first n numbers of 4 bits, the low half of a byte first."""
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)[:n]


def run_cluster_16(cluster_16, shape, dtype="float64", seed=0, scale=1.0, first=()):
    """Values and ids of normal numbers, the first of which may be others."""
    w = (scale * np.random.default_rng(seed).normal(size=shape)).astype(dtype)
    w.reshape(-1)[: len(first)] = first
    values, codes = cluster_16(w)
    kind = str(getattr(codes, "dtype", type(codes).__name__))
    return {"values": values, "codes": codes, "dtype of codes": kind}


def run_nvfp4(nvfp4, x=None, blocks=(), shape=(), power=1, scale=1.0, seed=0):
    """Round numbers, blocks (a number, and 15 multiples of another), or a power of normal numbers."""
    if blocks:
        x = np.concatenate([[first, *(step * np.arange(15))] for first, step in blocks])
    elif x is None:
        x = scale * np.random.default_rng(seed).normal(size=shape) ** power
    return {"rounded": nvfp4(np.float32(x))}


@functools.cache
def digits():  # as rows of 64 numbers; loaded when a study needs them, as checks do not
    return load("digits", dtype="float32")


def formats_study(ways):
    """Bytes and test accuracy [%] of trained networks whose matrices are rounded; way(W) returns (rounded, bytes)."""
    models = [dl.nn.MLP((64, 64, 32, 10), seed=seed) for seed in range(5)]
    for seed, model in enumerate(models):
        train(model, 64, 0.05, seed=seed)

    def run(way, seed):
        kept, size = [p.data.copy() for p in models[seed].params], 0
        for p in models[seed].params:
            W, nbytes = ways[way](p.data) if p.data.ndim == 2 else (p.data, p.nbytes)
            p.data[...], size = W, size + nbytes
        right = models[seed].forward(digits().x_test)[0].argmax(axis=1) == digits().y_test
        for p, W in zip(models[seed].params, kept, strict=True):
            p.data[...] = W
        return {"bytes": size, "accuracy [%]": 100 * right.mean()}

    return Study(run, {"way": list(ways)})


def train(model, n, lr, steps=300, *, noise=0.0, seed=0):
    """Train on the digits, a share `noise` of the labels drawn at random, anew in each step; return the losses."""
    optimizer, rng, losses = Optimizer(model.params, Momentum(), lr), np.random.default_rng(seed), []
    trainer, x, y = dl.Serial(None, model, dl.nn.SoftmaxCrossEntropy(), optimizer), digits().x_train, digits().y_train
    for _ in range(steps):
        rows = rng.permutation(len(x))[:n]
        labels = np.where(rng.random(n) < noise, rng.integers(10, size=n), y[rows])
        losses.append(trainer.step(Batch(x[rows], labels, n)))
    return losses


def excess_loss(fmt, stochastic, noise, seed, steps=300):
    """Cross-entropy above its minimum [nats] after training in a format, a share `noise` of the labels random."""

    def layer(i, d_in, d_out):
        if fmt is None:
            return dl.nn.Linear(d_in, d_out, [seed, i])
        options = {"fmt": fmt, "seed": [seed, i], "stochastic": stochastic}
        return dl.nn.LowPrecisionLinear(d_in, d_out, [seed, i], **options)

    model = dl.nn.Sequential(layer(0, digits().x_train.shape[1], 64), dl.nn.ReLU(), layer(1, 64, 10))
    train(model, 128, Cosine(0.1, steps), steps, noise=noise, seed=seed)
    x, y = digits().x_train, digits().y_train
    truth = np.full((len(x), 10), noise / 10)
    truth[np.arange(len(x)), y] += 1 - noise
    logits = model.forward(x)[0].astype(float)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return (truth * (np.log(np.maximum(truth, 1e-300)) - log_p)).sum(axis=1).mean()
