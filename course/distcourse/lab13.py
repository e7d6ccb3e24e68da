"""Lab 13, memory: its checks, the chains of its puzzle, and its studies on fewer bits."""

from __future__ import annotations

import tracemalloc

import numpy as np

import distlearn as dl
from distlearn.data import Batch, load
from distlearn.nn import compression, formats
from distlearn.optim import Cosine, Momentum, Optimizer
from distlearn.parallel import record_memory
from distlearn.parallel.meta import meta_copy
from distlearn.shares import share
from distlearn.sim import MetaArray

from .study import Study

# -- Sections 1 and 5: a step, measured and predicted.


def arrays(n, d_in, dtype="float32", rng=None):
    """A batch of n samples for `record_memory`: on NumPy arrays where a generator is given, else without data."""
    if rng is None:
        return Batch(MetaArray((n, d_in), np.dtype(dtype)), MetaArray(n, np.int64), n)
    return Batch(rng.normal(size=(n, d_in)).astype(dtype), rng.integers(2, size=n), n)


def serial(rule):
    """A function that makes the strategy of one rank, for `record_memory`."""

    def make(comm, model):
        optimizer = Optimizer(model.params, rule, 0.01)
        return dl.Serial(model, dl.nn.SoftmaxCrossEntropy(), optimizer, comm.clock)

    return make


def owned(sample) -> dict[str, int]:
    """The bytes of a moment by owner, those saved by all layers together."""
    saved = sum(n for owner, n in sample.owners.items() if owner.startswith("saved by"))
    return {k: n for k, n in sample.owners.items() if not k.startswith("saved by")} | {"saved": saved}


def after_forward(record):
    """The moment at which the last layer's forward pass has ended."""
    return next(s for s in reversed(record.samples) if s.at.startswith("forward"))


def check_step(check, step_bytes, sizes, batch, kept, dtype, rng):
    """Bytes of a step by owner, against those of meta arrays; and their sum, against what NumPy allocates."""
    rule = (dl.optim.SGD(), Momentum(), dl.optim.Adam())[kept]
    model, k = dl.nn.MLP(sizes, dtype=dtype), np.dtype(dtype).itemsize
    want = owned(after_forward(record_memory(serial(rule), model, arrays(batch, sizes[0], dtype)))) | {}
    measured = after_forward(record_memory(serial(rule), model, arrays(batch, sizes[0], dtype, rng))).total
    pairs, outputs = list(zip(sizes[:-1], sizes[1:], strict=True)), sum(sizes[1:])
    weights = {
        "each layer has a bias for every output, too": sum(a * b for a, b in pairs),
        "a layer has d_out biases, not d_in": sum(a * b + a for a, b in pairs),
        "the last layer has parameters, too": sum((a + 1) * b for a, b in pairs[:-1]),
        "only the last layer's were counted": (sizes[-2] + 1) * sizes[-1],
    }
    one = k * sum((a + 1) * b for a, b in pairs)
    unit = {"these are numbers: times itemsize bytes": 1 / k, "itemsize is not always 4": 4 / k, "bits, not bytes": 8}
    suspects = {
        "parameters": {text: k * n for text, n in weights.items()} | {text: f * one for text, f in unit.items()},
        "saved": {
            "the batch is not saved a second time: the first layer's input is the batch": k * batch * sum(sizes),
            "a ReLU saves its output alone: one array for each hidden layer, not two": k
            * batch
            * (2 * outputs - sizes[-1]),
            "the scores are needed until the loss is known: count the last layer's output": k
            * batch
            * sum(sizes[1:-1]),
            "every sample saves its own: times the batch": k * outputs,
            "what is saved are outputs, not the inputs": k * batch * sum(sizes[:-1]),
            "these are the numbers of all layers: times itemsize bytes": batch * outputs,
            "itemsize is not always 4": 4 * batch * outputs,
            "one layer's at a time is not enough: all are kept until backward": k * batch * max(sizes[1:]),
        },
        "batch": {
            "the labels are int64: 8 bytes for each sample": k * batch * sizes[0],
            "a label has 8 bytes, whatever itemsize is": k * batch * (sizes[0] + 1),
            "the labels are one number for each sample, not for each class": batch * (k * sizes[0] + 8 * sizes[-1]),
            "itemsize is not always 4": batch * (4 * sizes[0] + 8),
            "labels have no itemsize times 8": batch * k * (sizes[0] + 8),
        },
    }
    suspects["gradients"] = suspects["parameters"] | {
        "each parameter has one gradient, whatever the batch": one * batch
    }
    suspects["optimizer"] = {text: kept * n for text, n in suspects["parameters"].items()} | {
        "the optimizer keeps `arrays` numbers for each parameter": one,
        "one more than it keeps: the gradient is counted already": (kept + 1) * one,
        "the parameters themselves are not state": kept * one + one,
    }
    what = f"{sizes}, batch {batch}, {kept} arrays, {dtype}"
    got = check.call(step_bytes, sizes, batch, kept, k)
    if not isinstance(got, dict) or set(got) != set(suspects):
        return check.true(what, False, f"got {got!r}: return a dict with the keys {', '.join(suspects)}")
    for owner, known in suspects.items():
        check.close(f"{owner}, {what}", got[owner], want.get(owner, 0), suspects=known)
    told = f"NumPy allocates {measured:,}, your sum is {sum(got.values()):,}"
    return check.true(f"sum = measured, {what}", sum(got.values()) == measured, told)


