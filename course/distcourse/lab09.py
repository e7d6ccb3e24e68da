"""Model parallelism, for lab 09: training with bugs of real frameworks, one's own layers, which layout sends least."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib.patches import Rectangle

from distlearn.comm.network.cost import sent_bytes
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy, init
from distlearn.nn.container import layer_span
from distlearn.nn.models import TABLE, Inception
from distlearn.optim import SGD, Momentum, Optimizer
from distlearn.parallel import Layout, Serial, simulate_layout
from distlearn.parallel.mesh import LayoutError, Mesh, Partial, Replicate, Shard
from distlearn.parallel.planning.search import model_and_sample
from distlearn.parallel.tensor import ColumnParallelLinear, RowParallelLinear, TensorParallel, boundary, shard_specs
from distlearn.shares import shares
from distlearn.sim import SimWorld
from distlearn.train import fit
from distlearn.viz.look import COLORS, INK, MUTED, new_axes, styled, write_title

# -- Tensor-parallel training with three bugs of real frameworks, none of which raises an error.


class _Doubled(ColumnParallelLinear):
    """Sums the gradient of its input once more."""

    def backward(self, dy, saved):
        dx = super().backward(dy, saved)
        return dx if dx is None else self.comm.all_reduce(dx)


def train_with_bug(comm, bug: str = "none", *, seed: int = 0, epochs: int = 6, clip_norm: float = 0.5):
    """Train a small tensor-parallel network on the digits with a bug: "none", "missing", "doubled" or "norm".

    Return its history, and how far this rank's copies of parameters that every rank has are from rank 0's at most.
    """
    data = load("digits", dtype="float64")
    model = MLP((64, 48, 48, 48, 10), seed=seed, dtype="float64")
    optimizer = Optimizer(model.params, SGD(), 0.3, clip_norm=clip_norm)
    strategy = TensorParallel(comm, model, SoftmaxCrossEntropy(), optimizer)
    for layer in strategy.model.layers:
        if isinstance(layer, ColumnParallelLinear) and bug == "missing":
            layer.sum_input_gradient = False
        if isinstance(layer, ColumnParallelLinear) and bug == "doubled":
            layer.__class__ = _Doubled
    if bug == "norm":
        strategy.optimizer.norm = lambda params: float(np.sqrt(sum((p.grad**2).sum() for p in params)))
    history = fit(strategy, data, epochs=epochs, batch_size=64, seed=seed)
    sharded = shard_specs(strategy.model)
    copies = [p.data for p in strategy.model.params if p.name not in sharded]
    apart = max(float(np.abs(mine - comm.all_gather(mine)[0]).max()) for mine in copies)
    return history, apart


# -- Which layout for which network, by bytes: ten networks, and a rule scored against the planner.


TRICK = "one weird trick"


class LayoutFacts(NamedTuple):
    """What is known of a network before one chooses a layout; all in bytes, but for the ranks."""

    # "Dense" means from the first dense layer on. Of a network without one, or with nothing before it, `tensor_dense`
    # is None, and there is no one weird trick.

    ranks: int
    weights: int
    """Of the whole network."""
    weights_dense: int
    boundary: int | None
    """Activations of the whole batch that enter the first dense layer."""
    tensor: float
    """What a rank sends in a step if all layers are tensor-parallel."""
    tensor_dense: float | None
    """What a rank sends for tensor-parallel dense layers, beyond what happens at the boundary."""


@dataclass(frozen=True)
class LayoutCase:
    """A network to be trained on some ranks."""

    name: str
    model: str | Callable
    ranks: int
    batch_size: int
    sample: tuple[int, ...] | None = None
    network: str = "ethernet-10g"


TEN = (
    LayoutCase("narrow MLP", lambda: MLP((784, 64, 32, 10), seed=None), 4, 512, (784,)),
    LayoutCase("wide MLP", lambda: MLP((784, 4096, 4096, 10), seed=None), 4, 128, (784,)),
    LayoutCase("LeNet", "lenet", 4, 256),
    LayoutCase("small CNN", "cnn", 4, 256),
    LayoutCase("AlexNet", "alexnet", 4, 128),
    LayoutCase("GoogLeNet", "googlenet", 4, 128),
    LayoutCase("SqueezeNet", "squeezenet", 4, 128),
    LayoutCase("Siamese network", "siamese", 4, 64),
    LayoutCase("GRU language model", "gru", 4, 64),
    LayoutCase("GPT", "gpt", 4, 64),
)
"""Ten networks, small and large, with few and with many weights for what they compute."""


@lru_cache
def layout_facts(case: LayoutCase) -> tuple[LayoutFacts, dict[str, float]]:
    """Return the facts of a case, and the planner's seconds for "data", "tensor" and, if it applies, the trick."""
    model = case.model if isinstance(case.model, str) else case.model()
    layouts = {"data": Layout(case.ranks), "tensor": Layout(1, case.ranks)}
    serial, sample = model_and_sample(model, case.sample)
    first = boundary(serial)
    if first is not None:
        layouts[TRICK] = Layout(case.ranks, trick=True)
    options = {"batch_size": case.batch_size, "input_shape": sample}
    costs = {name: simulate_layout(serial, layout, case.network, **options) for name, layout in layouts.items()}
    p, weights = case.ranks, sum(q.nbytes for q in serial.params)
    dense, entering, tensor_dense = 0, None, None
    if first is not None:
        features = serial.part(serial.layers[:first])
        before = sum(q.nbytes for q in features.params)
        dense, itemsize = weights - before, serial.params[0].data.dtype.itemsize
        shape = features.output_shape((case.batch_size, *sample))
        entering = itemsize * int(np.prod(shape))
        twice = 2 * sent_bytes("all_gather", entering, p)
        tensor_dense = costs[TRICK].nbytes - sent_bytes("all_reduce", before, p) - twice
    facts = LayoutFacts(p, weights, dense, entering, costs["tensor"].nbytes, tensor_dense)
    return facts, {name: cost.seconds for name, cost in costs.items()}


