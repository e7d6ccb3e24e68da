"""DiLoCo that waits for a quorum of its learners only: nobody stops for one that is slow, or lost.

learner:   H steps of its own --> start minus end, tokens --------> syncer
syncer:    once `quorum` of them are in: mean by tokens --> one step of the outer rule --> to those it came from
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...nn.layer import check_positive
from ..data.local_sgd import DiLoCo
from ..strategy import update
from .param_server.policy import BSP
from .param_server.training import ParameterServer


@dataclass(frozen=True)
class Quorum(BSP):
    """An update once `least` workers have pushed, who wait for it; a late result counts in the next one."""

    least: int

    def __post_init__(self):
        check_positive("Quorum", least=self.least)

    @property
    def name(self) -> str:
        return f"quorum({self.least})"

    def quorum(self, workers):
        return min(self.least, workers)


class QuorumDiLoCo(ParameterServer):
    r"""Learners train apart for H steps; a syncer merges their results as soon as a quorum of them is in.

    .. math:: \Delta = \sum_{q \in Q} \frac{m_q}{m} (w^{(q)}_{start} - w_q), \qquad
              v \leftarrow \mu v + \Delta, \qquad w \leftarrow w - \alpha (\Delta + \mu v)

    Q are the learners whose results have come, :math:`m_q` the samples behind each. Those outside Q go on from where
    they began; their results count in a later merge. With a quorum of all learners this is `DiLoCo`. Rank 0 is the
    syncer, the others are learners; on a `FaultTolerant` communicator lost learners are not waited for.

    Parameters
    ----------
    comm, model, loss
        As for `ParameterServer`.
    optimizer : Optimizer
        Of a learner's own steps.
    every : int
        H.
    quorum : int
        Results that make a merge; fewer when fewer learners are left.
    outer_lr : float
        :math:`\alpha`; the outer momentum is `DiLoCo`'s.
    pace : callable, optional
        `pace(learner, merge) -> seconds` that each step takes longer.

    Notes
    -----
    `train(dataset, batch_size=..., steps=...)` counts merges per learner as steps. Messages per result are those of
    one gradient of `ParameterServer`. The original also waits some time for more results than the quorum.

    References
    ----------
    Decoupled DiLoCo (2026), arXiv:2604.21428: independent learners, a minimum quorum, merges weighted by tokens.
    """

    def __init__(self, comm, model, loss, optimizer, *, every=50, quorum=1, outer_lr=0.7, pace=None):
        check_positive("QuorumDiLoCo", every=every)
        share = min(1.0, quorum / max(1, comm.size - 1))  # or the outer momentum would count learners that did not come
        super().__init__(comm, model, loss, DiLoCo.outer, share * outer_lr, Quorum(quorum), pace=pace, every=1)
        self.optimizer, self.inner_steps = optimizer, every
        self._begin()

    def _begin(self) -> None:
        self._start, self._apart, self._rows, self._loss_sum = self.flat.data.copy(), 0, 0, 0.0

    def step(self, batch) -> None:
        """Take a step; after H of them push where they have led, and wait for a merge."""
        self._loss_sum += len(batch.x) * self._gradient(batch)
        update(self.optimizer, self.clock)
        self._apart += 1
        self._rows += len(batch.x)
        if self._apart == self.inner_steps:
            np.subtract(self._start, self.flat.data, out=self.flat.grad)
            self._exchange(self._rows, self._loss_sum / max(1, self._rows))
            self._begin()