# -- Section 2: a transformer layer.

GPTS = {"22B": (64, 6144, 48), "175B": (96, 12288, 96), "530B": (128, 20480, 105), "1T": (160, 25600, 128)}
"""Heads, width and layers of the models of Korthikanti et al. (2022), table 3; sequences of 2,048, 8 ranks."""
WAYS = {
    "sequence parallel": {"sequence": True},
    "selective recomputation": {"selective": True},
    "both": {"sequence": True, "selective": True},
    "full recomputation": {"full": True},
}
FIGURE_7 = {
    "22B": (66.84, 49.42, 16.18, 7.64), "175B": (62.04, 56.53, 18.49, 8.71),
    "530B": (58.31, 62.04, 20.27, 9.42), "1T": (58.31, 62.04, 20.27, 9.42),
}  # fmt: skip
"""Their figure 7, read off: activation memory in % of that with tensor parallelism alone, by the ways above."""


def check_layer(check, layer_bytes, s, b, h, a, t=1, **ways):
    """Bytes of a transformer layer's activations, by the paper's table 2."""
    sequence, selective, full = (ways.get(name, False) for name in ("sequence", "selective", "full"))
    unit, core = s * b * h, 5 * a * s / h
    kept = 0 if selective else core
    rest = 34 / t if sequence else 10 + 24 / t
    what = f"s {s}, b {b}, h {h}, a {a}, t {t}" + "".join(f", {k}" for k, v in ways.items() if v)
    wrong = {
        "the formula gives bytes already: not times 2": 2 * unit * (2 if full else rest + kept / t),
        "these are bytes for 32 bits? The formula is for 16": unit * (1 if full else (rest + kept / t) / 2),
        "full recomputation keeps the layer's input alone: 2 bytes a number": unit * (rest + kept / t),
        "full recomputation keeps the whole input on every rank: not divided by t": 2 * unit / t,
        "ranks share the heads: the attention term is divided by t": unit * (rest + kept),
        "10 of the 34 stay whole on every rank without sequence parallelism": unit * (34 + kept) / t,
        "with sequence parallelism the 10 are divided by t, too": unit * (10 + 24 / t + kept / t),
        "nothing is divided by t": unit * (34 + kept),
        "only the 10 are divided by t: the 24 are, too": unit * (10 / t + 24 + kept / t),
        "24 are divided by t without sequence parallelism, 10 are not": unit
        * (10 / t + 24 / t * (t if not sequence else 1) + kept / t),
        "selective recomputation drops the attention term, all of it": unit * (rest + core / t),
        "selective recomputation keeps the 34: it drops 5 a s / h": unit * core / t,
        "the attention term is 5 a s / h: it grows with s": unit * (rest + 5 * a / h / t * (not selective)),
        "the attention term is 5 a s / h: it grows with a": unit * (rest + 5 * s / h / t * (not selective)),
        "5 a s / h, not 5 a s: s b h is outside the bracket": unit * (rest + 5 * a * s / t * (not selective)),
        "times s b h": rest + kept / t,
        "the batch is missing": s * h * (rest + kept / t),
        "5 a s / h, not 5 a h / s": unit * (rest + 5 * a * h / s / t * (not selective)),
    }
    got = check.call(layer_bytes, s, b, h, a, t, **ways)
    check.close(f"bytes, {what}", got, unit * (2 if full else rest + kept / t), suspects=wrong)