def score_rule(rule: Callable, cases=TEN) -> tuple[list[dict], float]:
    """Score `rule(facts)`, which names a layout, against the planner, which is given the same ones.

    Return a row for each network, and how many times longer steps take than with the planner's choices, as a geometric
    mean over the networks.
    """
    rows = []
    for case in cases:
        facts, seconds = layout_facts(case)
        chosen, fastest = rule(facts), min(seconds, key=seconds.get)
        if chosen not in seconds:
            raise ValueError(
                f"score_rule: for {case.name} the rule chose {chosen!r}, expected {' or '.join(map(repr, seconds))}"
            )
        row = {"network": case.name, "ranks": case.ranks, "batch": case.batch_size, "the rule": chosen}
        rows.append(row | {"the planner": fastest, "times the fastest": seconds[chosen] / seconds[fastest]})
    return rows, float(np.exp(np.mean([np.log(row["times the fastest"]) for row in rows])))


# -- The checks of lab 09's exercises, and the mistakes that they name.


def check_product_type(check, product_type, ndim: int) -> None:
    """The types for all pairs of factors, X of `ndim` axes."""
    for x in (Replicate(), Partial(), *map(Shard, range(ndim))):
        with check.group(f"{x} @ W of each type, ndim {ndim}", most=4):
            for w in (Replicate(), Partial(), Shard(0), Shard(1)):
                want, got = _told(_product_type(x, w, ndim)), _told(check.call(product_type, x, w, ndim))
                check.equal(f"{x} @ {w}, ndim {ndim}", got, want, suspects={_why(x, w, got, want, ndim): got})


def _why(x, w, got: str, want: str, ndim: int) -> str:
    """Why a type that a product does not have is wrong."""
    if got.startswith("class"):
        return "this is the class: call it, as in Replicate()"
    if x == w == Partial():
        return "a product of sums is not the sum of products"
    if want == "None":
        return "the ranks' parts do not belong together"
    if got == "None":
        return "the parts already fit: no communication is needed"
    if Partial() in (x, w):
        return "the product is linear in each factor: the sum of the ranks' products is the product"
    if want == "Partial()":
        return "each rank has some of the terms of every sum"
    if want == f"Shard({ndim - 1})" and got == "Shard(1)":
        return "count the axes of x, not of W"
    return "each rank has whole sums, of all rows and columns or of some: y lies on the ranks as these do"


