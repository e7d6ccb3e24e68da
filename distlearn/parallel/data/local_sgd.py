"""Ranks that train independently and average now and then: local SGD."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array
from ...bounds import check_positive
from ...nn.layer import Statistic
from ..checkpoint.state import part_of_rank, serial_part
from ..strategy import Replicated, check_global_rows, pack, unpack, update

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.container import Sequential
    from ...nn.loss import Loss
    from ...optim.optimizer import Optimizer

# rank r:  step, step, ..., step --+--> step, step, ..., step --+--> ...
#             H steps of its own   |       H steps of its own   |
#                        average the parameters      average the parameters

_SINCE = "since_average"


class LocalSGD(Replicated):
    r"""Averages parameters every H steps instead of gradients at every step: 1 / H of the messages and of the bytes.

    .. math:: w_r \leftarrow w_r - \eta \, \frac{1}{|B_r|} \sum_{i \in B_r} \nabla \ell_i(w_r), \qquad
              \text{every } H \text{ steps: } w_r \leftarrow \sum_q \frac{m_q}{m} w_q

    A rank follows the mean gradient of *its* part of the batch; m_q is the number of samples that rank q has seen since
    the last average. With H = 1 and plain SGD this is exactly data parallelism; with more the ranks' gradients are
    taken at different points, and the longer they stay apart, the more they disagree.

    Parameters
    ----------
    every : int or None
        H; None averages once, at the end.

    Notes
    -----
    Every H steps one all-reduce of all parameters and two numbers: on a ring 2 (p - 1) messages of 1 / p of them per
    rank. Running statistics (`BatchNorm`) are averaged, too. Every rank keeps its optimizer's state to itself.
    `step` returns the loss of the global batch when it averages, and between two averages that of this rank's part.
    `evaluate` and `gather_params` take the ranks' average, also between two averages, and change no replica. A
    checkpoint between two averages holds every rank's replica, so that the same number of ranks continues bit for bit,
    and their average, from which others continue. A rank without rows takes its step with a gradient of zero.

    References
    ----------
    R. McDonald, K. Hall, G. Mann (2010), Distributed training strategies for the structured perceptron, NAACL,
    section 4 (averages: once, and iterative parameter mixing).
    S. U. Stich (2019), Local SGD converges fast and communicates little, ICLR, algorithm 1.
    H. Yu, R. Jin, S. Yang (2019), On the linear speedup analysis of communication efficient momentum SGD for
    distributed non-convex optimization, ICML, algorithm 1.
    T. Lin, S. U. Stich, K. K. Patel, M. Jaggi (2020), Don't use large mini-batches, use local SGD, ICLR.
    """

    def __init__(
        self, comm: Communicator, model: Sequential, loss: Loss, optimizer: Optimizer, *, every: int | None = 8
    ):
        check_positive("LocalSGD", every=1 if every is None else every)
        super().__init__(comm, model, loss, optimizer)
        self.every = every
        self._steps = self._samples = self._expected = 0  # since the last average

    def step(self, batch: Batch) -> float:
        """Train this rank's replica on its part of the batch; average if it is time."""
        part = len(batch.x)
        loss = self._train(batch.x, batch.y)
        self._steps += 1
        self._samples += part
        self._expected += batch.n
        if self.every is not None and self._steps >= self.every:  # more if a resumed run had a larger H
            return self._average(loss * part, batch.n)
        return loss

    def _train(self, x, y) -> float:
        self.optimizer.zero_grad()  # of an empty part it stays zero: the step counts, for moments divide by steps
        loss = 0.0
        if len(x):
            out, saved = self.model.forward(x, clock=self.clock)
            loss, dy = self.loss(out, y, len(x))
            self.model.backward(dy, saved, clock=self.clock)
        update(self.optimizer, self.clock)
        return loss

    def finish(self) -> None:
        """Average the ranks' parameters if they have trained since the last average."""
        if self._steps:
            self._average(0.0, 1)

    def _average(self, loss_sum: float, n: int) -> float:
        """Replace all ranks' parameters by their average; return the sum of `loss_sum` / n."""
        loss = self._mean(loss_sum)
        self._steps = self._samples = self._expected = 0
        return loss / n

    def _arrays(self) -> list[Array]:
        return [p.data for p in (*self.optimizer.params, *self.statistics)]

    def _mean(self, loss_sum: float) -> float:
        """Replace this rank's arrays by the ranks' means, weighted by samples; return the sum of `loss_sum`."""
        arrays = self._arrays()
        nbytes = 3 * sum(a.nbytes for a in arrays)  # read, written, with a factor in between
        with self.clock.span("pack", nbytes=nbytes):
            flat = pack(arrays, self._samples, [self._samples, loss_sum])  # two numbers are sent along
        self.comm.all_reduce(flat)
        samples, loss = map(float, flat[-2:])
        check_global_rows(self.comm, samples, self._expected)
        with self.clock.span("unpack", nbytes=nbytes):
            unpack(flat, arrays, samples)
        return loss

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        replica = [a.copy() for a in self._arrays()] if self._steps else []
        if replica:
            self._mean(0.0)
        try:
            yield
        finally:
            for a, mine in zip(self._arrays(), replica, strict=False):
                a[...] = mine

    def gather_params(self) -> dict[str, Array] | None:
        """Return the ranks' average on rank 0, None elsewhere; all must call."""
        with self.evaluating():
            return super().gather_params()

    # -- checkpoints: the average, and every rank's replica between two averages ---------------------------------------
    def state_dict(self) -> dict[str, Any]:
        frozen = {f"param/{p.name}" for p in self.model.params if p.frozen and not isinstance(p, Statistic)}
        return {
            name: held if name in frozen else held._replace(spec=replace(held.spec, weight=self._samples, counts=True))
            for name, held in super().state_dict().items()
        }

    def own_state(self) -> dict[str, Any]:
        frozen = {f"param/{p.name}": p.data for p in self.model.params if p.frozen}
        return frozen | {_SINCE: np.array([self._steps, self._samples, self._expected])}

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Load this rank's replica if as many ranks saved theirs; else the average, as after averaging."""
        mine = {}
        if _SINCE in part_of_rank(arrays, self.size - 1) and not part_of_rank(arrays, self.size):
            mine = part_of_rank(arrays, self.rank)
        since = mine.pop(_SINCE, (0, 0, 0))
        super().load_state_dict(serial_part(arrays) | mine)
        self._steps, self._samples, self._expected = map(int, since)
