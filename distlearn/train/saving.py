"""Saving a run's state while it trains, and taking it up again: what `fit` does with a `CheckpointStore`."""

from __future__ import annotations

import errno
import warnings

import numpy as np

from ..parallel.checkpoint.file import Checkpoint
from ..parallel.checkpoint.fingerprint import differences
from ..parallel.checkpoint.state import all_generators, capture, live_arrays, restore
from ..parallel.checkpoint.store import CheckpointStore, CheckpointWarning
from .history import Progress

_LOSSES = "history/losses"
_STEPS = ("samples", "batch_size")
"""What says which samples a step of an epoch takes."""


class Saving:
    """The checkpoints of one run of `fit`.

    Rank 0 alone reads and writes files; what it read is broadcast.

    Parameters
    ----------
    store : CheckpointStore
    every : int
        Save after every so many steps, and after the last one.
    strategy : Strategy
        One that is `checkpointable`.
    run : dict
        What decides the run: a checkpoint of another run is refused.
    """

    def __init__(self, store: CheckpointStore, every: int, strategy, run: dict):
        if not isinstance(every, (int, np.integer)) or every < 0:
            raise ValueError(f"fit: every is {every!r}, expected a number of steps, 0 or more")
        live_arrays(strategy)  # refuses strategies without a state that can be saved, before any work is done
        self.store, self.every, self.strategy = store, int(every), strategy
        self.run = run | strategy.fingerprint

    @property
    def comm(self):
        """The strategy's communicator; it may change when ranks are lost. None for one process."""
        return getattr(self.strategy, "world", getattr(self.strategy, "comm", None))

    @property
    def _layout(self) -> str:
        """Which rank has which layers: the strategy, and its mesh if it has one."""
        mesh = getattr(self.strategy, "mesh", None)
        return type(self.strategy).__name__ + ("" if mesh is None else str(mesh.axes))

    def _is_root(self) -> bool:
        return self.comm is None or self.comm.rank == 0

    # -- reading -------------------------------------------------------------------------------------------------------
    def begin(self, resume: bool | str) -> Progress:
        """Return where the run stands: at the beginning, or at the newest checkpoint, which is put into the strategy.

        With "anyway" a run that differs in what it trains, not in where its steps lie, is only warned of.

        Raises
        ------
        ValueError
            If there are checkpoints and the run is not to resume, or they are of another run.
        CheckpointError
            If there are checkpoints, and none can be used.
        """
        return self._together(lambda: self._begin(resume))

    def _together(self, action):
        """Call what communicates; where ranks may be lost, again until all that are left have done it."""
        return getattr(self.strategy, "uniformly", lambda action: action())(action)

    def _begin(self, resume: bool) -> Progress:
        found = self._look(resume) if self._is_root() else None
        if self.comm is not None:
            found = self.comm.broadcast_obj(found)
        if found is None:
            return Progress()
        losses = found.arrays.pop(_LOSSES)
        restore(self.strategy, found.arrays, found.meta["state"] | {"generators": self._own_generators(found)})
        return Progress.from_dict(found.meta["progress"], losses)

    def _look(self, resume: bool) -> Checkpoint | None:
        """Find the checkpoint to go on from."""
        if not resume:
            if self.store.steps:
                raise ValueError(
                    f"{self.store.folder} holds checkpoints of a run that came to step {self.store.steps[-1]}: "
                    "resume it, or choose another folder"
                )
            return None
        found = self.store.latest()
        if found is not None:
            other = differences(found.meta["run"], self.run)
            text = f"{self.store.folder} holds checkpoints of another run: with {', '.join(other)}"
            if other and resume != "anyway":
                raise ValueError(f'{text}; resume="anyway" (--resume-anyway) goes on from them with what is now')
            if any(found.meta["run"].get(name) != self.run[name] for name in _STEPS):
                raise ValueError(f"{text}; where the steps of an epoch lie must be the same to go on")
            if other:
                warnings.warn(f"{text}; going on with what is now", CheckpointWarning, stacklevel=2)
        return found

    def _own_generators(self, found: Checkpoint) -> list:
        """Choose this rank's random number generators; where the ranks are others, make new ones."""
        by_rank, theirs = found.meta["state"]["generators"], found.meta["state"].get("layout")
        rank, size = (0, 1) if self.comm is None else (self.comm.rank, self.comm.size)
        n = len(all_generators(self.strategy))
        if len(by_rank) == size and (size == self.strategy.size or theirs == self._layout):
            return by_rank[rank]
        if self.strategy.size == 1 and len(by_rank[0]) == n and all(states == by_rank[0] for states in by_rank):
            return by_rank[0]
        part = self.strategy.rank  # ranks that work on the same samples draw the same masks
        return [np.random.default_rng([found.step, part, i]).bit_generator.state for i in range(n)]

    # -- writing -------------------------------------------------------------------------------------------------------
    def after_step(self, now: Progress, total: int) -> None:
        """Save if it is time."""
        if not (now.step == total or (self.every and now.step % self.every == 0)):
            return
        nbytes = sum(array.nbytes for array in live_arrays(self.strategy).values())
        with self.strategy.clock.span("checkpoint", lane="disk", nbytes=nbytes):
            self._save(now)

    def _save(self, now: Progress) -> None:
        """Save; training goes on if that is impossible."""
        (arrays, scalars), states = self._collect()
        if not self._is_root():
            return
        arrays[_LOSSES] = np.array(now.history.losses)
        meta = {"run": self.run, "progress": now.as_dict(), "state": scalars | {"generators": states}}
        meta["state"]["layout"] = self._layout
        try:
            self.store.save(Checkpoint(now.step, arrays, meta))
        except OSError as error:
            full = " (the disk is full)" if error.errno == errno.ENOSPC else ""
            text = f"no checkpoint of step {now.step} could be saved in {self.store.folder}{full}: {error}"
            warnings.warn(f"{text}; training goes on", CheckpointWarning, stacklevel=2)

    def _collect(self):
        """Return the state, and the states of every rank's generators, by rank; both on the root alone."""
        size = 1 if self.comm is None else self.comm.size
        same = self.strategy.size == size or hasattr(self.strategy, "uniformly")  # layers on every rank
        if size == 1 or (same and not all_generators(self.strategy)):  # then no rank has any
            return self._capture(), [self._own_states()] * size
        return self._together(lambda: (self._capture(), self.comm.gather_obj(self._own_states())))

    def _capture(self):
        """Copy the state, on every rank that is needed for it."""
        dealt = hasattr(self.strategy, "gather_state")
        return capture(self.strategy) if dealt or self._is_root() else (None, None)

    def _own_states(self) -> list:
        return [rng.bit_generator.state for rng in all_generators(self.strategy)]
