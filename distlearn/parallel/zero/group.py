"""What ZeRO shards: a group of parameters as one flat array, of which every rank owns an equal part.

full   [ W ............ | b .. | padding ]     p.data and p.grad of the group's parameters are views of it
own    [ rank 0 | rank 1 | rank 2 | rank 3 ]   what a rank keeps, and updates
"""

from __future__ import annotations

from ...backend import get_xp
from ...comm.protocol import Work
from ...nn.layer import Param
from ..data.bucket import Bucket
from ..sharding import flat_shard
from .memory import Ledger


class ShardGroup:
    """Some parameters of one dtype, their gradients, and this rank's part of both."""

    def __init__(self, comm, params: list[Param], stage: int, ledger: Ledger):
        self.comm, self.params, self.stage, self.ledger = comm, params, stage, ledger
        self.users = self.pending = 0
        n = sum(p.size for p in params)
        each = -(-n // comm.size)
        self.padding = each * comm.size - n
        self.mine = slice(comm.rank * each, (comm.rank + 1) * each)
        self.bucket: Bucket | None = None
        self._work: Work | None = None
        self.full = get_xp(params[0].data).zeros(n + self.padding, params[0].data.dtype)
        self._full_bytes = self.full.nbytes
        ledger.take(self._full_bytes)
        for p, view in zip(params, self._views(), strict=True):
            view[...] = p.data
            p.data, p.grad = view, None
        self._held = [(p, p.data) for p in params if stage < 3]  # at stage 3 this would keep `full` alive
        own = self.full[self.mine]
        if stage == 1:
            self.open()
        if stage == 3:
            own = own.copy()
            ledger.take(own.nbytes)
            self.release()
        if stage >= 2:
            ledger.take(own.nbytes)  # its gradient
        grad = self.bucket.flat[self.mine] if self.bucket else get_xp(own).zeros_like(own)
        self.own = Param(own, f"[{params[0].name} ... {params[-1].name}]", grad=grad)

    def _views(self):
        """Yield each parameter's place in `full`, in its shape."""
        offset = 0
        for p in self.params:
            yield self.full[offset : offset + p.size].reshape(p.data.shape)
            offset += p.size

    # -- parameters --------------------------------------------------------------------------------------------------
    def gather(self) -> None:
        """Gather the full parameters (stage 3): one all-gather."""
        if self.full is None:
            self.full = self.comm.all_gather(self.own.data).reshape(-1)
            self.ledger.take(self._full_bytes)
            for p, view in zip(self.params, self._views(), strict=True):
                p.data = view

    def check_held(self) -> None:
        """Raise if a parameter no longer lies in `full`, and so would not be updated."""
        for p, held in self._held:
            if p.data is not held:
                raise ValueError(
                    f"ZeRO: the data of parameter {p.name!r} was replaced after the strategy was made, as another ZeRO "
                    "of the same model does; write into it (p.data[...] = values), or make another model"
                )

    def release(self) -> None:
        """Free the full parameters (stage 3); reading one by mistake then gives NaN."""
        if self.stage == 3:
            xp = get_xp(self.full)
            for p in self.params:
                p.data = xp.broadcast_to(xp.asarray(float("nan"), p.data.dtype), p.data.shape)
            self.full = None
            self.ledger.drop(self._full_bytes)

    def publish(self) -> None:
        """Gather the updated parts on every rank (stages 1 and 2): one all-gather."""
        everything = self.comm.all_gather(self.own.data)
        self.ledger.take(everything.nbytes)
        self.full[...] = everything.reshape(-1)
        self.ledger.drop(everything.nbytes)

    # -- gradients ---------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Allocate the full gradients, and clear them."""
        if self.bucket is None:
            self.bucket = Bucket(self.params, extra=self.padding)
            self.ledger.take(self.bucket.flat.nbytes)
        self.bucket.clear()

    def start_reduce(self) -> None:
        """Begin to sum the gradients over ranks: one reduce-scatter."""
        self.bucket.settle()
        self.ledger.take(self.own.grad.nbytes)  # bytes of the part that is received
        self._work = self.comm.ireduce_scatter(self.bucket.flat)

    def finish_reduce(self) -> None:
        """Wait for the sum; keep this rank's part of it, and from stage 2 on free the rest."""
        part, self._work = self._work.wait(), None
        if self.stage == 1:
            self.own.grad[...] = part
            self.ledger.drop(part.nbytes)
            return
        self.ledger.drop(self.own.grad.nbytes)
        self.own.grad = part
        for p in self.params:
            p.grad = None
        self.ledger.drop(self.bucket.flat.nbytes)
        self.bucket = None

    def shards(self):
        """Yield (parameter, part of `own`, spec) for all parameters of which this rank owns a part."""
        offset = 0
        for p in self.params:
            found = flat_shard(offset, p.data.shape, self.mine)
            offset += p.size
            if found is not None:
                yield p, *found

    # -- what there is -----------------------------------------------------------------------------------------------
    @property
    def parameter_bytes(self) -> int:
        """Bytes of parameters held now."""
        return (0 if self.full is None else self.full.nbytes) + (self.own.nbytes if self.stage == 3 else 0)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of gradients held now."""
        return (0 if self.bucket is None else self.bucket.flat.nbytes) + (self.own.nbytes if self.stage >= 2 else 0)
