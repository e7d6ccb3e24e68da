"""The communicator: the one interface that every parallel algorithm of the library is written against.

Calls block, like MPI's. Arrays are contiguous and are received into buffers that the caller provides; anything else
is sent pickled by the `_obj` forms. A `send` may block until it is received: code that relies on buffering is wrong,
and the simulator reports it as a deadlock.

Each call checks its arguments once, in the public method, and then calls the method of the same name with an
underscore, which gets checked arguments, ranks and tags as plain integers, and for a collective the `Call` that must be
the same on every rank. A communicator over a new kind of connection is a subclass of `point_to_point.PointToPoint` with
five primitives.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Protocol

from ..backend import Array
from ..trace import Clock
from .calls import (
    ANY,
    N_TAGS,
    Call,
    call_site,
    check_apart,
    check_buffer,
    check_output,
    check_peer,
    check_reduction,
    check_report,
    check_root,
    check_rows,
    check_scatter,
    check_tag,
)
from .recorder import Recorder


class CommError(RuntimeError):
    """Something went wrong between ranks."""


class CommTimeoutError(CommError):
    """A rank waited longer for the others than its timeout."""


class DeadlockError(CommError):
    """Every rank waits for another, so none can ever continue."""


class RankError(CommError):
    """A rank raised, died or hung; `rank` is the first one that did.

    `original` is the exception where known; `lost` is True if the rank died or hung, rather than raised.
    """

    def __init__(self, rank: int, message: str, original: BaseException | None = None, lost: bool = False):
        super().__init__(f"rank {rank}: {message}")
        self.rank, self.message, self.original, self.lost = rank, message, original, lost

    def __reduce__(self):
        original = self.original
        try:
            pickle.loads(pickle.dumps(original))
        except Exception:  # else a pool of processes would wait for this error for ever
            original = None
        return type(self), (self.rank, self.message, original, self.lost)


class PeerLostError(CommError):
    """Other ranks are lost, so an operation that needs them cannot end.

    Attributes
    ----------
    ranks : tuple of int
        All ranks of the communicator that are known to be lost.
    """

    def __init__(self, ranks: Sequence[int], message: str):
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self):
        return type(self), (self.ranks, str(self))


class CutOffError(CommError):
    """The rank itself has been declared lost by the others (it hung, or the network failed): it must stop."""


class Work(Protocol):
    """Handle of an operation in progress."""

    def wait(self) -> Any:
        """Block until it is done; return its result (for receives and in-place collectives: the buffer)."""

    def done(self) -> bool:
        """Return whether it is done, without blocking."""


class DoneWork:
    """A `Work` that is already done."""

    def __init__(self, result=None):
        self._result = result

    def wait(self):
        return self._result

    def done(self) -> bool:
        return True


def ignore_report(step: int, total: int, **values) -> None:
    """Do nothing with a report."""


class Communicator:
    """The operations that a parallel algorithm may use.

    Attributes
    ----------
    rank : int
        This process's index, 0 to `size` - 1.
    size : int
        Number of ranks.
    clock : Clock
        The only source of time.
    n_tags : int
        Tags are whole numbers below it.
    """

    rank: int
    size: int
    clock: Clock
    n_tags: int = N_TAGS
    timeout: float | None = None
    members: Sequence[int] = ()  # Ranks of the world, by rank.
    recorder: Recorder | None = None
    _report = staticmethod(ignore_report)
    _stated: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    def report(self, step: int, total: int, **values: Any) -> None:
        """Report to an observer, such as a progress bar, that `step` of `total` is done; only rank 0's count."""
        check_report(self.rank, step, total)
        self._report(step, total, **values)

    def abort(self) -> None:
        """Abort operations in progress that would never end, because another rank will not join them."""

    def state(self, what: str) -> None:
        """Let the ranks compare `what` along with their next collective call, which costs no message."""
        self._stated = (what,)

    def agreement(self, call: Call) -> Any:
        """Begin to compare this rank's call of a collective with the others'; None where it is not compared."""

    def _call(self, name: str, x: Any = None, *arguments) -> Call:
        """Note a call of a collective, with an array of whose every rank has one like `x`."""
        like = () if x is None else (x.shape, x.dtype)
        call, self._stated = Call(name, (*arguments, *like, *self._stated), call_site()), ()
        if self.recorder is not None:  # formatted when somebody asks
            self.recorder.numbers[self.members] = number = self.recorder.numbers[self.members] + 1
            self.recorder.calls.append((self.members, number, call))
        return call

    def _note(self, name: str, peer: int, tag: int, size: int | str = "") -> None:
        if self.recorder is not None:
            self.recorder.calls.append((self.members, 0, (name, self.rank, int(peer), tag, size)))

    # -- between two ranks: arrays -------------------------------------------------------------------------------------
    def send(self, x: Array, dest: int, tag: int = 0) -> None:
        """Send the contiguous array `x`; may block until `dest` receives it."""
        self._send(*self._checked_send(x, dest, tag))

    def isend(self, x: Array, dest: int, tag: int = 0) -> Work:
        """Start a send; do not touch `x` before `wait`."""
        return self._isend(*self._checked_send(x, dest, tag))

    def recv(self, out: Array, source: int, tag: int = 0) -> Array:
        """Receive into the contiguous array `out` (same dtype and size as the message) and return it."""
        return self._recv(*self._checked_recv(out, source, tag))

    def irecv(self, out: Array, source: int, tag: int = 0) -> Work:
        """Start a receive; `out` is valid after `wait`, which raises if the message had another size."""
        return self._irecv(*self._checked_recv(out, source, tag))

    def send_recv(self, x: Array, dest: int, out: Array, source: int, tag: int = 0) -> Array:
        """Send `x` to `dest` while receiving `out` from `source`; return `out`. Cannot deadlock by itself.

        `out` may not share memory with `x`.
        """
        sent, received = self._checked_send(x, dest, tag), self._checked_recv(out, source, tag)
        check_apart("send_recv", x, out, self.rank)
        return self._send_recv(sent, received)

    def _check_peer_and_tag(self, end: str, peer, tag) -> None:
        check_peer(end, peer, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)

    def _checked_send(self, x, dest, tag) -> tuple[Any, ...]:
        self._check_peer_and_tag("dest", dest, tag)
        check_buffer("send", x, self.rank)
        self._note("send(dest", dest, tag, x.nbytes)
        return x, int(dest), int(tag)

    def _checked_recv(self, out, source, tag) -> tuple[Any, ...]:
        self._check_peer_and_tag("source", source, tag)
        check_output("recv", out, self.rank)
        self._note("recv(source", source, tag, out.nbytes)
        return out, int(source), int(tag)

    # -- between two ranks: anything that can be pickled ---------------------------------------------------------------
    def send_obj(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send a pickled object; may block until it is received."""
        self._check_peer_and_tag("dest", dest, tag)
        self._note("send_obj(dest", dest, tag)
        self._send_obj(obj, int(dest), int(tag))

    def recv_obj(self, source: int = ANY, tag: int = 0) -> Any:
        """Receive an object from `source`, or from any rank (`ANY`) the one that arrives first."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        self._note("recv_obj(source", source, tag)
        return self._recv_obj(int(source), int(tag))

    # -- all ranks -----------------------------------------------------------------------------------------------------
    def all_reduce(self, x: Array, op: str = "sum") -> Array:
        """Replace `x` on every rank by the element-wise `op` ("sum", "prod", "min", "max") over ranks; return it.

        The result is the same on all ranks. Sums of float16 are exact and rounded once, in every world; NCCL alone, and
        the algorithms of `comm.collectives` where you call them yourself, round at every hop.
        """
        check_reduction("all_reduce", x, op, self.rank)
        return self._all_reduce(self._call("all_reduce", x, f"op={op!r}"), x, op)

    def iall_reduce(self, x: Array, op: str = "sum") -> Work:
        """Start an `all_reduce`; do not touch `x` before `wait`."""
        check_reduction("all_reduce", x, op, self.rank)
        return self._iall_reduce(self._call("all_reduce", x, f"op={op!r}"), x, op)

    def reduce_scatter(self, x: Array, op: str = "sum") -> Array:
        """Reduce the flat array `x` over ranks; return this rank's share, as `numpy.array_split(x, size)` cuts them."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._reduce_scatter(self._call("reduce_scatter", x, f"op={op!r}"), x, op)

    def ireduce_scatter(self, x: Array, op: str = "sum") -> Work:
        """Start a `reduce_scatter`; do not touch `x` before `wait`, which returns the share."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._ireduce_scatter(self._call("reduce_scatter", x, f"op={op!r}"), x, op)

    def all_gather(self, x: Array) -> Array:
        """Return the `x` of every rank, stacked: ``(size, *x.shape)``. Shapes must agree."""
        check_buffer("all_gather", x, self.rank)
        return self._all_gather(self._call("all_gather", x), x)

    def iall_gather(self, x: Array) -> Work:
        """Start an `all_gather`; do not touch `x` before `wait`, which returns the stack."""
        check_buffer("all_gather", x, self.rank)
        return self._iall_gather(self._call("all_gather", x), x)

    def broadcast(self, x: Array, root: int = 0) -> Array:
        """Replace `x` on every rank by the root's; return it."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        return self._broadcast(self._call("broadcast", x, f"root={root}"), x, int(root))

    def scatter(self, x: Array, out: Array, root: int = 0) -> Array:
        """Distribute the rows of the root's `x` ``(size, *out.shape)``, one to each rank, into `out`; return it.

        Only the root's `x` is read; the others pass None. `out` may not share memory with it.
        """
        check_root(root, self.rank, self.size)
        check_output("scatter", out, self.rank)
        if self.rank == root:
            check_scatter("scatter", x, out, self.rank, self.size)
        call = self._call("scatter", out, f"root={root}")
        return self._scatter(call, x if self.rank == root else None, out, int(root))

    def gather(self, x: Array, root: int = 0) -> Array | None:
        """Return the `x` of every rank, stacked ``(size, *x.shape)``, on the root, and None elsewhere."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        return self._gather(self._call("gather", x, f"root={root}"), x, int(root))

    def all_to_all(self, x: Array) -> Array:
        """Send row j of `x` (size, ...) to rank j; return the rows received, by source."""
        check_rows("all_to_all", x, self.rank, self.size)
        return self._all_to_all(self._call("all_to_all", x), x)

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        self._barrier(self._call("barrier"))

    def broadcast_obj(self, obj: Any, root: int = 0) -> Any:
        """Return the root's object on every rank."""
        check_root(root, self.rank, self.size)
        return self._broadcast_obj(self._call("broadcast_obj", None, f"root={root}"), obj, int(root))

    def gather_obj(self, obj: Any, root: int = 0) -> list[Any] | None:
        """Return the object of every rank, by rank, on the root, and None elsewhere."""
        check_root(root, self.rank, self.size)
        return self._gather_obj(self._call("gather_obj", None, f"root={root}"), obj, int(root))

    def all_gather_obj(self, obj: Any) -> list[Any]:
        """Return the object of every rank, by rank, on every rank: also arrays of different lengths."""
        return self.broadcast_obj(self.gather_obj(obj))

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks that gave the same `color`, ordered by (`key`, rank).

        A rank that gives None is in no new communicator and gets None. Every rank must call it.
        """
        return self._split(self._call("split"), color, key)

    # -- primitives, which a subclass implements -----------------------------------------------------------------------
    def _isend(self, x, dest: int, tag: int) -> Work:
        raise NotImplementedError

    def _irecv(self, out, source: int, tag: int) -> Work:
        raise NotImplementedError

    def _send_obj(self, obj, dest: int, tag: int) -> None:
        raise NotImplementedError

    def _recv_obj(self, source: int, tag: int):
        raise NotImplementedError

    def _split(self, call: Call, color, key) -> Communicator | None:
        raise NotImplementedError

    # -- built on the primitives; a subclass may override them with something faster -----------------------------------
    def _send(self, x, dest, tag) -> None:
        self._isend(x, dest, tag).wait()

    def _recv(self, out, source, tag):
        return self._irecv(out, source, tag).wait()

    def _send_recv(self, sent: tuple[Any, ...], received: tuple[Any, ...]):
        incoming = self._irecv(*received)
        outgoing = self._isend(*sent)
        incoming.wait()
        outgoing.wait()
        return received[0]

    def _all_reduce(self, call: Call, x, op):
        return self._iall_reduce(call, x, op).wait()

    def _reduce_scatter(self, call: Call, x, op):
        return self._ireduce_scatter(call, x, op).wait()

    def _all_gather(self, call: Call, x):
        return self._iall_gather(call, x).wait()
