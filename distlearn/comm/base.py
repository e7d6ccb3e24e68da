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

import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..backend import share_memory
from ..trace import Clock

ANY = -1  # As `source` of `recv_obj`: take the object that arrives first, from any rank.


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
        self.rank, self.original, self.lost = rank, original, lost


class PeerLostError(CommError):
    """Other ranks are lost, so an operation that needs them cannot end.

    Attributes
    ----------
    ranks : tuple of int
        All ranks of the communicator that are known to be lost.
    """

    def __init__(self, ranks, message: str):
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self):
        return type(self), (self.ranks, str(self))


class CutOffError(CommError):
    """The rank itself has been declared lost by the others (it hung, or the network failed): it must stop."""


class Work(Protocol):
    """Handle of an operation in progress."""

    def wait(self):
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


# Modules whose frames are not the user's: errors name the line of the user's code that called them.
OWN = ("distlearn.comm", "distlearn.sim")


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
        return f"{self} ({self.site})" if self.site else str(self)


# -- the flight recorder: see "who is missing" -------------------------------------------------------------------------
LENGTH = 64  # Calls that a rank keeps.


class Record(NamedTuple):
    """One call of one rank.

    Attributes
    ----------
    group : sequence of int
        Ranks of the world that the call concerns: all of the communicator, or of a message the two ends.
    number : int
        Of the collectives of this group, from 1; 0 for a message.
    call : str
        With its arguments, such as ``all_reduce(op='sum', (4,), float32)``.
    site : CallSite or None
        The user's line, if known.
    """

    group: Sequence[int]
    number: int
    call: str
    site: object = None
    state: str = "done"

    def __str__(self) -> str:
        where = f" ({self.site})" if self.site else ""
        return f"{self.call}{f', number {self.number}' if self.number else ''}{where}"


EXHAUSTED = "MPI can make no more communicators"
TO_RETURN = "all ranks to return"  # what a rank waits for that has made all of its calls


class Recorder:
    """A ring buffer of one rank's calls, on a communicator and all that were split from it."""

    def __init__(self):
        self.calls, self.numbers = deque(maxlen=LENGTH), Counter()  # (group, number, call); calls by group

    def clear(self) -> None:
        self.calls.clear()
        self.numbers.clear()

    def records(self, waiting: bool) -> list[Record]:
        """Return what was noted; the last call is in progress if the rank waits."""
        found = []
        for group, number, call in self.calls:
            if number:
                found.append(Record(group, number, str(call), call.site))
            else:
                name, rank, peer, tag, size = call
                pair, who = (group, "anyone") if peer == ANY else ((group[rank], group[peer]), peer)
                found.append(Record(pair, 0, f"{name}={who}, tag={tag}){size and f' of {size} bytes'}"))
        if found and waiting:
            found[-1] = found[-1]._replace(state="waiting")
        return found


# -- checks of arguments: the same errors from every communicator and every collective --------------------------------
# The operators of `all_reduce` and `reduce_scatter`, by name.
REDUCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}

N_TAGS = 1 << 20  # in every world; an MPI library may have fewer

WITH_OBJECTS = ("send", "recv", "broadcast", "gather")  # Operations that have a form for objects, named `*_obj`.


def same_calls(call, other) -> str:
    """Return the rule that two different calls break, and a way out."""
    both = all(str(one).startswith(("gather(", "all_gather(")) for one in (call, other))
    hint = "; arrays of different shapes go by gather_obj (and then broadcast_obj)" if both else ""
    return f"every rank must make the same collective calls in the same order{hint}"


COPIES = {
    False: "pass np.ascontiguousarray(x)",
    True: "pass y = np.ascontiguousarray(x), and when y has the result, copy it back: x[...] = y",
}


def check_buffer(what: str, x, rank: int, written: bool = False) -> None:
    """Raise unless `x` is an array that can be sent without a copy, or into which can be received."""
    hint = f"; use {what}_obj for other objects" if what in WITH_OBJECTS else ""
    if not hasattr(x, "dtype") or not hasattr(x, "flags"):
        raise TypeError(f"rank {rank}: {what} takes an array, got {type(x).__name__}{hint}")
    if x.dtype.hasobject:
        raise TypeError(f"rank {rank}: {what} cannot move an array of dtype {x.dtype}{hint}")
    if not x.flags.c_contiguous:
        raise ValueError(f"rank {rank}: {what} needs a contiguous array: {COPIES[written]}")
    if type(x) is not np.ndarray and isinstance(x, np.ndarray) and hasattr(x, "filled"):
        raise TypeError(
            f"rank {rank}: {what} would move what is masked, too: pass x.filled(value), or x.data and x.mask"
        )


