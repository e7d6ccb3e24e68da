"""Elastic data parallelism: when ranks are lost, the others detect and name them, and continue without losing a step.

    step fails --> revoke, agree, shrink --> state of the rank that is furthest --> batches sharded anew --> step again

Every rank holds the whole model, so any survivor can send its state to all others. Gradients are summed over the
global batch however it is sharded, so the result is that of a run without failures, up to rounding.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..backend import get_xp, to_numpy
from ..comm.base import FaultTolerant, PeerLostError, RevokedError
from ..comm.point_to_point import LocalComm
from ..data import Batch, shard
from ..nn.layer import check_positive
from .checkpoint.state import counters, generators, named_arrays, set_counters
from .data.data_parallel import DataParallel
from .data.replicas import Drift, ReplicaError, checksum
from .strategy import Strategy

LOST = (PeerLostError, RevokedError)


@dataclass
class Recovery:
    """One recovery: training went on without some of its ranks."""

    lost: list[int]  # ranks of the first communicator
    size: int  # number of remaining ranks
    step: int  # steps done by then
    began: float  # when the interrupted step began [s]
    noticed: float  # when this rank was notified
    resumed: float  # when training could continue
    redone: int = 0  # samples of the interrupted step to be trained on again; 0 if some rank had finished it

    def __str__(self) -> str:
        ranks = f"rank{'s' * (len(self.lost) > 1)} {', '.join(map(str, self.lost))}"
        again = f"step {self.step + 1} ({self.redone} samples) again" if self.redone else f"step {self.step} was done"
        return f"lost {ranks}; went on with {self.size} ranks after {self.resumed - self.began:.3g} s: {again}"


class ElasticDataParallel(Strategy):
    """Synchronous data parallelism that survives the loss of ranks, down to a single one.

    Each rank is given whole batches, and takes its part according to the number of remaining ranks.

    Parameters
    ----------
    comm : Communicator
        If it is `FaultTolerant`, ranks may be lost; on any other this is `DataParallel`.
    **options
        As for `DataParallel`.

    Attributes
    ----------
    comm : Communicator
        Of the remaining ranks; `members` are their ranks in the first one.

    Notes
    -----
    Messages and bytes of a step are those of `DataParallel`; preparing for failures sends nothing. A recovery costs an
    agreement, a shrink, one number from each rank, and broadcasts of model and optimizer. It needs no more memory than
    `DataParallel`, except while it recovers: then a copy of the state, so that a broadcast that fails, too, corrupts
    nothing. A rank that was declared lost but is alive gets `CutOffError`: it must not continue by itself.
    What compressed gradients have left out is lost when ranks are lost.

    References
    ----------
    W. Bland et al. (2013), Post-failure recovery of MPI communication capability, IJHPCA 27(3), for revoke, agree and
    shrink. Horovod's and PyTorch's elastic training restart their processes instead.

    Examples
    --------
    >>> from distlearn import data, nn, optim
    >>> from distlearn.sim import Failure, Roofline, SimWorld
    >>> from distlearn.comm import Network
    >>> from distlearn.train import fit
    >>> digits = data.load("digits")
    >>> def program(comm):
    ...     model = nn.MLP((64, 32, 10), seed=0)
    ...     optimizer = optim.Optimizer(model.params, optim.Momentum(), 0.05)
    ...     strategy = ElasticDataParallel(comm, model, nn.SoftmaxCrossEntropy(), optimizer)
    ...     history = fit(strategy, digits, epochs=1, batch_size=128)
    ...     return [(r.lost, r.size, r.step) for r in history.recoveries]
    >>> world = SimWorld(4, Network(2e-5, 1e9), Roofline(1e9), failures=[Failure(2, at=3e-3)], detection=1e-3)
    >>> world.run(program)
    [[([2], 3, 5)], [([2], 3, 5)], None, [([2], 3, 5)]]
    """

    def __init__(self, comm, model, loss, optimizer, **options):
        super().__init__(LocalComm(comm.clock), model, loss, optimizer)  # `DataParallel` shares parameters, repeatedly
        self.comm = comm
        self.members = list(range(comm.size))
        self.recoveries: list[Recovery] = []
        self._check_every = options.pop("check_every", None)
        check_positive("ElasticDataParallel", check_every=1 if self._check_every is None else self._check_every)
        self._me, self._options = comm.rank, options
        self._done, self._last_loss = 0, float("nan")
        self._began = self.clock.now()
        self.retry_until_agreed(self._make_inner)

    def _make_inner(self) -> None:
        self._inner = DataParallel(self.comm, self.model, self.loss, self.optimizer, **self._options)

    # -- a strategy ----------------------------------------------------------------------------------------------------
    def step(self, batch) -> float:
        target = self._done + 1
        self._began = self.clock.now()
        while self._done < target:
            before = self._side_effects()
            part = shard(batch.n, self.comm.rank, self.comm.size, allow_empty=True)
            try:
                loss = self._inner.step(Batch(batch.x[part], batch.y[part], batch.n))
            except LOST:
                frozen, states = before
                for data, old in frozen:
                    data[...] = old
                for generator, state in states:
                    generator.state = state
                self._recover()
                if self._done < target:
                    self.recoveries[-1].redone = batch.n
            else:
                self._done, self._last_loss = target, loss
                if self._check_every and target % self._check_every == 0:
                    self._check()
        return self._last_loss

    def _check(self) -> None:
        """Compare the ranks after a step; a loss during the comparison must not have the step done again."""
        try:
            self._inner.check()
        except LOST:
            self._recover()
        except ReplicaError as error:  # ranks are known by their first numbers
            drifts = [d._replace(rank=self.members[d.rank]) for d in error.drifts]
            raise ReplicaError(drifts, error.majority) from None

    def gather_params(self):
        """Return the parameters on the first remaining rank."""
        return self._inner.gather_params()

    def finish(self) -> None:
        """Finish together: a rank that has done its last step may still be needed by one that has not."""
        self.retry_until_agreed(lambda: None)

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    @property
    def generators(self) -> list:
        return self._inner.generators

    def state_dict(self):
        return self._inner.state_dict()

    def own_state(self):
        return self._inner.own_state()

    def load_state_dict(self, arrays):
        self._inner.load_state_dict(arrays)

    # -- surviving -----------------------------------------------------------------------------------------------------
    def retry_until_agreed(self, action):
        """Call `action()` on all ranks until it has succeeded on every remaining one; return its result."""
        while True:
            agreed = False
            try:
                result = action()
                agreed = True
                if not isinstance(self.comm, FaultTolerant) or self.comm.agree(True):
                    return result
            except LOST:
                pass
            self._recover(agreed)

    def _recover(self, agreed: bool = False) -> None:
        """Find the remaining ranks, and bring all of them to the same state."""
        # On each communicator every rank calls `agree` equally often, and `shrink` once an answer was no: so ranks that
        # saw a failure and ranks that did not stay synchronized.
        noticed, members = self.clock.now(), self.members
        with self.clock.span("recover", lane="failure"):
            while True:
                self.comm.revoke()
                if not agreed:
                    self.comm.agree(False)
                agreed = False
                self.comm = self.comm.shrink()
                try:
                    self._take_state_of_the_furthest()
                    break
                except LOST:
                    continue
        lost = sorted(set(members) - set(self.members))
        now = self.clock.now()
        self.recoveries.append(Recovery(lost, self.comm.size, self._done, self._began, noticed, now))

    def _take_state_of_the_furthest(self) -> None:
        """Broadcast the state of a rank that has done the most steps; load it only when all of it has arrived."""
        comm = self.comm
        live = named_arrays(self.model.params, self.optimizer)
        mine = checksum(np.array([checksum(a) for a in live.values()], np.uint64)) >> 1 if self._check_every else 0
        everyone = comm.all_gather(np.array([self._me, self._done, mine]))
        root = int(everyone[:, 1].argmax())
        self._check_furthest(everyone[everyone[:, 1] == everyone[root, 1]])
        arrays = {name: to_numpy(array).copy() for name, array in live.items()}
        for array in arrays.values():
            comm.broadcast(array, root=root)
        numbers, loss = comm.broadcast_obj((counters(self.optimizer), self._last_loss), root=root)
        for name, array in live.items():
            array[...] = get_xp(array).asarray(arrays[name])
        set_counters(self.optimizer, numbers)
        self._done, self._last_loss = int(everyone[root, 1]), loss
        self.members = everyone[:, 0].tolist()
        self._make_inner()

    def _check_furthest(self, rows) -> None:
        """Raise if ranks that have done the same steps differ: the broadcast would hide which of them is wrong."""
        (right, count), *others = Counter(rows[:, 2].tolist()).most_common()
        if others:
            drifts = [Drift(int(rank), "their state", math.nan) for rank, _, found in rows if found != right]
            raise ReplicaError(drifts, 2 * count > len(rows))

    def _side_effects(self) -> list:
        """Save what a forward pass changes besides gradients: running statistics, random number generators."""
        frozen = [(p.data, p.data.copy()) for p in self.model.params if p.frozen]
        return [frozen, [(g.bit_generator, g.bit_generator.state) for g in generators(self.model)]]
