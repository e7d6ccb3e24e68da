"""Messages over MPI: staging of device memory, sends and receives, and operations in progress."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import pickle
import sys
import time
import weakref
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backend import get_xp, same_bytes, to_numpy
from ..base import CommError
from ..calls import ANY, call_site

# -- staging -----------------------------------------------------------------------------------------------------------
# How arrays on a GPU reach MPI: directly where it can access GPU memory, and through host memory elsewhere.
#
# MPI from a wheel cannot. `to_host` returns the array that MPI sees (a NumPy array itself, a copy of anything
# else), `from_host` copies the result of MPI back into the original. Both are free for NumPy arrays, and cost one
# copy over the bus for CuPy's. A "CUDA-aware" MPI gets CuPy's arrays as they are; it does not know about streams,
# so all work launched before must have finished.


@functools.cache
def mpi_reads_gpu() -> bool:
    """Return whether the MPI that mpi4py has loaded can read and write the memory of a GPU."""
    # Open MPI and MPICH both answer by `MPIX_Query_cuda_support`; an MPI without that function cannot.
    mpi = sys.modules.get("mpi4py.MPI")
    try:
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):
        return False
    return query() == 1


def to_host(x, load: bool = True):
    """Return an array that MPI can use: `x` itself if possible, else a host array (with its contents if `load`)."""
    if isinstance(x, np.ndarray):
        return x
    if mpi_reads_gpu():
        return synchronized(x)
    return np.ascontiguousarray(to_numpy(x)) if load else np.empty(x.shape, x.dtype)


def synchronized(x):
    """Return `x` when all work launched on its GPU is done, so that its memory is up to date."""
    if not isinstance(x, np.ndarray):
        get_xp(x).cuda.get_current_stream().synchronize()
    return x


def empty(shape, dtype, host):
    """Make a receive buffer for MPI, in the same memory as `host` from `to_host`."""
    return synchronized(get_xp(host).empty(shape, dtype))


def from_host(host, x):
    """Copy `host` into `x`, unless they are the same array; return `x`."""
    if host is not x:
        x[...] = get_xp(x).asarray(host)
    return x


def like(host, x):
    """Return `host` as an array of the same kind (NumPy or CuPy) as `x`."""
    return host if isinstance(x, np.ndarray) or not isinstance(host, np.ndarray) else get_xp(x).asarray(host)


def as_bytes(x):
    """View a contiguous array of any dtype as bytes."""
    return x.reshape(-1).view(np.uint8)


# -- messages ----------------------------------------------------------------------------------------------------------
# MPIComm's primitives between two ranks: arrays as bytes, and pickled objects.
#
# MPI sees only bytes, so the tag of a message also encodes its type: the user's tag times `KINDS` plus the
# number of its dtype. A receive accepts its own dtype; while it waits, it looks for messages of the same tag with
# another one.

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "longdouble", "complex64", "complex128", "clongdouble")  # fmt: skip
KIND_OF = {np.dtype(name): number for number, name in enumerate(DTYPES)}
KINDS = 256
OBJECT = KINDS - 1  # Kind of a pickled object.


@functools.cache
def kind_of(dtype: np.dtype) -> int:
    """Return the number of a dtype; structures, dates and text share the rest by a checksum."""
    rest = OBJECT - len(DTYPES)
    return KIND_OF[dtype] if dtype in KIND_OF else len(DTYPES) + zlib.crc32(repr(dtype).encode()) % rest


class Messages:
    """Point-to-point operations of `MPIComm`."""

    def unreceived(self) -> str:
        status = self.mpi.Status()
        if not self.raw.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
            return ""
        nbytes, tag = status.Get_count(self.mpi.BYTE), status.Get_tag() // KINDS
        return f"the message of {nbytes} bytes from rank {status.Get_source()}, tag {tag}"

    def _look_for_other_kinds(self, source, tag, wanted: int, out) -> None:
        """Raise if there is a message with this tag that holds something else."""
        status = self.mpi.Status()
        for kind in range(KINDS):
            if kind == wanted:
                continue
            # messages of one sender arrive in order: earlier ones than that of another kind have arrived as well
            if self.raw.Iprobe(source, tag * KINDS + kind, status) and not self.raw.Iprobe(
                source, tag * KINDS + wanted
            ):
                nbytes = status.Get_count(self.mpi.BYTE)
                holds = f"an array of {nbytes} bytes of another dtype"
                if kind == OBJECT:
                    holds = "an object (send_obj)"
                elif kind < len(DTYPES):
                    dtype = np.dtype(DTYPES[kind])
                    holds = f"{nbytes // dtype.itemsize} {dtype}"
                name, expected = ("recv_obj", "an object") if out is None else ("recv", f"{out.size} {out.dtype}")
                call = f"{name}(source={status.Get_source()}, tag={tag})"
                raise ValueError(f"rank {self.rank}: {call} expected {expected}, but the message holds {holds}")

    def _start_send(self, x, dest, tag, name) -> MPIWork:
        start = self.clock.now()
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend(as_bytes(to_host(x)), dest, tag * KINDS + kind_of(x.dtype))
        return MPIWork(self, name, x.nbytes, start, request, peer=("dest", dest, tag))

    def _start_recv(self, out, source, tag, name) -> RecvWork:
        start, host, kind = self.clock.now(), to_host(out, load=False), kind_of(out.dtype)
        request = self.raw.Irecv(as_bytes(host), source, tag * KINDS + kind)
        look = functools.partial(self._look_for_other_kinds, source, tag, kind, out)
        about = {"peer": ("source", source, tag), "out": out, "look": look}
        return RecvWork(self, name, out.nbytes, start, request, lambda: from_host(host, out), **about)

    def _isend(self, x, dest, tag):
        site = call_site()

        def start(sent):
            return self._start_send(sent, dest, tag, "send").started_at(site)

        return self.guarded(start, f"isend(dest={dest}, tag={tag})", x, site)

    def _irecv(self, out, source, tag):
        return self._start_recv(out, source, tag, "recv").started_at(call_site())

    def _send(self, x, dest, tag):
        self._start_send(x, dest, tag, "send").wait()

    def _recv(self, out, source, tag):
        """Probe the message before receiving it, so that one of another size leaves `out` unchanged."""
        call, kind = f"recv(source={source}, tag={tag})", kind_of(out.dtype)
        start = self.clock.now()
        message, nbytes = self._arrival(source, tag, kind, out, f"{call} of {out.nbytes} bytes")
        if nbytes != out.nbytes:
            MPIWork(self, None, nbytes, start, message.Irecv(np.empty(nbytes, np.uint8))).wait()
            problem = f"expected {out.size} {out.dtype}, but the message holds {nbytes} bytes"
            raise ValueError(f"rank {self.rank}: {call} {problem}")
        host = to_host(out, load=False)
        return MPIWork(self, "recv", nbytes, start, message.Irecv(as_bytes(host)), lambda: from_host(host, out)).wait()

    def _arrival(self, source, tag, kind, out, what):
        """Wait for a message; return (the message, its size in bytes)."""
        status, found, look = self.mpi.Status(), [], time.perf_counter() + LOOK_SECONDS

        def arrived():
            nonlocal look
            message = self.raw.Improbe(source, tag * KINDS + kind, status)
            if message is not None:
                found.append(message)
            elif source != self.mpi.ANY_SOURCE and time.perf_counter() > look:
                self._look_for_other_kinds(source, tag, kind, out)
                look = time.perf_counter() + LOOK_SECONDS
            return message is not None

        self.block(arrived, what)
        return found[0], status.Get_count(self.mpi.BYTE)

    def _send_recv(self, sent, received):
        incoming = self._start_recv(*received, "send_recv")
        outgoing = self._start_send(*sent, None)
        incoming.wait()
        outgoing.wait()
        return received[0]

    def _send_obj(self, obj, dest, tag):
        start, data = self.clock.now(), pickle.dumps(obj, protocol=5)
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend([data, self.mpi.BYTE], dest, tag * KINDS + OBJECT)
        MPIWork(self, "send_obj", len(data), start, request, peer=("dest", dest, tag)).wait()

    def _recv_obj(self, source, tag):
        start = self.clock.now()
        who, name = (self.mpi.ANY_SOURCE, "anyone") if source == ANY else (source, source)
        call = f"recv_obj(source={name}, tag={tag})"
        message, nbytes = self._arrival(who, tag, OBJECT, None, call)
        data = bytearray(nbytes)
        MPIWork(self, "recv_obj", nbytes, start, message.Irecv([data, self.mpi.BYTE])).wait()
        return pickle.loads(data)


# -- work --------------------------------------------------------------------------------------------------------------
# Handles of MPI operations in progress: `Work` over a request.
#
# A request's buffers must live until MPI is done with them, even if the user's code was interrupted meanwhile or
# never waits. So every handle stays in its communicator's `Activity` until its request is complete.

FEW = 32  # Communicators between two collections of garbage.
LOOK_SECONDS = 0.02  # Time between two probes for a message of another kind than the awaited one [s].
# Requests that may never complete, with their buffers: a message that arrives late is still written there.
ABANDONED: list = []


class Activity:
    """A rank's operations in progress, on a communicator and all that were split from it."""

    def __init__(self):
        self.pending: set[MPIWork] = set()
        self.unwaited: set[MPIWork] = set()
        self._parts: dict[tuple, tuple] = {}  # communicators that were split off: a copy, and whether one is used
        self.guarded: Counter = Counter()  # non-blocking calls by line of the program
        self.copies: dict = defaultdict(list)  # arrays to copy into, by shape and dtype: new memory is slow
        self.waits_for = None
        self.on_stall = None

    # MPI has 2,048 numbers for communicators, and freeing one is collective: all its ranks, in one order. So in every
    # split each rank sends the names, the same on all ranks, of those that it no longer uses; unused ones are freed.
    def keep(self, part) -> None:
        """Remember a communicator that was split off, until no rank uses it."""
        self._parts[part.name] = copy.copy(part), weakref.ref(part)
        if len(self._parts) % FEW == 0:
            gc.collect()  # what refers to itself, as strategies do

    def kept(self) -> list[Any]:
        """Return copies of the communicators that were split off and not freed, in the same order on all ranks."""
        return [self._parts[name][0] for name in sorted(self._parts)]

    def unused(self, members) -> list[tuple]:
        """Return the names of communicators of these ranks, or of some of them, that this rank no longer uses."""
        gone = [part for part, used in self._parts.values() if used() is None]
        return [part.name for part in gone if set(part.members) <= set(members) and not part.unreceived()]

    def free(self, names) -> None:
        """Free the communicators that were named once by each of their ranks."""
        for name, times in sorted(Counter(names).items()):
            if name in self._parts and self._parts[name][0].size == times:
                self._parts.pop(name)[0]._free()

    def make_progress(self, seconds: float = 0.0) -> None:
        """Let MPI move data for about `seconds`: testing any one operation advances all of them."""
        until = time.perf_counter() + seconds
        while self.pending:
            next(iter(self.pending)).test()
            if time.perf_counter() >= until:
                break