# -- Sections 3 and 4: recomputation, and plans.


def dense(sizes, dtype="float32", seed=0):
    """Dense layers, each with its ReLU, that pass on a gradient of their input."""
    pairs = enumerate(zip(sizes[:-1], sizes[1:], strict=True))
    layers = [(dl.nn.Linear(a, b, [seed, i], dtype=dtype), dl.nn.ReLU()) for i, (a, b) in pairs]
    return dl.nn.Sequential(*(layer for both in layers for layer in both))


class Counted:
    """A block that counts its passes, and remembers nothing between them."""

    def __init__(self, body):
        self.body, self.passes = body, {"forward": 0, "backward": 0}

    def forward(self, x):
        self.passes["forward"] += 1
        return self.body.forward(x)

    def backward(self, dy, saved):
        self.passes["backward"] += 1
        return self.body.backward(dy, saved)


def nbytes_of(saved) -> int:
    """Bytes of the arrays in nested lists and tuples."""
    if isinstance(saved, (list, tuple)):
        return sum(map(nbytes_of, saved))
    return getattr(saved, "nbytes", 0)


def check_light(check, light_forward, light_backward, sizes, n, dtype, rng):
    """A block that keeps its input alone: two batches in flight, and the gradients of running it as it is."""
    block, plain = (Counted(dense(sizes, dtype)) for _ in range(2))
    xs, dys = (rng.normal(size=(2, n, d)).astype(dtype) for d in (sizes[0], sizes[-1]))
    what, runs, wants = f"{sizes}, {n} rows, {dtype}", [], [plain.forward(x) for x in xs]
    for x, (y, _) in zip(xs, wants, strict=True):
        got, kept = check.call(light_forward, block, x)
        runs.append(kept)
        swapped = {"the output comes first: return y, and what is kept": x}
        check.close(f"y, {what}", got, y, dtype=dtype, suspects=swapped)
        size, once = nbytes_of(kept), "keep the input x, nothing that the block saved, and no output"
        check.true(f"bytes kept, {what}", size == x.nbytes, f"{size:,} bytes are kept, wanted {x.nbytes:,}: {once}")
    for dy, kept, (_, saved) in zip(dys, runs, wants, strict=True):
        want = plain.backward(dy, saved)
        got = check.call(light_backward, block, dy, kept)
        check.close(f"dx, {what}", got, want, dtype=dtype, suspects={
            "this is dy: the block's backward pass returns dx": dy if dy.shape == want.shape else np.nan,
            "this is the block's output: its backward pass returns dx": plain.body.forward(kept)[0]
            if sizes[0] == sizes[-1] and nbytes_of(kept) == want.nbytes else np.nan,
        })  # fmt: skip
    for mine, right in zip(block.body.params, plain.body.params, strict=True):
        twice = {"the backward pass adds to the gradients: run it once for each batch": 2 * right.grad}
        check.close(f"gradient of {right.name}, {what}", mine.grad, right.grad, suspects=twice)
    more = "forward twice for a batch, backward once: that is the price of recomputation"
    check.equal(f"passes, {what}", block.passes, {"forward": 4, "backward": 2}, suspects={
        more: {"forward": 4, "backward": 4},
        "the block did not run again: what it saved must come from somewhere else": {"forward": 2, "backward": 2},
        "once more than needed: forward in both functions, once in each": {"forward": 6, "backward": 2},
    })  # fmt: skip


