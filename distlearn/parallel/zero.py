"""ZeRO: data parallelism in which every rank keeps only its shard of the training state.

Data parallelism keeps p copies of everything. ZeRO shards them, one more kind at each stage:

stage   kept whole on every rank    kept in p parts
1       parameters, gradients       optimizer's state
2       parameters                  optimizer's state, gradients
3       nothing                     optimizer's state, gradients, parameters

    forward   [3: all-gather the next layer's parameters, beside this]  layer  [3: let its own go]  ...
    backward  [3: the same]  layer  ...  reduce-scatter of each full bucket of gradients, beside the next
    update    of this rank's part        [1, 2: all-gather the parameters]
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backend import Array, get_xp, views_like
from ..comm.base import Work
from ..nn.container import Sequential
from ..nn.layer import Param
from ..optim.optimizer import state_arrays
from .checkpoint.state import named_arrays
from .data.bucket import Bucket, group_params
from .sharding import HeldElsewhere, Shard, Sharded, ShardSpec, load_into
from .strategy import (
    Strategy,
    average_statistics,
    check_global_rows,
    check_state_shapes,
    require_scope,
    statistics_of,
    summed_norm,
    update,
)

if TYPE_CHECKING:
    from ..comm.base import Communicator
    from ..data.batches import Batch
    from ..nn.loss import Loss
    from ..optim.optimizer import Optimizer

# -- groups of parameters: one flat array each, of which every rank owns an equal part ---------------------------------
#
#     full  [ W ............ | b .. | padding ]      p.data and p.grad of the group's parameters are views of it
#     own   [ rank 0 | rank 1 | rank 2 | rank 3 ]    the part that a rank keeps and updates


class ShardGroup:
    """Some parameters of one dtype, their gradients, and this rank's part of both."""

    def __init__(self, comm, params: list[Param], stage: int):
        self.comm, self.params, self.stage = comm, params, stage
        self.users = self.pending = 0
        n = sum(p.size for p in params)
        each = -(-n // comm.size)
        self.padding = each * comm.size - n
        self.mine = slice(comm.rank * each, (comm.rank + 1) * each)
        self.bucket: Bucket | None = None
        self._work: Work | None = None  # of the gradients' reduce-scatter
        self._coming: Work | None = None  # of the parameters' all-gather
        self.full = get_xp(params[0].data).zeros(n + self.padding, params[0].data.dtype)
        for p, view in zip(params, self._views(), strict=True):
            view[...] = p.data
            p.data, p.grad = view, None
        self._held = [(p, p.data) for p in params if stage < 3]  # at stage 3 this would keep `full` alive
        own = self.full[self.mine]
        if stage == 1:
            self.open()
        if stage == 3:
            own = own.copy()
            self.release()
        grad = self.bucket.flat[self.mine] if self.bucket else get_xp(own).zeros_like(own)
        self.own = Param(own, f"[{params[0].name} ... {params[-1].name}]", grad=grad)

    def _views(self):
        return views_like(self.full, [p.data for p in self.params])

    # -- parameters ----------------------------------------------------------------------------------------------------
    def start_gather(self) -> None:
        """Start to gather the full parameters (stage 3), unless they are here or on their way."""
        if self.full is None and self._coming is None:
            self._coming = self.comm.iall_gather(self.own.data)

    def gather(self) -> None:
        """Have the full parameters (stage 3)."""
        self.start_gather()
        if self._coming is not None:
            self.full, self._coming = self._coming.wait().reshape(-1), None
            for p, view in zip(self.params, self._views(), strict=True):
                p.data = view

    def check_held(self) -> None:
        """Raise if a parameter no longer lies in `full`, and so would not be updated."""
        if self.full is None and self._coming is None:
            HeldElsewhere.check(self.params)
        for p, held in self._held:
            if p.data is not held:
                raise ValueError(f"ZeRO: the data of {p.name!r} was replaced; write into it: p.data[...] = values")

    def release(self) -> None:
        """Free the full parameters (stage 3); reading one by mistake then raises."""
        if self.stage == 3:
            for p in self.params:
                p.data = HeldElsewhere(p, "ZeRO")
            self.full = None

    def publish(self) -> None:
        """Gather the updated parts on every rank (stages 1 and 2)."""
        self.full[...] = self.comm.all_gather(self.own.data).reshape(-1)

    # -- gradients -----------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Allocate the full gradients, and clear them."""
        if self.bucket is None:
            self.bucket = Bucket(self.params, extra=self.padding)
        self.bucket.clear()

    def start_reduce(self) -> None:
        self.bucket.flush()
        self._work = self.comm.ireduce_scatter(self.bucket.flat)

    def finish_reduce(self) -> None:
        """Wait for the sum; keep this rank's part of it, and from stage 2 on free the rest."""
        part, self._work = self._work.wait(), None
        if self.stage == 1:
            self.own.grad[...] = part
            return
        self.own.grad = part
        for p in self.params:
            p.grad = None
        self.bucket = None

    def shards(self):
        """Yield (parameter, part of `own`, spec) for all parameters of which this rank owns a part."""
        offset = 0
        for p in self.params:
            start, stop = max(offset, self.mine.start), min(offset + p.size, self.mine.stop)
            if start < stop:
                spec = ShardSpec(tuple(p.data.shape), Shard(None, slice(start - offset, stop - offset)))
                yield p, slice(start - self.mine.start, stop - self.mine.start), spec
            offset += p.size


# -- strategy ----------------------------------------------------------------------------------------------------------


class ZeRO(Strategy):
    r"""Data parallelism with optimizer state, gradients and parameters sharded over the ranks: a p-th of each.

    Parameters
    ----------
    model : Sequential
        From here on its parameters are views of flat arrays; at stage 3 they exist only while their layer runs.
    optimizer : Optimizer
        It must work element by element: not `LARS`, which needs the norms of whole parameters. Frozen parameters, and
        those that it does not have, stay whole on every rank.
    stage : {1, 2, 3}
    cap_bytes : float
        Stages 1 and 2: size of a bucket of gradients [bytes]; at stage 3 every layer of `model` is a bucket.
    overlap : bool
        Go on with backward while a full bucket is reduced and scattered; at stage 3 also gather the next layer's
        parameters while a layer runs, as PyTorch's FSDP does: a rank then holds two layers in full.

    Notes
    -----
    Bytes on a rank, of :math:`\Psi` parameters with a, g and k bytes for one, its gradient and its optimizer state; and
    calls and bytes per step, for b buckets of n bytes in total on a ring of p ranks:

    ======  ===================================  ======================================  ========================
    stage   memory                               calls                                   bytes sent
    ======  ===================================  ======================================  ========================
    1       :math:`(a + g) \Psi + k \Psi / p`    b reduce-scatters, b all-gathers        :math:`2 n (p-1)/p`
    2       :math:`a \Psi + (g + k) \Psi / p`    b reduce-scatters, b all-gathers        :math:`2 n (p-1)/p`
    3       :math:`(a + g + k) \Psi / p`         b reduce-scatters, 2 b - 1 all-gathers  :math:`(3 n - l) (p-1)/p`
    ======  ===================================  ======================================  ========================

    where the last layer, of l bytes, is kept from its forward to its backward pass; and one all-reduce of 16 bytes for
    the loss and the number of rows, another one if gradients are clipped. A layer that is in the model twice (tied) is
    gathered twice as often. Buckets are padded to a multiple of p elements. With `overlap` a reduce-scatter is in
    flight until backward has filled the next bucket: two full buckets at the peak. `predict` is a collective call at
    stage 3.

    References
    ----------
    S. Rajbhandari, J. Rasley, O. Ruwase, Y. He (2020), ZeRO: memory optimizations toward training trillion parameter
    models, SC20, sections 5 (stages) and 7 (communication).
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        stage: int = 1,
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
    ):
        if stage not in (1, 2, 3):
            raise ValueError(f"ZeRO: stage is {stage!r}, expected 1, 2 or 3")
        if not isinstance(model, Sequential):
            raise TypeError(f"ZeRO: the model is a {type(model).__name__}, expected a Sequential of layers")
        super().__init__(comm, model, loss, optimizer)
        require_scope("ZeRO", optimizer, "element", "a rank holds only a part of each")
        self.rank, self.size = comm.rank, comm.size
        self.stage, self.overlap = stage, overlap
        trained = {id(p) for p in optimizer.params}
        self._whole = [p for p in model.params if id(p) not in trained]
        self._statistics = statistics_of(self._whole)
        if stage == 3:
            layers = [[p for p in layer if id(p) in trained] for layer in _new_params(model.fused_layers())]
            groups = [g for layer in layers for g in group_params(layer)]
        else:
            groups = group_params([p for p in model.params if id(p) in trained], cap_bytes)
        self.groups = [ShardGroup(comm, params, stage) for params in groups]
        self.pieces = [self._piece(model, layer) for layer in model.fused_layers()]
        self._under_way: list[ShardGroup] = []
        self.optimizer = optimizer.rebind([g.own for g in self.groups])
        self.optimizer.norm = lambda params: summed_norm(params, [comm], self.groups[0].own.data)
        check_state_shapes("ZeRO", optimizer)
        load_into(self._shards(), named_arrays([], optimizer))

    def step(self, batch: Batch) -> float:
        for p in self._whole:
            p.zero_grad()
        for group in self.groups:
            group.check_held()
            group.pending = group.users
            if self.stage == 1:
                group.open()
        x, saved = batch.x, []
        turns = _turns([*self.pieces, *reversed(self.pieces)])
        for piece, following in turns[: len(self.pieces)]:
            with self._gathered(piece, following):
                x, s = piece.layer.forward(x, clock=self.clock)
            saved.append(s)
        loss, dy = self.loss(x, batch.y, batch.n)
        for piece, following in turns[len(self.pieces) :]:
            with self._gathered(piece, following):
                dy = self._backward(piece, dy, saved.pop())
            self._reduce([group for group in piece.groups if group.pending == 0])
        self._finish_reduce()
        sums = self.total(get_xp(batch.x).asarray([loss, len(batch.x)], np.float64))
        check_global_rows(self.comm, float(sums[1]), batch.n)
        if self._statistics:
            average_statistics(self.comm, self._statistics, len(batch.x), batch.n)
        update(self.optimizer, self.clock)
        if self.stage < 3:
            for group in self.groups:
                group.publish()
        return float(sums[0])

    def _piece(self, model, layer) -> _Piece:
        groups = [g for g in self.groups if any(p is q for p in g.params for q in layer.params)]
        for group in groups:
            group.users += 1
        return _Piece(model.part([layer]), groups)

    def _backward(self, piece, dy, saved):
        """Run a layer backward, and count down the groups whose gradients it gives."""
        for group in piece.groups:
            if group.bucket is None:
                group.open()
        dy = piece.layer.backward(dy, saved, clock=self.clock)
        for group in piece.groups:
            group.pending -= 1
        return dy

    def _reduce(self, full: list[ShardGroup]) -> None:
        """Start reducing full buckets; wait for the earlier ones, which have had a layer's time or more."""
        if full:
            self._finish_reduce()
        for group in full:
            group.start_reduce()
            self._under_way.append(group)
            if not self.overlap:
                self._finish_reduce()

    def _finish_reduce(self) -> None:
        for group in self._under_way:
            group.finish_reduce()
        self._under_way = []

    def predict(self, x: Array) -> Array:
        for group in self.groups:
            group.check_held()
        for piece, following in _turns(self.pieces):
            with self._gathered(piece, following):
                x = piece.layer.eval().forward(x)[0]
        return x

    @contextmanager
    def _gathered(self, piece, following):
        """The piece's parameters exist meanwhile; those that are needed next are gathered beside it."""
        for group in piece.groups:
            group.gather()
        kept = () if following is None else following.groups
        if self.overlap:
            for group in kept:
                group.start_gather()
        yield
        for group in piece.groups:
            if group not in kept:  # as those of the last layer, with which backward begins
                group.release()

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    def _shards(self) -> dict[str, Sharded]:
        """Return this rank's part of the optimizer's state, and at stage 3 of the parameters."""
        found = {}
        for group, state in zip(self.groups, self.optimizer.states, strict=True):
            arrays = list(enumerate(state_arrays(state)))
            for p, part, spec in group.shards():
                found |= {f"optimizer/{p.name}/{i}": Sharded(array[part], spec) for i, array in arrays}
                if self.stage == 3:
                    found[f"param/{p.name}"] = Sharded(group.own.data[part], spec)
        return found

    def state_dict(self) -> dict[str, Any]:
        for group in self.groups:
            group.check_held()
        whole = self.model.params if self.stage < 3 else self._whole
        return {f"param/{p.name}": Sharded(p.data, self.spec(p.name, p.data.shape)) for p in whole} | self._shards()


class _Piece(NamedTuple):
    """One layer of the model, and the groups of parameters that it needs."""

    layer: Sequential  # of that layer alone: it records its spans
    groups: list[ShardGroup]


def _turns(pieces) -> list[Any]:
    """Pair every piece with the next one that has parameters."""
    turns, following = [], None
    for piece in reversed(pieces):
        turns.append((piece, following))
        following = piece if piece.groups else following
    return turns[::-1]


def _new_params(layers):
    """Yield, layer by layer, the parameters to train that no earlier layer has: a tied one belongs to its first."""
    seen = set()
    for layer in layers:
        fresh = [p for p in layer.params if not p.frozen and id(p) not in seen]
        seen |= {id(p) for p in fresh}
        yield fresh