@dataclass(eq=False, repr=False)
class MPIWork:
    """One operation in progress: an MPI request, its name and size, and a function to call when it is done."""

    comm: Any
    name: str | None
    nbytes: int
    start: float
    request: Any
    finish: Callable[..., Any] | None = None
    agreement: Any = None
    peer: tuple[Any, ...] | None = None  # of a message: "dest" or "source", rank, tag
    site: Any = None
    result = error = None

    def __post_init__(self):
        self.comm.activity.pending.add(self)

    def __str__(self) -> str:
        call = self.name or "a message"
        if self.peer is not None:
            end, rank, tag = self.peer
            call = f"{self.name or 'send'}({end}={rank}, tag={tag})"
        return f"{call} of {self.nbytes} bytes" if self.nbytes else call

    def give_back(self, copy) -> None:
        """Let the next call use the memory of an array that `copy` of the communicator made."""
        self.comm.activity.copies[copy.shape, copy.dtype].append(copy)

    def started_at(self, site):
        """Note that a call on the user's line `site` returned this; it must be waited for."""
        self.site = site
        self.comm.activity.unwaited.add(self)
        return self

    def _test(self) -> bool:
        return self.request.Test()

    def _explain(self, error):
        """Return the exception that a user should see for one that MPI raised."""
        if hasattr(error, "Get_error_string"):
            return CommError(f"rank {self.comm.rank}: {self} failed: {error.Get_error_string()}")
        return error

    def test(self) -> bool:
        """Let MPI move data; say whether the operation is done."""
        if self.request is None:
            return True
        try:
            if self.agreement is not None:
                # the calls are compared first: MPI may raise its own error for calls that differ
                if not self.agreement.done():
                    return False
                self.agreement = None
            if not self._test():
                return False
            self.result = self.finish() if self.finish else None
        except Exception as error:  # raised in wait(), every time
            self.error = self._explain(error)
            ABANDONED.append((self.request, self.finish))  # MPI may continue the operation: its buffers must stay
        self.request = self.finish = self.agreement = None  # let go of the buffers
        self.comm.activity.pending.discard(self)
        if self.name:
            self.comm.record(self.name, self.start, self.nbytes)
        return True

    def done(self) -> bool:
        if not self.test():
            return False
        self.comm.activity.unwaited.discard(self)
        return True

    def wait(self):
        self.comm.activity.unwaited.discard(self)
        if not self.test():
            self.comm.block(self.test, self, self.nbytes)
        if self.error is not None:
            raise self.error
        return self.result


