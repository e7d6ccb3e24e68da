"""The base of every communicator: each call checks its arguments once, here, and then calls a primitive.

A communicator over a new kind of connection is a subclass that implements the primitives: the methods of the last part,
whose names begin with an underscore. They get checked arguments, ranks and tags as plain integers, and for a
collective the `Call` that must be the same on every rank.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from ..backend import share_memory
from .protocol import ANY, REDUCTIONS, Work

OWN = ("distlearn.comm", "distlearn.sim")
"""Modules whose frames are not the user's: errors name the line of the user's code that called them."""


class CallSite(NamedTuple):
    """File, line and function of a call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        folder, _, name = self.file.replace("\\", "/").rpartition("/")
        in_cell = "ipykernel_" in folder or name.startswith("<ipython-input")  # such names mean nothing to the user
        where = "" if in_cell else f"{name}, "
        return f"{where}line {self.line}, in {self.function}"


def call_site(frame=None) -> CallSite | None:
    """Return the innermost frame outside this package's communication code, or None if all are inside it."""
    frame = sys._getframe(1) if frame is None else frame
    while frame is not None and frame.f_globals.get("__name__", "").startswith(OWN):
        frame = frame.f_back
    return None if frame is None else CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Call(NamedTuple):
    """One rank's call of a collective; `name` and `arguments` must be the same on all ranks.

    Attributes
    ----------
    arguments : tuple
        Operator or root, shape, dtype.
    site : CallSite or None
        The user's line.
    """

    name: str
    arguments: tuple
    site: CallSite | None = None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    @property
    def located(self) -> str:
        """The call and the line that made it."""
        return f"{self} ({self.site})" if self.site else str(self)


N_TAGS = 1 << 20  # in every world; an MPI library may have fewer


