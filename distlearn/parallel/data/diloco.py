"""DiLoCo: local SGD whose average is the gradient of a second optimizer.

rank r:  H steps of its own --> average of the parameters --+--> start minus average = outer gradient
                                                            |         |
              H steps of its own <-- new start, the same on every rank <-- outer rule (Nesterov momentum)
"""

from __future__ import annotations

from ...backend import get_xp
from ...optim.momentum import Nesterov
from ...optim.optimizer import Rule, apply_rule, check_rule, state_arrays
from ..checkpoint.state import part_of_rank
from .local_sgd import LocalSGD

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
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, both divided by n.
    optimizer : Optimizer
        The inner one; every rank keeps its memory to itself.
    every : int
        H.
    outer_lr : float
        :math:`\alpha`.

    Notes
    -----
    Messages and bytes are those of `LocalSGD`: all parameters every H steps. Memory: one copy of the parameters and the
    outer rule's state more.

    A checkpoint holds the outer state with the ranks' own; another number of ranks begins with the average and
    without outer momentum.

    References
    ----------
    A. Douillard et al. (2023), DiLoCo: distributed low-communication training of language models, arXiv:2311.08105,
    algorithm 1; section 3.1 chooses Nesterov momentum 0.9 with a learning rate of 0.7.
    """

    def __init__(
        self, comm, model, loss, optimizer, *, every: int = 50, outer: Rule | None = None, outer_lr: float = 0.7
    ):
        outer = Nesterov(0.9) if outer is None else outer
        check_rule("DiLoCo: outer", outer)
        if not outer_lr > 0:
            raise ValueError(f"DiLoCo: outer_lr is {outer_lr!r}, expected a learning rate above 0")
        super().__init__(comm, model, loss, optimizer, every=every)
        self.outer, self.outer_lr = outer, outer_lr
        self._begin()

    def _begin(self) -> None:
        """Begin at the present parameters, without outer momentum."""
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
    def own_state(self):
        found = {f"{_OUTER}rounds": get_xp(self._starts[0]).array([self._rounds])} if self._starts else {}
        for p, start, state in zip(self.optimizer.params, self._starts, self._states, strict=True):
            arrays = start, *state_arrays(state)
            found |= {f"{_OUTER}{p.name}/{i}": array for i, array in enumerate(arrays)}
        return super().own_state() | found

    def load_state_dict(self, arrays):
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
