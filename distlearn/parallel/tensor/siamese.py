"""A branch of a Siamese network per rank: two ranks, one set of weights."""

from __future__ import annotations

from ...backend import get_xp
from ...nn import BatchNorm, Dropout, Siamese
from ...nn.container import layer_span
from ...nn.layer import Param, describe, walk
from ..data.bucket import make_buckets
from .layer import TensorLayer


class SiameseParallel(TensorLayer):
    r"""Siamese network with a branch per rank: rank 0 sees the first image of every pair, rank 1 the second."""

    how = "a branch per rank, gradients summed"

    def __init__(self, comm, siamese: Siamese):
        super().__init__(comm)
        self.body, self.name = siamese.layers[0], siamese.name
        if comm.size > 2:
            raise ValueError(
                f"{describe(siamese)}: two branches cannot be assigned to {comm.size} ranks, expected 1 or 2"
            )
        for layer in walk(self.body):
            if isinstance(layer, (BatchNorm, Dropout)):
                raise ValueError(
                    f"SiameseParallel: {describe(layer)} would not see both branches at once, as in Siamese"
                )
        self.serial = siamese
        self.params = [Param(p.data, p.name, p.frozen) for p in self.body.params]  # the same data, separate gradients
        self.learned = [p for p in self.body.params if not p.frozen]
        self.buckets = make_buckets(self.learned) if self.learned else []

    @classmethod
    def of(cls, siamese: Siamese, comm) -> SiameseParallel:
        """Take this rank's branch of a serial layer."""
        return cls(comm, siamese)

    def forward(self, x):
        self.output_shape(x.shape)
        with layer_span(self.comm.clock, self, "forward", x.shape, x.dtype.itemsize):
            if self.comm.size == 1:
                y, saved = self.serial.forward(x)
                return y, (saved, x)
            y, saved = self.body.forward(get_xp(x).ascontiguousarray(x[:, self.comm.rank]))
        return self._both(y), (saved, x)

    def backward(self, dy, saved):
        saved, x = saved
        for bucket in self.buckets:
            bucket.clear()
        with layer_span(self.comm.clock, self, "backward", x.shape, x.dtype.itemsize):
            if self.comm.size == 1:
                dx = self.serial.backward(dy, saved)
            else:
                dx = self.body.backward(get_xp(dy).ascontiguousarray(dy[:, self.comm.rank]), saved)
        self._add_gradients()
        return dx if dx is None or self.comm.size == 1 else self._both(dx)

    def _both(self, x):
        """Exchange the branches' results: (batch, ...) to (batch, 2, ...)."""
        xp = get_xp(x)
        return xp.ascontiguousarray(self.comm.all_gather(xp.ascontiguousarray(x)).swapaxes(0, 1))

    def _add_gradients(self):
        """Sum this pass's gradients over ranks, and add them to those that the optimizer uses."""
        for bucket in self.buckets:
            bucket.settle()
            if self.comm.size > 1:
                self.comm.all_reduce(bucket.flat)
        shared = [p for p in self.params if not p.frozen]
        for mine, theirs in zip(self.learned, shared, strict=True):
            theirs.grad += mine.grad

    @property
    def children(self):
        return [self.body]

    def output_shape(self, shape):
        return self.serial.output_shape(shape)

    def flops(self, shape):
        return self.serial.flops(shape) // self.comm.size

    def backward_flops(self, shape):
        return self.serial.backward_flops(shape) // self.comm.size

    def bytes_moved(self, shape, itemsize=4):
        return self.serial.bytes_moved(shape, itemsize) // self.comm.size

    def __repr__(self):
        return f"SiameseParallel({self.body!r})"
