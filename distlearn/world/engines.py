"""EngineWorld: real processes, driven from a notebook.

    with EngineWorld(4) as world:
        results = world.run(train, settings)

What flows where: `run` pickles the function once and submits it to every engine of a `Group`; `remote.launch` runs it
there on a communicator of its own; a `Watch` shows progress and output, and waits for the first trouble. `Cluster` owns
the processes, `reaper` their death, `outcome` words the one error that says what went wrong.
"""

from __future__ import annotations

import atexit
import sys
import time
import weakref

from ..comm.protocol import CommError
from ..trace import Trace
from .cluster import Cluster
from .group import Group
from .interrupts import held
from .outcome import blame, surface, where
from .progress import PATIENCE_SECONDS, Bar
from .watch import ControllerDied, Deadlock, NoProgress, TimeIsUp, Watch, unpack

_open: weakref.WeakSet[EngineWorld] = weakref.WeakSet()


class EngineWorld:
    """Ranks that are ipyparallel engines, each a process of its own, connected by MPI.

    A rank that raises, hangs or is killed gives one `RankError` that names it and says where the others were; the next
    `run` works, if need be on new engines. Interrupting the notebook interrupts the ranks. `close`, the end of the
    process, and the death of the process leave nothing behind.

    Parameters
    ----------
    engines : int or ipyparallel.DirectView
        How many engines to start on this machine, or a view on engines that run already (`rc[:]`), wherever they came
        from. Those are not stopped by `close`, and cannot be started anew.
    mpi : bool
        Connect the ranks by MPI. Without it they are faster to start and die alone, but cannot communicate.
    timeout : float, optional
        Longest time for a `run` [s].
    patience : float
        A rank that has waited for so long in one call is shown, with what it waits for; if all ranks have, that is a
        deadlock, and an error [s]. Calls that move many bytes are given a second more for each megabyte.
    progress : bool or callable
        Show `comm.report`s of rank 0 as a progress bar, or hand them to `progress(step, total, **values)`.
    threads : int, optional
        BLAS threads of each engine; by default the cores are shared out, unless OMP_NUM_THREADS is set.
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
    view : ipyparallel.DirectView
        On the engines in the order of ranks, for ``%px`` and the like.
    client : ipyparallel.Client

    Examples
    --------
    >>> with EngineWorld(2) as world:                                                            # doctest: +SKIP
    ...     world.run(lambda comm: comm.all_gather(np.array([comm.rank])).ravel().tolist())
    [[0, 1], [0, 1]]
    """

    def __init__(
        self,
        engines=4,
        *,
        mpi=True,
        timeout=None,
        patience=PATIENCE_SECONDS,
        progress=True,
        threads=None,
        strict=True,
        hosts=None,
    ):
        self.mpi, self.timeout, self.patience = mpi, timeout, patience
        self.progress, self.strict = progress, strict
        self.trace = Trace()
        self._dead = ""  # why the engines must be started anew
        self._closed = False
        self._cluster = self._group = None
        if hasattr(engines, "client"):
            if threads is not None or hosts is not None:
                raise ValueError(
                    "EngineWorld: threads and hosts can be chosen only for engines that EngineWorld starts"
                )
            self._group = Group(engines, mpi)
        elif isinstance(engines, int) and not isinstance(engines, bool) and engines >= 1:
            self._start(engines, threads, hosts)
        else:
            raise ValueError(f"EngineWorld: {engines!r}, expected a number of engines, 1 or more, or a view on engines")
        _open.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} engines" + (" under MPI" if self.mpi else "")
        return f"EngineWorld({state})"

    def __enter__(self) -> EngineWorld:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def __reduce__(self):
        raise TypeError("an EngineWorld cannot be sent to its own ranks; use the function's first argument, comm")

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._group.size

    @property
    def pids(self) -> list[int]:
        """Process ids of the engines, by rank."""
        self._revive()
        return list(self._group.pids)

    def resize(self, size: int) -> None:
        """Go on with another number of engines: the next `run` starts them.

        Raises
        ------
        CommError
            If the engines are not this world's.
        """
        if self._cluster is None:
            raise CommError("EngineWorld: the engines are not this world's, so it cannot start others")
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"EngineWorld.resize: {size!r}, expected a number of engines, 1 or more")
        if size != self._cluster.n:
            self._cluster.n, self._dead = size, f"{size} engines are wanted instead of {self._cluster.n}"

    @property
    def view(self):
        """The ipyparallel view on the engines, in the order of ranks."""
        self._revive()
        return self._group.view

    @property
    def client(self):
        """The ipyparallel client."""
        self._revive()
        return self._group.client

    def close(self) -> None:
        """Stop the engines that this world started; do nothing the second time."""
        with held():
            self._closed = True
            _open.discard(self)
            if self._group is not None:
                self._group.close()
            if self._cluster is not None:
                self._cluster.stop()

    # -- running -------------------------------------------------------------------------------------------------------
    def run(self, fn, *args, timeout: float | None = None, progress_timeout: float | None = None, **kwargs) -> list:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank.

        Parameters
        ----------
        fn : callable
            May be defined in the notebook; travels with what it refers to.
        *args, **kwargs
            Pickled; large data is better loaded on the ranks.
        timeout : float, optional
            Longest time [s]; the world's by default.
        progress_timeout : float, optional
            Longest time between two `comm.report`s of rank 0 [s]: a rank that hangs shows so long before `timeout`.

        Returns
        -------
        results : list
            What each rank returned.

        Raises
        ------
        RankError
            If a rank raised or died: the first that did. Its traceback is in the message, the exception in `original`.
        RankTimeoutError
            If ranks had not returned in time; says where each was.
        RankDeadlockError
            If all ranks wait for each other; says what each waits for.
        CommError
            If the engines cannot be used.
        KeyboardInterrupt
            After the ranks were interrupted, too.
        """
        __tracebackhide__ = True  # the frames that a user sees are his own, and `surface`
        payload = _pack(fn, args, kwargs)
        timeout = self.timeout if timeout is None else timeout
        bar = Bar() if self.progress is True else None
        with held():  # whatever is begun here is ended, or known to be lost
            self._revive()
            self._dead = "the last run was broken off"
            calls = self._group.submit(payload, strict=self.strict, patience=self.patience)
            watch = Watch(self._group, calls, bar or self.progress or None)
            try:
                error = self._watch(watch, timeout, progress_timeout)
            finally:
                if bar is not None:
                    bar.close()
            if error is not None:
                surface(error)
            self._group.was_orderly()
        return [unpack(rank, watch.values[rank]) for rank in range(self.size)]

    def _watch(self, watch: Watch, timeout: float | None, progress_timeout: float | None) -> Exception | None:
        """Wait for a launch; return the error to raise if it failed."""
        reason, limit, problem = "", 0.0, None
        try:
            watch.until_trouble(timeout, progress_timeout)
        except Deadlock:
            reason, limit = "deadlock", self.patience
        except NoProgress:
            reason, limit = "no progress", progress_timeout
        except TimeIsUp:
            reason, limit = "timeout", timeout
        except ControllerDied:
            problem = "the controller of the engines died while they worked"
        except KeyboardInterrupt:
            watch.bring_home()
            self._settle(watch)
            places = "; ".join(f"rank {r} {where(o)}" for r, o in sorted(watch.outcomes.items()) if o.frames)
            raise KeyboardInterrupt(f"all ranks were interrupted. {places}") from None
        except Exception:  # of whoever is shown the progress
            watch.show_nothing()
            watch.bring_home()
            self._settle(watch)
            raise
        if reason or problem or any(o.status != "returned" for o in watch.outcomes.values()):
            watch.bring_home()
        self._settle(watch)
        if problem:
            self._dead = problem
            return CommError(f"{problem}; it and they are started anew at the next run")
        outcomes = [watch.outcomes[rank] for rank in range(self.size)]
        if all(o.status == "returned" for o in outcomes):
            return None
        return blame(outcomes, reason, limit, self._outlook(watch))

    def _settle(self, watch: Watch) -> None:
        """Note whether the engines are still fit, keep the spans, and show what is left."""
        self._dead = "engines died, or had to be killed, in the last run" if watch.killed else ""
        spans = [span for outcome in watch.outcomes.values() for span in outcome.spans]
        self.trace = Trace(sorted(spans, key=lambda s: (s.end, s.rank)))
        watch.finish()

    def _outlook(self, watch: Watch) -> str:
        """Say what becomes of engines that had to be killed."""
        if not watch.killed:
            return ""
        if self._cluster is None:
            return "The engines are not this world's: restart their cluster, and make a new EngineWorld of its view."
        return "The engines are started anew at the next run" + (" (MPI ends all ranks with one)." if self.mpi else ".")

    # -- starting anew -------------------------------------------------------------------------------------------------
    def _start(self, engines, threads, hosts) -> None:
        """Start a cluster, and make ranks of its engines; leave nothing behind if that fails or is interrupted."""
        try:
            with held():
                self._cluster = Cluster(engines, self.mpi, threads, hosts)
                self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        """Make ranks of the cluster's engines."""
        self._group = Group(self._cluster.client.direct_view(self._cluster.ids), self.mpi, self._cluster)

    def _revive(self) -> None:
        """Make sure that all engines live: start them anew if they do not."""
        if self._closed:
            raise CommError("this EngineWorld is closed; make a new one")
        trouble = self._dead or self._group.trouble()
        if not trouble:
            return
        if self._cluster is None:
            raise CommError(f"EngineWorld: {trouble}; restart their cluster, and make a new EngineWorld of its view")
        start = time.perf_counter()
        with held():
            self._dead = trouble  # until all is done: this, too, may be interrupted
            self._group.close()
            self._cluster.restart_engines()
            self._meet()
            self._dead = ""
        seconds = time.perf_counter() - start
        print(f"EngineWorld: started {self.size} engines anew in {seconds:.1f} s ({trouble})", file=sys.stderr)


def _pack(fn, args, kwargs) -> bytes:
    """Pickle the call, once for all ranks."""
    import cloudpickle

    if not callable(fn):
        raise TypeError(f"EngineWorld.run: {fn!r} is not a function")
    try:
        return cloudpickle.dumps((fn, args, kwargs))
    except Exception as error:
        name = getattr(fn, "__name__", repr(fn))
        raise TypeError(f"EngineWorld.run: {name} or its arguments cannot be sent to the engines: {error}") from error


@atexit.register
def _close_all() -> None:
    """Stop what is still open when Python ends."""
    for world in list(_open):
        world.close()
