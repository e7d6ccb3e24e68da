"""Data parallelism: every rank holds the model, works on its part of the batch, and gradients are summed.

rank r:  part r of the batch --> forward --> backward --+--> update (the same on every rank)
                                                        |
         bucket after bucket, while backward goes on:  all-reduce (sum)
"""

from __future__ import annotations

from ..trace import Clock
from .base import params_on_root
from .bucket import make_buckets
from .codecs import Codec
from .compress import CompressedAllReduce


class DataParallel:
    r"""Synchronous data parallelism with bucketed all-reduces that overlap with backward.

    Rank r computes :math:`g_r = \frac1n \sum_{i \in B_r} \nabla \ell_i`, where n is the size of the *global* batch, and
    :math:`g = \sum_r g_r` is exactly the serial gradient, however unequal the parts are.

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast, so that they are equal beyond doubt.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, both divided by the global n.
    optimizer : Optimizer
    cap_bytes : float
        Size of a bucket [bytes].
    overlap : bool
        Start a bucket's all-reduce as soon as its gradients are complete; else all of them after backward.
    compress : Codec, optional
        Send gradients as codes: `FP16()`, `Int8()`, `OneBit()`, `TopK(ratio)`.

    Notes
    -----
    Per step and rank one all-reduce per bucket, of all parameters' bytes in sum; on a ring 2 (p - 1) messages each.
    The loss rides along in the last bucket; beside codes, which would spoil it, it goes by itself. Saves what the model
    saves.

    References
    ----------
    S. Li et al. (2020), PyTorch Distributed: experiences on accelerating data parallel training, VLDB 13(12),
    section 3.2.
    """

    replicated = True

    def __init__(
        self,
        comm,
        model,
        loss,
        optimizer,
        *,
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
        compress: Codec | None = None,
    ):
        self.comm, self.model, self.loss, self.optimizer, self.overlap = comm, model, loss, optimizer, overlap
        self.rank, self.size = comm.rank, comm.size
        self.clock: Clock = comm.clock
        for p in model.params:
            comm.broadcast(p.data)
        self.buckets = make_buckets([p for p in model.params if not p.frozen], cap_bytes, extra=1)
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.params}
        self._works: list = []
        self._reducers = {}
        if compress is not None and comm.size > 1:
            for i, bucket in enumerate(self.buckets):
                n = bucket.flat.size - bucket.extra.size
                self._reducers[bucket] = CompressedAllReduce(comm, n, bucket.flat.dtype, compress, seed=(i,))

    def step(self, batch) -> float:
        """Train on this rank's part of the batch; return the loss of the global one."""
        for bucket in self.buckets:
            bucket.clear()
        self._works = []
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.buckets[-1].extra[0] = loss
        self.model.backward(dy, saved, on_grad=self._grad_is_complete, clock=self.clock)
        if not self.overlap:
            for bucket in self.buckets:
                self._start(bucket)
        for work in self._works:
            work.wait()
        flops, nbytes = self.optimizer.cost()
        with self.clock.span("update", flops=flops, nbytes=nbytes):
            self.optimizer.step()
        return float(self.buckets[-1].extra[0])

    def _grad_is_complete(self, param) -> None:
        """Count down the parameter's bucket, and send it off when it is full."""
        bucket = self._bucket_of.get(id(param))
        if bucket is None or not self.overlap:  # a frozen parameter is in no bucket
            return
        bucket.pending -= 1
        if bucket.pending == 0:
            self._start(bucket)

    def _start(self, bucket) -> None:
        """Start the all-reduce of a bucket."""
        bucket.settle()
        reducer = self._reducers.get(bucket)
        if reducer is None:
            self._works.append(self.comm.iall_reduce(bucket.flat))
            return
        self._works.append(reducer.start(bucket.flat[: reducer.parts[-1].stop]))
        if bucket.extra.size:
            self._works.append(self.comm.iall_reduce(bucket.extra))

    def predict(self, x):
        """Run the model forward on this rank."""
        return self.model.eval().forward(x)[0]

    def total(self, values):
        """Return the small array `values` summed over ranks."""
        return self.comm.all_reduce(values)

    def gather_params(self):
        """Return rank 0's parameters, which are everybody's."""
        return params_on_root(self.model, self.rank)
