"""Ranks that train independently and average now and then: local SGD and DiLoCo."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array, get_xp
from ...nn.layer import Statistic, check_positive
from ...optim.momentum import Nesterov
from ...optim.optimizer import apply_rule, state_arrays
from ..checkpoint.state import part_of_rank, serial_part
from ..sharding import Partial
from ..strategy import Replicated, check_global_rows, pack, unpack, update

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.container import Sequential
    from ...nn.loss import Loss
    from ...optim.optimizer import Optimizer

# -- local sgd ---------------------------------------------------------------------------------------------------------
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
    A checkpoint between two averages holds every rank's replica, so that the same number of ranks continues bit for
    bit, and their average, from which others continue.

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
        """Replace all ranks' parameters by their average, weighted by samples; return the sum of `loss_sum` / n."""
        arrays = [p.data for p in (*self.optimizer.params, *self.statistics)]
        nbytes = 3 * sum(a.nbytes for a in arrays)  # read, written, with a factor in between
        with self.clock.span("pack", nbytes=nbytes):
            flat = pack(arrays, self._samples, [self._samples, loss_sum])  # two numbers are sent along
        self.comm.all_reduce(flat)
        samples, loss = map(float, flat[-2:])
        check_global_rows(self.comm, samples, self._expected)
        with self.clock.span("unpack", nbytes=nbytes):
            unpack(flat, arrays, samples)
        self._steps = self._samples = self._expected = 0
        return loss / n

    # -- checkpoints: the average, and every rank's replica between two averages ---------------------------------------
    def state_dict(self) -> dict[str, Any]:
        frozen = {f"param/{p.name}" for p in self.model.params if p.frozen and not isinstance(p, Statistic)}
        mean = Partial(weight=self._samples)
        return {
            name: held if name in frozen else held._replace(spec=replace(held.spec, partial=mean, counts=True))
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


# -- diloco ------------------------------------------------------------------------------------------------------------
# rank r:  H steps of its own --> average of the parameters --+--> start minus average = outer gradient
#                                                             |         |
#               H steps of its own <-- new start, the same on every rank <-- outer rule (Nesterov momentum)

_OUTER = "outer/"


class DiLoCo(LocalSGD):
    r"""Takes H steps apart, then one step of an outer optimizer along the mean difference of the parameters.

    .. math:: \Delta = w - \sum_q \frac{m_q}{m} w_q, \qquad
              v \leftarrow \mu v + \Delta, \qquad w \leftarrow w - \alpha (\Delta + \mu v)

    w is where all ranks began, :math:`w_q` where rank q has got in H steps of the inner optimizer (AdamW in the paper),
    on :math:`m_q` samples. With :math:`\mu = 0` and :math:`\alpha = 1` it is `LocalSGD`. The outer momentum carries the
    direction on which the ranks agree across averages, so H can be hundreds of steps.

    Parameters
    ----------
    every : int
        H.
    outer_lr : float
        :math:`\alpha`; :math:`\mu` is 0.9.

    Notes
    -----
    Messages and bytes are those of `LocalSGD`; memory: one copy of the parameters and the outer rule's state more.
    A checkpoint holds the outer state; another number of ranks begins with the average, without outer momentum.

    References
    ----------
    A. Douillard et al. (2023), DiLoCo: distributed low-communication training of language models, arXiv:2311.08105,
    algorithm 1; section 3.1 chooses Nesterov momentum 0.9 with a learning rate of 0.7.
    """

    outer = Nesterov(0.9)

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        every: int = 50,
        outer_lr: float = 0.7,
    ):
        if not outer_lr > 0:
            raise ValueError(f"DiLoCo: outer_lr is {outer_lr!r}, expected a learning rate above 0")
        super().__init__(comm, model, loss, optimizer, every=every)
        self.outer_lr = outer_lr
        self._begin()

    def _begin(self) -> None:
        self._rounds = 0
        self._starts = [p.data.copy() for p in self.optimizer.params]
        self._states = [self.outer.init(start) for start in self._starts]

    def _average(self, loss_sum: float, n: int) -> float:
        loss = super()._average(loss_sum, n)
        nbytes = sum(3 * start.nbytes for start in self._starts)
        with self.clock.span("outer update", flops=4 * sum(s.size for s in self._starts), nbytes=nbytes):
            for p, start, state in zip(self.optimizer.params, self._starts, self._states, strict=True):
                apply_rule(self.outer, start, start - p.data, state, self.outer_lr, self._rounds)
                p.data[...] = start
        self._rounds += 1
        return loss

    # -- checkpoints ---------------------------------------------------------------------------------------------------
    def own_state(self) -> dict[str, Any]:
        found = {f"{_OUTER}rounds": get_xp(self._starts[0]).array([self._rounds])} if self._starts else {}
        for p, start, state in zip(self.optimizer.params, self._starts, self._states, strict=True):
            arrays = start, *state_arrays(state)
            found |= {f"{_OUTER}{p.name}/{i}": array for i, array in enumerate(arrays)}
        return super().own_state() | found

    def load_state_dict(self, arrays: dict[str, Array]) -> None:
        """Load this rank's replica and the outer state if as many ranks saved theirs; else begin at the average."""
        mine = part_of_rank(arrays, self.rank)
        same_size = bool(part_of_rank(arrays, self.size - 1)) and not part_of_rank(arrays, self.size)
        super().load_state_dict({name: array for name, array in arrays.items() if f"/{_OUTER}" not in name})
        self._begin()
        if not (same_size and f"{_OUTER}rounds" in mine):
            return
        self._rounds = int(mine[f"{_OUTER}rounds"][0])
        for p, start, state in zip(self.optimizer.params, self._starts, self._states, strict=True):
            for i, array in enumerate((start, *state_arrays(state))):
                array[...] = get_xp(array).asarray(mine[f"{_OUTER}{p.name}/{i}"])
