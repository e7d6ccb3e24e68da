"""The workers' side: compute a gradient, push it, get the parameters back when the policy allows the next step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from ....backend import get_xp, to_numpy
from ....data import Batches
from ....data.batches import Batch
from ....nn.container import check_unique_names
from ...data.bucket import Bucket
from .messages import Leave, Push, Reply


class FlatModel:
    """A model whose learned parameters are stored in one array, in the order of construction."""

    def __init__(self, model):
        check_unique_names(model.params)
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
        self.rebind(self.data)
        self._costs: dict[tuple, float] = {}

    def rebind(self, data) -> None:
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
        """Overwrite the learned parameters, or a part of them, with a flat array."""
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


class WorkerComm:
    """A worker's messages to and from all servers."""

    def __init__(self, comm, shares: list[slice], flat: FlatModel, worker: int):
        self.comm, self.shares, self.flat, self.worker = comm, shares, flat, worker
        self.version = self.steps = 0
        self._replies = [Reply(part.stop - part.start, flat.data.dtype) for part in shares]

    def exchange(self, rows: int, loss: float) -> Reply:
        """Push the gradient, wait until this worker may continue, load the new parameters; return the first reply."""
        comm, replies = self.comm, self._replies
        with comm.clock.span("exchange", lane="comm"):
            received = [comm.irecv(reply.buffer, server) for server, reply in enumerate(replies)]
            gradient = to_numpy(self.flat.grad)
            sent = [comm.isend(gradient[part], server) for server, part in enumerate(self.shares)]
            push = Push(self.worker, self.steps, self.version, rows, loss)
            for server in range(len(self.shares)):
                comm.send_obj(push, server)
            for work in (*sent, *received):
                work.wait()
        for part, reply in zip(self.shares, replies, strict=True):
            self.flat.load(reply.share, part)
        self.version = replies[0].version
        self.steps += 1
        return replies[0]

    def leave(self) -> None:
        """Tell the servers that this worker will push no more."""
        self.comm.send_obj(Leave(self.worker), 0)


def endless_batches(dataset, batch_size: int, rank: int, size: int, seed: int) -> Iterator[Batch]:
    """Yield a worker's part of one global batch after another, epoch after epoch."""
    batches = Batches(dataset.x_train, dataset.y_train, batch_size, rank=rank, size=size, seed=seed)
    return itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
