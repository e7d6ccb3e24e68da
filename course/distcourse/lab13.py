"""Lab 13, memory: its checks, the network of its puzzle, and its studies on fewer bits."""

from __future__ import annotations

import functools
import itertools

import numpy as np

import distlearn as dl
from distlearn.data import Batch, load
from distlearn.nn import compression, formats
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
        return kind(comm, *parts, **options) if kind else dl.Serial(*parts, comm.clock)

    return make


def owned(sample) -> dict[str, int]:
    """The bytes of a moment by owner, those saved by all layers together."""
    saved = sum(n for owner, n in sample.owners.items() if owner.startswith("saved by"))
    return {k: n for k, n in sample.owners.items() if not k.startswith("saved by")} | {"saved": saved}


def check_step(check, step_bytes, sizes, batch, kept, dtype, rng):
    """Bytes of a step by owner, against those of meta arrays; and their sum, against what NumPy allocates."""
    make, model, k = (
        strategy((SGD(), Momentum(), Adam())[kept]),
        dl.nn.MLP(sizes, dtype=dtype),
        np.dtype(dtype).itemsize,
    )
    records = (record_memory(make, model, samples(batch, sizes[:1], dtype, r)) for r in (None, rng))
    ends = [next(s for s in reversed(r.samples) if s.at.startswith("forward")) for r in records]
    want, measured = owned(ends[0]), ends[1].total
    pairs, outputs, d_in = list(itertools.pairwise(sizes)), sum(sizes[1:]), sizes[0]
    one = k * sum((a + 1) * b for a, b in pairs)
    weights = {
        "each layer has a bias for every output, too": k * sum(a * b for a, b in pairs),
        "a layer has d_out biases, not d_in": k * sum(a * b + a for a, b in pairs),
        "the last layer has parameters, too": k * sum((a + 1) * b for a, b in pairs[:-1]),
        "these are numbers: times itemsize bytes": one // k,
        "itemsize is not always 4": 4 * one // k,
    }
    known = {
        "parameters": weights,
        "gradients": weights | {"a parameter has one gradient, whatever the batch": one * batch},
        "optimizer": {text: kept * n for text, n in weights.items()} | {
            "the optimizer keeps `arrays` numbers for each parameter": one,
            "what is neither weight nor gradient: `arrays` numbers for each parameter": (kept + 1) * one},
        "batch": {
            "the labels are int64: 8 bytes for each sample": k * batch * d_in,
            "a label has 8 bytes, whatever itemsize is": k * batch * (d_in + 1),
            "one label for each sample, not for each class": batch * (k * d_in + 8 * sizes[-1]),
            "itemsize is not always 4": batch * (4 * d_in + 8),
            "only the inputs have itemsize bytes": batch * 8 * (d_in + 1)},
        "saved": {
            "the first layer's input is the batch, which is counted already": k * batch * sum(sizes),
            "a ReLU's output is the next layer's input: one array, not two": k * batch * (2 * outputs - sizes[-1]),
            "the scores are needed until backward begins: count them": k * batch * sum(sizes[1:-1]),
            "every sample has its own: times the batch": k * outputs,
            "what is saved are outputs, not inputs": k * batch * sum(sizes[:-1]),
            "these are numbers: times itemsize bytes": batch * outputs,
            "itemsize is not always 4": 4 * batch * outputs,
            "all layers' are kept until backward, not only the largest": k * batch * max(sizes[1:])},
    }  # fmt: skip
    what = f"{sizes}, batch {batch}, {kept} arrays, {dtype}"
    got = check.call(step_bytes, sizes, batch, kept, k)
    if not isinstance(got, dict) or set(got) != set(known):
        return check.true(what, False, f"got {got!r}: return a dict with the keys {', '.join(known)}")
    for owner, suspects in known.items():
        check.close(f"{owner}, {what}", got[owner], want.get(owner, 0), suspects=suspects)
    total = sum(got.values())
    return check.true(f"sum, {what}", total == measured, f"NumPy has allocated {measured:,}, your sum is {total:,}")


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


