"""Data parallelism: every rank holds the model, works on its part of the batch, and gradients are summed.

rank r:  part r of the batch --> forward --> backward --+--> update (the same on every rank)
                                                        |
         bucket after bucket, while backward runs:     all-reduce (sum)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array, get_xp
from ...bounds import check_positive
from ...shares import shares
from ..checkpoint.state import named_arrays, part_of_rank
from ..strategy import Replicated, average_statistics, check_global_rows, update
from .bucket import GradientReducer
from .compression import Codec
from .replicas import check_replicas

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.container import Sequential
    from ...nn.loss import Loss
    from ...optim.optimizer import Optimizer


class NaiveDataParallel(Replicated):
    r"""Data parallelism with one blocking all-reduce per parameter, after backward.

    Rank r computes :math:`g_r = \frac1n \sum_{i \in B_r} \nabla \ell_i`, where n is the size of the *global* batch, and
    the sum over ranks is exactly the serial gradient. `DataParallel` does the same sums in fewer, earlier messages.

    Notes
    -----
    Per step and rank one all-reduce per parameter and one of the loss and the number of rows; on a ring of p ranks
    2 (p - 1) messages each, of 2 (p - 1) / p of the parameters' bytes in total. Nothing is hidden behind backward.

    References
    ----------
    S. Li et al. (2020), PyTorch Distributed: experiences on accelerating data parallel training, VLDB 13(12),
    section 3.2.1.
    """

    def step(self, batch: Batch) -> float:
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        for p in self.optimizer.params:
            self.comm.all_reduce(p.grad)
        sums = self.comm.all_reduce(get_xp(batch.x).array([loss, len(batch.x)], np.float64))
        check_global_rows(self.comm, float(sums[1]), batch.n)
        if self.statistics:
            average_statistics(self.comm, self.statistics, len(batch.x), batch.n)
        update(self.optimizer, self.clock)
        return float(sums[0])


class DataParallel(Replicated):
    r"""Synchronous data parallelism with bucketed all-reduces that overlap with backward.

    Rank r computes :math:`g_r = \frac1n \sum_{i \in B_r} \nabla \ell_i`, where n is the size of the *global* batch, and
    :math:`g = \sum_r g_r` is exactly the serial gradient, however unequal the parts.

    Parameters
    ----------
    cap_bytes : float
        Size of a bucket.
    overlap : bool
        Start a bucket's all-reduce as soon as its gradients are complete; else all of them after backward.
    compress : Codec, optional
        Send gradients as codes: `FP16()`, `Int8()`, `OneBit()`, `TopK(ratio)`.
    accumulate : int
        Number of micro-batches that a rank's part is cut into: needs the memory of one's activations, and gives the
        same results; only layers that use the batch as a whole (`BatchNorm`, random numbers of `Dropout`) see less.
    check_every : int, optional
        Number of steps between two calls of `check_replicas`.

    Notes
    -----
    Per step and rank one all-reduce per bucket, of all parameters' bytes in total; on a ring 2 (p - 1) messages each.
    The loss and the number of rows, which must add up to n, are sent in the last bucket; with compression and in half
    precision, which would round them, they are sent alone, as 16 bytes.

    References
    ----------
    S. Li et al. (2020), PyTorch Distributed: experiences on accelerating data parallel training, VLDB 13(12),
    section 3.2 (buckets, overlap), 3.2.4 (accumulation).
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
        compress: Codec | None = None,
        accumulate: int = 1,
        check_every: int | None = None,
    ):
        check_positive("DataParallel", accumulate=accumulate, check_every=1 if check_every is None else check_every)
        super().__init__(comm, model, loss, optimizer)
        self.accumulate, self.check_every, self._steps = accumulate, check_every, 0
        buckets = {"cap_bytes": cap_bytes, "overlap": overlap, "compress": compress}
        self.reducer = GradientReducer(comm, model.params, like=model.params[0].data, **buckets)
        if compress is None:
            optimizer.follow(self.reducer.buckets)

    def step(self, batch: Batch) -> float:
        self.reducer.clear()
        pieces = [(batch.x, batch.y)] if self.accumulate == 1 else micro_batches(batch, self.accumulate)
        sums, total, rows = self.reducer.sums, 0.0, 0
        for i, (x, y) in enumerate(pieces, 1):
            out, saved = self.model.forward(x, clock=self.clock)
            loss, dy = self.loss(out, y, batch.n)
            total, rows = total + loss, rows + len(x)
            sums[0], sums[1] = total, rows  # before backward, which may send them
            on_grad = self.reducer.on_grad if i == len(pieces) else None  # gradients are complete in the last piece
            self.model.backward(dy, saved, on_grad=on_grad, clock=self.clock)
            del out, saved, dy  # or the next micro-batch's activations would need memory beside these
        loss = self.reducer.finish(rows, batch.n)
        update(self.optimizer, self.clock)
        self._steps += 1
        if self.check_every and self._steps % self.check_every == 0:
            self.check()
        return loss

    def check(self) -> None:
        """Raise `ReplicaError` if ranks differ in a parameter, frozen or not, or in the optimizer's state."""
        check_replicas(self.comm, named_arrays(self.model.params, self.optimizer))

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    @property
    def generators(self) -> list[Any]:
        return self.reducer.generators

    def own_state(self) -> dict[str, Any]:
        return self.reducer.errors

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        super().load_state_dict(arrays)
        self.reducer.load_errors(part_of_rank(arrays, self.rank))


def micro_batches(batch: Batch, count: int) -> list[Any]:
    """Cut a rank's part of a batch into at most `count` pieces (x, y) of nearly equal size; an empty part stays one."""
    parts = shares(len(batch.x), max(1, min(count, len(batch.x))))
    return [(batch.x[part], batch.y[part]) for part in parts]
