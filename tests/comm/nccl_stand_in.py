"""CuPy and its NCCL, as far as `NCCLComm` uses them, on host memory between the ranks of a simulated world.

Faithful where it matters: calls are put on streams and done later, when every rank has made its own; arguments are
plain numbers in the documented order (addresses, counts in elements of the NCCL dtype); calls that do not fit, which
NCCL would answer with a hang or with garbage, raise; and who looks at an array too early sees the old values.
"""

import ctypes
import functools
import types

import numpy as np

from distlearn.comm.calls import REDUCTIONS
from distlearn.nn.costs.count import MockDeviceArray

DTYPES = {"INT8": (0, "i1"), "UINT8": (1, "u1"), "INT32": (2, "i4"), "UINT32": (3, "u4"), "INT64": (4, "i8"),
          "UINT64": (5, "u8"), "FLOAT16": (6, "f2"), "FLOAT32": (7, "f4"), "FLOAT64": (8, "f8")}  # fmt: skip
OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}  # both as in nccl.h
KIND = dict(DTYPES.values())
REDUCE = {code: REDUCTIONS[name.lower()] for name, code in OPS.items()}
ARGUMENTS = {"allReduce": 6, "broadcast": 6, "reduceScatter": 6, "allGather": 5}
"""How many arguments a call has: two addresses, count, dtype, operator or root, stream."""
LONG = 2000
"""So often a rank hands over before a wait counts as a hang."""
MIXED = "NCCL would hang or mix data up"


class Fabric:
    """What connects the ranks that share a unique id: the n-th calls of all ranks are done together."""

    def __init__(self):
        self.size, self.calls, self.done, self.dead = None, {}, 0, False

    def join(self, size, rank):
        assert self.size in (None, size)
        assert rank in range(size)
        assert rank not in self.calls, "a rank joined twice"
        self.size, self.calls[rank] = size, []

    def push(self, rank, call) -> int:
        """Add a rank's call, do what all ranks have come to, and return the number at which it is done."""
        self.calls[rank].append(call)
        while len(self.calls) == self.size and all(len(own) > self.done for own in self.calls.values()):
            self._do([self.calls[r][self.done] for r in range(self.size)])
            self.done += 1
        return len(self.calls[rank])

    def _do(self, calls):
        """Do the calls of all ranks: (kind, addresses, what must agree with the others)."""
        assert len({(kind, agreed) for kind, _, agreed in calls}) == 1, f"{MIXED}: {calls}"
        collective(calls[0][0], *calls[0][2], places=[addresses for _, addresses, _ in calls])


def memory(address: int, count: int, dtype: int) -> np.ndarray:
    """The host memory at an address."""
    kind = np.dtype(KIND[dtype])
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


def collective(kind, count, dtype, *more, places):
    """Do a collective; `places` are by rank the addresses of what it gives and of what it gets."""
    size, reduces = len(places), "educe" in kind
    given = [memory(a, count * (size if kind == "reduceScatter" else 1), dtype).copy() for a, _ in places]
    result = functools.reduce(REDUCE[more[0]], given).astype(KIND[dtype]) if reduces else np.concatenate(given)
    if kind == "broadcast":
        result = given[more[0]]
    for rank, (_, out) in enumerate(places):
        if kind == "reduceScatter":
            memory(out, count, dtype)[:] = result[rank * count : (rank + 1) * count]
        elif kind != "reduce" or rank == more[1]:
            memory(out, result.size, dtype)[:] = result


class Fabrics(list):
    """Of a world, by unique id."""

    shared_by_ranks = True


class CuPy:
    """One rank's CuPy; `calls` are NCCL's calls so far: kind, count, dtype, ...

    While the simulated rank's clock sleeps, the other ranks go on.
    """

    def __init__(self, clock, fabrics):
        self.calls, self.streams = [], {}
        self.hand_over = lambda: clock.sleep(1e-6)
        current = Stream(self, 0)
        self.cuda = types.SimpleNamespace(
            nccl=NCCL(self, fabrics),
            Stream=lambda non_blocking: Stream(self, 64 + len(self.streams)),
            Event=lambda: Event(self),
            get_current_stream=lambda: current,
            get_elapsed_time=self._elapsed,
        )

    @staticmethod
    def _elapsed(began, ended):
        assert began.done
        assert ended.done
        return 250.0

    @staticmethod
    def empty(shape, dtype):
        """Memory with rubbish in it, so that what nobody wrote is not taken for a result."""
        x = np.empty(shape, dtype)
        x.reshape(-1).view("u1")[...] = 1 if x.dtype.kind == "b" else 85
        return MockDeviceArray(x)


class Event:
    """Comes when so many calls are done; at once on the current stream, on which NumPy computes at once."""

    def __init__(self, cupy):
        self.cupy, self.after, self.stream = cupy, None, None

    @property
    def done(self):
        if not self._come():
            self.cupy.hand_over()  # on a card the others go on by themselves
        return self._come()

    def _come(self):
        return self.after is None or self.after[0].done >= self.after[1]


class Stream:
    """The current stream (0), or the communicator's own."""

    def __init__(self, cupy, ptr):
        self.cupy, self.ptr, self.after, self.ready = cupy, ptr, None, False
        cupy.streams[ptr] = self

    def record(self, event=None):
        event = Event(self.cupy) if event is None else event
        event.after, event.stream = self.after, self.ptr
        return event

    def wait_event(self, event):
        if self.ptr:
            assert event.stream == 0, "the stream waits for something else than the current one"
            self.ready = True
        else:
            assert any(event.done for _ in range(LONG)), "NCCL would hang"

    @property
    def done(self):
        return self.record().done


class NcclError(RuntimeError):
    """What CuPy raises for NCCL."""


class NCCL:
    """`cupy.cuda.nccl`."""

    def __init__(self, cupy, fabrics):
        self.cupy, self.fabrics = cupy, fabrics
        self.NcclCommunicator = lambda *args: NcclCommunicator(self, *args)
        for name, code in (*((n, c) for n, (c, _) in DTYPES.items()), *OPS.items()):
            setattr(self, f"NCCL_{name}", code)

    def get_unique_id(self):
        self.fabrics.append(Fabric())
        return (len(self.fabrics) - 1).to_bytes(128, "little")


class NcclCommunicator:
    """`cupy.cuda.nccl.NcclCommunicator(ndev, commId, rank)`."""

    def __init__(self, nccl, ndev, commId, rank):
        assert isinstance(commId, bytes)
        assert len(commId) == 128
        self.nccl, self.rank, self.fabric = nccl, rank, nccl.fabrics[int.from_bytes(commId, "little")]
        self.fabric.join(ndev, rank)
        for kind in ARGUMENTS:
            setattr(self, kind, functools.partial(self._call, kind))
        for _ in range(LONG):
            if len(self.fabric.calls) == ndev:
                return
            nccl.cupy.hand_over()
        raise NcclError("NCCL_ERROR_SYSTEM_ERROR: some ranks never came")

    def abort(self):
        self.fabric.dead = True

    def launch(self, stream, call):
        assert stream.ptr, "NCCL on the current stream"
        assert stream.ready, "the stream did not wait for what the current one computes"
        stream.ready = False
        stream.after = self.fabric, self.fabric.push(self.rank, call)

    def _call(self, kind, *arguments):
        assert not self.fabric.dead
        assert len(arguments) == ARGUMENTS[kind]
        assert all(type(v) is int for v in arguments), (kind, arguments)
        self.nccl.cupy.calls.append((kind, *arguments[2:-1]))
        self.launch(self.nccl.cupy.streams[arguments[-1]], (kind, arguments[:2], arguments[2:-1]))
