"""What a way to train is: a `Strategy` takes one step at a time.

    batch --> forward --> loss --> backward --> (communicate) --> update --> loss of the global batch

`fit` drives any of them; what differs is who holds which part of the model and of the batch.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Protocol

import numpy as np

from ..backend import get_xp, to_numpy
from ..nn.container import check_unique_names
from ..optim.clipping import global_norm
from ..optim.optimizer import SCOPES, Optimizer, Scope
from ..optim.rule import needs_whole
from ..trace import Clock, WallClock
from .checkpoint.fingerprint import run_fingerprint


class Strategy(Protocol):
    """One way to train a model on one or many ranks.

    `rank` and `size` say which part of the *data* this rank takes: where ranks share the work on one batch, all of them
    are rank 0 of 1. `checkpointable` is True where the run's state can be saved and resumed: every rank holds the same
    whole model and optimizer as `model` and `optimizer`, or the strategy puts the state together (`gather_state`) and
    takes its part of it again (`put_state`); `generators` are those of its own random numbers, if it draws any. A
    strategy whose ranks hold different things until the end may also have `finish()`, which `fit` calls on every rank
    after the last step.
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


def share_params(comm, model) -> None:
    """Give every rank rank 0's parameters, so that they are equal beyond doubt; every rank must call.

    One small object, and one broadcast for each parameter.

    Raises
    ------
    ValueError
        On a rank whose model is not that of rank 0: real networks would mix the two up without a word. Or if two
        parameters of the model have one name.
    """
    check_unique_names(model)
    if comm.size == 1:
        return
    mine = [f"{p.name} {tuple(p.data.shape)} {p.data.dtype}{' frozen' * p.frozen}" for p in model.params]
    theirs = comm.broadcast_obj(mine)
    if mine != theirs:
        here, there = next((a, b) for a, b in zip_longest(mine, theirs, fillvalue="nothing more") if a != b)
        raise ValueError(f"rank {comm.rank}: the model has {here} where that of rank 0 has {there}")
    for p in model.params:
        comm.broadcast(p.data)


def adopt(strategy, model, loss, optimizer) -> None:
    """Note what a strategy trains (`fingerprint`); raise unless the optimizer is one of the model's parameters."""
    what = type(strategy).__name__
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{what}: optimizer is {optimizer!r}, expected one, such as Optimizer(model.params, Momentum(), 0.1)"
        )
    known = {id(p) for p in model.params}
    for p in optimizer.params:
        if id(p) not in known:
            raise ValueError(
                f"{what}: parameter {p.name!r} of the optimizer does not belong to the model; "
                "make it with Optimizer(model.params, ...)"
            )
    strategy.fingerprint = run_fingerprint(model, loss, optimizer)


def refuse_masters(what: str, optimizer) -> None:
    """Raise if an optimizer updates copies of the parameters, which `what` neither shards nor averages."""
    if optimizer.weights is not optimizer.params:
        raise TypeError(
            f"{what} works on the parameters themselves, but {type(optimizer).__name__} keeps masters of its own; "
            "use an Optimizer, or DataParallel"
        )


def require_scope(what: str, optimizer, scope: Scope, held: str) -> None:
    """Raise if an optimizer's step must see more at once than a rank holds.

    Parameters
    ----------
    what : str
        The strategy.
    optimizer : Optimizer
    scope : {"element", "parameter", "model"}
        What a rank can let it see.
    held : str
        What the rank holds, for the message.
    """
    refuse_masters(what, optimizer)
    needed = optimizer.needed_scope
    if SCOPES.index(needed) <= SCOPES.index(scope):
        return
    if needed == "model":
        raise ValueError(
            f"{what}: {type(optimizer).__name__} overrides `step` and does not say what it must see at once, but "
            f"{held}; give it scope = 'element' if it treats every element by itself ('parameter': every parameter), "
            "or use DataParallel"
        )
    rules = [type(g.rule).__name__ for g in optimizer.groups if needs_whole(g.rule)]
    raise ValueError(
        f"{what}: {rules[0] if rules else type(optimizer).__name__} needs every parameter as a whole, but {held}; "
        "use an optimizer that works element by element, or DataParallel"
    )


def summed_norm(params: list, comms, like) -> float:
    """Return the length of the gradients of several ranks as one vector: one all-reduce over each communicator.

    Parameters
    ----------
    params : list of Param
        Those that this rank counts: each parameter is counted by one rank.
    comms : list of Communicator
        Over which the squares are summed, one after another.
    like : array
        Where the numbers live while they travel.
    """
    squared = get_xp(like).array([global_norm(params) ** 2], dtype=np.float64)
    for comm in comms:
        comm.all_reduce(squared)
    return float(squared[0]) ** 0.5


class Replicated:
    """Base of the strategies whose ranks all hold the whole model, each with a part of the data.

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast, so that they are equal beyond doubt.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, both divided by n.
    optimizer : Optimizer
    """

    def __init__(self, comm, model, loss, optimizer):
        adopt(self, model, loss, optimizer)
        self.comm, self.model, self.loss, self.optimizer = comm, model, optimizer.scaled(loss), optimizer
        self.rank, self.size = comm.rank, comm.size
        self.clock: Clock = comm.clock
        share_params(comm, model)

    def update(self) -> None:
        """Let the optimizer take its step, and record it."""
        update(self.optimizer, self.clock)

    def predict(self, x):
        """Run the model forward on this rank."""
        return self.model.eval().forward(x)[0]

    def total(self, values):
        """Return the small array `values` summed over ranks."""
        return self.comm.all_reduce(values)

    def gather_params(self):
        """Return rank 0's parameters."""
        return params_on_root(self.model, self.rank)


def update(optimizer, clock: Clock) -> None:
    """Let an optimizer take its step, as a span with its cost."""
    flops, nbytes = optimizer.cost()
    with clock.span("update", flops=flops, nbytes=nbytes):
        optimizer.step()


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
    checkpointable = True

    def __init__(self, model, loss, optimizer, clock: Clock | None = None):
        check_unique_names(model)
        adopt(self, model, loss, optimizer)
        self.model, self.loss, self.optimizer = model, optimizer.scaled(loss), optimizer
        self.clock = WallClock() if clock is None else clock

    def step(self, batch) -> float:
        """Forward, loss, backward, update."""
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        update(self.optimizer, self.clock)
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
