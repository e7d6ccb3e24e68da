"""Data parallelism: every rank holds the model, works on its part of the batch, and gradients are summed.

rank r:  part r of the batch --> forward --> backward --+--> update (the same on every rank)
                                                        |
         bucket after bucket, while backward goes on:  all-reduce (sum)

`NaiveDataParallel` is the same without the buckets.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from ...backend import get_xp
from ...comm.collectives import shares
from ...nn.layer import check_positive
from ..checkpoint.state import copies, live_arrays, put
from ..strategy import Replicated
from .bucket import make_buckets
from .codecs import Codec
from .compression import CompressedAllReduce
from .replicas import check_replicas, optimizer_arrays
from .residual import Residuals


class DataParallel(Replicated):
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
    accumulate : int
        Micro-batches that a rank's part goes through in, one after another: their gradients add up, and all-reduces
        start in the last. Needs the memory of one micro-batch's activations, and gives the same numbers; only what
        looks at a batch as a whole (`BatchNorm`, `Dropout`'s random numbers) sees smaller ones.
    check_every : int, optional
        Compare parameters and the optimizer's memory of all ranks every so many steps (see `check_replicas`).

    Notes
    -----
    Per step and rank one all-reduce per bucket, of all parameters' bytes in sum; on a ring 2 (p - 1) messages each.
    The loss rides along in the last bucket; beside codes and in half precision, which would spoil it, it goes by
    itself, as 8 bytes. Saves what the model
    saves. Accumulation sends no more than that.

    References
    ----------
    S. Li et al. (2020), PyTorch Distributed: experiences on accelerating data parallel training, VLDB 13(12),
    section 3.2 (buckets, overlap), 3.2.4 (accumulation).
    """

    checkpointable = True

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
        accumulate: int = 1,
        check_every: int | None = None,
    ):
        check_positive("DataParallel", accumulate=accumulate, check_every=1 if check_every is None else check_every)
        super().__init__(comm, model, loss, optimizer)
        self.overlap, self.accumulate, self.check_every = overlap, accumulate, check_every
        if compress is not None and (isinstance(compress, type) or not hasattr(compress, "sparse")):
            raise TypeError(f"DataParallel: compress is {compress!r}, expected a codec, such as FP16() or TopK(0.01)")
        kind = None if compress is None else self._encoded_with
        self.buckets = make_buckets(model.params, cap_bytes, extra=1, kind=kind)
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.params}
        self._works: list = []
        self._steps = 0
        self._loss = self._place_of_loss(compress)
        self._reducers = {}
        if compress is not None and comm.size > 1:
            for bucket in self.buckets:
                n, seed = bucket.flat.size - bucket.extra.size, crc32(bucket.params[0].name.encode())
                self._reducers[bucket] = CompressedAllReduce(comm, n, bucket.flat.dtype, compress, seed=(seed,))
        self._residuals = Residuals(comm, self.buckets, self._reducers)

    def step(self, batch) -> float:
        """Train on this rank's part of the batch; return the loss of the global one."""
        for bucket in self.buckets:
            bucket.clear()
        self._works = []
        self._loss[...] = 0
        *first, last = micro_batches(batch, self.accumulate)
        for x, y in first:
            self._learn(x, y, batch.n)
        self._learn(*last, batch.n, self._grad_is_complete)
        if not self.overlap:
            for bucket in self.buckets:
                self._start(bucket)
        if not self._loss_rides:
            self._works.append(self.comm.iall_reduce(self._loss))
        for work in self._works:
            work.wait()
        self.update()
        self._steps += 1
        if self.check_every and self._steps % self.check_every == 0:
            self.check()
        return float(self._loss[0])

    def _encoded_with(self, param):
        """Return what parameters have in common whose gradients one code may hold: here, that they are parameters."""

    def _place_of_loss(self, compress):
        """Return where the loss is summed: at the end of the last bucket, if that does not round it."""
        if self.buckets and compress is None and self.buckets[-1].flat.dtype.itemsize >= 4:
            return self.buckets[-1].extra
        like = self.model.params or self.optimizer.params
        return (get_xp(like[0].data) if like else np).zeros(1, np.float64)

    @property
    def _loss_rides(self) -> bool:
        """Whether the loss travels in the last bucket."""
        return bool(self.buckets) and self._loss is self.buckets[-1].extra

    def _learn(self, x, y, n: int, on_grad=None) -> None:
        """Add the gradients and the loss of one micro-batch; when this returns, its activations are gone."""
        out, saved = self.model.forward(x, clock=self.clock)
        loss, dy = self.loss(out, y, n)
        self._loss[0] += loss
        self.model.backward(dy, saved, on_grad=on_grad, clock=self.clock)

    def check(self) -> None:
        """Raise `ReplicaError` if ranks differ in a learned parameter or in the optimizer's memory."""
        params = {p.name: p.data for p in self.optimizer.params}
        check_replicas(self.comm, params | optimizer_arrays(self.optimizer))

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
        self._residuals.add_to(bucket)
        reducer = self._reducers.get(bucket)
        if reducer is None:
            self._works.append(self.comm.iall_reduce(bucket.flat))
            return
        self._works.append(reducer.start(bucket.flat[: reducer.parts[-1].stop]))

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    @property
    def generators(self) -> list:
        """The random number generators of this rank's codecs."""
        return [reducer.rng for reducer in self._reducers.values()]

    def gather_state(self) -> dict | None:
        """Return the state on rank 0, None elsewhere; every rank must call, though without codecs nothing is sent.

        With error feedback it holds what the ranks have left out, each by itself and all together: one gather, and one
        all-reduce for each bucket.
        """
        by_rank, total = self._residuals.by_rank(self.comm), self._residuals.total()
        return None if self.rank else copies(live_arrays(self) | total) | by_rank

    def put_state(self, arrays: dict) -> None:
        """Take a state over; nothing is changed if it is that of another model."""
        put(live_arrays(self), arrays)
        self._residuals.put(arrays, self.comm.rank)


def micro_batches(batch, count: int) -> list:
    """Cut a rank's part of a batch into at most `count` pieces (x, y) of nearly equal size; an empty part stays one.

    Parameters
    ----------
    batch : Batch
    count : int

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.data import Batch
    >>> x = np.arange(5)
    >>> [piece.tolist() for piece, _ in micro_batches(Batch(x, x, 5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    count = min(count, len(batch.x)) if count > 1 else 1
    if count <= 1:
        return [(batch.x, batch.y)]
    parts = shares(len(batch.x), count)
    return [(batch.x[part], batch.y[part]) for part in parts]