def drawn_chain(rng, n, room):
    """An uneven chain (forward, inputs, saved, budget) of n layers: the least budget is at room 0, all fits at 1."""
    forward, inputs, saved = rng.integers(1, 20, n), rng.integers(1, 9, n), rng.integers(2, 20, n)
    inputs[0] = 0
    least = int((inputs + saved).max())
    return forward.tolist(), inputs.tolist(), saved.tolist(), least + int(room * (saved.sum() - least))


def layers_in(plan):
    """The layers of a plan, from left to right."""
    return list(plan) if isinstance(plan, list) else [i for part in plan for i in layers_in(part)]


def is_plan(plan) -> bool:
    """Whether it consists of pairs, and of lists of whole numbers that are not empty."""
    if isinstance(plan, tuple):
        return len(plan) == 2 and all(map(is_plan, plan))
    return isinstance(plan, list) and bool(plan) and all(isinstance(i, (int, np.integer)) for i in plan)


def cut_sides(plan, side):
    """The left (0) or right (1) parts of all pairs."""
    return [] if isinstance(plan, list) else [plan[side], *cut_sides(plan[0], side), *cut_sides(plan[1], side)]


def judge_plan(check, plan, chain, what, most=1.1):
    """Whether a plan is one, fits into its budget, and computes at most `most` times what the best plan does again."""
    forward, inputs, saved, budget = chain
    n = len(forward)
    if not is_plan(plan):
        form = "a plan is a list of layer numbers, or a tuple of two plans"
        return check.true(f"form, {what}", False, f"got {plan!r}: {form}")
    order = layers_in(plan)
    if order != list(range(n)):
        why = "some are missing" if len(set(order)) < n else "each once, in order from 0"
        return check.true(f"layers, {what}", False, f"got {order}, wanted all of 0 to {n - 1}: {why}")
    peak, extra = dl.nn.plan_cost(plan, forward, inputs, saved)
    least = dl.nn.plan_cost(dl.nn.best_plan(*chain), forward, inputs, saved)[1]
    free = dl.nn.plan_cost(plan, forward, [0] * n, saved)[0]
    why = "while the right part runs its input is kept, too: inputs[k] of the room is taken" if free <= budget else (
        "a list keeps everything that its layers save, all at the same time")  # fmt: skip
    check.true(f"peak, {what}", peak <= budget, f"{peak:,} bytes at the peak, the budget is {budget:,}: {why}")
    flat = [all(isinstance(part, list) for part in cut_sides(plan, side)) for side in (0, 1)]
    why = "a left part can be cut again: its input is there until it has run" if flat[0] else (
        "a right part can be cut again, in what its input leaves of the room" if flat[1] else
        "try every cut k, and compare operations: sum(forward[i:k]) and those of both parts")  # fmt: skip
    told = f"{extra:,} operations are done again, {least:,} suffice: {why}"
    return check.true(f"extra, {what}", extra <= most * least, told)


def check_plan(check, plan, chain):
    """The student's planner on one chain."""
    got = check.call(plan, *(list(row) for row in chain[:3]), chain[3])
    judge_plan(check, got, chain, f"{len(chain[0])} layers in {chain[3]} bytes")


WIDTHS = (64, 96, 160, 256, 160, 96, 48, 96, 192, 256, 128, 64, 10)


def deep(seed=0):
    """The layers of a deep network for the digits, each a dense layer and its ReLU."""
    pairs = list(zip(WIDTHS[:-1], WIDTHS[1:], strict=True))
    dense = [dl.nn.Linear(a, b, [seed, i]) for i, (a, b) in enumerate(pairs)]
    return [dl.nn.Sequential(layer, dl.nn.ReLU()) for layer in dense[:-1]] + [dense[-1]]


def chain_of(layers, x):
    """(forward, inputs, saved) of layers on a batch: operations, and bytes."""
    rows = []
    for layer in layers:
        y, saved = layer.forward(x)
        rows.append((layer.flops(x.shape), x.nbytes, nbytes_of(saved) - x.nbytes))
        x = y
    return tuple(map(list, zip(*rows, strict=True)))


# -- Section 6: fewer bits.


