"""Data parallelism in its simplest form, without any optimization."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp
from ..strategy import Replicated, check_global_rows, update


class NaiveDataParallel(Replicated):
    r"""Data parallelism with one blocking all-reduce per parameter, after backward.

    Rank r computes :math:`g_r = \frac1n \sum_{i \in B_r} \nabla \ell_i`, where n is the size of the *global* batch, and
    the sum over ranks is exactly the serial gradient. `DataParallel` does the same sums in fewer, earlier messages.

    Notes
    -----
    Per step and rank one all-reduce per parameter and one of the loss and the number of rows; on a ring of p ranks
    2 (p - 1) messages each, of 2 (p - 1) / p of the parameters' bytes in total. Small parameters cost a latency as
    large ones do, and nothing is hidden behind backward. Saves what the model saves.

    References
    ----------
    S. Li et al. (2020), PyTorch Distributed: experiences on accelerating data parallel training, VLDB 13(12),
    section 3.2.1.
    """

    def step(self, batch) -> float:
        """Forward, loss, backward, sum the gradients over ranks, update."""
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        for p in self.optimizer.params:
            self.comm.all_reduce(p.grad)
        sums = self.total(get_xp(batch.x).array([loss, len(batch.x)], np.float64))
        check_global_rows(self.comm, float(sums[1]), batch.n)
        update(self.optimizer, self.clock)
        return float(sums[0])