class BaseComm:
    """The `Communicator` protocol except for the primitives."""

    rank: int
    size: int
    n_tags: int = N_TAGS
    timeout: float | None = None
    _stated: tuple = ()

    def state(self, what: str) -> None:
        """Let the ranks compare `what` along with their next collective call, which costs no message."""
        self._stated = (what,)

    def _call(self, name: str, *arguments) -> Call:
        arguments, self._stated = arguments + self._stated, ()
        return Call(name, arguments, call_site())

    def agreement(self, call: Call):
        """Begin to compare this rank's call of a collective with the others'; None where it is not compared."""

    def abort(self) -> None:
        """Abort operations in progress that would never end, because another rank will not join them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    # -- between two ranks: arrays -----------------------------------------------------------------------------------
    def send(self, x, dest, tag=0):
        """Send `x`; may block until it is received."""
        self._send(*self._checked_send(x, dest, tag))

    def isend(self, x, dest, tag=0):
        """Start a send; do not touch `x` before `wait`."""
        return self._isend(*self._checked_send(x, dest, tag))

    def recv(self, out, source, tag=0):
        """Receive into `out` a message of exactly its size; return `out`."""
        return self._recv(*self._checked_recv(out, source, tag))

    def irecv(self, out, source, tag=0):
        """Start a receive; `out` is valid after `wait`, which raises if the message had another size."""
        return self._irecv(*self._checked_recv(out, source, tag))

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once; return `out`, which may not share memory with `x`."""
        sent, received = self._checked_send(x, dest, tag), self._checked_recv(out, source, tag)
        check_apart("send_recv", x, out, self.rank)
        return self._send_recv(sent, received)

    def _checked_send(self, x, dest, tag) -> tuple:
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        check_buffer("send", x, self.rank)
        return x, int(dest), int(tag)

    def _checked_recv(self, out, source, tag) -> tuple:
        check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        check_output("recv", out, self.rank)
        return out, int(source), int(tag)

    # -- between two ranks: anything that can be pickled -------------------------------------------------------------
    def send_obj(self, obj, dest, tag=0):
        """Send a pickled object; may block until it is received."""
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        self._send_obj(obj, int(dest), int(tag))

    def recv_obj(self, source=ANY, tag=0):
        """Receive the object from `source`, or the first that arrives from any rank."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        return self._recv_obj(int(source), int(tag))

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def all_reduce(self, x, op="sum"):
        """Replace `x` on every rank by its reduction; return it."""
        check_reduction("all_reduce", x, op, self.rank)
        return self._all_reduce(self._call("all_reduce", f"op={op!r}", x.shape, x.dtype), x, op)

    def iall_reduce(self, x, op="sum"):
        """Start an all-reduce, in place; do not touch `x` before `wait`."""
        check_reduction("all_reduce", x, op, self.rank)
        return self._iall_reduce(self._call("all_reduce", f"op={op!r}", x.shape, x.dtype), x, op)

    def reduce_scatter(self, x, op="sum"):
        """Reduce the flat array `x`; return this rank's share."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._reduce_scatter(self._call("reduce_scatter", f"op={op!r}", x.shape, x.dtype), x, op)

    def ireduce_scatter(self, x, op="sum"):
        """Start a reduce-scatter; do not touch `x` before `wait`."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._ireduce_scatter(self._call("reduce_scatter", f"op={op!r}", x.shape, x.dtype), x, op)

    def all_gather(self, x):
        """Return the `x` of every rank, stacked."""
        check_buffer("all_gather", x, self.rank)
        return self._all_gather(self._call("all_gather", x.shape, x.dtype), x)

    def broadcast(self, x, root=0):
        """Replace `x` on every rank by the root's; return it."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        return self._broadcast(self._call("broadcast", f"root={root}", x.shape, x.dtype), x, int(root))

    def scatter(self, x, out, root=0):
        """Copy the rows of the root's `x`, one to each rank, into `out`; return it."""
        check_root(root, self.rank, self.size)
        check_output("scatter", out, self.rank)
        if self.rank == root:
            check_scatter("scatter", x, out, self.rank, self.size)
        call = self._call("scatter", f"root={root}", out.shape, out.dtype)
        return self._scatter(call, x if self.rank == root else None, out, int(root))

    def gather(self, x, root=0):
        """Return the `x` of every rank, stacked, on the root."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        return self._gather(self._call("gather", f"root={root}", x.shape, x.dtype), x, int(root))

    def all_to_all(self, x):
        """Send row j to rank j; return the rows received, by source."""
        check_rows("all_to_all", x, self.rank, self.size)
        return self._all_to_all(self._call("all_to_all", x.shape, x.dtype), x)

    def barrier(self):
        """Wait until every rank has called it."""
        self._barrier(self._call("barrier"))

    def broadcast_obj(self, obj, root=0):
        """Return the root's object on every rank."""
        check_root(root, self.rank, self.size)
        return self._broadcast_obj(self._call("broadcast_obj", f"root={root}"), obj, int(root))

    def gather_obj(self, obj, root=0):
        """Return the object of every rank, by rank, on the root."""
        check_root(root, self.rank, self.size)
        return self._gather_obj(self._call("gather_obj", f"root={root}"), obj, int(root))

    def split(self, color, key=0):
        """Return the communicator of the ranks that gave the same `color`, or None for color None."""
        return self._split(self._call("split"), color, key)

    # -- primitives: what a subclass implements ----------------------------------------------------------------------
    def _isend(self, x, dest, tag) -> Work:
        raise NotImplementedError

    def _irecv(self, out, source, tag) -> Work:
        raise NotImplementedError

    def _send(self, x, dest, tag) -> None:
        self._isend(x, dest, tag).wait()

    def _recv(self, out, source, tag):
        return self._irecv(out, source, tag).wait()

    def _send_recv(self, sent: tuple, received: tuple):
        incoming = self._irecv(*received)
        outgoing = self._isend(*sent)
        incoming.wait()
        outgoing.wait()
        return received[0]

    def _send_obj(self, obj, dest, tag) -> None:
        raise NotImplementedError

    def _recv_obj(self, source, tag):
        raise NotImplementedError

    def _iall_reduce(self, call: Call, x, op) -> Work:
        raise NotImplementedError

    def _all_reduce(self, call: Call, x, op):
        return self._iall_reduce(call, x, op).wait()

    def _ireduce_scatter(self, call: Call, x, op) -> Work:
        raise NotImplementedError

    def _reduce_scatter(self, call: Call, x, op):
        return self._ireduce_scatter(call, x, op).wait()

    def _all_gather(self, call: Call, x):
        raise NotImplementedError

    def _broadcast(self, call: Call, x, root):
        raise NotImplementedError

    def _scatter(self, call: Call, x, out, root):
        raise NotImplementedError

    def _gather(self, call: Call, x, root):
        raise NotImplementedError

    def _all_to_all(self, call: Call, x):
        raise NotImplementedError

    def _barrier(self, call: Call) -> None:
        raise NotImplementedError

    def _broadcast_obj(self, call: Call, obj, root):
        raise NotImplementedError

    def _gather_obj(self, call: Call, obj, root):
        raise NotImplementedError

    def _split(self, call: Call, color, key):
        raise NotImplementedError


# -- checks of arguments: the same errors from every communicator and every collective


WITH_OBJECTS = ("send", "recv", "broadcast", "gather")
"""Operations that have a form for objects, named `*_obj`."""


