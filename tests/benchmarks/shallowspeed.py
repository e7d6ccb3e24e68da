"""A peer: data-parallel training as ShallowSpeed does it, in NumPy and mpi4py alone.

Rebuilt after its published design (S. Böhm, github.com/siboehm/ShallowSpeed): layers of (out, in) weights with an
explicit backward, a cache per layer, gradients in arrays of their own, and one blocking all-reduce per parameter after
backward. Its mean squared error is replaced by the cross-entropy that the others in the comparison use.
"""

from __future__ import annotations

import numpy as np


class Linear:
    """y = x W^T + b, with ReLU behind it where wanted."""

    def __init__(self, W, b, relu: bool):
        self.W, self.b, self.relu = np.ascontiguousarray(W), b.reshape(1, -1).copy(), relu
        self.grads = [np.zeros_like(self.W), np.zeros_like(self.b)]
        self._cache = {}

    def forward(self, x):
        """Run, and remember the input and what ReLU let through."""
        self._cache["x"] = x
        y = x @ self.W.T + self.b
        if self.relu:
            self._cache["mask"] = y > 0
            y = np.maximum(y, 0)
        return y

    def backward(self, dy):
        """Add to the gradients; return that of the input."""
        if self.relu:
            dy = dy * self._cache["mask"]
        self.grads[0] += dy.T @ self._cache["x"]
        self.grads[1] += dy.sum(axis=0, keepdims=True)
        return dy @ self.W


def step_of(weights, x, y, n: int, lr: float, raw=None):
    """Return a function that makes one SGD step.

    Parameters
    ----------
    weights : list of (W, b)
        W as (out, in).
    x : (part, d) array
    y : (part,) array of int
    n : int
        Size of the global batch.
    lr : float
    raw : mpi4py.MPI.Comm, optional
        None for one process.
    """
    layers = [Linear(W, b, relu=i < len(weights) - 1) for i, (W, b) in enumerate(weights)]
    onehot = np.eye(len(weights[-1][1]), dtype=x.dtype)[y]

    def step() -> float:
        for layer in layers:
            for g in layer.grads:
                g[...] = 0
        z = x
        for layer in layers:
            z = layer.forward(z)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        dy = (p - onehot) / n
        for layer in reversed(layers):
            dy = layer.backward(dy)
        for layer in layers:
            for g in layer.grads:
                if raw is not None:
                    from mpi4py import MPI

                    raw.Allreduce(MPI.IN_PLACE, g)
            layer.W -= lr * layer.grads[0]
            layer.b -= lr * layer.grads[1]
        return float(-np.log(p[onehot.astype(bool)]).sum()) / n

    return step