def check_layer(check, layer_bytes, s, b, h, a, t=1, **ways):
    """Bytes of a transformer layer's activations, by the paper's table 2."""
    sequence, selective, full = (ways.get(name, False) for name in ("sequence", "selective", "full"))
    unit, core, on = s * b * h, 5 * a * s / h, 0 if selective else 1
    rest, what = 34 / t if sequence else 10 + 24 / t, f"s {s}, b {b}, h {h}, a {a}, t {t}, {', '.join(ways) or 'plain'}"
    want = 2 if full else rest + on * core / t
    suspects = {
        "the formula gives bytes already: not times 2": 2 * want,
        "the formula gives bytes, not numbers of 2 bytes: do not halve it": want / 2,
        "full recomputation keeps the layer's input alone: 2 bytes a number": rest + on * core / t,
        "full recomputation keeps the whole input on every rank: not divided by t": 2 / t,
        "ranks share the heads: the attention term is divided by t": rest + on * core,
        "24 of the 34 are divided by t, and 10 are not": 34 + on * core / t,
        "with sequence parallelism the 10 are divided by t, too": 10 + (24 + on * core) / t,
        "without sequence parallelism the 10 stay whole": (34 + on * core) / t,
        "divide what ranks share by t": 34 + on * core,
        "only the 10 are divided by t: the 24 are, in any case": 10 / t + 24 + on * core / t,
        "selective recomputation drops the attention term, 5 a s / h": rest + core / t,
        "selective recomputation drops the attention term, and keeps the rest": core / t,
        "the attention term is kept, unless recomputation is selective": rest,
        "5 a s / h grows with s": rest + on * 5 * a / h / t,
        "5 a s / h grows with a": rest + on * 5 * s / h / t,
        "5 a s / h: s b h is outside the bracket": rest + on * core * h / t,
        "5 a s / h, not 5 a h / s": rest + on * 5 * a * h / s / t,
    }
    wrong = {text: unit * n for text, n in suspects.items()}
    wrong |= {"times s b h": want, "times b, too": s * h * want}
    check.close(f"bytes, {what}", check.call(layer_bytes, s, b, h, a, t, **ways), unit * want, suspects=wrong)


# -- Sections 3 and 4: recomputation, and plans.


def dense(sizes, dtype="float32"):
    """Dense layers, each with its ReLU, that pass on the gradient of their input."""
    pairs = enumerate(itertools.pairwise(sizes))
    layers = [(dl.nn.Linear(a, b, [0, i], dtype=dtype), dl.nn.ReLU()) for i, (a, b) in pairs]
    return dl.nn.Sequential(*(layer for both in layers for layer in both))


def nbytes_of(saved) -> int:
    """Bytes of the arrays in nested lists and tuples."""
    return sum(map(nbytes_of, saved)) if isinstance(saved, (list, tuple)) else getattr(saved, "nbytes", 0)


def check_light(check, light_forward, light_backward, counted, sizes, n, dtype, rng):
    """A block that keeps its input alone: two batches in flight, and the gradients of running it as it is."""
    block, plain = (counted(dense(sizes, dtype)) for _ in range(2))
    xs, dys = (rng.normal(size=(2, n, d)).astype(dtype) for d in (sizes[0], sizes[-1]))
    what, runs, wants = f"{sizes}, {n} rows, {dtype}", [], [plain.forward(x) for x in xs]
    for x, (y, _) in zip(xs, wants, strict=True):
        got, kept = check.call(light_forward, block, x)
        runs.append(kept)
        check.close(f"y, {what}", got, y, dtype=dtype, suspects={"the output comes first: return y, kept": x})
        told = f"{nbytes_of(kept):,} bytes, the block's input has {x.nbytes:,}: keep it, and nothing else"
        check.true(f"bytes kept, {what}", nbytes_of(kept) == x.nbytes, told)
    for dy, y, kept, (_, saved) in zip(dys, [y for y, _ in wants], runs, wants, strict=True):
        told = "return what the block's backward pass returns"
        same = {f"this is dy: {told}": dy, f"this is dy after a ReLU: {told}": dy * (y > 0), f"this is y: {told}": y}
        want, given = plain.backward(dy.copy(), saved), dy.copy()
        got = check.call(light_backward, block, given, kept, inplace=True)  # a ReLU writes into its dy
        check.close(f"dx, {what}", got, want, dtype=dtype, suspects=same)
    for mine, right in zip(block.body.params, plain.body.params, strict=True):
        twice = {"the backward pass adds to the gradients: run it once for each batch": 2 * right.grad,
                 "backward of the block was not run: it adds to the gradients": 0}  # fmt: skip
        check.close(f"gradient of {right.name}, {what}", mine.grad, right.grad, suspects=twice)
    check.equal(f"passes, {what}", block.passes, {"forward": 4, "backward": 2}, suspects={
        "backward once for each batch": {"forward": 4, "backward": 4},
        "the block did not run again: what it saved was kept somewhere else": {"forward": 2, "backward": 2},
        "one forward pass in each of the two functions is enough": {"forward": 6, "backward": 2},
    })  # fmt: skip