def check_output(what: str, x, rank: int) -> None:
    """Raise unless `x` is a contiguous array that may be written."""
    check_buffer(what, x, rank, written=True)
    if isinstance(x, np.generic):
        raise TypeError(f"rank {rank}: {what} writes into an array, got {type(x).__name__}; use np.array(x)")
    if getattr(x.flags, "writeable", True) is False:
        raise ValueError(f"rank {rank}: {what} writes into its buffer, but this array is read-only")


def check_apart(what: str, x, out, rank: int) -> None:
    """Raise if an operation that sends `x` would receive into the same memory, perhaps before it is sent."""
    if share_memory(x, out):
        raise ValueError(f"rank {rank}: {what} receives into memory that it sends; `out` must not overlap with it")


SHOWN = 8  # Error messages show arrays of at most this many values.


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


# -- the interface -----------------------------------------------------------------------------------------------------
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
    _stated: tuple = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    def report(self, step: int, total: int, **values) -> None:
        """Report to an observer, such as a progress bar, that `step` of `total` is done; only rank 0's count."""
        check_report(self.rank, step, total)
        self._report(step, total, **values)

    def abort(self) -> None:
        """Abort operations in progress that would never end, because another rank will not join them."""

    def state(self, what: str) -> None:
        """Let the ranks compare `what` along with their next collective call, which costs no message."""
        self._stated = (what,)

    def agreement(self, call: Call):
        """Begin to compare this rank's call of a collective with the others'; None where it is not compared."""

    def _call(self, name: str, *arguments) -> Call:
        arguments, self._stated = arguments + self._stated, ()
        call = Call(name, arguments, call_site())
        if self.recorder is not None:  # formatted when somebody asks
            self.recorder.numbers[self.members] = number = self.recorder.numbers[self.members] + 1
            self.recorder.calls.append((self.members, number, call))
        return call

    def _note(self, name: str, peer: int, tag: int, size: int | str = "") -> None:
        if self.recorder is not None:
            self.recorder.calls.append((self.members, 0, (name, self.rank, int(peer), tag, size)))

    # -- between two ranks: arrays -----------------------------------------------------------------------------------
    def send(self, x, dest: int, tag: int = 0) -> None:
        """Send the contiguous array `x`; may block until `dest` receives it."""
        self._send(*self._checked_send(x, dest, tag))

    def isend(self, x, dest: int, tag: int = 0) -> Work:
        """Start a send; do not touch `x` before `wait`."""
        return self._isend(*self._checked_send(x, dest, tag))

    def recv(self, out, source: int, tag: int = 0):
        """Receive into the contiguous array `out` (same dtype and size as what was sent) and return it."""
        return self._recv(*self._checked_recv(out, source, tag))

    def irecv(self, out, source: int, tag: int = 0) -> Work:
        """Start a receive; `out` is valid after `wait`, which raises if the message had another size."""
        return self._irecv(*self._checked_recv(out, source, tag))

    def send_recv(self, x, dest: int, out, source: int, tag: int = 0):
        """Send `x` to `dest` while receiving `out` from `source`; return `out`. Cannot deadlock by itself.

        `out` may not share memory with `x`.
        """
        sent, received = self._checked_send(x, dest, tag), self._checked_recv(out, source, tag)
        check_apart("send_recv", x, out, self.rank)
        return self._send_recv(sent, received)

    def _checked_send(self, x, dest, tag) -> tuple:
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        check_buffer("send", x, self.rank)
        self._note("send(dest", dest, tag, x.nbytes)
        return x, int(dest), int(tag)

    def _checked_recv(self, out, source, tag) -> tuple:
        check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        check_output("recv", out, self.rank)
        self._note("recv(source", source, tag, out.nbytes)
        return out, int(source), int(tag)

    # -- between two ranks: anything that can be pickled -------------------------------------------------------------
    def send_obj(self, obj, dest: int, tag: int = 0) -> None:
        """Send a pickled object; may block until it is received."""
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        self._note("send_obj(dest", dest, tag)
        self._send_obj(obj, int(dest), int(tag))

    def recv_obj(self, source: int = ANY, tag: int = 0):
        """Receive an object from `source`, or from any rank (`ANY`) the one that arrives first."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank, self.n_tags)
        self._note("recv_obj(source", source, tag)
        return self._recv_obj(int(source), int(tag))

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def all_reduce(self, x, op: str = "sum"):
        """Replace `x` on every rank by the element-wise `op` ("sum", "prod", "min", "max") over ranks; return it."""
        check_reduction("all_reduce", x, op, self.rank)
        return self._all_reduce(self._call("all_reduce", f"op={op!r}", x.shape, x.dtype), x, op)

    def iall_reduce(self, x, op: str = "sum") -> Work:
        """Start an `all_reduce`; do not touch `x` before `wait`."""
        check_reduction("all_reduce", x, op, self.rank)
        return self._iall_reduce(self._call("all_reduce", f"op={op!r}", x.shape, x.dtype), x, op)

    def reduce_scatter(self, x, op: str = "sum"):
        """Reduce the flat array `x` over ranks; return this rank's share, as `numpy.array_split(x, size)` cuts them."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._reduce_scatter(self._call("reduce_scatter", f"op={op!r}", x.shape, x.dtype), x, op)

    def ireduce_scatter(self, x, op: str = "sum") -> Work:
        """Start a `reduce_scatter`; do not touch `x` before `wait`, which returns the share."""
        check_reduction("reduce_scatter", x, op, self.rank, in_place=False)
        return self._ireduce_scatter(self._call("reduce_scatter", f"op={op!r}", x.shape, x.dtype), x, op)

    def all_gather(self, x):
        """Return the `x` of every rank, stacked: ``(size, *x.shape)``. Shapes must agree."""
        check_buffer("all_gather", x, self.rank)
        return self._all_gather(self._call("all_gather", x.shape, x.dtype), x)

    def iall_gather(self, x) -> Work:
        """Start an `all_gather`; do not touch `x` before `wait`, which returns the stack."""
        check_buffer("all_gather", x, self.rank)
        return self._iall_gather(self._call("all_gather", x.shape, x.dtype), x)

    def broadcast(self, x, root: int = 0):
        """Replace `x` on every rank by the root's; return it."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        return self._broadcast(self._call("broadcast", f"root={root}", x.shape, x.dtype), x, int(root))

    def scatter(self, x, out, root: int = 0):
        """Distribute the rows of the root's `x` ``(size, *out.shape)``, one to each rank, into `out`; return it.

        Only the root's `x` is read; the others pass None. `out` may not share memory with it.
        """
        check_root(root, self.rank, self.size)
        check_output("scatter", out, self.rank)
        if self.rank == root:
            check_scatter("scatter", x, out, self.rank, self.size)
        call = self._call("scatter", f"root={root}", out.shape, out.dtype)
        return self._scatter(call, x if self.rank == root else None, out, int(root))

    def gather(self, x, root: int = 0):
        """Return the `x` of every rank, stacked ``(size, *x.shape)``, on the root, and None elsewhere."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        return self._gather(self._call("gather", f"root={root}", x.shape, x.dtype), x, int(root))

    def all_to_all(self, x):
        """Send row j of `x` (size, ...) to rank j; return the rows received, by source."""
        check_rows("all_to_all", x, self.rank, self.size)
        return self._all_to_all(self._call("all_to_all", x.shape, x.dtype), x)

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        self._barrier(self._call("barrier"))

    def broadcast_obj(self, obj, root: int = 0):
        """Return the root's object on every rank."""
        check_root(root, self.rank, self.size)
        return self._broadcast_obj(self._call("broadcast_obj", f"root={root}"), obj, int(root))

    def gather_obj(self, obj, root: int = 0) -> list | None:
        """Return the object of every rank, by rank, on the root, and None elsewhere."""
        check_root(root, self.rank, self.size)
        return self._gather_obj(self._call("gather_obj", f"root={root}"), obj, int(root))

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks that gave the same `color`, ordered by (`key`, rank).

        A rank that gives None is in no new communicator and gets None. Every rank must call it.
        """
        return self._split(self._call("split"), color, key)

    # -- primitives: what a subclass implements ----------------------------------------------------------------------
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

    # -- what follows from the primitives, and what a subclass may do better -----------------------------------------
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

    def _all_reduce(self, call: Call, x, op):
        return self._iall_reduce(call, x, op).wait()

    def _reduce_scatter(self, call: Call, x, op):
        return self._ireduce_scatter(call, x, op).wait()

    def _all_gather(self, call: Call, x):
        return self._iall_gather(call, x).wait()


# -- who is missing ----------------------------------------------------------------------------------------------------
# After a hang the records of the ranks are put side by side: who waits in which call, and who has not come. A rank
# that cannot answer has no records, and is missing by that alone. The idea is that of PyTorch's Flight Recorder: a
# ring buffer on every rank, analysed by (group, number of the call).


class Verdict(NamedTuple):
    """Why ranks wait.

    Attributes
    ----------
    ranks : tuple of int
        The missing ranks, those whose call differs from the others', or those that wait for each other.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str


