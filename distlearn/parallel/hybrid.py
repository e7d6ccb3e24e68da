"""Hybrid parallelism: data x pipeline x tensor parallelism on one mesh of ranks.

Hybrid(comm, ..., dp=2, pp=2, tp=2)          tp: the ranks that shard one stage's layers
                                           pp: the stages, one after the other
    batch, first half      second half     dp: the copies of all that, each with its part of the batch
pp 0   [ 0 | 1 ]             [ 4 | 5 ]
          |                     |          rank 0 sums the gradients of its parameters with rank 4, 1 with 5, ...
pp 1   [ 2 | 3 ]             [ 6 | 7 ]
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, get_xp, to_numpy
from ..bounds import check_number
from ..nn import Sequential
from .data.bucket import GradientReducer
from .pipeline.stages import layer_costs
from .pipeline.strategy import Pipeline
from .sharding import ShardSpec
from .strategy import Strategy, check_whole, summed_norm, update
from .tensor import parallelize, shard_optimizer

if TYPE_CHECKING:
    from ..comm.base import Communicator
    from ..data.batches import Batch
    from ..nn.loss import Loss
    from ..optim.optimizer import Optimizer


def split_axes(comm, axes: dict[str, int]) -> tuple[dict[str, int], SimpleNamespace]:
    """Return the lengths of the axes, one of which may be -1, and a communicator along each."""
    check_number("Hybrid", whole=True, least=-1, **axes)
    known, free = math.prod(n for n in axes.values() if n != -1), [name for name, n in axes.items() if n == -1]
    if len(free) > 1 or known < 1 or comm.size % known or (not free and known != comm.size):
        wanted = "expected lengths whose product is that (-1: what is left)"
        raise ValueError(f"rank {comm.rank}: {axes} on {comm.size} ranks, {wanted}")
    axes = axes | dict.fromkeys(free, comm.size // known)
    place = dict(zip(axes, map(int, np.unravel_index(comm.rank, tuple(axes.values()))), strict=True))
    along = {name: comm.split(tuple(place[other] for other in axes if other != name), place[name]) for name in axes}
    return axes, SimpleNamespace(**along)


class Hybrid(Strategy):
    r"""Data, pipeline and tensor parallelism at once: gradients of a `Pipeline` of tensor-parallel stages, summed over
    its copies.

    The layers are sharded along tp (`parallelize`), then cut into stages along pp, and the gradients of a rank's
    shards are summed along dp, bucket by bucket during the last micro-batch's backward. With axes of length 1 it
    is any of the three alone, or two of them. Ranks of tp are neighbours, where the network is fastest.

    Parameters
    ----------
    dp, pp, tp : int
        Lengths of the axes; their product is the number of ranks, and one of them may be -1: computed from the others.
    schedule, n_microbatches, shape
        Of the pipeline, see `Pipeline`; without one there is a single micro-batch by default.
    cap_bytes, overlap
        Of the sum along dp, as in `DataParallel`.

    Notes
    -----
    Per step and rank: along tp the messages that `parallelize` lists; along pp the activations and gradients at both
    ends of a stage; along dp the gradients of its own parameters, in buckets. A rank holds 1 / (pp tp) of parameters,
    gradients and optimizer state.

    References
    ----------
    D. Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters using Megatron-LM, SC,
    section 3. A. Krizhevsky (2014), One weird trick (why not every layer wants the same kind of parallelism).
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        dp: int = 1,
        pp: int = 1,
        tp: int = 1,
        schedule: Any = "1f1b",
        n_microbatches: int | None = None,
        shape: tuple[int, ...] | None = None,
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
    ):
        self.axes, self.mesh = split_axes(comm, {"dp": dp, "pp": pp, "tp": tp})
        super().__init__(comm, model, loss, optimizer)
        given, model = model, parallelize(model, self.mesh.tp)
        optimizer, self.specs = shard_optimizer("Hybrid", optimizer, model, self.mesh.tp)
        self.pipeline = Pipeline(
            self.mesh.pp,
            model,
            loss,
            optimizer,
            schedule=schedule,
            n_microbatches=1 if n_microbatches is None and self.mesh.pp.size == 1 else n_microbatches,
            stages=self._costs(model, shape),
        )
        self.pipeline.alone = comm.size == self.mesh.pp.size
        self.pipeline.optimizer.norm = self._norm
        self.comm, self.model, self.optimizer = self.mesh.dp, self.pipeline.model, self.pipeline.optimizer
        self.rank, self.size = self.mesh.dp.rank, self.mesh.dp.size
        self.hold_in_shards(given, self.model)
        self.reducer = GradientReducer(
            self.mesh.dp, self.pipeline.params, like=self.pipeline.like, cap_bytes=cap_bytes, overlap=overlap
        )

    def _costs(self, model, shape) -> list[float]:
        """Return the cost of every layer: that of the busiest rank along tp, so that all ranks make the same cut."""
        costs = get_xp(model.params[0].data).array(layer_costs(model, shape), dtype=np.float64)
        return to_numpy(self.mesh.tp.all_reduce(costs, "max")).tolist()

    def step(self, batch: Batch) -> float:
        check_whole(self, batch, self.mesh.pp, self.mesh.tp)
        reducer, held_back = self.reducer, []
        reducer.clear()

        def on_grad(p):  # the last bucket waits for the loss, which is known when the pipeline has finished
            held_back.append(p) if reducer.waits_for_loss(p) else reducer.on_grad(p)

        reducer.sums[0], reducer.sums[1] = self.pipeline.accumulate(batch, on_grad), len(batch.x)
        for p in held_back:
            reducer.on_grad(p)
        loss = reducer.finish(len(batch.x), batch.n)
        update(self.optimizer, self.clock)
        return loss

    def _norm(self, params) -> float:
        """Return the length of the whole model's gradient: every parameter counts once."""
        mine = [p for p in self.pipeline.counted(params) if self.mesh.tp.rank == 0 or p.name in self.specs]
        return summed_norm(mine, [self.mesh.pp, self.mesh.tp], self.reducer.sums)

    def predict(self, x: Array) -> Array:
        return self.pipeline.predict(x)

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    @property
    def layout(self) -> str:
        return f"Hybrid{self.axes}"

    def spec(self, name: str, shape: tuple[int, ...]) -> ShardSpec:
        """Return this rank's shard of a parameter; of the copies of a whole model, one counts."""
        mesh, spec = self.mesh, self.specs.get(name) or ShardSpec(tuple(shape), counts=self.mesh.tp.rank == 0)
        first = mesh.dp.rank == 0 and self.pipeline.spec(name, shape).counts
        return replace(spec, counts=spec.counts and first)
