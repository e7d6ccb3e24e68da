"""CuPy and its NCCL, as far as `NCCLComm` uses them, on host memory between the ranks of a simulated world.

Faithful where it matters: calls are put on streams and done later, when every rank has made its own; arguments are
plain numbers in the documented order (addresses, counts in elements of the NCCL dtype); calls that do not fit, which
NCCL would answer with a hang or with garbage, raise; and who looks at an array too early sees the old values.
"""

import ctypes
import itertools
import types
from collections import deque
from typing import NamedTuple

import numpy as np

from distlearn.comm.calls import REDUCTIONS
from distlearn.nn.costs.count import MockDeviceArray

DTYPES = {"INT8": (0, "i1"), "UINT8": (1, "u1"), "INT32": (2, "i4"), "UINT32": (3, "u4"), "INT64": (4, "i8"),
          "UINT64": (5, "u8"), "FLOAT16": (6, "f2"), "FLOAT32": (7, "f4"), "FLOAT64": (8, "f8")}  # fmt: skip
OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}  # both as in nccl.h
KIND = dict(DTYPES.values())
REDUCE = {code: REDUCTIONS[name.lower()] for name, code in OPS.items()}
MESSAGES = ("send", "recv")
LONG = 2000
"""So often a rank hands over before a wait counts as a hang."""


class Call(NamedTuple):
    """One NCCL call of one rank: what must agree with the others' (for messages: count, dtype, peer), and where."""

    kind: str
    agreed: tuple
    addresses: tuple


class Fabric:
    """What connects the ranks that share a unique id: each has a queue of groups of calls, worked off in order."""

    def __init__(self):
        self.size, self.queues, self.done, self.dead = None, {}, {}, False

    def join(self, size, rank):
        assert self.size in (None, size)
        assert rank in range(size)
        assert rank not in self.queues, "a rank joined twice"
        self.size, self.queues[rank], self.done[rank] = size, deque(), 0

    def push(self, rank, calls) -> int:
        """Queue a group: collectives one by one, messages all at once; return the number at which it is done."""
        for messages, part in itertools.groupby(calls, lambda c: c.kind in MESSAGES):
            group = list(part)
            self.queues[rank].extend([group] if messages else [[call] for call in group])
        end = self.done[rank] + len(self.queues[rank])
        while self._collective() or self._message():
            pass
        return end

    def _finish(self, rank):
        self.queues[rank].popleft()
        self.done[rank] += 1

    def _collective(self) -> bool:
        """Do the collective that all ranks have come to."""
        if len(self.queues) != self.size or not all(self.queues.values()):
            return False
        heads = [self.queues[r][0][0] for r in range(self.size)]
        if any(c.kind in MESSAGES for c in heads):
            return False
        assert len({(c.kind, c.agreed) for c in heads}) == 1, f"NCCL would hang or mix data up: {heads}"
        COLLECTIVES[heads[0].kind](*heads[0].agreed, [c.addresses for c in heads])
        for rank in range(self.size):
            self._finish(rank)
        return True

    def _message(self) -> bool:
        """Move one message between groups that sender and receiver have come to."""
        heads = {r: q[0] for r, q in self.queues.items() if q and q[0][0].kind in MESSAGES}
        for rank, group in heads.items():
            for send in [c for c in group if c.kind == "send"]:
                count, dtype, peer = send.agreed
                recv = next((c for c in heads.get(peer, []) if c.kind == "recv" and c.agreed[2] == rank), None)
                if recv is None:
                    continue
                assert recv.agreed[:2] == (count, dtype), f"NCCL would hang or mix data up: {send}, {recv}"
                memory(recv.addresses[0], count, dtype)[:] = memory(send.addresses[0], count, dtype)
                group.remove(send)
                heads[peer].remove(recv)
                for who in {rank, peer}:
                    if not heads[who]:
                        self._finish(who)
                return True
        return False


def memory(address: int, count: int, dtype: int) -> np.ndarray:
    """The host memory at an address."""
    kind = np.dtype(KIND[dtype])
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


def reduced(count, dtype, op, addresses):
    """The reduction of what lies at the addresses."""
    total = memory(addresses[0], count, dtype).copy()
    for address in addresses[1:]:
        total = REDUCE[op](total, memory(address, count, dtype))
    return total.astype(KIND[dtype])


def all_reduce(count, dtype, op, places):
    total = reduced(count, dtype, op, [a for a, _ in places])
    for _, out in places:
        memory(out, count, dtype)[:] = total


def reduce(count, dtype, op, root, places):
    memory(places[root][1], count, dtype)[:] = reduced(count, dtype, op, [a for a, _ in places])


def reduce_scatter(count, dtype, op, places):
    total = reduced(count * len(places), dtype, op, [a for a, _ in places])
    for part, (_, out) in zip(total.reshape(len(places), count), places, strict=True):
        memory(out, count, dtype)[:] = part