def drawn_chain(rng, n, room):
    """An uneven chain (forward, inputs, saved, budget) of n layers: the least budget at room 0, all fits at 1."""
    forward = np.exp(rng.normal(2, 1.2, n)).astype(int) + 1
    inputs, saved = rng.integers(1, 9, n), rng.integers(2, 20, n)
    least = int((inputs + saved)[1:].max(initial=saved[0]))
    return forward.tolist(), inputs.tolist(), saved.tolist(), least + int(room * (saved.sum() - least))


def cut_sides(plan, side):
    """The left (0) or right (1) parts of all pairs."""
    whole = not isinstance(plan[0], (list, tuple))
    return [] if whole else [plan[side], *cut_sides(plan[0], side), *cut_sides(plan[1], side)]


def check_plan(check, plan, *chains):
    """The student's planner: plans that are some, fit into their budgets, and are at most 1.1 times the best one."""
    for chain in chains:
        (forward, inputs, saved, budget), what = chain, f"{len(chain[0])} layers in {chain[3]} bytes"
        got = check.call(plan, *(list(row) for row in chain[:3]), budget)
        try:
            peak, extra = dl.nn.plan_cost(got, forward, inputs, saved)
        except (ValueError, TypeError, IndexError) as error:
            none = "a part that has no plan was taken: it must cost infinity, as a part of another, too"
            told = none if "None" in str(got) else f"{error}; a plan is a list of layers or a pair of two plans"
            check.true(f"a plan, {what}", False, f"got {got}: {told}")
            continue
        least = dl.nn.plan_cost(dl.nn.best_plan(*chain), forward, inputs, saved)[1]
        why = "a list keeps what all its layers save, at the same time"
        if dl.nn.plan_cost(got, forward, [0] * len(forward), saved)[0] <= budget:
            why = "while the right part runs its input is kept, too: it takes inputs[k] of the room"
        check.true(f"peak, {what}", peak <= budget, f"{peak:,} bytes at the peak, the budget is {budget:,}: {why}")
        why = "try every cut k, and compare operations: sum(forward[i:k]) and those of both parts"
        for side, text in ((1, "a right part can be cut again, in the room that its input leaves"),
                           (0, "a left part can be cut again: its input is there until it has run")):  # fmt: skip
            why = why if any(cut_sides(part, 0) for part in cut_sides(got, side)) else text
        told = f"{extra:,} operations are done again, {least:,} suffice: {why if least else 'one list fits'}"
        check.true(f"done again, {what}", extra <= 1.1 * least, told)


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


GRID = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])  # the sizes of E2M1
MIDDLES = (GRID[1:] + GRID[:-1]) / 2


e4m3 = formats.E4M3.round


def unpacked(codes, n):
    """The first n numbers of 4 bits, the low half of a byte first."""
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)[:n]


