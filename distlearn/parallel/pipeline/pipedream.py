r"""PipeDream: a pipeline that never runs empty, because it updates without waiting for all micro-batches.

    stage 0:  F0 F1 F2 B0' F3 B1' F4 B2' ...        B' is a backward pass and an update
    stage 1:     F0 F1 B0' F2 B1' F3 B2' ...
    stage 2:        F0 B0' F1 B1' F2 B2' ...

Every micro-batch is its own mini-batch, and every stage updates its weights after each. A mini-batch's backward
would see other weights than its forward, unless the stage has kept the old ones: weight stashing.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..strategy import check_whole, sub_optimizer, update
from .schedule import Action
from .strategy import StagedModel

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.container import Sequential
    from ...nn.loss import Loss
    from ...optim.optimizer import Optimizer


class Stash:
    """The weights of one stage, in every version that a mini-batch still needs; without `stashing` the newest alone."""

    def __init__(self, params, used: dict[int, int], stashing: bool):
        self.params = [p for p in params if not p.frozen]
        self.used = used
        self.version, self.most = 0, 1
        self._left = Counter(used.values() if stashing else ())  # by version: mini-batches that need it
        self._kept: dict[int, list] = {}  # by version, but the newest

    @contextmanager
    def weights(self, microbatch: int):
        """Inside the block the parameters are those of the mini-batch's version."""
        kept = self._kept.get(self.used[microbatch])
        if kept is None:  # the newest
            yield
            return
        now = [p.data for p in self.params]
        self._put(kept)
        try:
            yield
        finally:
            self._put(now)

    def _put(self, arrays) -> None:
        for p, data in zip(self.params, arrays, strict=True):
            p.data = data

    def advance(self, microbatch: int) -> None:
        """Free weights that only this mini-batch needed; before an update, which changes a copy if others need them."""
        done = self.used[microbatch]
        self._left[done] -= 1
        if self._left[done] <= 0:
            self._kept.pop(done, None)
        if self._left[self.version] > 0:
            self._kept[self.version] = [p.data for p in self.params]
            self._put([p.data.copy() for p in self.params])
        self.version += 1
        self.most = max(self.most, 1 + len(self._kept))


class PipeDream(StagedModel):
    r"""Asynchronous pipeline parallelism with weight stashing: no flush between updates, at the cost of stale
    gradients.

    A step takes a batch of m mini-batches through the pipeline, one update each on every stage. With p stages,
    mini-batch t goes forward *and backward* on stage s (both from 0) with the weights after
    :math:`v_s(t) = \max(0, t - (p - 1 - s))` updates, and its gradient is applied to the weights after t updates:

    .. math:: w_s^{(t+1)} = w_s^{(t)} - \eta \, \nabla_s f\left(w_0^{(v_0(t))}, \ldots, w_{p-1}^{(v_{p-1}(t))}\right)

    Its staleness on stage s is t - v_s(t): p - 1 - s once the pipeline is full, 0 on the last stage. So the stages of
    one mini-batch differ in their versions. With one stage this is serial training on the mini-batches.

    Parameters
    ----------
    model : Sequential
        No parameter may be shared by two stages, which update at different times.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`; n is here the size of the mini-batch.
    optimizer : Optimizer
        Without `clip_norm`; its step counts mini-batches.
    schedule : str, callable, list or Schedule
        The version that a mini-batch uses is the number of B's before its F.
    stashing : bool
        Without it, backward uses the newest weights, not those of forward, and its result is the gradient of no
        function: for experiments that show the effect of stashing.
    **options
        `n_microbatches`, `stages`, `shape` as for `Pipeline`. m is the number of mini-batches in a
        step's batch; the pipeline runs empty at the end of a step only, so give it long ones, up to a whole epoch.

    Attributes
    ----------
    staleness : dict of (int, int) to int
        Of the last step, by this rank's (stage, mini-batch): updates between the weights used and those updated.
    versions_held : dict of int to int
        Of the last step, by stage: the largest number of versions held at one time.

    Notes
    -----
    Messages and bytes as `Pipeline`'s. Up to p - stage versions of a stage's weights are held, and as many
    activations. Running statistics of `BatchNorm` are not stashed.

    Between steps no mini-batch is in flight, so a checkpoint is that of the serial model. The same number of ranks
    continues from it bit for bit; with another one, or other options, delays differ.

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, section 3.3: weight
    stashing, and the equation above (not the paper's vertical sync).
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        schedule: Any = "pipedream",
        stashing: bool = True,
        **options: Any,
    ):
        super().__init__(comm, model, loss, optimizer, schedule=schedule, **options)
        if self._stage_params.tied:
            names = ", ".join(p.name for p in self._stage_params.tied)
            raise ValueError(f"PipeDream: stages share {names}, but update at different times; use Pipeline")
        if optimizer.clip_norm is not None:
            raise ValueError(f"PipeDream: clip_norm is {optimizer.clip_norm}, but no rank sees the whole gradient")
        self._optimizers = {
            s: sub_optimizer("PipeDream", self.optimizer, stage.params, comm.size * len(self.stages))
            for s, stage in self.stages.items()
        }
        if any(a.kind in ("I", "W") for order in self.schedule.orders for a in order):
            raise ValueError("PipeDream: the schedule has I and W, expected F and B: it updates after every backward")
        self.stashing = stashing
        self.staleness, self.versions_held = {}, {}

    def step(self, batch: Batch) -> float:
        """Train on the mini-batches that `batch` is cut into; return the mean of their losses, on every rank."""
        check_whole(self, batch, self.comm)
        self._cut_batch(batch.x)
        self._stashes = {s: Stash(stage.params, self._versions(s), self.stashing) for s, stage in self.stages.items()}
        for part in self._optimizers.values():
            part.steps = self.optimizer.steps
        self.staleness = {}
        self._run(batch)
        self.optimizer.steps = max(o.steps for o in self._optimizers.values())  # all have updated equally often
        self.versions_held = {s: stash.most for s, stash in self._stashes.items()}
        return self._total_loss()

    def _versions(self, stage: int) -> dict[int, int]:
        """The version that each mini-batch uses: updates of the stage before its F."""
        version, used = 0, {}
        for action in self.schedule.orders[self._rank_of[stage]]:
            if action.stage == stage and self._rows(action):
                if action.kind == "F":
                    used[action.microbatch] = version
                version += action.kind == "B"
        return used

    def _forward(self, action: Action, x, on_grad) -> None:
        with self._stashes[action.stage].weights(action.microbatch):
            super()._forward(action, x, on_grad)

    def _loss_of(self, action: Action, y, labels):
        rows = self._rows(action)
        loss, dy = self.loss(y, labels, rows)
        return loss * rows / self._batch.n, dy

    def _backward(self, action: Action, dy, on_grad) -> None:
        """Run backward with the weights of forward, then update the newest ones."""
        stash, optimizer = self._stashes[action.stage], self._optimizers[action.stage]
        optimizer.zero_grad()
        with stash.weights(action.microbatch):
            super()._backward(action, dy, on_grad)
        self.staleness[action.stage, action.microbatch] = stash.version - stash.used[action.microbatch]
        stash.advance(action.microbatch)
        update(optimizer, self.clock)