@dataclass
class GuardedWork:
    """An operation on a copy of the array `x`, with which `wait` compares it: it must not change in between."""

    work: MPIWork
    name: str
    x: np.ndarray
    before: np.ndarray | None
    result: np.ndarray | None = None

    def done(self) -> bool:
        return self.work.done()

    def wait(self):
        found = self.work.wait()
        if self.before is not None:
            if not same_bytes(self.x, self.before):
                who, site = f"rank {self.work.comm.rank}", self.work.site
                raise CommError(f"{who}: the array given to {self.name} was changed before wait() ({site})")
            if self.result is not None:
                self.x[...] = self.result
                self.work.give_back(self.result)
            self.work.give_back(self.before)
            self.before = None
        return found if self.result is None else self.x


@dataclass(eq=False, repr=False)
class RecvWork(MPIWork):
    """A receive in progress: a message whose size differs from the buffer's, longer or shorter, is an error."""

    out: Any = None  # the buffer
    look: Callable[[], None] | None = None  # raises if a message of another kind has arrived

    def __post_init__(self):
        super().__post_init__()
        self.status, self.next_look = self.comm.mpi.Status(), time.perf_counter() + LOOK_SECONDS

    def _test(self) -> bool:
        if not self.request.Test(self.status):
            if time.perf_counter() > self.next_look:
                self.look()
                self.next_look = time.perf_counter() + LOOK_SECONDS
            return False
        nbytes = self.status.Get_count(self.comm.mpi.BYTE)
        if nbytes != self.nbytes:
            raise self._wrong_size(f"{nbytes} bytes")
        return True

    def _explain(self, error):
        mpi = self.comm.mpi
        if isinstance(error, mpi.Exception) and error.Get_error_class() == mpi.ERR_TRUNCATE:
            return self._wrong_size(f"more than {self.nbytes} bytes")
        return super()._explain(error)

    def _wrong_size(self, found: str) -> ValueError:
        out, (_, source, tag) = self.out, self.peer
        return ValueError(
            f"rank {self.comm.rank}: recv(source={source}, tag={tag}) expected {out.size} {out.dtype}, but the "
            f"message holds {found}"
        )
