"""What the tests of strategies share: a small training run of any strategy, and the serial one to compare it with."""

from types import SimpleNamespace

import numpy as np

from distlearn.data import Batch
from distlearn.nn import MLP, Linear, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, SGD, Optimizer
from distlearn.parallel import Serial
from distlearn.sim import SimWorld

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 7)), RNG.integers(0, 4, 60)


def cut(n, size, uneven):
    """Where each rank's part begins: even, or growing with the rank (the first may be empty)."""
    weights = np.arange(size) if uneven and size > 1 else np.ones(size)
    return np.concatenate([[0], np.round(np.cumsum(weights) / weights.sum() * n).astype(int)])


def model_of(kind):
    if "tied" in kind:  # one layer in two places; in the deep model on the first stage and on the last
        shared = Linear(6, 6, 5, dtype="float64")
        first, last = Linear(7, 6, 4, dtype="float64"), Linear(6, 4, 6, dtype="float64")
        depth = 3 if "deep" in kind else 0
        middle = [layer for i in range(depth) for layer in (Linear(6, 6, 7 + i, dtype="float64"), Tanh())]
        return Sequential(first, shared, Tanh(), *middle, shared, Tanh(), last)
    widths = (7, 9, 6, 8, 5, 6, 4) if "deep" in kind else (7, 9, 6, 4)
    model = MLP(widths, "sigmoid", seed=2, dtype="float64")
    if kind == "frozen":
        model.params[2].frozen = True
    return model


def parts(model, rule=None, lr=0.1):
    """Return what a strategy is made of: model, loss and optimizer."""
    return model, SoftmaxCrossEntropy(), Optimizer(model.params, rule or SGD(), lr)


def run(comm, make, kind="plain", rule="sgd", lr=0.3, steps=5, batch=20, uneven=False):
    """Train a small model by `make(comm, model, loss, optimizer)`; return parameters, losses and the strategy."""
    model = model_of(kind)
    before = {p.name: p.data.copy() for p in model.params}
    frozen = {p.name: p.frozen for p in model.params}
    strategy = make(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, RULES[rule](), lr))
    losses = []
    for step in range(steps):
        bounds = cut(batch, strategy.size, uneven)
        rows = (np.arange(bounds[strategy.rank], bounds[strategy.rank + 1]) + step * batch) % len(X)
        losses.append(strategy.step(Batch(X[rows], Y[rows], batch)))
    strategy.finish()
    params = strategy.gather_params()
    assert (params is None) == (comm.rank > 0)
    for name, value in (params or {}).items():
        assert np.array_equal(value, before[name]) == frozen[name], name  # the others must have changed
    output = strategy.predict(X[:9])
    return SimpleNamespace(params=params, losses=losses, output=output, strategy=strategy)


def serial(comm, *parts):
    """Make the strategy that all others must equal."""
    return Serial(comm, *parts)


def messages(size, program, *args):
    """Count what a program sends: the messages of rank 0, the bytes of all ranks."""
    world = SimWorld(size, collectives="messages")
    world.run(program, *args)
    sent = world.trace.messages
    return np.array([sum(m.source == 0 for m in sent), sum(m.nbytes for m in sent)])


def messages_of_steps(size, make, steps):
    """Count what training sends besides what is sent where the strategy is made."""
    made = messages(size, lambda comm: make(comm, *parts(model_of("plain"))))
    return messages(size, lambda comm: run(comm, make, steps=steps)) - made


def averaged_by_hand(size, every, steps, batch, inner):
    """Local SGD without a communicator: one replica after the other, then the average weighted by samples."""
    replicas = [model_of("plain") for _ in range(size)]
    optimizers = [inner(m.params) for m in replicas]
    seen = np.zeros(size)
    for step in range(steps):
        bounds = cut(batch, size, False)
        for r, (model, optimizer) in enumerate(zip(replicas, optimizers, strict=True)):
            rows = (np.arange(bounds[r], bounds[r + 1]) + step * batch) % len(X)
            if len(rows):
                optimizer.zero_grad()
                y, saved = model.forward(X[rows])
                model.backward(SoftmaxCrossEntropy()(y, Y[rows])[1], saved)
                optimizer.step()
            seen[r] += len(rows)
        if step + 1 == steps or (every and (step + 1) % every == 0):
            for ps in zip(*(m.params for m in replicas), strict=True):
                mean = sum(n * p.data for n, p in zip(seen, ps, strict=True)) / seen.sum()
                for p in ps:
                    p.data[...] = mean
            seen[:] = 0
    return {p.name: p.data for p in replicas[0].params}


def assert_same_params(got, want, *, tol=1e-12, what=""):
    """Raise unless two sets of trained parameters agree: the same names, shapes, dtypes, and values to `tol`."""
    assert list(got) == list(want), what
    for name in want:
        a, b = np.asarray(got[name]), np.asarray(want[name])
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{what}: {name}"
        np.testing.assert_allclose(a, b, rtol=0, atol=tol, equal_nan=False, err_msg=f"{what}: {name}")