class _Text(str):
    """Text that is shown without quotation marks."""

    __repr__ = str.__str__


def _told(placement) -> _Text:
    """Return a placement as text; it may have come from another process, where it stands for an answer's object."""
    kind = type(placement).__name__
    if callable(placement):
        return _Text(f"class {placement.__name__}")
    return _Text("None" if placement is None else f"Shard({placement.axis})" if kind == "Shard" else f"{kind}()")


def _product_type(x, w, ndim: int):
    """The type that the library gives a product, None where it refuses."""

    def program(comm):
        mesh = Mesh(comm)
        with contextlib.suppress(LayoutError):
            return (mesh.distribute(np.ones((2,) * ndim), x) @ mesh.distribute(np.ones((2, 2)), w)).placement

    return SimWorld(2).run(program)[0]


_CHANGES = {
    ("Partial", "Replicate"): ("all_reduce", 2, "every rank needs the sum, all of it"),
    ("Partial", "Shard"): ("reduce_scatter", 1, "every rank needs its share of the sum"),
    ("Shard", "Replicate"): ("all_gather", 1, "every rank needs all shares, side by side: nothing is added"),
    ("Shard", "Shard"): ("all_to_all", None, "every rank needs a part of each share: nothing is added"),
}


def check_move(check, move, nbytes: float, p: int, axes: tuple[int, int]) -> None:
    """The collectives and the bytes of all changes of type, with shards along two axes."""
    kinds = [Replicate(), Partial(), *map(Shard, axes)]
    for old in kinds:
        with check.group(f"from {old} to each type, {p} ranks", most=4):
            for new in kinds:
                _check_change(check, old, new, check.call(move, old, new, nbytes, p), nbytes, p)


def _check_change(check, old, new, found, nbytes: float, p: int) -> None:
    """Compare what an answer says of one change of type."""
    pair, where = (type(old).__name__, type(new).__name__), f"{old} to {new}, {p} ranks"
    why = "its type stays" if old == new else "zeros around its share" if pair[0] == "Shard" else "it has all of it"
    name, times, told = _CHANGES.get(pair, ("", 0, "")) if old != new else ("", 0, "")
    want = (p - 1) / p * nbytes * (1 / p if times is None else times)
    if not (isinstance(found, tuple) and len(found) == 2):
        return check.true(where, False, "return two things: the name, and the bytes")
    if isinstance(found[1], str):
        return check.true(where, False, "the name comes first, then the bytes")
    check.equal(where, found[0], name, suspects={told or f"{why}: nothing is sent": found[0]})
    wrong = {f"{why}: nothing is sent": found[1]}
    if want:
        wrong = {
            "a rank does not send its own part to itself: (p - 1) / p": want * p / (p - 1),
            "this is what all ranks send together, or a rank's part of it is missing: 1 / p": want * p,
            "nothing but the part itself: it passes on the others' parts, too": nbytes / p,
            "nothing but the part itself, and of that what it does not keep": (p - 1) / p**2 * nbytes,
            "twice as much as that: nothing is added here": 2 * want,
            "any number of ranks: p is an argument": want / ((p - 1) / p) * 3 / 4,
        }
    if name == "all_reduce":
        wrong["an all-reduce is a reduce-scatter and an all-gather"] = want / 2
        wrong["the array once: a reduce-scatter and an all-gather send all but a rank's share, each"] = nbytes
    check.close(f"bytes, {where}", found[1], want, rtol=1e-9, suspects=wrong)


