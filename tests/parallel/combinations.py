"""Random combinations of model, optimizer, strategy and world: trained in parallel and serially, for comparison.

Every choice is made by `pick(options)`, so hypothesis can choose and shrink, and ranks of a real world can choose alike
from a seed. Run by itself under mpiexec, this module compares some of them there.
"""

import random
import sys
from dataclasses import dataclass, field, fields, replace

import numpy as np

from distlearn import nn, parallel
from distlearn.backend import get_xp
from distlearn.data import Batch
from distlearn.nn.layer import move
from distlearn.optim import RULES, Cosine, Optimizer, WarmUp
from distlearn.sim import SimWorld

STEPS, CLASSES, LENGTH = 3, 3, 24


class Signs(Optimizer):
    """Adds the sign of a gradient to it: a subclass that works element by element."""

    scope = "element"

    def step(self):
        for p in self.params:
            xp = get_xp(p.grad)
            p.grad += xp.sign(xp.round(p.grad, 6)) * p.grad.dtype.type(0.01)  # rounded: a sum of zeros is no sign
        super().step()


class Total(Optimizer):
    """Divides by the largest gradient of all: a subclass that must see the whole model."""

    def step(self):
        largest = max((float(abs(p.grad).max()) for p in self.params if p.size), default=0.0)
        for p in self.params:
            p.grad /= p.grad.dtype.type(1 + largest)
        super().step()


@dataclass
class Combination:
    """What one comparison is about; printed where it fails."""

    kind: str
    layers: list
    tied: bool
    frozen: list
    dtype: str
    rule: str
    options: dict
    lr: object
    clip_norm: float | None
    optimizer: str
    strategy: str
    size: int
    parallel: dict
    batches: list
    seed: int
    extra: dict = field(default_factory=dict)


# -- models ------------------------------------------------------------------------------------------------------------


def choose_layers(pick, kind, dropout, statistics):
    """Choose what lies between input and classifier, as (name, numbers)."""
    layers = []
    more = ["dropout"] * dropout + ["statistics"] * 2 * statistics
    for _ in range(pick([0, 1, 2, 3])):
        if kind == "image":
            names = ["conv", "conv", "groups", "max", "relu", "response", "paths"]
            layers.append((pick(names + ["statistics"] * statistics), pick([2, 4])))
        elif kind == "sequence":
            layers.append((pick(["gru", "rnn", "linear", "tanh", "norm"]), pick([3, 5])))
        elif kind == "text":
            layers.append((pick(["attention", "attention", "residual", "rms"]), pick([3, 6])))
        else:
            names = ["linear", "linear", "relu", "tanh", "sigmoid", "residual", "recompute", "norm", "paths"]
            layers.append((pick(names + more), pick([3, 4, 7])))
    return layers


