"""Lab 01, backpropagation: what answers give, for their checks."""

from __future__ import annotations

import numpy as np

import distlearn as dl

from .exercise import named


def run_dense_forward(Dense, batch, d_in, d_out, dtype="float64", seed=0):
    layer, rng = Dense(d_in, d_out, dtype=dtype), np.random.default_rng(seed)
    x, layer.W.data[:], layer.b.data[:] = (rng.normal(size=s) for s in ((batch, d_in), (d_in, d_out), d_out))
    x = x.astype(dtype)
    before = x.copy(), layer.W.data.copy(), layer.b.data.copy()
    results = named(layer.forward(x), "y", "saved")
    if results["saved"] is x:
        results["saved"] = "x itself"
    results["x, W and b are as they were"] = all(map(np.array_equal, (x, layer.W.data, layer.b.data), before))
    return results


def run_cross_entropy(cross_entropy, rows, classes, n=None, scale=1.0, levels=(0,), dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    z, labels = (
        scale * rng.normal(size=(rows, classes)) + np.resize(levels, (rows, 1)),
        rng.integers(classes, size=rows),
    )
    labels[0] = z[0].argmin()  # or the loss might be what is left of two numbers that cancel
    results = named(cross_entropy(z.astype(dtype), labels, n=n), "loss", "dlogits")
    return results if dtype == "float64" else {k: v for k, v in results.items() if k != "loss"}  # it is a float64


def run_numeric_gradient(numeric_gradient, shape, eps=None, seed=0):
    """The function bends, and depends on all elements."""
    start, w = np.random.default_rng(seed).normal(size=(2, *shape))
    x, moved = start.copy(), [0]

    def f():
        moved.append(int((abs(x - start) > 1e-9).sum()))  # x += eps, x -= eps rounds
        return float((w * x**3).sum() + np.sin((w * x).sum()))

    gradient = numeric_gradient(f, x, *[eps] * (eps is not None))
    return {"gradient": gradient, "x afterwards": x, "elements changed at a time": max(moved)}


def run_activations(ReLU, Sigmoid, of, shape, scale=1.0, dtype="float64", seed=0):
    layer, rng = {"ReLU": ReLU, "Sigmoid": Sigmoid}[of](), np.random.default_rng(seed)
    x = (scale * rng.integers(-3, 4, size=shape)).astype(dtype)  # zeros among them
    dy = rng.normal(size=shape).astype(dtype)
    results = named(layer.forward(x), "y", "saved")
    results["x afterwards"] = x
    if "saved" in results:
        saved = results.pop("saved")
        layer.forward(1 - x)  # another batch, before this one's backward
        results["dx"] = layer.backward(dy, saved)
    return results


def run_dense_backward(dense_backward, batch, d_in, d_out, dtype="float64", seed=0):
    """An earlier batch has left something in the gradients, and other code holds their arrays."""
    layer, rng = dl.nn.Linear(d_in, d_out, dtype=dtype), np.random.default_rng(seed)
    for p in layer.params:
        p.data[:], p.grad[:] = rng.normal(size=(2, *p.data.shape))
    x, dy = (rng.normal(size=(batch, d)).astype(dtype) for d in (d_in, d_out))
    held = {f"{p.name}.grad": p.grad for p in layer.params}
    dx = dense_backward(layer, dy, x)
    replaced = [p.name for p in layer.params if p.grad is not held[f"{p.name}.grad"]]
    kept = {"arrays of gradients": f"others for {', '.join(replaced)}" if replaced else "the same as before"}
    return {"dx": dx} | held | kept | {"W": layer.W.data, "saved": x}


def run_sgd(SGD, shape, lr, step, dtype="float64", seed=0):
    """The weights are a part of a larger array."""
    rng, size = np.random.default_rng(seed), int(np.prod(shape))
    weights, grad = rng.normal(size=size + 3).astype(dtype), rng.normal(size=shape).astype(dtype)
    SGD().update(weights[2 : size + 2].reshape(shape), grad, None, lr, step)
    return {"data": weights[2 : size + 2], "what lies beside it": weights[[0, 1, -1]], "grad": grad}


def run_step(Trainer, rows, n, lr, frozen=(), steps=1, seed=0):
    """Train on parts of batches of n; gradients are left over from an earlier step."""
    model, rng, found = dl.nn.MLP((6, 5, 3), dtype="float64"), np.random.default_rng(seed), {}
    for k, p in enumerate(model.params):
        p.grad[:], p.frozen = 1.0, k in frozen

    def loss(*of, **named):  # another than the student's own: `self.loss` is to be called
        return tuple(2 * value for value in dl.nn.SoftmaxCrossEntropy()(*of, **named))

    trainer = Trainer(None, model, loss, dl.optim.Optimizer(model.params, dl.optim.SGD(), lr))
    for k in range(steps):
        batch = dl.data.Batch(rng.normal(size=(rows, 6)), rng.integers(3, size=rows), n)
        found[f"loss of step {k}"] = trainer.step(batch)
    return found | {p.name: p.data for p in model.params}
