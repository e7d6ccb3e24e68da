"""MPIWorld: for scripts that mpiexec starts.

    # train_it.py                                $ mpiexec -n 4 python train_it.py
    world = MPIWorld()
    results = world.run(train, settings)

The script runs on every rank; so does everything around `run`.
"""

from __future__ import annotations

import os
import sys
import time
import traceback

from ..comm.mpi import MPIComm, world_comm
from ..comm.protocol import RankError
from ..comm.select_backend import best
from ..comm.waiting import poll
from ..trace import Trace
from .outcome import text_of_error
from .progress import Bar, Reporter

TOLD = 32_000
"""Tag of the message that a rank tells of an error: MPI grants at least 32,767, and there is nothing else out here."""


class MPIWorld:
    """The ranks of an `mpiexec -n N python script.py`.

    Parameters
    ----------
    progress : bool or callable
        Rank 0 shows `comm.report`s as a progress bar, or hands them to `progress(step, total, **values)`.
    timeout : float, optional
        Longest time that a rank waits in any one call [s].
    strict : bool
        Find mistakes: see `MPIComm`.

    Attributes
    ----------
    rank : int
        Of this process.
    size : int
        Number of ranks.
    trace : Trace
        Of the last run; on rank 0 the spans of all ranks, elsewhere its own.
    """

    def __init__(self, *, progress=True, timeout: float | None = None, strict: bool = False):
        self._world = world_comm()
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        self.progress = progress
        self._options = {"timeout": timeout, "strict": strict}
        self.trace = Trace()

    def __repr__(self) -> str:
        return f"MPIWorld(rank {self.rank} of {self.size})"

    def __enter__(self) -> MPIWorld:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: the processes are mpiexec's."""

    def run(self, fn, *args, **kwargs) -> list:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank, on every rank.

        A rank that raises ends all of them: it prints its traceback and one line that names it, and aborts.

        Raises
        ------
        RankError
            If there is only one rank, and it raised.
        """
        bar = Bar() if self.progress is True and self.rank == 0 else None
        report = Reporter(lambda last: (bar or self.progress)(last[0], last[1], **last[2])) if self.progress else None
        self.trace = Trace()
        comm = best(MPIComm.begin(self._world.Dup(), report, **self._options))
        try:
            value = fn(comm, *args, **kwargs)
            comm.end()
        except Exception as error:
            self._fail(error)
        finally:
            if bar is not None:
                bar.close()
        spans = comm.clock.trace.spans
        own = list(spans)
        gathered = comm.gather_obj((value, own))
        results = comm.broadcast_obj([v for v, _ in gathered] if gathered else None)
        parts = [part for _, part in gathered] if gathered else [own]
        self.trace = Trace(sorted((s for part in parts for s in part), key=lambda s: (s.end, s.rank)))
        comm.raw.Free()
        return results

    def _hears(self, seconds: float) -> bool:
        """Listen for a rank that tells what went wrong; MPI passes messages on only while it is called."""
        return poll(lambda: self._world.Iprobe(tag=TOLD), timeout=seconds)

    def _fail(self, error: Exception) -> None:
        """End the whole run because of an error on this rank."""
        text = text_of_error(error, self.rank)
        if self.size == 1:
            raise RankError(0, text, original=error) from error
        # an error that all make is told once, by the lowest rank: the higher ones wait a moment for it
        if self._hears(0.05 + min(0.3 * self.rank, 1.5)):
            time.sleep(5.0)  # who tells ends this rank, too
        notes = [self._world.Isend(b"", rank, TOLD) for rank in range(self.size) if rank != self.rank]
        told = "".join(traceback.format_exception(error))
        sys.stderr.write(f"{told}RankError: rank {self.rank}: {text}\n")
        sys.stderr.flush()
        self._hears(0.2)  # mpiexec drops what it has not passed on when the ranks end
        del notes  # until now they may have been under way
        self._world.Abort(1)
        os._exit(1)  # Abort may return before it strikes
