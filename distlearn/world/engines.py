"""EngineWorld: real processes, driven from a notebook.

    with EngineWorld(4) as world:
        results = world.run(train, settings)

`run` pickles the function once and submits it to every engine (`Ranks`); `remote.launch` runs it there on a
communicator of its own; a `Launch` shows progress and output and waits for the end or the first failure. `Cluster`
starts and stops the processes, `deaths` finds out which died first, `outcome` makes the error, `reaper` ends processes
whose owner has died.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..bounds import check_number, check_positive
from ..comm.base import CommError
from ..comm.network import Network
from ..comm.point_to_point import DelayedComm
from ..comm.recorder import EXHAUSTED
from ..trace import Trace
from .client import Launch, Ranks, unpack
from .cluster import Cluster, PortTaken
from .interrupts import defer_interrupts
from .local import T, World
from .outcome import first_failure, where
from .progress import PATIENCE_SECONDS, Bar, shorten_traceback
from .remote import pack


class EngineWorld(World):
    """Ranks that are ipyparallel engines, each its own process, connected by MPI.

    If a rank raises, hangs or is killed, `run` raises one `RankError` that names it and says where the others were; the
    next `run` works, if necessary on new engines. Interrupting the notebook interrupts the ranks. No process outlives
    `close`, the last reference to the world, or this process, however that ends.

    Parameters
    ----------
    engines : int
        How many engines to start.
    timeout : float, optional
        Longest time for a `run` [s].
    patience : float
        A rank that has been in one call for this long [s] is reported with that call; if all ranks wait, it is a
        deadlock and an error. A call is allowed one second more for each megabyte that it moves.
    progress : bool or callable
        Show `comm.report`s of rank 0 as a progress bar, or pass them to `progress(step, total, **values)`.
    threads : int, optional
        BLAS threads of each engine; by default cores / engines, unless OMP_NUM_THREADS is set.
    strict : bool
        Find mistakes in the use of the communicator: see `MPIComm`.
    hosts : Hosts, optional
        Machines on which the engines are started; this one by default.

    Attributes
    ----------
    size : int
        Number of ranks.
    trace : Trace
        Spans of all ranks in the last run, on one time axis.
    records : dict of int to list of Record
        After a run that failed: the last calls of the ranks that could be asked, for `who_is_missing`.
    view : ipyparallel.DirectView
        A view of the engines in the order of ranks, for example for ``%px``.

    Examples
    --------
    >>> with EngineWorld(2) as world:                                                            # doctest: +SKIP
    ...     world.run(lambda comm: comm.all_gather(np.array([comm.rank])).ravel().tolist())
    [[0, 1], [0, 1]]
    """

    rank = 0

    def __init__(
        self,
        engines: int = 4,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE_SECONDS,
        progress: bool | Callable[..., Any] = True,
        threads: int | None = None,
        strict: bool = True,
        hosts: Any = None,
    ):
        self.timeout, self.patience = timeout, patience
        self.progress, self.strict = progress, strict
        self.trace, self.records = Trace(), {}
        self._restart_reason = ""  # why the engines must be restarted
        self._closed = False
        check_positive("EngineWorld", engines=engines)
        with defer_interrupts():
            self._cluster = Cluster(engines, threads, hosts)
            # also where a cell is run again and assigns another world to its name, and when Python exits
            self._end = weakref.finalize(self, _end, self._cluster, os.getpid())
            try:
                self._join(self._cluster.start)
            except BaseException:
                self.close()
                raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} engines under MPI"
        return f"EngineWorld({state})"

    def __reduce__(self):
        raise TypeError("an EngineWorld cannot be sent to its own ranks; use the function's first argument, comm")

    @property
    def size(self) -> int:
        return self._ranks.size

    @property
    def pids(self) -> list[int]:
        """Process ids of the engines, by rank."""
        self._ensure_engines()
        return list(self._ranks.pids)

    def resize(self, size: int) -> None:
        """Change the number of engines: the next `run` restarts them."""
        check_positive("EngineWorld.resize", size=size)
        if size != self._cluster.n:
            self._cluster.n, self._restart_reason = size, f"resized from {self._cluster.n} to {size} engines"

    @property
    def view(self) -> Any:
        self._ensure_engines()
        return self._ranks.view

    @property
    def client(self) -> Any:
        self._ensure_engines()
        return self._ranks.client

    def close(self) -> None:
        """Stop the engines that this world started; do nothing the second time."""
        self._closed = True
        self._end()

    # -- running -------------------------------------------------------------------------------------------------------
    def run(
        self,
        fn: Callable[..., T],
        *args: Any,
        timeout: float | None = None,
        progress_timeout: float | None = None,
        **kwargs: Any,
    ) -> list[T]:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank.

        Parameters
        ----------
        fn : callable
            May be defined in the notebook; it is sent together with the objects that it refers to. Modules are imported
            on the engines, and again after one of yours was reloaded here.
        *args, **kwargs
            Pickled; large data is better loaded on the ranks.
        timeout : float, optional
            Longest time [s]; the world's by default.
        progress_timeout : float, optional
            Longest time between two `comm.report`s of rank 0 [s]: detects a rank that hangs long before `timeout`.

        Returns
        -------
        results : list
            What each rank returned.

        Raises
        ------
        RankError
            If a rank raised or died: names the first. The message contains its traceback, `original` is the exception.
        RankTimeoutError
            If ranks did not return in time; says where each was.
        RankDeadlockError
            If all ranks wait for each other; names the call in which each waits.
        CommError
            If the engines cannot be used.
        KeyboardInterrupt
            After the ranks have been interrupted too.
        """
        __tracebackhide__ = True
        payload = _pack(fn, args, kwargs)
        timeout = self.timeout if timeout is None else timeout
        bar = Bar(getattr(fn, "__name__", "run")) if self.progress is True else None
        try:
            with defer_interrupts():  # engines started here are ended, or marked for a restart
                self._ensure_engines()
                self._restart_reason = "the last run was interrupted"
                calls = self._ranks.submit(payload, strict=self.strict, patience=self.patience)
                watch = Launch(self._ranks, calls, bar or self.progress or None)
                try:
                    error = self._watch(watch, timeout, progress_timeout)
                finally:
                    if bar is not None:
                        bar.close()
                if error is not None:
                    raise shorten_traceback(error)
                self._ranks.mark_completed()
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None) from None  # its text names the lines of the ranks
        return [unpack(rank, watch.values[rank]) for rank in range(self.size)]

    def _watch(self, watch: Launch, timeout: float | None, progress_timeout: float | None) -> Exception | None:
        """Wait for a launch; return the error to raise if it failed."""
        try:
            reason = watch.until_trouble(timeout, progress_timeout)
        except KeyboardInterrupt:
            watch.stop_ranks()
            self._collect(watch)
            places = [f"\n  rank {r} {where(o)}" for r, o in sorted(watch.outcomes.items()) if o.frames]
            raise shorten_traceback(KeyboardInterrupt("all ranks were interrupted:" + "".join(places))) from None
        except Exception:  # raised by the user's progress function
            watch.show = None
            watch.stop_ranks()
            self._collect(watch)
            raise
        if reason or any(o.status != "returned" for o in watch.outcomes.values()):
            watch.stop_ranks()
        self._collect(watch)
        if reason == "controller died":
            self._restart_reason = "the controller of the engines died during the run"
            return CommError(f"{self._restart_reason}; the next run restarts it and the engines")
        outcomes = [watch.outcomes[rank] for rank in range(self.size)]
        if all(o.status == "returned" for o in outcomes):
            return None
        limits = {"deadlock": self.patience, "no progress": progress_timeout, "timeout": timeout}
        note = "The next run restarts the engines (MPI ends all ranks with one)." if watch.killed else ""
        return first_failure(outcomes, reason, limits.get(reason, 0.0), note)

    def _collect(self, watch: Launch) -> None:
        self._restart_reason = "engines died, or had to be killed, in the last run" if watch.killed else ""
        if any(EXHAUSTED in outcome.error for outcome in watch.outcomes.values()):
            self._restart_reason = f"{EXHAUSTED} in the last run"  # nor in a later one
        self.records = {rank: outcome.records for rank, outcome in watch.outcomes.items() if outcome.records}
        spans = [span for outcome in watch.outcomes.values() for span in outcome.spans]
        self.trace = Trace(sorted(spans, key=lambda s: (s.end, s.rank)))
        watch.finish()

    def _join(self, start: Callable[[], None]) -> None:
        """Start engines and make ranks of them; once more, with a new controller, if one of its ports was taken."""
        try:
            start()
            self._ranks = Ranks(self._cluster)
        except PortTaken:
            self._cluster.restart()
            self._ranks = Ranks(self._cluster)

    def _ensure_engines(self) -> None:
        if self._closed:
            raise CommError("this EngineWorld is closed; make a new one")
        problem = self._restart_reason or self._ranks.problem()
        if not problem:
            return
        start = time.perf_counter()
        with defer_interrupts():
            self._restart_reason = problem  # until the restart is complete: it can be interrupted too
            self._ranks.close()
            self._join(self._cluster.restart_engines)
            self._restart_reason = ""
        seconds = time.perf_counter() - start
        print(f"EngineWorld: restarted {self.size} engines in {seconds:.1f} s ({problem})", file=sys.stderr)


