"""A model's learned parameters as one flat array, its gradients as another: shares of both are plain slices."""

from __future__ import annotations

import numpy as np

from ....backend import get_xp, to_numpy
from ....nn.container import check_unique_names
from ...data.bucket import Bucket


class FlatModel:
    """A model whose learned parameters lie in one array, in the order of construction.

    Parameters
    ----------
    model : Sequential
        Its learned parameters become views; frozen ones stay where they are, and are never sent.

    Attributes
    ----------
    data : (n,) array
        All learned parameters.
    grad : (n,) array
        Their gradients, whole after `gradient`.
    """

    def __init__(self, model):
        check_unique_names(model)
        self.model = model
        self.params = [p for p in model.params if not p.frozen]
        if not self.params:
            raise ValueError(f"parameter server: {model!r} has no parameters to learn")
        dtypes = {str(p.data.dtype) for p in self.params}
        if len(dtypes) > 1:
            raise ValueError(f"parameter server: parameters are {', '.join(sorted(dtypes))}, expected one dtype")
        xp = get_xp(self.params[0].data)
        self._bucket = Bucket(self.params)
        self.grad = self._bucket.flat
        self.data = xp.concatenate([p.data.reshape(-1) for p in self.params])
        self.live_in(self.data)
        self._costs: dict[tuple, float] = {}

    def live_in(self, data) -> None:
        """Make the parameters views of another flat array, and take its values."""
        self.data, start = data, 0
        for p in self.params:
            p.data = data[start : start + p.size].reshape(p.data.shape)
            start += p.size

    def gradient(self, x, y, loss) -> float:
        """Compute the mean gradient over the rows of `x` into `grad`; return their mean loss. No rows: zeros."""
        self._bucket.clear()
        value = 0.0
        if len(x):
            logits, saved = self.model.forward(x)
            value, dy = loss(logits, y, len(x))
            self.model.backward(dy, saved)
        self._bucket.settle()
        return float(value)

    def flops(self, shape) -> float:
        """Operations of a gradient on an input of `shape`."""
        if shape not in self._costs:
            self._costs[shape] = self.model.flops(shape) + self.model.backward_flops(shape) if shape[0] else 0
        return self._costs[shape]

    def load(self, values, part: slice = slice(None)) -> None:
        """Overwrite the learned parameters, or a part of them, by a flat array."""
        self.data[part] = get_xp(self.data).asarray(values)

    def named(self, values=None) -> dict[str, np.ndarray]:
        """Return copies of all parameters by name; of the learned ones those in the flat array `values`, if given."""
        flat = to_numpy(self.data) if values is None else values
        found, start = {}, 0
        for p in self.model.params:
            if p.frozen:
                found[p.name] = to_numpy(p.data).copy()
                continue
            found[p.name] = flat[start : start + p.size].reshape(p.data.shape).copy()
            start += p.size
        return found