def check_typed(check, gain_gradient, input_gradient, grad_norm, p: int, shape=(7, 9), seed: int = 0) -> None:
    """Three functions of typed arrays against serial ones, on every rank, and their collectives."""
    rng, where = np.random.default_rng([seed, p]), f", {p} rank{'s' * (p > 1)}"
    a, b = rng.normal(size=(2, *shape))
    w, c, world = rng.normal(size=(5, shape[1])), rng.normal(size=4), SimWorld(p)

    def program(comm):
        mesh = Mesh(comm)
        rows, columns = [mesh.distribute(x, Shard(0)) for x in (a, b)], [mesh.distribute(x, Shard(1)) for x in (a, w)]
        whole, sums = ([mesh.distribute(x, kind) for x in (c, c[:2].copy())] for kind in (Replicate(), Partial()))
        found = []
        for f, given, unfit in (
            (gain_gradient, rows, [mesh.distribute(x, Partial()) for x in (a, b)]),
            (input_gradient, columns, [mesh.distribute(x, Partial()) for x in (a, w)]),
            (grad_norm, (columns, whole), (sums, whole)),
        ):
            began = len(world.trace.select(rank=0, lane="comm"))
            result = check.call(f, *given)
            used = {s.name for s in world.trace.select(rank=0, lane="comm")[began:]}
            found.append([result, used, True])
            with contextlib.suppress(LayoutError):
                f(*unfit)
                found[-1][-1] = False  # it went on with summands
        return found

    parts = [np.array_split(x, p, axis) for x, axis in ((a, 0), (b, 0), (a, 1), (w, 1))]
    own = [(y**2).sum() + (v**2).sum() for y, v in zip(*parts[2:], strict=True)]
    whole, lengths = (c**2).sum() + (c[:2] ** 2).sum(), [float(np.linalg.norm(x)) for x in (a, w, c, c[:2])]
    norms = {
        "what every rank has is counted p times": np.sqrt(sum(own) + p * whole),
        "the gradients that all ranks have are missing": np.sqrt(sum(own)),
        "the sharded gradients are missing": np.sqrt(whole),
        "the root is missing": sum(own) + whole,
        "squares are missing: g * g": np.sqrt(np.abs(a.sum() + w.sum() + whole)),
        "this rank's shards: a sum of squares must be complete before the root": [np.sqrt(x + whole) for x in own],
        "squares add up, norms do not: one root at the end": sum(lengths),
        "squares add up, norms do not: no root before the sum": np.sqrt(sum(lengths[:2]) + whole),
    }
    sums = {
        "this rank's rows only: all_reduce": [(x * y).sum(axis=0) for x, y in zip(*parts[:2], strict=True)],
        "summed twice": p * (a * b).sum(axis=0),
        "the gain has d numbers: sum over the rows": (a * b).sum(axis=1),
    }
    columns = {
        "a partial sum: all_reduce": [y @ v.T for y, v in zip(*parts[2:], strict=True)],
        "summed twice": p * (a @ w.T),
    }
    gain, dx, norm = zip(*world.run(program), strict=True)
    for name, found, want, wrong in (
        ("gain_gradient", gain, (a * b).sum(axis=0), sums),
        ("input_gradient", dx, a @ w.T, columns),
        ("grad_norm", norm, np.sqrt(sum(own) + whole), norms),
    ):
        got, (used, *_), (refuses, *_) = zip(*found, strict=True)
        if any(type(array).__name__ == "MeshArray" for array in got):
            check.true(name + where, False, "return the plain array, .whole(): it says so if a rank has not all of it")
            continue
        _compare(check, name + where, got, want, wrong)
        others = used - {"all_reduce"}
        told = f"{' and '.join(sorted(others))}: multiply what each rank has, and add up the results with .all_reduce()"
        check.true(f"collectives of {name}{where}", not others, told)
        if check.ok:
            told = "given two Partials it raises no LayoutError: compute with the arrays themselves, not their .local"
            check.true(f"types of {name}{where}", refuses, told)


