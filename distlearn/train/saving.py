"""Saving a run's state while it trains, and resuming from it: how `fit` uses a `CheckpointStore`."""

from __future__ import annotations

import errno
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..bounds import check_number
from ..parallel.checkpoint.state import capture, check_checkpointable, differences, restore
from ..parallel.checkpoint.store import Checkpoint, CheckpointStore, CheckpointWarning
from ..trace import Span, WallClock
from .history import Progress

LOG = logging.getLogger(__name__)
_LOSSES = "history/losses"
_STEPS = ("samples", "batch_size")
"""The settings that decide on which samples a step of an epoch trains."""


class Saving:
    """The checkpoints of one call of `fit`."""

    # Rank 0 alone reads and writes files; it broadcasts the checkpoint that it has read.

    def __init__(self, store: CheckpointStore, every: int, strategy, run: dict[str, Any]):
        check_number("fit", whole=True, least=0, every=every)
        check_checkpointable(strategy)  # before any work is done
        self.store, self.every, self.strategy = store, int(every), strategy
        self._data = run
        self._writer, self._writing = ThreadPoolExecutor(1, "checkpoints"), None

    @property
    def run(self) -> dict[str, Any]:
        return self._data | self.strategy.fingerprint

    def _is_root(self) -> bool:
        return self.strategy.world.rank == 0

    # -- reading -------------------------------------------------------------------------------------------------------
    def begin(self, resume: bool | str) -> Progress:
        """Return the run's progress: none, or that of the newest checkpoint, whose state is loaded into the strategy.

        With "anyway" a difference is only warned of, unless it changes on which samples a step trains.
        """
        found = self.strategy.world.broadcast_obj(self._look(resume) if self._is_root() else None)
        if found is None:
            return Progress()
        losses = found.arrays.pop(_LOSSES)
        restore(self.strategy, found.arrays, found.meta["state"])
        return Progress.from_dict(found.meta["progress"], losses)

    def _look(self, resume: bool) -> Checkpoint | None:
        """Find the checkpoint to continue from."""
        if not resume:
            if self.store.steps:
                text = f"{self.store.folder} holds checkpoints of a run up to step {self.store.steps[-1]}"
                raise ValueError(f"{text}: resume it, or choose another folder")
            return None
        found = self.store.latest()
        if found is not None:
            run = self.run
            other = differences(found.meta["run"], run)
            text = f"{self.store.folder} holds checkpoints of another run: with {', '.join(other)}"
            if other and resume != "anyway":
                raise ValueError(f'{text}; resume="anyway" (--resume-anyway) continues with the current settings')
            if any(found.meta["run"].get(name) != run[name] for name in _STEPS):
                raise ValueError(f"{text}; the steps of an epoch must use the same samples to continue")
            if other:
                warnings.warn(f"{text}; continuing with the current settings", CheckpointWarning, stacklevel=2)
        return found

    # -- writing -------------------------------------------------------------------------------------------------------
    # Training waits while the state is copied, and, where the disk is slower than that, for the checkpoint before.
    def after_step(self, now: Progress, total: int) -> None:
        """Save if a checkpoint is due."""
        if not (now.step == total or (self.every and now.step % self.every == 0)):
            return
        nbytes = sum(held.array.nbytes for held in self.strategy.state_dict().values())
        with self.strategy.clock.span("checkpoint", lane="disk", nbytes=nbytes):
            self._save(now)

    def _save(self, now: Progress) -> None:
        arrays, state = capture(self.strategy)
        if not self._is_root():
            return
        arrays[_LOSSES] = np.array(now.history.losses)
        meta = {"run": self.run, "progress": now.as_dict(), "state": state}
        self.wait()
        self._writing = now.step, self._writer.submit(self._write, Checkpoint(now.step, arrays, meta))

    def _write(self, checkpoint: Checkpoint) -> None:
        """Write a file, in a thread of its own; in the simulator that takes no virtual time."""
        clock, start = self.strategy.clock, self.strategy.clock.now()
        self.store.save(checkpoint)
        LOG.info("checkpoint of step %d in %s", checkpoint.step, self.store.folder)
        if isinstance(clock, WallClock):
            clock.trace.spans.append(Span(clock.rank, "background", "write", start, clock.now()))

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk; a failure is only warned of."""
        if self._writing is None:
            return
        (step, writing), self._writing = self._writing, None
        try:
            writing.result()
        except OSError as error:
            full = " (the disk is full)" if error.errno == errno.ENOSPC else ""
            text = f"no checkpoint of step {step} could be saved in {self.store.folder}{full}: {error}"
            warnings.warn(f"{text}; training continues", CheckpointWarning, stacklevel=2)

    def close(self) -> None:
        """End with the last checkpoint on the disk, also where training ends with an exception."""
        self.wait()
        self._writer.shutdown()
