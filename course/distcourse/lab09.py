"""Model parallelism, for lab 09: training with bugs of real frameworks, one's own layers, which layout sends least."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import geometric_mean

import numpy as np

from distlearn.comm.network.cost import sent_bytes
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy, init
from distlearn.nn.container import layer_span
from distlearn.nn.models import TABLE, Inception
from distlearn.optim import SGD, Momentum, Optimizer
from distlearn.parallel import Layout, Serial, simulate_layout
from distlearn.parallel.planning.search import model_and_sample
from distlearn.parallel.tensor import ColumnParallelLinear, RowParallelLinear, TensorParallel, boundary, shard_specs
from distlearn.shares import shares
from distlearn.sim import SimWorld
from distlearn.train import fit
from distlearn.viz.look import COLORS, INK, MUTED, new_axes, styled, write_title

from .exercise import named
from .mesh import LayoutError, Mesh, Partial, Replicate, Shard

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


@dataclass(frozen=True)
class LayoutFacts:
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
    costs = {name: simulate_layout(serial, layout, "ethernet-10g", **options) for name, layout in layouts.items()}
    p, weights = case.ranks, sum(q.nbytes for q in serial.params)
    dense, entering, tensor_dense = 0, None, None
    if first is not None:
        features = serial.part(serial.layers[:first])
        before = sum(q.nbytes for q in features.params)
        dense, itemsize = weights - before, serial.params[0].data.dtype.itemsize
        shape = features.output_shape((case.batch_size, *sample))
        entering = itemsize * int(np.prod(shape))
        at_boundary = 2 * sent_bytes("all_gather", entering, p)
        tensor_dense = costs[TRICK].nbytes - sent_bytes("all_reduce", before, p) - at_boundary
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
        if chosen not in [*seconds]:  # which may be no text at all
            raise ValueError(
                f"score_rule: for {case.name} the rule chose {chosen!r}, expected {' or '.join(map(repr, seconds))}"
            )
        row = {"network": case.name, "ranks": case.ranks, "batch": case.batch_size, "the rule": chosen}
        rows.append(row | {"the planner": fastest, "times the fastest": seconds[chosen] / seconds[fastest]})
    return rows, geometric_mean(row["times the fastest"] for row in rows)


# -- What the checks of the exercises look at.


KINDS = {str(kind): kind for kind in (Replicate(), Partial(), *map(Shard, range(8)))}


def run_product_type(product_type, x, ndim):
    """Ask for the products of some types with each of W; a dense layer's x has two axes, which is the default."""
    more = [] if ndim == 2 else [ndim]
    pairs = [(KINDS[one], w) for one in x for w in (Replicate(), Partial(), Shard(0), Shard(1))]
    return {f"{x} @ {w}": _told(product_type(x, w, *more)) for x, w in pairs}


def _told(kind) -> str:
    """Return a type as text; that of an answer in another process is known by its name alone."""
    if kind is None or isinstance(kind, str) or callable(kind):
        return f"class {kind.__name__}" if callable(kind) else repr(kind)
    axis = kind.axis if type(kind).__name__ == "Shard" else ""
    return f"{type(kind).__name__}({axis})"


def run_move(move, old, new, nbytes, p):
    found = {}
    for kind in new:
        told = move(KINDS[old], replace(KINDS[kind]), nbytes, p)  # a copy: equal types need not be one object
        found |= named(told, f"collective to {kind}", f"bytes to {kind}")
    return {name: '""' if isinstance(got, str) and not got else got for name, got in found.items()}


def run_typed(gain_gradient, input_gradient, grad_norm, of, ranks, shape, seed=0):
    """Call one of the functions with arrays of the types that it expects, and then with summands."""
    rng, world = np.random.default_rng(seed), SimWorld(ranks)
    a, b, w, c, d = (rng.normal(size=size) for size in (shape, shape, (5, shape[1]), 4, 3))
    answer = {"gain_gradient": gain_gradient, "input_gradient": input_gradient, "grad_norm": grad_norm}[of]

    def on_rank(comm):
        def laid(kind, *arrays):
            return [Mesh(comm).distribute(x, kind) for x in arrays]

        if of == "grad_norm":
            given, summands = (laid(kind, a, w) for kind in (Shard(1), Partial()))
            given, summands = (given, laid(Replicate(), c, d)), (summands, laid(Replicate(), c, d))
        else:
            pair = (a, b) if of == "gain_gradient" else (a, w)
            given, summands = laid(Shard(int(of == "input_gradient")), *pair), laid(Partial(), *pair)
        began = len(world.trace.select(rank=0, lane="comm"))
        result = answer(*given)
        used = {span.name for span in world.trace.select(rank=0, lane="comm")[began:]} - {"all_reduce"}
        plain = result if type(result).__name__ != "MeshArray" else "an array with a type"
        with contextlib.suppress(LayoutError):
            answer(*summands)
            return plain, used, "no error"
        return plain, used, "a LayoutError"

    plain, used, raised = zip(*world.run(on_rank), strict=True)
    return {f"result of rank {rank}": result for rank, result in enumerate(plain)} | {
        "collectives": ", ".join(sorted(used[0])) or "all_reduce, or none",
        "given summands": raised[0],
    }


