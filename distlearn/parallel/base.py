"""What a way to train is: a `Strategy` takes one step at a time.

    batch --> forward --> loss --> backward --> (communicate) --> update --> loss of the global batch

`fit` drives any of them; what differs is who holds which part of the model and of the batch.
"""

from __future__ import annotations

from typing import Protocol

from ..backend import to_numpy
from ..trace import Clock, WallClock


class Strategy(Protocol):
    """One way to train a model on one or many ranks.

    `rank` and `size` say which part of the *data* this rank takes: where ranks share the work on one batch, all of them
    are rank 0 of 1. `replicated` is True where every rank holds the whole model and optimizer: such a run can be
    checkpointed. A strategy whose ranks hold different things until the end may also have `finish()`, which `fit`
    calls on every rank after the last step.
    """

    rank: int
    size: int
    clock: Clock

    def step(self, batch) -> float:
        """Train on this rank's part of a global batch (`x`, `y`, `n`); return the loss of the whole one."""

    def predict(self, x):
        """Return the model's output (logits) for `x`."""

    def total(self, values):
        """Return the small array `values` summed over the ranks among which the data are dealt."""

    def gather_params(self) -> dict | None:
        """Return the trained parameters (NumPy arrays) under the serial model's names and in its shapes.

        Every rank must call; rank 0 of the communicator gets them, the others None.
        """


def params_on_root(model, rank: int) -> dict | None:
    """Return copies of a model's parameters by name, as NumPy arrays, on rank 0, and None elsewhere.

    What `Strategy.gather_params` is where every rank holds the whole model.

    Parameters
    ----------
    model : Layer
    rank : int
    """
    return {p.name: to_numpy(p.data).copy() for p in model.params} if rank == 0 else None


class Serial:
    """Plain training on one process: what every parallel strategy must equal.

    Parameters
    ----------
    model : Sequential
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`.
    optimizer : Optimizer
    clock : Clock, optional
    """

    rank, size = 0, 1
    replicated = True

    def __init__(self, model, loss, optimizer, clock: Clock | None = None):
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.clock = WallClock() if clock is None else clock

    def step(self, batch) -> float:
        """Forward, loss, backward, update."""
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        flops, nbytes = self.optimizer.cost()
        with self.clock.span("update", flops=flops, nbytes=nbytes):
            self.optimizer.step()
        return loss

    def predict(self, x):
        """Run the model forward."""
        return self.model.eval().forward(x)[0]

    def total(self, values):
        """Return `values`: there is nobody else."""
        return values

    def gather_params(self):
        """Return the parameters."""
        return params_on_root(self.model, self.rank)