def who_is_missing(records: dict[int, list[Record]]) -> Verdict:
    """Say from the records of a run that hangs which rank the others wait for, and where it was last.

    Parameters
    ----------
    records : dict of int to list of Record
        By rank; a rank that could not be asked is left out.

    Examples
    --------
    >>> call = Record(range(2), 3, "all_reduce(op='sum', (4,), float32)")
    >>> who_is_missing({0: [call._replace(state="waiting")], 1: [call._replace(number=2)]}).text
    "rank 1 is missing at all_reduce(op='sum', (4,), float32), number 3, where rank 0 waits; \
it was last in all_reduce(op='sum', (4,), float32), number 2"
    """
    calls = {(tuple(r.group), r.number, rank): r for rank, rs in records.items() for r in rs}
    reached = Counter()
    for group, number, rank in calls:
        reached[group, rank] = max(number, reached[group, rank])
    waits = {rank: rs[-1] for rank, rs in sorted(records.items()) if rs and rs[-1].state == "waiting"}
    for record in waits.values():  # the same number in the same group must be the same call on every rank
        same = {r: c for r in record.group if (c := calls.get((tuple(record.group), record.number, r)))}
        usual = Counter(c.call for c in same.values()).most_common(1)[0][0]
        odd = tuple(r for r, c in same.items() if c.call != usual)
        if record.number and odd:
            first = next(r for r, c in same.items() if c.call == usual)
            text = f"rank {odd[0]} calls {same[odd[0]]} where rank {first} calls {same[first]}"
            return Verdict("mismatch", odd, text)

    def awaited(rank):
        """The ranks that have not come to the call in which this one waits: those that wait elsewhere last."""
        group, number = tuple(waits[rank].group), waits[rank].number
        late = [r for r in group if r != rank and not (number and reached[group, r] >= number)]
        return sorted(late, key=lambda r: r in waits)

    path = list(waits)[:1]
    while path and path[-1] in waits and (late := awaited(path[-1])):
        if late[0] in path:  # whoever is waited for waits, too
            circle = sorted(path[path.index(late[0]) :])
            text = "; ".join(f"rank {r} waits in {waits[r]}" for r in circle)
            return Verdict("deadlock", tuple(circle), f"ranks wait for each other: {text}")
        path.append(late[0])
    if not path or path[-1] in waits:
        return Verdict("none", (), "no rank waits for one that has not come")
    call, missing = waits[path[-2]], tuple(r for r in late if r not in waits)
    there = [r for r, w in waits.items() if w[:3] == call[:3]]
    last = records.get(missing[0])
    text = f"{_named(missing)} missing at {call}, where {_named(there, 'waits', 'wait')}; "
    return Verdict("missing", missing, text + (f"it was last in {last[-1]}" if last else "nothing is known of it"))


def _named(ranks, one: str = "is", several: str = "are") -> str:
    listed = ", ".join(map(str, ranks))
    return f"ranks {listed} {several}" if len(ranks) > 1 else f"rank {listed} {one}"