def check_layers(check, functions, p: int, shape=(5, 6, 8), seed: int = 0, dtype="float64") -> None:
    """Column- and row-parallel layers against the serial one, on every rank, and their collectives.

    The functions are those of `train_layers`; the shape is samples, inputs, outputs.
    """
    rng, (n, k, m), where = np.random.default_rng([seed, p]), shape, f", {p} rank{'s' * (p > 1)}"
    x, dy, W, b = (rng.normal(size=s).astype(dtype) for s in ((n, k), (n, m), (k, m), m))
    xs, dys, Wc, Wr = (np.array_split(a, p, axis) for a, axis in ((x, 1), (dy, 1), (W, 1), (W, 0)))
    bs = np.array_split(b, p)

    def program(comm):
        r = comm.rank
        args = (x, Wc[r], bs[r]), (dys[r], x, Wc[r]), (xs[r], Wr[r], b), (dy, xs[r], Wr[r])
        return [check.call(f, comm, *(a.copy() for a in given)) for f, given in zip(functions, args, strict=True)]

    world, ranks = SimWorld(p), range(p)
    column, back, row, row_back = zip(*world.run(program), strict=True)
    for name, found in (("column_backward", back), ("row_backward", row_back)):
        if not all(isinstance(three, tuple) and len(three) == 3 for three in found):
            return check.true(name + where, False, "return dx, dW, db")
        if np.shape(found[0][1])[:1] == (n,) != np.shape(found[0][0])[:1]:
            return check.true(name + where, False, "dx comes first, then dW")
    dx, dW, db, y = dy @ W.T, x.T @ dy, dy.sum(axis=0), x @ W + b
    summands = {
        "this rank's summand: each rank has some columns, so sum over the ranks": [dys[r] @ Wc[r].T for r in ranks],
        "summed twice: each all_reduce adds up over the ranks": p * dx,
        "the sum over the ranks is the gradient: nothing to divide": dx / p,
    }
    biased = {
        "the bias is added once on every rank: add it after the sum": y + (p - 1) * b,
        "this rank's summand: sum over the ranks": [xs[r] @ Wr[r] + b for r in ranks],
        "this rank's summand, without bias: sum over the ranks, then add b": [xs[r] @ Wr[r] for r in ranks],
        "the bias is missing": y - b,
        "summed twice": p * (y - b) + b,
        "the sum over the ranks is y: nothing to divide": (y - b) / p + b,
    }
    ys, dWs, dxs = (np.array_split(a, p, 1) for a in (y, dW, dx))
    dbs = np.array_split(db, p)
    mixed = {f"each rank has its own columns of {what}: no all_reduce": _sums(parts) for what, parts in
             (("y", ys), ("dW", dWs), ("dx", dxs), ("db", dbs))}  # fmt: skip
    mixed |= {
        "the bias is missing": [part - bias for part, bias in zip(ys, bs, strict=True)],
        "db is a sum over the batch, not a mean": [part / n for part in dbs],
        "each rank has its own rows of dW: no all_reduce": _sums(np.array_split(dW, p)),
    }
    summed = {
        "every rank has all of dy, so db is whole: no all_reduce": p * db,
        "db is a sum over the batch, not a mean": db / n,
    }
    for name, got, want, wrong in (
        ("column_forward's y", column, ys, mixed),
        ("column_backward's dx", [g[0] for g in back], dx, summands),
        ("column_backward's dW", [g[1] for g in back], dWs, mixed),
        ("column_backward's db", [g[2] for g in back], dbs, mixed),
        ("row_forward's y", row, y, biased),
        ("row_backward's dx", [g[0] for g in row_back], dxs, mixed),
        ("row_backward's dW", [g[1] for g in row_back], np.array_split(dW, p), mixed),
        ("row_backward's db", [g[2] for g in row_back], db, summed),
    ):
        _compare(check, name + where, got, want, wrong, dtype)
    if p > 1:
        names = [span.name for span in world.trace.select(rank=0, lane="comm")]
        told = (
            f"column_backward needs one all_reduce, row_forward one, the others none: got {', '.join(names) or 'none'}"
        )
        check.true("collectives of all four" + where, names == ["all_reduce"] * 2, told)


def _sums(parts):
    """Return the sum of all parts, or NaN where their shapes differ."""
    alike = len({part.shape for part in parts}) == 1
    return sum(parts) if alike else np.nan