def unpacked(codes, n):
    """The first n numbers of 4 bits, the low half of a byte first."""
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)[:n]


def check_cluster(check, cluster_16, w):
    """16 values and packed ids, against k-means of the library; the bytes are exact."""
    want = compression.cluster(w, 16)
    start = np.linspace(w.min(), w.max(), 16)
    ids = unpacked(want.codes, w.size)
    what, k = f"{w.dtype} {w.shape}", -(-w.size // 2)
    got = check.call(cluster_16, w)
    if not isinstance(got, tuple) or len(got) != 2:
        return check.true(what, False, f"got {type(got).__name__}: return values, codes")
    values, codes = (np.asarray(a) for a in got)
    first = np.array([w[np.abs(w.reshape(-1)[:, None] - start).argmin(1).reshape(w.shape) == c].mean()
                      if (np.abs(w.reshape(-1)[:, None] - start).argmin(1) == c).any() else start[c]
                      for c in range(16)])  # fmt: skip
    check.close(f"values, {what}", values, want.codebook, dtype=w.dtype, suspects={
        "these are the 16 values to begin with: move each to the mean of its members": start,
        "one round is not enough: go on until nothing changes, or for 50 rounds": first,
        "a value without members stays where it is": np.where(np.bincount(ids, minlength=16) > 0, want.codebook, np.nan),
        "a value without members stays where it is, not at 0": np.where(
            np.bincount(ids, minlength=16) > 0, want.codebook, 0),
    })  # fmt: skip
    size = "two ids in a byte: (number of weights + 1) // 2 bytes of uint8"
    good = codes.dtype == np.uint8 and codes.shape == (k,)
    check.true(f"bytes, {what}", good, f"codes are {codes.dtype} {codes.shape}, wanted uint8 ({k},): {size}")
    if not good:
        return None
    swapped = unpacked(codes >> 4 | codes << 4, w.size)
    halves = np.concatenate([codes & 15, codes >> 4])[: w.size]
    turned = unpacked(codes, w.size).reshape(w.shape[::-1]).T.reshape(-1)
    told = {"the first of two ids is in the low four bits: id 0 + 16 * id 1": swapped,
            "neighbours share a byte: ids[0::2] and ids[1::2], not the two halves": halves,
            "row by row: w.reshape(-1)": turned}  # fmt: skip
    mistake = next(
        (text for text, wrong in told.items() if np.array_equal(wrong, ids)), "each weight has the nearest value's id"
    )
    return check.true(f"ids, {what}", np.array_equal(unpacked(codes, w.size), ids), mistake)


def check_nvfp4(check, nvfp4, x, what):
    """Rounding to NVFP4, bit for bit, against the library's."""
    want, n = formats.NVFP4.round(x), x.shape[-1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -n % 16)])
    blocks = padded.reshape(*x.shape[:-1], -1, 16)
    largest = abs(blocks).max(axis=-1, keepdims=True)

    def rounded(s, grid=formats.E2M1.round):
        with np.errstate(all="ignore"):
            y = grid(blocks / np.where(s == 0, 1, s).astype("float32")) * s
        return y.reshape(*x.shape[:-1], -1)[..., :n].astype("float32")

    t = np.maximum(largest.max() / np.float32(448 * 6), np.finfo(np.float32).tiny)
    scale = formats.E4M3.round
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], "float32")

    def nearest(a, side):
        return np.sign(a) * grid[np.searchsorted((grid[1:] + grid[:-1]) / 2, abs(a), side)]

    right = scale(largest / 6 / t) * t
    check.close(f"rounded, {what}", check.call(nvfp4, x), want, rtol=0, atol=0, dtype=x.dtype, suspects={
        "a tie goes to the even place of GRID, not down": rounded(right, lambda a: nearest(a, "left")),
        "a tie goes to the even place of GRID, not up": rounded(right, lambda a: nearest(a, "right")),
        "the scales are numbers of 8 bits: round them with e4m3": rounded(largest / 6),
        "a scale is e4m3(...) times t": rounded(right / t),
        "each block has a scale of its own": rounded(np.full_like(right, right.max())),
        "every block has t in common: one for the whole array": rounded(scale(largest / 6 / (largest / 2688 + 1e-30)) * (largest / 2688)),
        "without t a scale below 2^-9 becomes 0": rounded(scale(largest / 6)),
        "E4M3 ends at 448: t = largest of all / (448 * 6)": rounded(scale(largest / largest.max()) * largest.max() / 6),
        "divide by 6, the largest element, or the largest values are cut off": rounded(scale(largest / (6 * t)) * t * 0.75),
        "these are multiples of the scales: multiply by them": rounded(right) / np.repeat(np.where(right == 0, 1, right), 16, -1).reshape(*x.shape[:-1], -1)[..., :n],
        "the sign is lost": abs(want),
        "blocks of 16, not of 32": formats.BlockFormat("", formats.E2M1, 32, formats.E4M3).round(x),
        "blocks lie along the last axis": formats.NVFP4.round(x, axis=0),
        "this is MXFP4: its scales are powers of two": formats.MXFP4.round(x),
        "a tensor of zeros stays 0: no division by 0": np.where(want == 0, np.nan, want),
    })  # fmt: skip