def make_model(c: Combination) -> nn.Sequential:
    rng, dtype = np.random.default_rng(c.seed), {"dtype": c.dtype}

    def linear(d_in, d_out):
        return nn.Linear(d_in, d_out, rng, **dtype)

    def conv(d_out, size=3, **options):
        return nn.Conv2d(width, d_out, size, rng, **options, **dtype)

    width, side, layers = 5, 6, []
    if c.kind == "image":
        width, layers = 2, [nn.Reshape(6, 6, 2)]
    elif c.kind == "text":
        width, layers = 12, [linear(5, 12)]
    for name, n in c.layers:
        if name == "conv":
            layers.append(conv(n, padding=1))
            width = n
        elif name == "groups":
            layers.append(conv(n, padding=1, groups=2))
            width = n
        elif name == "max" and side > 2:
            layers.append(nn.MaxPool(2))
            side //= 2
        elif name == "response":
            layers.append(nn.LocalResponseNorm())
        elif name == "paths" and c.kind == "image":
            layers.append(nn.Parallel(conv(n, 1), nn.Sequential(conv(2, 1), nn.ReLU())))
            width = n + 2
        elif name == "paths":
            layers.append(nn.Parallel(linear(width, n), nn.Sequential(linear(width, 2), nn.Tanh())))
            width = n + 2
        elif name in ("gru", "rnn"):
            layers.append((nn.GRU if name == "gru" else nn.RNN)(width, n, rng, **dtype))
            width = n
        elif name == "linear":
            layers.append(linear(width, n))
            width = n
        elif name == "residual":
            layers.append(nn.Residual(nn.Sequential(linear(width, n), nn.Tanh(), linear(n, width))))
        elif name == "recompute":
            layers.append(nn.Recompute(nn.Sequential(linear(width, n), nn.Tanh())))
            width = n
        elif name == "attention":
            layer = nn.MultiHeadAttention(width, n, rng.integers(1000, size=4), **dtype)
            layers.append(nn.Residual(nn.Sequential(nn.RMSNorm(width, **dtype), layer)))
        elif name == "rms":
            layers.append(nn.RMSNorm(width, **dtype))
        elif name == "dropout":
            layers.append(nn.Dropout(0.3, len(layers)))
        elif name == "norm":
            layers.append(nn.LayerNorm(width, **dtype))
        elif name == "statistics":
            layers.append(nn.BatchNorm(width, **dtype))
        elif name in ("relu", "tanh", "sigmoid"):
            layers.append({"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[name]())
    if c.kind == "image":
        layers.append(nn.GlobalAvgPool() if c.seed % 2 else nn.Flatten())
        width *= 1 if c.seed % 2 else side * side
    if c.tied:
        shared = linear(width, width)
        layers += [shared, nn.Tanh(), shared]
    layers.append(linear(width, CLASSES))
    model = nn.Sequential(*layers)
    if c.extra["planned"]:
        cut = 1 + c.seed % (len(layers) - 1) if len(layers) > 1 else 0
        plan = (list(range(cut)), list(range(cut, len(layers)))) if cut else [0]
        model = nn.Planned(*layers, plan=plan)
    for i in c.frozen:
        if i < len(model.params):
            model.params[i].frozen = True
    if all(p.frozen for p in model.params):
        model.params[-1].frozen = False
    return model


# -- optimizers --------------------------------------------------------------------------------------------------------


def make_optimizer(c: Combination, model) -> Optimizer:
    eps = {"eps": 1e-3} if any(f.name == "eps" for f in fields(RULES[c.rule])) else {}  # 0 / 0 would show rounding
    rule, params = RULES[c.rule](**{**c.options, **eps}), model.params
    learned = [p for p in params if not p.frozen]
    if c.extra.get("subset"):
        learned = learned[len(learned) // 2 :]
    kind = {"plain": Optimizer, "signs": Signs, "total": Total}[c.optimizer]
    optimizer = kind(learned, rule, c.lr, clip_norm=c.clip_norm)
    if c.extra.get("past"):  # a strategy takes over what it remembers
        for p in optimizer.params:
            p.grad[...] = get_xp(p.grad).asarray(np.cos(np.arange(p.size)).reshape(p.data.shape))
        optimizer.step()
    return optimizer


WHOLE = ("data", "naive", "local")
STAGED = ("pipeline", "pipedream")
SCHEDULES = [lambda: 0.05, lambda: Cosine(0.05, 4),
             lambda: WarmUp(0.05, 2)]  # fmt: skip


def choose(pick) -> Combination:
    """Choose a combination that every part of can take."""
    strategy = pick(list(MAKE))
    size = pick([1, 2, 3, 4])
    kind = pick(["vector", "vector", "image", "sequence", "text"])
    if strategy == "ring":
        kind = "text"
    if strategy == "trick":
        kind = "image"
    parallel, stages = {}, 1
    if strategy == "data":
        parallel = {
            "cap_bytes": pick([1, 200, 1 << 20]),
            "overlap": pick([True, False]),
            "accumulate": pick([1, 2, 20]),
        }
    elif strategy == "local":
        parallel = {"every": 1}
    elif strategy == "zero":
        parallel = {"stage": pick([1, 2, 3]), "cap_bytes": pick([1, 200, 1 << 20]), "overlap": pick([True, False])}
    elif strategy == "trick":
        parallel = {"cap_bytes": pick([1, 1 << 20]), "overlap": pick([True, False])}
    elif strategy == "pipeline":
        schedule = pick(["gpipe", "1f1b", "zero_bubble", "interleaved"])
        groups, stages = (size, 2 * size) if schedule == "interleaved" else (1, size)
        parallel = {"schedule": schedule, "n_microbatches": groups * pick([1, 2, 3, 5])}
    elif strategy == "pipedream":
        parallel, stages = {"n_microbatches": 1}, size
    elif strategy == "hybrid":
        dp, pp, tp = pick([(1, 1, 2), (2, 1, 1), (1, 2, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2), (3, 1, 1)])
        size, stages = dp * pp * tp, pp
        parallel = {"dp": dp, "pp": pp, "tp": tp, "cap_bytes": pick([1, 1 << 20]), "overlap": pick([True, False])}
        parallel |= {"schedule": pick(["gpipe", "1f1b"]), "n_microbatches": pick([None, 2, 3])}
    # where every rank sees the whole batch at once, statistics are those of serial training
    whole = strategy in ("tensor", "pipedream") or (strategy == "pipeline" and parallel["n_microbatches"] == 1)
    whole = whole or (size == 1 and strategy in ("naive", "local", "zero"))
    layers = choose_layers(pick, kind, strategy in ("tensor", "pipeline"), whole)
    several = any(name == "statistics" for name, _ in layers)
    while len(layers) < stages:  # a stage needs a layer
        layers.append(
            {"vector": ("linear", 4), "image": ("relu", 4), "sequence": ("tanh", 3), "text": ("rms", 3)}[kind]
        )
    if strategy == "trick":
        layers.insert(0, ("conv", 4))
    optimizer = pick(["plain", "plain", "signs", "total"])
    rule = pick(sorted(RULES))
    parts = size > 1 and strategy not in WHOLE
    if rule == "lars" and ((parts and strategy not in STAGED) or strategy == "zero"):
        rule = "momentum"  # refused, and tested elsewhere
    if optimizer == "total" and (parts or strategy == "zero"):
        optimizer = "signs"
    clip_norm = pick([None, 0.05, 0.05, 10.0])
    options = pick([{}, {"weight_decay": 0.01}])
    if strategy == "pipedream":
        clip_norm = None
    if strategy == "local" and size > 1:  # an average of parameters is that of the gradients in plain steps alone
        optimizer, rule, clip_norm = "plain", "sgd", None
    dtype = pick(["float64", "float64", "float32", "float16"])
    half = dtype == "float16"  # a sign, or a division by a tiny gradient's size, would show the last bit
    optimizer = "plain" if half and optimizer == "signs" else optimizer
    rule = "momentum" if half and rule not in ("sgd", "momentum", "nesterov") else rule
    tied = strategy not in ("pipedream", "trick") and pick([False, True])
    return Combination(
        kind=kind,
        layers=layers,
        tied=tied,
        frozen=pick([[], [], [0], [1, 2]]),
        dtype=dtype,
        rule=rule,
        options=options,
        lr=pick(SCHEDULES)(),
        clip_norm=clip_norm,
        optimizer=optimizer,
        strategy=strategy,
        size=size,
        parallel=parallel,
        batches=[pick([2, 3, 5, 8, 13] if several else [1, 2, 3, 5, 8, 13]) for _ in range(STEPS)],
        seed=pick(range(1000)),
        extra={
            "subset": pick([False, False, True]),
            "past": pick([False, False, True]),
            "costs": strategy in STAGED and pick([False, True]),
            "planned": not tied and kind in ("vector", "sequence", "text") and pick([False, False, True]),
            "given": pick([False, True]),
        },
    )


# -- training ----------------------------------------------------------------------------------------------------------

MAKE = {
    "data": parallel.DataParallel,
    "naive": parallel.NaiveDataParallel,
    "local": parallel.LocalSGD,
    "zero": parallel.ZeRO,
    "tensor": parallel.TensorParallel,
    "trick": parallel.OneWeirdTrick,
    "pipeline": parallel.Pipeline,
    "pipedream": parallel.PipeDream,
    "hybrid": parallel.Hybrid,
    "ring": parallel.SequenceParallel,
}


def train(comm, c: Combination, serial: bool, given=None, there=np.asarray, back=np.asarray):
    """Train, on arrays that `there` makes; return parameters (on rank 0), losses, and outputs, by `back`."""
    model = move(make_model(c), there) if given is None else given[0]
    optimizer = make_optimizer(c, model) if given is None else given[1]
    if serial:
        strategy = parallel.Serial(comm, model, nn.SoftmaxCrossEntropy(), optimizer)
    else:
        costs = {"stages": np.random.default_rng(c.seed).random(len(model.layers)).tolist()} if c.extra["costs"] else {}
        strategy = MAKE[c.strategy](comm, model, nn.SoftmaxCrossEntropy(), optimizer, **c.parallel, **costs)
    rng, cuts = np.random.default_rng(c.seed), np.random.default_rng(c.seed)
    shape = {"vector": (5,), "image": (72,), "sequence": (3, 5), "text": (LENGTH, 5)}[c.kind]
    losses = []
    for n in c.batches:
        x = rng.normal(size=(n, *shape)).astype(c.dtype)
        y = rng.integers(0, CLASSES, (n, *shape[:-1]))
        bounds = np.sort(cuts.integers(0, n + 1, strategy.size - 1)) if c.seed % 3 else None  # uneven, even empty
        parts = np.split(np.arange(n), bounds) if bounds is not None else np.array_split(np.arange(n), strategy.size)
        part = parts[strategy.rank]
        losses.append(strategy.step(Batch(there(x[part]), there(y[part]), n)))
    strategy.finish() if hasattr(strategy, "finish") else None
    probe = np.random.default_rng(c.seed + 1).normal(size=(4, *shape)).astype(c.dtype)
    return strategy.gather_params(), losses, back(strategy.predict(there(probe)))


def compare(c: Combination, run) -> None:
    """Raise unless `run(c)`, every rank's result, is what serial training gives."""
    want, losses, output = SimWorld(1).run(train, replace(c, size=1), True)[0]
    tol = {"float64": 1e-10, "float32": 2e-3, "float16": 2e-2}[c.dtype]
    results = run(c)
    found = results[0][0]
    assert list(found) == list(want), c
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=tol, atol=tol, err_msg=f"{name} of {c}")
    for _, told, out in results:
        np.testing.assert_allclose(told, losses, rtol=tol, atol=tol, err_msg=f"losses of {c}")
        np.testing.assert_allclose(out, output, rtol=10 * tol, atol=10 * tol, err_msg=f"output of {c}")


def of_seed(seed: int, size: int) -> Combination:
    """Choose a combination for a world of a given size, alike on every rank."""
    rng = random.Random(f"{seed} of {size}")
    while True:
        c = choose(rng.choice)
        if c.size == size:
            return c


if __name__ == "__main__":
    from distlearn.world import MPIWorld

    world = MPIWorld(strict=True)
    for seed in range(int(sys.argv[1])):
        c = of_seed(seed, world.size)
        results = world.run(train, c, False)
        if world.rank == 0:
            compare(c, lambda c, results=results: results)
