"""The engine's side of `EngineWorld`: what runs on a rank before, around and after the user's function.

Every launch gets its own communicator: messages and half-finished collectives of a failed one stay on its
communicator, which is not used again. The duplicates must have the same numbers on every rank, also after a launch in
which some ranks were interrupted before they made theirs; `Duplicates` keeps count.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import os
import pickle
import signal
import sys
import types
from typing import Any

from ..comm.recorder import TO_RETURN
from ..comm.waiting import poll
from .deaths import hold_connection
from .interrupts import EngineInterrupts
from .outcome import Outcome, frames_of_error, pickled, text_of_error
from .progress import Reporter, StallReporter

_worlds: dict = {}  # Stored by `join_world` for `launch`, by the world's key.


class Duplicates:
    """Numbered duplicates of a communicator.

    Duplication is collective: the k-th on one rank belongs to the k-th on every other. A rank that was interrupted
    while it waited for the others' k-th continues to wait in the next launch; a rank that had not started it does so
    then.
    """

    def __init__(self, base):
        self._base, self._made, self._in_progress = base, 0, None
        self._used: dict[int, object] = {}

    def get(self, number: int, interrupts):
        from ..comm.mpi import Exhaustion

        comm = None
        while self._made < number:
            with Exhaustion():
                if self._in_progress is None:
                    with interrupts:
                        self._in_progress = self._base.Idup()
                comm, request = self._in_progress
                poll(request.Test)
            with interrupts:
                self._in_progress = None
                self._made += 1
                self._used[self._made] = comm
        return self._used[number]

    def free(self, numbers) -> None:
        for number in numbers:
            comm = self._used.pop(number, None)
            if comm is not None:
                comm.Free()


# -- called by the client ----------------------------------------------------------------------------------------------


def describe_engine() -> dict[str, Any]:
    """Return this engine's process, node, Python and MPI rank."""
    import platform

    from ..comm.mpi import world_comm

    comm, version = world_comm(), {"python": platform.python_version(), "executable": sys.executable}
    return version | {"pid": os.getpid(), "node": platform.node(), "rank": comm.Get_rank(), "size": comm.Get_size()}


def join_world(key: str, rank: int, stacks: str | None, deaths: str) -> None:
    """Make this engine a rank of a world."""
    shield_traceback()
    from ..comm.mpi import release_shared_memory_names, world_comm

    duplicates = Duplicates(world_comm().Dup())
    release_shared_memory_names()
    if stacks is not None:
        _worlds[key, "stacks"] = file = open(stacks, "w", encoding="utf-8")  # noqa: SIM115 (for the engine's life)
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
    if deaths:
        hold_connection(deaths, rank)
    _worlds[key] = (rank, duplicates)


def shield_traceback() -> None:
    """Make this engine answer even a call that is interrupted twice in a row."""
    # The kernel's answer to a KeyboardInterrupt begins with `showtraceback`. A second interrupt before the answer is
    # sent would leave the client without one; a moment later it would end the engine.
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or "showtraceback" in vars(shell):
        return
    show = shell.showtraceback

    def showtraceback(*args, **kwargs):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel resets it after its answer
        show(*args, **kwargs)

    shell.showtraceback = showtraceback


def launch(key: str, order: dict[str, Any], payload: bytes) -> tuple[bytes, bytes]:
    """Run the pickled (function, arguments, keywords) on this rank; return a pickled `Outcome`, and the result."""
    interrupts = EngineInterrupts()
    rank, duplicates = _worlds[key]
    reporter = Reporter(lambda report: _publish(progress=report))
    outcome, value, comm = Outcome(rank, "interrupted"), b"", None
    try:
        if order["cwd"]:
            os.chdir(order["cwd"])
        paths = order["paths"]
        sys.path[:] = [p for p in paths if os.path.isdir(p)] + [p for p in sys.path if p not in paths]
        for name in order["forget"]:
            sys.modules.pop(name, None)
        if order["forget"]:
            importlib.invalidate_caches()
        from ..comm.mpi import MPIComm
        from ..comm.nccl import select_backend

        duplicates.free(order["free"])
        copy = duplicates.get(order["number"], interrupts)
        comm = select_backend(MPIComm.begin(copy, reporter, strict=order["strict"]))
        comm.activity.on_stall = StallReporter(comm, order["patience"], lambda stall: _publish(stall=stall))
        value = _call(comm, payload)
        outcome.status = "early"
        comm.end()
        outcome.status = "returned"
        interrupts.disarm()
    except BaseException as error:
        interrupts.disarm()
        if comm is not None:
            comm.abort()  # a collective on a GPU that the others do not join would never end
        if not interrupts.arrived:
            outcome.status = "raised"
        outcome.error, outcome.original = text_of_error(error, rank), pickled(error)
        outcome.frames = interrupts.frames or frames_of_error(error)
        value = b""
    if comm is not None:
        outcome.ended, outcome.spans = comm.clock.now(), comm.clock.trace.spans
        waits_for = comm.activity.waits_for
        if outcome.status != "returned":
            outcome.records = comm.recorder.records(waits_for is not None and str(waits_for) != TO_RETURN)
        if waits_for is not None and outcome.status in ("interrupted", "early"):
            outcome.waits_for = str(waits_for)
    outcome.progress = reporter.last
    return pickle.dumps(outcome), value


def pack(obj) -> bytes:
    """Pickle anything that a notebook defines by value, with the file names by which errors name its lines."""
    import cloudpickle

    class Pickler(cloudpickle.CloudPickler):
        def reducer_override(self, obj):
            if isinstance(obj, types.CodeType):  # from version 3.1.3 on cloudpickle leaves the name of the file out
                return _rebuild_code, (*self.dispatch_table[types.CodeType](obj), obj.co_filename)
            return super().reducer_override(obj)

    file = io.BytesIO()
    Pickler(file).dump(obj)
    return file.getvalue()


def _rebuild_code(make, arguments, filename):
    return make(*arguments).replace(co_filename=filename)


def _call(comm, payload: bytes) -> bytes:
    fn, args, kwargs = pickle.loads(payload)
    result = fn(comm, *args, **kwargs)
    try:
        return pack(result)
    except Exception as error:
        raise TypeError(f"the result, a {type(result).__name__}, cannot be sent back: {error}") from error


def _publish(**data) -> None:
    """Send a report, or a stall (None when it is over), to the client, which sees it within milliseconds."""
    from .cluster import publish

    publish(data)