def _end(cluster: Cluster, owner: int) -> None:
    """End the processes of a world that is closed, or that nothing refers to any more."""
    if os.getpid() == owner:  # a process that was forked has a copy of the world, not its engines
        with defer_interrupts():
            cluster.stop()


def _pack(fn, args, kwargs) -> bytes:
    if not callable(fn):
        raise TypeError(f"EngineWorld.run: {fn!r} is not a function")
    try:
        return pack((fn, args, kwargs))
    except Exception as error:
        name = getattr(fn, "__name__", repr(fn))
        raise TypeError(f"EngineWorld.run: {name} or its arguments cannot be sent to the engines: {error}") from error


LATENCY = 1e-3  # Of a delayed message [s]: about what one takes between engines over TCP.


class LimitedWorld(EngineWorld):
    """An `EngineWorld` with a bandwidth limit [bit/s]; takes the same arguments."""

    _network: Network | None = None

    def limit(self, bits_per_second: float | None) -> None:
        """Limit the bandwidth of each rank from now on; None for no limit."""
        if bits_per_second is not None:
            check_number("limit", above=0, bits_per_second=bits_per_second)
        self._network = None if bits_per_second is None else Network(LATENCY, bits_per_second / 8)

    def run(self, fn: Callable[..., T], *args: Any, **options: Any) -> list[T]:
        """Call `fn` on every rank behind the limited link; see `EngineWorld.run`."""
        __tracebackhide__ = True
        if self._network is None:
            return super().run(fn, *args, **options)
        return super().run(delayed, self._network, fn, *args, **options)


def delayed(comm, network, fn, *args, **kwargs):
    """Call `fn` with a communicator that delays every message as `network` would."""
    return fn(DelayedComm(comm, network), *args, **kwargs)