def run_layers(column_forward, column_backward, row_forward, row_backward, of, ranks, shape, dtype="float64", seed=0):
    """Call one of the functions on ranks; the shape is samples, inputs, outputs."""
    rng, (n, k, m), world = np.random.default_rng(seed), shape, SimWorld(ranks)
    x, dy, W, b = (rng.normal(size=s).astype(dtype) for s in ((n, k), (n, m), (k, m), m))
    xs, dys, Wc, Wr = (np.array_split(a, ranks, axis) for a, axis in ((x, 1), (dy, 1), (W, 1), (W, 0)))
    bs = np.array_split(b, ranks)

    def on_rank(comm):
        r = comm.rank
        answer, given = {
            "column_forward": (column_forward, (x, Wc[r], bs[r])),
            "column_backward": (column_backward, (dys[r], x, Wc[r])),
            "row_forward": (row_forward, (xs[r], Wr[r], b)),
            "row_backward": (row_backward, (dy, xs[r], Wr[r])),
        }[of]
        return answer(comm, *(array.copy() for array in given))

    found = {}
    for rank, got in enumerate(world.run(on_rank)):
        names = ["y"] if of.endswith("forward") else ["dx", "dW", "db"]
        found |= named([got] if len(names) == 1 else got, *(f"{name} of rank {rank}" for name in names))
    names = [span.name for span in world.trace.select(rank=0, lane="comm")]
    return found | ({"collectives": ", ".join(names) or "none"} if ranks > 1 else {})


def run_assign(assign, costs, p):
    paths = [[operator.index(k) for k in own] for own in assign(costs, p)]
    flat = sorted(k for own in paths for k in own)
    if flat != list(range(len(costs))) or len(paths) != p:
        return {"lists": len(paths), "all paths": flat or "none"}
    busiest = max(sum(costs[k] for k in own) for own in paths)
    return {"lists": p, "all paths": flat, "operations of the busiest rank": busiest}


def run_rule(sent, choose, of, ranks, network="", batch=0, times=1):
    """Ask for the bytes of a network, or score a rule on ten, whose batch is `times` that of `TEN`."""
    if of == "sent":
        case = next(case for case in TEN if case.name == network)
        return {"bytes": sent(layout_facts(replace(case, ranks=ranks, batch_size=batch))[0])}
    cases = [replace(case, ranks=ranks, batch_size=int(times * case.batch_size)) for case in TEN]
    rows, regret = score_rule(choose, cases)
    name, _, _, chosen, fastest, ratio = max(rows, key=lambda row: row["times the fastest"]).values()
    told = f"{regret:.2f} times; worst is {name}: {chosen} takes {ratio:.1f} times as long as {fastest}"
    return {"steps": "at most 1.1 times as long as the planner's" if regret <= 1.1 else told}


run_rule.seconds = 100.0  # the planner plans for ten networks, too


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


def train_layers(comm, functions, *, data, n_train, epochs, sizes=(256, 128, 64)):
    """Train a network whose dense layers alternate between column- and row-parallel; on one rank the serial model.

    `functions`, the arithmetic, are column_forward(comm, x, W, b), column_backward(comm, dy, x, W), row_forward and
    row_backward: the first of each pair returns y, the second dx, dW and db. There is an odd number of hidden `sizes`,
    so that the last layer is row-parallel. Return the history, and the bytes of parameters on this rank.
    """
    images = load(data, dtype="float64").take(n_train)
    model = MLP((images.n_features, *sizes, images.n_classes), seed=1, dtype="float64")
    loss, optimizer = SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.05)
    if comm.size == 1:
        strategy = Serial(comm, model, loss, optimizer)
    else:
        strategy = TensorParallel(comm, model, loss, optimizer)
        for layer in strategy.model.layers:
            kind = {ColumnParallelLinear: _Column, RowParallelLinear: _Row}.get(type(layer))
            if kind:
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


HATCHES = ("", "///", "...", "xx")
LAYER = 0.12


@styled
def plot_placements(arrays, size: int, *, title=None):
    """Draw matrices side by side, each with the part that every rank of `size` has of it.

    Parameters
    ----------
    arrays : dict of str to (rows, columns, placement)
        Lengths in any unit, by what is written above the matrix; None for a sign such as "@" that stands between.
    """
    from matplotlib.patches import Rectangle

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
