"""Which ranks hold which parameter of a model that is cut into stages, and the sums for those that stages share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..strategy import require_scope


class StageParam(NamedTuple):
    """One parameter of the serial model."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    ranks: tuple[int, ...]
    """That hold it: more than one if layers on different ranks share it."""


class StageParams:
    """The serial model's parameters, and the ranks that hold them."""

    def __init__(self, comm, model, stages, ranks):
        self.comm = comm
        users = {id(p): [] for p in model.params}
        for s, stage in enumerate(stages):
            for p in stage.params:
                users[id(p)].append(s)
        holders = {key: tuple(sorted({ranks[s] for s in used})) for key, used in users.items()}
        self.entries = [StageParam(p.name, tuple(p.data.shape), p.data.dtype, holders[id(p)]) for p in model.params]
        self.params = [p for p in model.params if comm.rank in holders[id(p)]]
        self.tied = [p for p in self.params if len(users[id(p)]) > 1]
        self.shared = {}  # ranks -> (their communicator, the parameters that they share)
        for group in sorted({e.ranks for e in self.entries if len(e.ranks) > 1}):
            sharing = comm.split(0 if comm.rank in group else None)  # every rank must call
            if sharing is not None:
                self.shared[group] = sharing, [p for p in self.tied if holders[id(p)] == group]

    def sum_tied(self) -> None:
        """Add up the gradients of parameters that several ranks share: one all-reduce each, among those ranks."""
        for sharing, params in self.shared.values():
            for p in params:
                if not p.frozen:
                    sharing.all_reduce(p.grad)

    def counted(self, params):
        """Return those of `params` that this rank counts in a sum over ranks: a shared one counts once."""
        first = {e.name: e.ranks[0] for e in self.entries}
        return [p for p in params if first[p.name] == self.comm.rank]


def sub_optimizer(what: str, optimizer, params, alone: bool):
    """Return an optimizer like the one given, for some of its parameters, with the states that it has for them."""
    require_scope(what, optimizer, "model" if alone else "parameter", "a rank holds some stages of the model")
    mine = {id(p) for p in params}
    return optimizer.rebind([[p for p in group.params if id(p) in mine] for group in optimizer.groups])