def _compare(check, name, got, want, wrong, dtype=None) -> None:
    """One line for all ranks: a wrong one, if any is. All but `got` may be one for all ranks instead of a list."""

    def at(values, rank):
        return values[rank] if isinstance(values, list) else values

    def differs(got, want):
        return got is None or np.shape(got) != np.shape(want) or not np.allclose(got, want)

    r = next((r for r in range(len(got)) if differs(got[r], at(want, r))), 0)
    check.close(name, got[r], at(want, r), dtype=dtype, suspects={told: at(v, r) for told, v in wrong.items()})


def check_assign(check, assign, costs, p: int) -> None:
    """An assignment of paths to ranks, against the costliest-first rule."""
    got, where = check.call(assign, list(costs), p), f", costs {costs} on {p} rank{'s' * (p > 1)}"
    try:
        flat = sorted(operator.index(k) for own in got for k in own)
    except TypeError:
        return check.true("a list for each rank" + where, False, "return a list of p lists of whole numbers")
    check.equal("lists" + where, len(got), p)
    numbers = list(range(len(costs)))
    mistakes = {
        "all ranks have the same paths: [[]] * p is one list, p times": sorted(numbers * p) if p > 1 else None,
        "numbers of paths are wanted, not their costs": sorted(costs),
        "paths are numbered from 0": [k + 1 for k in numbers],
        "every path needs a rank, also if there are more paths than ranks": flat if set(flat) < set(numbers) else None,
    }
    check.equal("every path once" + where, flat, numbers, suspects=mistakes)
    if flat != numbers:
        return

    def by_load(order):
        paths, loads = [[] for _ in range(p)], [0.0] * p
        for k in order:
            rank = loads.index(min(loads))
            paths[rank].append(k)
            loads[rank] += costs[k]
        return paths

    def dealt(order):
        return [order[r::p] for r in range(p)]

    def busiest(paths):
        return float(max(sum(costs[k] for k in own) for own in paths))

    costliest_first = sorted(numbers, key=lambda k: -costs[k])
    positions = [costliest_first.index(k) for k in numbers]  # in the sorted list
    by_position = [[positions[k] for k in own] for own in by_load(costliest_first)]
    rules = {
        "these are positions in the sorted list: sort the numbers of the paths, key=their costs": by_position,
        "in the order of their numbers: take the costliest first": by_load(numbers),
        "dealt in turn: look at how much each rank has to do already": dealt(numbers),
        "dealt in turn, or the cheapest first: the costliest first, to the rank with the least to do": dealt(
            costliest_first
        ),
        "one rank has all of them: take the one with the least to do, and let its load grow": [numbers],
    }
    mine = sorted(sorted(int(k) for k in own) for own in got if len(own))  # which rank is which does not matter
    fitting = [told for told, paths in rules.items() if mine == sorted(sorted(own) for own in paths if own)]
    wrong = {"; or ".join(fitting): busiest(got)} if fitting else {}
    check.close("operations of the busiest" + where, busiest(got), busiest(by_load(costliest_first)), suspects=wrong)


def _sent(facts: LayoutFacts) -> dict[str, float]:
    q = (facts.ranks - 1) / facts.ranks
    found = {"data": 2 * q * facts.weights, "tensor": facts.tensor}
    if facts.boundary is not None:
        found[TRICK] = 2 * q * (facts.weights - facts.weights_dense + facts.boundary) + facts.tensor_dense
    return found


