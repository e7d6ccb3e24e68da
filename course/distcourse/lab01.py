"""Lab 01, backpropagation: what common mistakes give, and checks of layers and of a training step."""

from __future__ import annotations

import numpy as np

import distlearn as dl


def check_cross_entropy(check, cross_entropy, z, labels, n=None):
    """The loss and its gradient for moderate logits, against what common mistakes give."""
    rows, right = np.arange(len(z)), np.eye(z.shape[1])[labels]
    softmax = lambda z, axis=1: np.exp(z) / np.exp(z).sum(axis=axis, keepdims=True)  # noqa: E731
    lse, columns, p = np.log(np.exp(z).sum(axis=1)), z - z.max(axis=0), softmax(z)
    shifted, size = z - z.max(axis=1, keepdims=True), len(z) if n is None else n
    own = (lse - z[rows, labels]).sum()
    in_loss = {
        "divide by n, not by the number of rows": own / len(z),
        "not divided by n": own,
        "(rows, 1) minus (rows,) is a square: use total[:, 0]": own * len(z) / size,
        "z[:, labels] takes these columns of every row: use z[rows, labels]": (lse - z[:, labels]).sum() / size,
        "subtract the largest of each row: max over axis=1": (
            (np.log(np.exp(columns).sum(1)) - columns[rows, labels]).sum() / size
        ),
        "each row has a sum of its own: e.sum(axis=1, keepdims=True)": (
            (np.log(np.exp(shifted).sum(0)[0]) - shifted[rows, labels]).sum() / size
        ),
    }
    in_gradient = {
        "[j = y] is missing: subtract 1 at every label": p / size,
        "1 was added at the labels: subtract it": (p + right) / size,
        "[:, labels] changes these columns of every row: use [rows, labels]": (p - right.any(axis=0)) / size,
        "a softmax sums over the classes, axis 1": (softmax(z, 0) - right) / size,
        "subtract the largest of each row: max over axis=1": (softmax(columns) - right) / size,
        "divide by n, not by the number of rows": (p - right) / len(z),
        "not divided by n": p - right,
    }
    want, dwant = dl.nn.SoftmaxCrossEntropy()(z, labels, n)
    loss, dlogits = check.call(cross_entropy, z, labels, n=n)
    text = "" if n is None else f", n = {n}"
    check.close("loss" + text, loss, want, suspects=in_loss)
    check.close("dlogits" + text, dlogits, dwant, suspects=in_gradient)


def check_activation(check, layer, x, want, slope):
    """Forward and backward of an activation of known values and slopes, and that it keeps the dtype."""
    name, dy = type(layer).__name__, np.linspace(-3, 4, x.size).reshape(x.shape)
    y, saved = check.call(layer.forward, x.copy())
    check.close(f"{name}: y", y, want, suspects={
        "return two things: y, and what backward needs": want[0],
        "negative values become 0, not positive": abs(x),
        "keep the larger of x and 0, not the smaller": np.minimum(x, 0),
    })  # fmt: skip
    s = 1 / (1 + np.exp(-x))
    twice = 1 / (1 + np.exp(-s))
    dx = check.call(layer.backward, dy.copy(), saved, inplace=True)
    check.close(f"{name}: dx", dx, dy * slope, suspects={
        "dy is missing: the chain rule multiplies by it": slope,
        "y is never negative, so y >= 0 lets everything pass: use y > 0": dy,
        "the mask is made from dy: make it from the output": dy * (dy > 0),
        "at 0 the slope counts as 0: use >, not >=": dy * (x >= 0),
        "the slope is 1 where y is positive, not y": dy * np.maximum(x, 0),
        "the slope is y (1 - y), not x (1 - x)": dy * x * (1 - x),
        "y is a sigmoid already: do not apply it again": dy * twice * (1 - twice),
        "a factor is missing: the slope is y (1 - y)": dy * (1 - s),
        "this is the slope of tanh: the sigmoid's is y (1 - y)": dy * (1 - s**2),
    })  # fmt: skip
    check.keeps_dtype(f"{name}: y", lambda x: layer.forward(x)[0], x)
    check.keeps_dtype(f"{name}: dx", lambda x: layer.backward(x, layer.forward(x)[1]), x)


def make(cls, lr, frozen=()):
    """A small trainer with gradients left over from an earlier step."""
    model = dl.nn.MLP((6, 5, 3), dtype="float64")
    for k, p in enumerate(model.params):
        p.grad[:], p.frozen = 1.0, k in frozen
    return cls(model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), lr))


def check_step(check, trainer, n, lr, frozen, text):
    """One step of training on 8 rows, of a batch of n."""
    x, y = np.random.default_rng(4).normal(size=(8, 6)), np.arange(8) % 3
    mine, theirs, wrong = make(trainer, lr, frozen), make(dl.Serial, lr, frozen), make(dl.Serial, lr)
    start, batch = [p.data.copy() for p in mine.model.params], dl.data.Batch(x, y, n)
    logits, saved = wrong.model.forward(x)
    wrong.optimizer.zero_grad()
    wrong.model.backward(logits, saved)
    loss, want = check.call(mine.step, batch, without=("super", "distlearn")), theirs.step(batch)
    others = {"pass batch.n to the loss": want * n / 8, "these are the logits: return the loss": logits}
    check.close("loss" + text, loss, want, suspects=others)
    for p, q, w, other in zip(mine.model.params, theirs.model.params, start, wrong.model.params, strict=True):
        known = {
            "backward takes the gradient of the loss, not the logits": w - lr * other.grad,
            "it did not move: step() belongs after backward(), zero_grad() before": w,
            "the previous step's gradients were not cleared": q.data - lr,
            "step() came before backward(): it used old gradients": w - lr,
            "pass batch.n to the loss": w + (q.data - w) * n / 8,
        }
        if p.frozen:
            known = {"it is frozen: use optimizer.step()": w - lr * p.grad}
        check.close(p.name + text, p.data, q.data, suspects=known)