DIGITS = load("digits", dtype="float32")


def train_digits(sizes=(64, 64, 32, 10), seed=0, steps=300):
    """A network, trained on the digits."""
    model = dl.nn.MLP(sizes, seed=seed)
    trainer = dl.Serial(model, dl.nn.SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.05))
    x, y, rng = DIGITS.x_train.reshape(-1, 64), DIGITS.y_train, np.random.default_rng(seed)
    for _ in range(steps):
        rows = rng.permutation(len(x))[:64]
        trainer.step(Batch(x[rows], y[rows], 64))
    return model


def formats_study(ways, seeds=5, report=None):
    """Test accuracy [%] and bytes of a trained network whose matrices are rounded; way(W) returns (rounded, bytes)."""
    models = [train_digits(seed=seed) for seed in range(seeds)]

    def run(way, seed):
        W = [p.data.copy() for p in models[seed].params]
        nbytes = sum(p.nbytes for p in models[seed].params if p.data.ndim < 2)
        for p in models[seed].params:
            if p.data.ndim == 2:
                p.data[...], size = ways[way](p.data)
                nbytes += size
        right = (models[seed].forward(DIGITS.x_test.reshape(-1, 64))[0].argmax(axis=1) == DIGITS.y_test).mean()
        for p, kept in zip(models[seed].params, W, strict=True):
            p.data[...] = kept
        return {"bytes": nbytes, "accuracy": 100 * right}

    return Study(run, {"way": list(ways)}, seeds)


FORMATS = {"float32": None, "NVFP4": formats.NVFP4, "MXFP4": formats.MXFP4}


def excess_loss(fmt, noise, seed, stochastic=False, steps=300):
    """Cross-entropy above its minimum [nats] where a share `noise` of the labels is drawn at random, anew in each step."""

    def dense(i, d_out):
        options = {} if fmt is None else {"fmt": fmt, "seed": [seed, i], "rotated": False, "squares": False, "stochastic": stochastic}  # fmt: skip
        return (dl.nn.LowPrecisionLinear if fmt else dl.nn.Linear)(64, d_out, [seed, i], **options)

    x, y = DIGITS.x_train.reshape(-1, 64), DIGITS.y_train
    model = dl.nn.Sequential(dense(0, 64), dl.nn.ReLU(), dense(1, 10))
    rule = Optimizer(model.params, Momentum(), Cosine(0.1, steps))
    trainer = dl.Serial(model, dl.nn.SoftmaxCrossEntropy(), rule)
    rng, truth = np.random.default_rng(seed), np.full((len(x), 10), noise / 10)
    truth[np.arange(len(x)), y] += 1 - noise
    for _ in range(steps):
        rows = rng.permutation(len(x))[:128]
        labels = np.where(rng.random(128) < noise, rng.integers(10, size=128), y[rows])
        trainer.step(Batch(x[rows], labels, 128))
    logits = model.forward(x)[0].astype(float)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return (truth * (np.log(np.maximum(truth, 1e-300)) - log_p)).sum(axis=1).mean()