def check_cluster(check, cluster_16, w):
    """16 values and packed ids, against the library's k-means; the bytes are exact."""
    flat, start, what = w.reshape(-1), np.linspace(w.min(), w.max(), 16), f"{w.dtype} {w.shape}"
    want, near = compression.cluster(w, 16), abs(flat[:, None] - start).argmin(axis=1)
    first = [flat[near == c].mean() if c in near else start[c] for c in range(16)]
    ids, k = unpacked(want.codes, w.size), -(-w.size // 2)
    empty = np.bincount(ids, minlength=16) == 0
    values, codes = check.call(cluster_16, w)
    check.close(f"values, {what}", values, want.codebook, dtype=w.dtype, suspects={
        "these are the 16 values to begin with: move each to the mean of its weights": start,
        "one round is not enough: go on until nothing moves, or for 50 rounds": first,
        "a value without weights stays where it is: the mean of nothing is NaN": np.where(empty, np.nan, want.codebook),
        "a value without weights stays where it is, not at 0": np.where(empty, 0, want.codebook),
        "begin with np.linspace(smallest, largest, 16); move each to the mean of its weights": np.sort(values),
    })  # fmt: skip
    kind = f"{getattr(codes, 'dtype', type(codes).__name__)} {np.shape(codes)}"
    good = kind == f"uint8 ({k},)"
    check.true(f"bytes, {what}", good, f"codes are {kind}, wanted uint8 ({k},): two ids a byte, a 0 for a missing one")
    if good:
        halves, low = np.concatenate([codes & 15, codes >> 4])[: w.size], unpacked(codes, w.size)
        high = unpacked(codes >> 4 | codes << 4, w.size)
        told = {"the first of two ids is in the low four bits: id + 16 * next id": high,
                "neighbours share a byte: ids[0::2] and ids[1::2], not the two halves": halves,
                "row by row: w.reshape(-1)": low.reshape(w.shape[::-1]).T.reshape(-1)}  # fmt: skip
        mistake = next((text for text, wrong in told.items() if np.array_equal(wrong, ids)), "")
        check.true(f"ids, {what}", np.array_equal(low, ids), mistake or "each weight has the id of the nearest value")


def check_nvfp4(check, nvfp4, x, what):
    """Rounding to NVFP4, to the bit, against the library's."""
    n, small = x.shape[-1], np.finfo(np.float32).tiny
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -n % 16)]).reshape(*x.shape[:-1], -1, 16)
    largest = abs(blocks).max(axis=-1, keepdims=True)

    def rounded(s, element=formats.E2M1.round, times=None, cut=n):
        with np.errstate(all="ignore"):
            y = element(blocks / np.where(s == 0, 1, s).astype("float32")) * (s if times is None else times)
        return y.reshape(*x.shape[:-1], -1)[..., :cut].astype("float32")

    def placed(side, among=MIDDLES):
        return rounded(s, lambda a: np.sign(a) * GRID[np.searchsorted(among, abs(a), side)])

    t, own = (np.maximum(m / np.float32(2688), small) for m in (largest.max(), largest))
    s, want = e4m3(largest / 6 / t) * t, formats.NVFP4.round(x)
    got = check.call(nvfp4, x)
    wrong = {
        "a tie goes to the even place of GRID, not always down": placed("left"),
        "a tie goes to the even place of GRID, not always up": placed("right"),
        "the largest of a block is to become 6: divide by 6": rounded(e4m3(largest / t) * t),
        "scales have 8 bits: round them with e4m3": rounded(largest / 6),
        "a scale is e4m3(...) times t": rounded(s / t),
        "each block has a scale of its own": rounded(np.full_like(s, s.max())),
        "t is one number for the whole array": rounded(e4m3(largest / 6 / own) * own),
        "without t, small scales become 0 in E4M3": rounded(e4m3(largest / 6)),
        "E4M3 ends at 448: t = largest of all / (448 * 6)": rounded(e4m3(largest / (2688 * t)) * 448 * t),
        "this is in units of the scales: multiply by them": rounded(s, times=1),
        "the sign is lost": abs(want),
        "blocks have 16 values, not 32": formats.BlockFormat("", formats.E2M1, 32, formats.E4M3).round(x),
        "blocks lie along the last axis": formats.NVFP4.round(x, axis=0),
        "blocks begin anew in each row": formats.NVFP4.round(x.reshape(-1)).reshape(x.shape),
        "scales are numbers of E4M3 times t, not powers of two": rounded(2 ** np.floor(np.log2(own * 2688)) / 4),
        "to the nearest size, not to the one below": placed("right", GRID[1:]),
        "a tie goes to the even place of GRID, not to the odd one": placed("left") + placed("right") - want,
        "cut the zeros at the end off again": rounded(s, cut=None),
    }  # fmt: skip
    wrong = {text: y for text, y in wrong.items() if np.any(y)}  # what is all 0 would explain any 0
    check.close(f"rounded, {what}", got, want, rtol=0, atol=0, dtype="float32", suspects=wrong)


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
    trainer, x, y = dl.Serial(model, dl.nn.SoftmaxCrossEntropy(), optimizer), digits().x_train, digits().y_train
    for _ in range(steps):
        rows = rng.permutation(len(x))[:n]
        labels = np.where(rng.random(n) < noise, rng.integers(10, size=n), y[rows])
        losses.append(trainer.step(Batch(x[rows], labels, n)))
    return losses


def excess_loss(fmt, stochastic, noise, seed, steps=300):
    """Cross-entropy above its minimum [nats] after training in a format, a share `noise` of the labels random."""

    def layer(i, d_out):
        if fmt is None:
            return dl.nn.Linear(64, d_out, [seed, i])
        options = {"fmt": fmt, "seed": [seed, i], "stochastic": stochastic, "rotated": False, "squares": False}
        return dl.nn.LowPrecisionLinear(64, d_out, [seed, i], **options)

    model = dl.nn.Sequential(layer(0, 64), dl.nn.ReLU(), layer(1, 10))
    train(model, 128, Cosine(0.1, steps), steps, noise=noise, seed=seed)
    x, y = digits().x_train, digits().y_train
    truth = np.full((len(x), 10), noise / 10)
    truth[np.arange(len(x)), y] += 1 - noise
    logits = model.forward(x)[0].astype(float)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return (truth * (np.log(np.maximum(truth, 1e-300)) - log_p)).sum(axis=1).mean()