def check_buffer(what: str, x, rank: int) -> None:
    """Raise unless `x` is an array that can be sent without a copy."""
    hint = f"; use {what}_obj for other objects" if what in WITH_OBJECTS else ""
    if not hasattr(x, "dtype") or not hasattr(x, "flags"):
        raise TypeError(f"rank {rank}: {what} takes an array, got {type(x).__name__}{hint}")
    if x.dtype.hasobject:
        raise TypeError(f"rank {rank}: {what} cannot move an array of dtype {x.dtype}{hint}")
    if not x.flags.c_contiguous:
        raise ValueError(
            f"rank {rank}: {what} needs a contiguous array, got shape {x.shape} with strides {x.strides}; "
            "pass np.ascontiguousarray(x) (and copy the result back if it is an output)"
        )


def check_output(what: str, x, rank: int) -> None:
    """Raise unless `x` is a contiguous array that may be written."""
    check_buffer(what, x, rank)
    if isinstance(x, np.generic):
        raise TypeError(
            f"rank {rank}: {what} writes into its buffer, expected an array, got {type(x).__name__}; use np.array(x)"
        )
    if getattr(x.flags, "writeable", True) is False:
        raise ValueError(f"rank {rank}: {what} writes into its buffer, but this array is read-only")


def check_apart(what: str, x, out, rank: int) -> None:
    """Raise if an operation that sends `x` would receive into the same memory, perhaps before it is sent."""
    if share_memory(x, out):
        raise ValueError(
            f"rank {rank}: {what} receives into memory that it sends; `out` must not overlap with what is sent, pass "
            "another array, such as np.empty_like(x)"
        )


SHOWN = 8
"""Error messages show arrays of at most this many values."""


def _shown(value) -> str:
    """Format an argument for an error message; a large array, passed instead of a number, by type and shape."""
    large = getattr(value, "size", 0) > SHOWN
    return f"<{type(value).__name__} of shape {value.shape}>" if large else repr(value)


def check_peer(what: str, peer: int, rank: int, size: int) -> None:
    """Raise unless `peer` is another rank of the communicator."""
    if not isinstance(peer, (int, np.integer)) or not 0 <= peer < size:
        raise ValueError(f"rank {rank}: {what}={_shown(peer)}, expected a rank from 0 to {size - 1}")
    if peer == rank:
        raise ValueError(f"rank {rank}: {what}={peer} is this rank itself; copy the array instead of sending it")


def check_root(root: int, rank: int, size: int) -> None:
    """Raise unless `root` is a rank of the communicator."""
    if not isinstance(root, (int, np.integer)) or not 0 <= root < size:
        raise ValueError(f"rank {rank}: root={_shown(root)}, expected a rank from 0 to {size - 1}")


def check_reduction(what: str, x, op: str, rank: int, in_place: bool = True) -> None:
    """Raise unless `op` names a reduction that every communicator can apply to an array like `x`."""
    if op not in REDUCTIONS:
        raise ValueError(f"rank {rank}: op={op!r}, expected one of {', '.join(map(repr, REDUCTIONS))}")
    (check_output if in_place else check_buffer)(what, x, rank)
    dtype = x.dtype
    if dtype.kind not in "iufcb" or not dtype.isnative or (dtype.kind == "c" and op in ("min", "max")):
        raise TypeError(f"rank {rank}: {what} cannot form the {op} of arrays of dtype {dtype.str}")


def check_report(rank: int, step, total) -> None:
    """Raise unless a report's `step` and `total` are numbers."""
    for name, value in (("step", step), ("total", total)):
        if not isinstance(value, (int, float, np.number)):
            raise TypeError(f"rank {rank}: report: {name} is {_shown(value)}, expected a number")


def check_tag(tag: int, rank: int, n_tags: int = N_TAGS) -> None:
    """Raise unless `tag` is a whole number from 0 to `n_tags` - 1."""
    if not isinstance(tag, (int, np.integer)) or not 0 <= tag < n_tags:
        raise ValueError(f"rank {rank}: tag={_shown(tag)}, expected a whole number from 0 to {n_tags - 1}")


def check_rows(what: str, x, rank: int, size: int) -> None:
    """Raise unless `x` has one row per rank."""
    check_buffer(what, x, rank)
    if x.ndim == 0 or len(x) != size:
        raise ValueError(f"rank {rank}: {what} needs one row per rank: expected shape ({size}, ...), got {x.shape}")


def check_scatter(what: str, x, out, rank: int, size: int) -> None:
    """Raise unless the rows of `x` can be scattered into the `out` of every rank."""
    check_output(what, out, rank)
    check_rows(what, x, rank, size)
    if x.shape[1:] != out.shape or x.dtype != out.dtype:
        rows = f"rows of shape {x.shape[1:]} {x.dtype}, but `out` has shape {out.shape} {out.dtype}"
        raise ValueError(f"rank {rank}: {what} sends {rows}")
    check_apart(what, x, out, rank)