def check_rule(check, sent, choose, *, ranks: int = 4, times: float = 1.0, most: float = 1.1) -> None:
    """The bytes of three layouts, and a rule against the planner on ten networks, whose batch is `times` that of `TEN`.

    Steps may take `most` times as long as in the planner's layouts, as a geometric mean.
    """
    cases = [replace(case, ranks=ranks, batch_size=int(times * case.batch_size)) for case in TEN]
    for case in (case for case in cases if case.name in ("wide MLP", "AlexNet", "GPT")):
        facts = layout_facts(case)[0]
        where, want = f", {case.name}, {ranks} ranks", _sent(facts)
        try:
            got = check.call(sent, facts)
        except TypeError:
            if facts.boundary is not None:
                raise
            return check.true("layouts" + where, False, "boundary is None here: leave the trick out of what you return")
        check.equal("layouts" + where, sorted(got), sorted(want))
        if None in got.values():
            return check.true("bytes" + where, False, "None is no number of bytes: leave that layout out")
        for name in sorted(set(want) & set(got)):
            q, wrong = (ranks - 1) / ranks, {}
            if name == "data":
                wrong = {
                    "a rank does not send its own part: (ranks - 1) / ranks": 2 * facts.weights,
                    "an all-reduce is a reduce-scatter and an all-gather": q * facts.weights,
                    "the number of ranks is facts.ranks": 2 * 3 / 4 * facts.weights,
                }
            if name == TRICK:
                wrong = {
                    "the tensor-parallel dense layers send, too": want[name] - facts.tensor_dense,
                    "the boundary is missing": want[name] - 2 * q * facts.boundary,
                    "the boundary is passed twice: activations forward, gradients backward": want[name]
                    - q * facts.boundary,
                    "all weights are counted: only those before the dense layers are summed": want[name]
                    + 2 * q * facts.weights_dense,
                    "the dense weights are not summed: those before them are": want[name]
                    + 2 * q * (2 * facts.weights_dense - facts.weights),
                }
            check.close(name + where, got[name], want[name], rtol=1e-6, suspects=wrong)

    def chosen_by(facts):
        name = check.call(choose, facts)
        if not isinstance(name, str):
            raise TypeError(
                f"choose returned a {type(name).__name__}, expected a name: one of {', '.join(_sent(facts))}"
            )
        return name

    rows, regret = score_rule(chosen_by, cases)
    name, _, _, chosen, fastest, ratio = max(rows, key=lambda row: row["times the fastest"]).values()
    check.true(
        f"steps take {regret:.2f} times as long as with the planner's choices, {ranks} ranks, batch x {times:g}",
        regret <= most,
        f"at most {most} is wanted; worst is {name}: {chosen} takes {ratio:.1f} times as long as {fastest}",
    )


# -- A run with column- and row-parallel layers whose arithmetic is the caller's.


class _Column(ColumnParallelLinear):
    """The library's column-parallel layer around given functions."""

    def forward(self, x):
        with layer_span(self.comm.clock, self.local, "forward", x.shape, x.dtype.itemsize):
            return self.functions[0](self.comm, x, self.local.W.data, self.local.b.data), x

    def backward(self, dy, saved):
        return _learn(self.functions[1], self.comm, dy, saved, self.local)


class _Row(RowParallelLinear):
    """The library's row-parallel layer around given functions."""

    def forward(self, x):
        return self.functions[2](self.comm, x, self.W.data, self.b.data), x  # a span would hold the collective, too

    def backward(self, dy, saved):
        with layer_span(self.comm.clock, self, "backward", saved.shape, saved.dtype.itemsize):
            return _learn(self.functions[3], self.comm, dy, saved, self)


def _learn(function, comm, dy, x, layer):
    dx, dW, db = function(comm, dy, x, layer.W.data)
    layer.W.add(dW)
    layer.b.add(db)
    return dx


def train_layers(comm, functions=None, *, data="digits", sizes=(256, 128, 64), n_train=None, epochs=4, lr=0.05):
    """Train a network whose dense layers alternate between column- and row-parallel; on one rank the serial model.

    `functions`, used instead of the library's arithmetic, are column_forward(comm, x, W, b), column_backward(comm, dy,
    x, W), row_forward and row_backward: the first of each pair returns y, the second dx, dW and db. There is an odd
    number of hidden `sizes`, so that the last layer is row-parallel. Return the history, and the bytes of parameters
    on this rank.
    """
    images = load(data, dtype="float64")
    if n_train is not None:
        images = images.take(n_train)
    model = MLP((images.n_features, *sizes, images.n_classes), seed=1, dtype="float64")
    loss, optimizer = SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), lr)
    if comm.size == 1:
        strategy = Serial(model, loss, optimizer, comm.clock)
    else:
        strategy = TensorParallel(comm, model, loss, optimizer)
        for layer in strategy.model.layers:
            kind = {ColumnParallelLinear: _Column, RowParallelLinear: _Row}.get(type(layer))
            if kind and functions is not None:
                layer.__class__, layer.functions = kind, functions
    history = fit(strategy, images, epochs=epochs, batch_size=64, seed=0, report=comm.report)
    return history, sum(p.nbytes for p in strategy.model.params)


