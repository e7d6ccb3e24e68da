"""MPIWorld: for scripts that mpiexec starts.

    # train_it.py                                $ mpiexec -n 4 python train_it.py
    world = MPIWorld()
    results = world.run(train, settings)

The script runs on every rank; so does everything around `run`.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..comm.base import RankError
from ..comm.mpi import MPIComm, world_comm
from ..comm.nccl import select_backend
from ..comm.recorder import who_is_missing
from ..comm.waiting import poll
from ..trace import Trace
from .local import T, World
from .outcome import Outcome, text_of_error, where
from .progress import GRACE_SECONDS, PATIENCE_SECONDS, Bar, Reporter, StallReporter

FAILED, STALLED = 32_000, 32_001  # Tags of the run's own messages: MPI guarantees tags up to 32,767.


class MPIWorld(World):
    """The ranks of an `mpiexec -n N python script.py`.

    Parameters
    ----------
    progress : bool or callable
        Rank 0 shows `comm.report`s as a progress bar, or passes them to `progress(step, total, **values)`.
    timeout : float, optional
        Longest time that a rank waits in any one call [s].
    patience : float
        A rank that has been in one call for this long [s] prints that call; if all ranks wait, it is a deadlock and an
        error. A call is allowed one second more for each megabyte that it moves.
    strict : bool
        Find mistakes in the use of the communicator: see `MPIComm`.

    Attributes
    ----------
    rank : int
        Of this process.
    size : int
        Number of ranks.
    trace : Trace
        Of the last run; on rank 0 the spans of all ranks, elsewhere its own.
    """

    def __init__(
        self,
        *,
        progress: bool | Callable[..., Any] = True,
        timeout: float | None = None,
        patience: float = PATIENCE_SECONDS,
        strict: bool = True,
    ):
        # for the run's own messages, which must not match the program's
        self._own = MPIComm(world_comm().Dup(), timeout=timeout, strict=False)
        self.rank, self.size = self._own.rank, self._own.size
        self.progress, self.patience = progress, patience
        self._options = {"timeout": timeout, "strict": strict}
        self.trace = Trace()

    def __repr__(self) -> str:
        return f"MPIWorld(rank {self.rank} of {self.size})"

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank, on every rank.

        A rank that raises ends the job: it prints its traceback and one line that names it, and aborts with a non-zero
        exit code. `sys.exit`, Ctrl-C and a deadlock end the job in the same way.

        Raises
        ------
        RankError
            If there is only one rank, and it raised.
        """
        bar = Bar(getattr(fn, "__name__", "run")) if self.progress is True and self.rank == 0 else None
        report = Reporter(lambda last: (bar or self.progress)(last[0], last[1], **last[2])) if self.progress else None
        self.trace = Trace()
        try:
            comm = select_backend(MPIComm.begin(self._own.raw.Dup(), report, **self._options))
            comm.activity.on_stall = _Stalls(self, comm)
            value = fn(comm, *args, **kwargs)
            comm.end()
            spans = list(comm.clock.trace.spans)
            gathered = self._own.gather_obj((value, spans))
            results = self._own.broadcast_obj([v for v, _ in gathered] if gathered else None)
        except BaseException as error:
            self._fail(error)
        finally:
            if bar is not None:
                bar.close()
        parts = [part for _, part in gathered] if gathered else [spans]
        self.trace = Trace(sorted((s for part in parts for s in part), key=lambda s: (s.end, s.rank)))
        comm.raw.Free()
        return results

    def _hears(self, seconds: float) -> bool:
        """Wait for a rank that reports a failure; MPI makes progress only while it is called."""
        return poll(lambda: self._own.raw.Iprobe(tag=FAILED), timeout=seconds)

    def _fail(self, error: BaseException) -> None:
        text = text_of_error(error, self.rank)
        if self.size == 1:
            if not isinstance(error, Exception):
                raise error
            raise RankError(0, text, original=error) from error
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        steps = "" if code == 130 else "".join(traceback.format_exception(error))  # 130: Ctrl-C, which a rank reported
        self.abort(f"{steps}RankError: rank {self.rank}: {text}\n", code or 1)

    def abort(self, text: str, code: int = 1) -> None:
        """Print a text, and end all ranks; where all ranks do so, the lowest one prints."""
        if self._hears(0.05 + min(0.3 * self.rank, 1.5)):  # the higher ones wait a moment for it
            time.sleep(5.0)  # that rank ends this one too
        notes = [self._own.raw.Isend(b"", rank, FAILED) for rank in range(self.size) if rank != self.rank]
        sys.stderr.write(text)
        sys.stderr.flush()
        self._hears(0.2)  # mpiexec drops output that it has not forwarded by the time the ranks end
        del notes  # kept until now: they may still be in progress
        world_comm().Abort(code)
        os._exit(code)  # Abort may return


class _Stalls:
    """Reports one rank's stalls to rank 0, and a moment later to the user."""

    # Rank 0 ends the job when all ranks wait.

    def __init__(self, world: MPIWorld, comm):
        self._world, self._raw = world, world._own.raw
        self._reporter = StallReporter(comm, world.patience, self._send)
        self._mine: Outcome | None = None
        self._others: dict[int, Outcome] = {}  # on rank 0
        self._sent: list = []
        self._said = False

    def __call__(self, what, nbytes: int, seconds: float) -> None:
        self._reporter(what, nbytes, seconds)
        if self._mine is None:
            return
        if self._world.rank == 0:
            self._listen()
        if not self._said and time.perf_counter() > self._since + GRACE_SECONDS:
            self._said = True
            place = where(self._mine)
            sys.stderr.write(f"rank {self._world.rank} {place}, for {seconds:.0f} s now; Ctrl-C ends all ranks\n")
            records = {o.rank: o.records for o in (self._mine, *self._others.values()) if o is not None}
            verdict = who_is_missing(records)
            if self._world.rank == 0 and verdict.kind != "none":
                sys.stderr.write(f"{verdict.text}\n")
            sys.stderr.flush()

    def _send(self, wait: Outcome | None) -> None:
        self._mine, self._said, self._since = wait, False, time.perf_counter()
        if self._world.rank > 0:
            self._sent = [r for r in self._sent if not r.Test()]
            self._sent.append(self._raw.Isend(pickle.dumps(wait), 0, STALLED))

    def _listen(self) -> None:
        """Receive the other ranks' reports; end the job if all wait."""
        status = self._world._own.mpi.Status()
        while message := self._raw.Improbe(tag=STALLED, status=status):
            data = bytearray(status.Get_count(self._world._own.mpi.BYTE))
            message.Recv(data)
            self._others[status.Get_source()] = pickle.loads(data)
        waits = [self._mine, *(self._others[rank] for rank in sorted(self._others))]
        if len(waits) == self._world.size and all(waits):
            lines = "".join(f"  rank {wait.rank} {where(wait)}\n" for wait in waits)
            head = f"deadlock: all ranks wait, and have waited for {self._world.patience:g} s"
            verdict = who_is_missing({wait.rank: wait.records for wait in waits})
            self._world.abort(f"RankDeadlockError: rank 0: {head}:\n{lines}{verdict.text}\n")