def all_gather(count, dtype, places):
    whole = np.concatenate([memory(a, count, dtype) for a, _ in places])
    for _, out in places:
        memory(out, count * len(places), dtype)[:] = whole


def broadcast(count, dtype, root, places):
    data = memory(places[root][0], count, dtype).copy()
    for _, out in places:
        memory(out, count, dtype)[:] = data


COLLECTIVES = {"allReduce": all_reduce, "reduce": reduce, "reduceScatter": reduce_scatter, "allGather": all_gather,
               "broadcast": broadcast}  # fmt: skip


class Fabrics(list):
    """Of a world, by unique id."""

    shared_by_ranks = True


class CuPy:
    """One rank's CuPy.

    Parameters
    ----------
    clock : Clock
        Of the simulated rank: while it sleeps, the other ranks go on.
    fabrics : Fabrics

    Attributes
    ----------
    calls : list of tuple
        NCCL's calls so far: kind, count, dtype, ...
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
    """Comes when a rank has done so many groups; at once on the current stream, on which NumPy computes at once."""

    def __init__(self, cupy):
        self.cupy, self.after, self.stream = cupy, None, None

    @property
    def done(self):
        if not self._come():
            self.cupy.hand_over()  # on a card the others go on by themselves
        return self._come()

    def _come(self):
        fabric, rank, end = self.after or (None, None, None)
        return fabric is None or fabric.done[rank] >= end


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
            return
        for _ in range(LONG):
            if event.done:
                return
        raise AssertionError("NCCL would hang")

    @property
    def done(self):
        return self.record().done


class NcclError(RuntimeError):
    """What CuPy raises for NCCL."""


class NCCL:
    """`cupy.cuda.nccl`."""

    def __init__(self, cupy, fabrics):
        self.cupy, self.fabrics, self.group, self.depth = cupy, fabrics, [], 0
        self.NcclCommunicator = lambda *args: NcclCommunicator(self, *args)
        for name, code in (*((n, c) for n, (c, _) in DTYPES.items()), *OPS.items()):
            setattr(self, f"NCCL_{name}", code)

    def get_unique_id(self):
        self.fabrics.append(Fabric())
        return (len(self.fabrics) - 1).to_bytes(128, "little")

    def groupStart(self):
        self.depth += 1

    def groupEnd(self):
        self.depth -= 1
        assert self.depth >= 0
        if self.depth == 0 and self.group:
            calls, self.group = self.group, []
            ((comm, stream),) = {(comm, stream) for comm, stream, _ in calls}
            comm.launch(self.cupy.streams[stream], [call for *_, call in calls])


class NcclCommunicator:
    """`cupy.cuda.nccl.NcclCommunicator(ndev, commId, rank)`."""

    def __init__(self, nccl, ndev, commId, rank):
        assert isinstance(commId, bytes)
        assert len(commId) == 128
        self.nccl, self.rank, self.fabric = nccl, rank, nccl.fabrics[int.from_bytes(commId, "little")]
        self.fabric.join(ndev, rank)
        for _ in range(LONG):
            if len(self.fabric.queues) == ndev:
                return
            nccl.cupy.hand_over()
        raise NcclError("NCCL_ERROR_SYSTEM_ERROR: some ranks never came")

    def abort(self):
        self.fabric.dead = True

    def launch(self, stream, calls):
        assert stream.ptr, "NCCL on the current stream"
        assert stream.ready, "the stream did not wait for what the current one computes"
        stream.ready = False
        stream.after = self.fabric, self.rank, self.fabric.push(self.rank, calls)

    def _call(self, kind, agreed, addresses, stream):
        assert not self.fabric.dead
        assert all(type(v) is int for v in (*agreed, *addresses, stream)), (kind, agreed, addresses, stream)
        self.nccl.cupy.calls.append((kind, *agreed))
        self.nccl.groupStart()
        self.nccl.group.append((self, stream, Call(kind, agreed, addresses)))
        self.nccl.groupEnd()

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        self._call("allReduce", (count, datatype, op), (sendbuf, recvbuf), stream)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        self._call("reduce", (count, datatype, op, root), (sendbuf, recvbuf), stream)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        self._call("broadcast", (count, datatype, root), (sendbuff, recvbuff), stream)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        self._call("reduceScatter", (recvcount, datatype, op), (sendbuf, recvbuf), stream)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        self._call("allGather", (count, datatype), (sendbuf, recvbuf), stream)

    def send(self, sendbuf, count, datatype, peer, stream):
        self._call("send", (count, datatype, peer), (sendbuf,), stream)

    def recv(self, recvbuf, count, datatype, peer, stream):
        self._call("recv", (count, datatype, peer), (recvbuf,), stream)