# -- What the paths of GoogLeNet's modules cost.


_SIZE = {"3": 28, "4": 14, "5": 7}


def inception_costs() -> dict[str, list[int]]:
    """Return the operations of a training step on 32 images of each path, by the module's name in table 1 of the paper.

    Examples
    --------
    >>> costs = inception_costs()["3a"]
    >>> [f"{c / sum(costs):.0%}" for c in costs]
    ['8%', '79%', '10%', '4%']
    """
    found, c_in = {}, 192
    for name, row in TABLE.items():
        module, shape = Inception(c_in, *row, init.seeds(None)), (32, _SIZE[name[0]], _SIZE[name[0]], c_in)
        found[name] = [path.flops(shape) + path.backward_flops(shape) for path in module.layers]
        c_in = module.output_shape(shape)[-1]
    return found


# -- How arrays lie on ranks: which part of each a rank has, or which summand.


HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "--")
LAYER = 0.12


@styled
def plot_placements(arrays, size: int, *, title=None):
    """Draw matrices side by side, each with the part that every rank of `size` has of it.

    Parameters
    ----------
    arrays : dict of str to (rows, columns, placement)
        Lengths in any unit, by what is written above the matrix; None for a sign such as "@" that stands between.
    """
    (ax,) = new_axes(figsize=(8.4, 2.9))
    at, tallest = 0.0, max(entry[0] for entry in arrays.values() if entry)
    for name, entry in arrays.items():
        if entry is None:
            ax.text(at + 0.2, 0, name.strip(), ha="center", va="center", fontsize=15, color=INK)
            at += 0.7
            continue
        rows, columns, placement = entry
        blocks = _blocks(rows, columns, placement, size)
        wide = max(left + width for left, _, width, *_ in blocks)
        for left, bottom, width, height, rank, told in blocks:
            look = {"facecolor": "0.88"}
            if rank is not None:
                look = {"facecolor": COLORS[rank % len(COLORS)], "hatch": HATCHES[rank % len(HATCHES)]}
            ax.add_patch(Rectangle((at + left, bottom), width, height, edgecolor="white", **look))
            ax.add_patch(Rectangle((at + left, bottom), width, height, fill=False, edgecolor=INK, linewidth=0.8))
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
            middle = at + left + width / 2, bottom + height / 2
            ax.text(*middle, told, ha="center", va="center", fontsize=9, color=INK, bbox=box if told else None)
        ax.text(at + wide / 2, tallest / 2 + 0.35, name, ha="center", va="bottom", color=INK)
        ax.text(at + wide / 2, -tallest / 2 - 0.3, repr(placement), ha="center", va="top", color=MUTED, fontsize=9)
        at += wide + 0.5
    ax.set(xlim=(-0.3, at), ylim=(-tallest / 2 - 0.9, tallest / 2 + 0.9), aspect="equal")
    ax.axis("off")
    write_title(ax, f"{len(arrays)} arrays on {size} ranks", title)
    return ax


def _blocks(rows, columns, placement, size) -> list:
    """Rectangles of a matrix around y = 0: left, bottom, width, height, whose rank it is, and what is written in it."""
    low, ends = -rows / 2, [(part.start / 120, part.stop / 120) for part in shares(120, size)]
    if placement == Replicate():
        return [(0, low, columns, rows, None, "all ranks")]
    if placement == Partial():
        shift = [LAYER * (r - (size - 1) / 2) for r in range(size)]
        told = ["+ ... +", *[""] * (size - 1)]
        return [(LAYER * r, low + shift[r], columns, rows, r, told[r]) for r in reversed(range(size))]
    if placement == Shard(0):
        return [(0, -low - b * rows, columns, (b - a) * rows, r, str(r)) for r, (a, b) in enumerate(ends)]
    return [(a * columns, low, (b - a) * columns, rows, r, str(r)) for r, (a, b) in enumerate(ends)]
