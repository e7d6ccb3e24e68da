"""A simulated rank's communicator and clock."""

from __future__ import annotations

import pickle
import time
from collections import defaultdict
from contextlib import contextmanager

import numpy as np

from ..backend import get_xp
from ..trace import Span
from .collectives import shares
from .lane import first_common
from .phantom import Phantom
from .post import Letter, Post, Slot
from .protocol import (
    ANY,
    REDUCTIONS,
    CommError,
    check_buffer,
    check_op,
    check_output,
    check_peer,
    check_root,
    check_rows,
)
from .scheduler import Fibre, Waits
from .sim_work import MeetingWork, RecvWork, SendWork, UntouchedWork, taken

POLL_SECONDS = 1e-6
"""Virtual time that asking `Work.done()` takes: a loop that polls must not stop the clock."""


class SimClock:
    """Virtual time of one rank."""

    def __init__(self, post: Post, fibre: Fibre):
        world = post.world
        self._post, self._fibre, self._compute = post, fibre, world.compute
        self._factor = world.slowdown.get(fibre.rank, 1.0)
        self._jitter = world.jitter
        self._rng = np.random.default_rng([world.seed, fibre.rank]) if world.jitter else None

    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._fibre.now

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, and everybody else catch up."""
        if not seconds >= 0:
            raise ValueError(f"rank {self._fibre.rank}: sleep({seconds!r}), expected 0 seconds or more")
        self._post.scheduler.yield_until(self._fibre, self._fibre.now + seconds)

    def _seconds_run(self) -> float:
        """Wall time that this rank itself has really run."""
        return self._fibre.seconds_run + time.perf_counter() - self._fibre.since

    @contextmanager
    def span(self, name, *, lane="compute", flops=0, nbytes=0):
        """Run the block, then advance the clock by what the compute model says it took."""
        fibre, compute = self._fibre, self._compute
        start = fibre.now
        began = self._seconds_run() if compute.measures else 0.0
        yield
        seconds = compute.seconds(flops, nbytes, self._seconds_run() - began if compute.measures else 0.0)
        seconds *= self._factor
        if self._rng is not None:
            seconds *= float(np.exp(self._rng.normal(0.0, self._jitter)))
        fibre.now = self._end(fibre.now, seconds)
        self._post.trace.spans.append(Span(fibre.rank, lane, name, start, fibre.now, flops, nbytes))

    def _end(self, start: float, seconds: float) -> float:
        """Return when work of so many seconds ends."""
        return start + seconds


class SimComm:
    """A simulated rank's `Communicator`; made by `SimWorld.run` and by `split`."""

    clock_class = SimClock

    def __init__(self, post: Post, fibre: Fibre, rank: int, members: list[Fibre], context: int = 0, clock=None):
        self._post, self._fibre, self._members, self._context = post, fibre, members, context
        self.rank = rank
        self.size = len(members)
        self.clock = self.clock_class(post, fibre) if clock is None else clock
        self._outgoing, self._incoming = {}, {}  # (peer, tag), or peer where tag is 0 -> channel
        self._eager_limit = post.world.eager_limit or -1
        self._calls = 0  # collectives so far: the n-th call of every rank is the same collective

    def __repr__(self) -> str:
        return f"SimComm(rank {self.rank} of {self.size})"

    def report(self, step, total, **values):
        """Hand rank 0's progress to the world's `report`."""
        if self._fibre.rank == 0 and self._post.world.report:
            self._post.world.report(step, total, **values)

    # -- between two ranks -----------------------------------------------------------------------------------------
    def _to(self, dest, tag):
        """Return the channel to `dest`, and the fibre there."""
        key = (dest, tag) if tag else dest
        found = self._outgoing.get(key)
        if found is None:
            check_peer("dest", dest, self.rank, self.size)
            channel = self._post.channel(self._context, self.rank, int(dest), tag)
            found = self._outgoing[key] = channel, self._members[dest].rank
        return found

    def _from(self, source, tag):
        """Return the channel from `source`."""
        key = (source, tag) if tag else source
        found = self._incoming.get(key)
        if found is None:
            check_peer("source", source, self.rank, self.size)
            found = self._incoming[key] = self._post.channel(self._context, int(source), self.rank, tag)
        return found

    def _send(self, x, dest, tag, name="send"):
        """Send; return when it is received, or the letter that will know; None if nobody needs to wait for it."""
        channel, rank = self._to(dest, tag)
        if x.__class__ is np.ndarray:
            if not x.flags.c_contiguous or x.dtype.hasobject:
                check_buffer("send", x, self.rank)
        elif x.__class__ is not Phantom:
            check_buffer("send", x, self.rank)
        if x.nbytes <= self._eager_limit:
            self._post.send(self._fibre, channel, rank, x.copy(), name)
            return None
        return self._post.send(self._fibre, channel, rank, x, name)

    def _receive(self, out, source, tag):
        """Receive; return when the data is there, or the slot that will know."""
        channel = self._from(source, tag)
        if out.__class__ is np.ndarray:
            if not out.flags.carray or out.dtype.hasobject:
                check_output("recv", out, self.rank)
        elif out.__class__ is not Phantom:
            check_output("recv", out, self.rank)
        return self._post.receive(self._fibre, channel, out)

    def _until_received(self, out, event):
        """Block until a receive has happened."""
        fibre = self._fibre
        if event.__class__ is Slot:
            self._post.wait_for(fibre, event)
            return out if event.problem is None else taken(event, self.rank)
        if event > fibre.now:
            fibre.now = event
        return out

    def _until_sent(self, event) -> None:
        """Block until a send has been received."""
        fibre = self._fibre
        if event.__class__ is Letter:
            self._post.wait_for(fibre, event)
        elif event is not None and event > fibre.now:
            fibre.now = event

    def isend(self, x, dest, tag=0):
        """Start a send."""
        event = self._send(x, dest, tag)
        eager = event is None
        if not isinstance(event, Letter):  # it has happened already, or will without us
            event = Letter(self.rank, self._fibre, None, x.nbytes, self._fibre.now, ("send", dest, tag), event)
        return SendWork(self, event, eager, None if eager else x)

    def send(self, x, dest, tag=0):
        """Send, and wait until it is received."""
        self._until_sent(self._send(x, dest, tag))

    def irecv(self, out, source, tag=0):
        """Start a receive."""
        event = self._receive(out, source, tag)
        if not isinstance(event, Slot):
            event = Slot(out, self._fibre.now, self._fibre, (source, tag), event)
        return RecvWork(self, event)

    def recv(self, out, source, tag=0):
        """Receive into `out`."""
        return self._until_received(out, self._receive(out, source, tag))

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once."""
        sent = self._send(x, dest, tag)
        self._until_received(out, self._receive(out, source, tag))
        self._until_sent(sent)
        return out

    def send_obj(self, obj, dest, tag=0):
        """Send a pickled object; blocks until it is received, unless it is small enough to be eager."""
        check_peer("dest", dest, self.rank, self.size)
        data = pickle.dumps(obj, protocol=5)
        post, fibre = self._post, self._fibre
        arrival = post.launch(fibre, self._members[dest].rank, len(data), tag)
        letter = Letter(self.rank, fibre, data, len(data), arrival, ("send_obj", dest, tag))
        letter.seq = post.sequence = post.sequence + 1
        letter.channel = post.channel(self._context, self.rank, int(dest), tag)
        key = (self._context, dest, tag)
        post.objects[key].append(letter)
        listener = post.listeners.get(key)
        if listener and listener[1] in (ANY, self.rank):
            first = min(q.arrival for q in post.objects[key] if listener[1] in (ANY, q.source))
            post.scheduler.wake(listener[0], max(listener[0].now, first))
        if len(data) > post.world.eager_limit:
            post.wait_for(fibre, letter)

    def recv_obj(self, source=ANY, tag=0):
        """Receive the object from `source` (or anyone) that arrives first."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        post, fibre, key = self._post, self._fibre, (self._context, self.rank, tag)
        box = post.objects[key]
        waiting = [q.arrival for q in box if source in (ANY, q.source)]
        if waiting:  # somebody whose clock stands earlier may still send one that arrives before
            post.scheduler.wake(fibre, max(fibre.now, min(waiting)))
        what = "anyone" if source == ANY else source
        post.listen(fibre, key, source, Waits(f"recv_obj(source={what}, tag={tag})"))
        letter = min((q for q in box if source in (ANY, q.source)), key=lambda q: (q.arrival, q.seq))
        box.remove(letter)
        post.settle(letter, fibre.now, letter.sender)
        return pickle.loads(letter.payload)

    def _poll(self, event) -> None:
        """Spend the time of one look at `event`, and let everybody before us go first."""
        self._post.scheduler.yield_until(self._fibre, self._fibre.now + POLL_SECONDS)

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def _meet(self, name, what, payload, nbytes, finish, into=None) -> MeetingWork:
        """Join the next collective: the last to come computes `finish(payloads by rank) -> results by rank`."""
        post, fibre, seq = self._post, self._fibre, self._calls
        self._calls += 1
        meeting = post.meetings[self._context, seq]
        if meeting.whats:
            other, first = next(iter(meeting.whats.items()))
            if first != what:
                raise CommError(
                    f"rank {self.rank} calls {_describe(what)} where rank {other} calls {_describe(first)}: "
                    f"every rank must make the same collective calls in the same order (this is number {seq + 1})"
                )
        meeting.members = self._members
        meeting.whats[self.rank] = what
        meeting.came[self.rank] = (fibre.now, payload)
        if len(meeting.came) == self.size:
            lanes = [member.comm_free for member in self._members]
            ranks = [member.rank for member in self._members]
            seconds = post.collective(name, nbytes, ranks, self._context, seq) if self.size > 1 else 0.0
            start = first_common(lanes, max(t for t, _ in meeting.came.values()), seconds)
            meeting.results = finish([meeting.came[r][1] for r in range(self.size)])
            for r, (member, lane) in enumerate(zip(self._members, lanes, strict=True)):
                began = max(meeting.came[r][0], min(start, lane.last_end(start)))
                lane.take(start, start + seconds)
                post.trace.spans.append(Span(member.rank, "comm", name, began, start + seconds, 0, nbytes))
                post.settle(meeting, start + seconds, member)
        return MeetingWork(self, meeting, seq, into)

    def iall_reduce(self, x, op="sum"):
        """Start an all-reduce; sums are formed in the order of ranks, so every run gives the same bits."""
        check_op(op, self.rank)
        check_output("all_reduce", x, self.rank)
        what = ("all_reduce", f"op={op!r}", x.shape, str(x.dtype))
        snapshot = x.copy()
        work = self._meet("all_reduce", what, snapshot, x.nbytes, lambda xs: [_reduce(xs, op)] * len(xs), into=x)
        return UntouchedWork(work, x, snapshot, f"rank {self.rank}: the array given to iall_reduce")

    def all_reduce(self, x, op="sum"):
        """All-reduce in place."""
        return self.iall_reduce(x, op).wait()

    def reduce_scatter(self, x, op="sum"):
        """Reduce, and keep this rank's share."""
        check_op(op, self.rank)
        check_buffer("reduce_scatter", x, self.rank)
        what = ("reduce_scatter", f"op={op!r}", x.shape, str(x.dtype))

        def finish(xs):
            return [_reduce([q.reshape(-1)[share] for q in xs], op) for share in shares(x.size, self.size)]

        return self._meet("reduce_scatter", what, x, x.nbytes, finish).wait()

    def all_gather(self, x):
        """Stack everyone's array."""
        check_buffer("all_gather", x, self.rank)
        what = ("all_gather", x.shape, str(x.dtype))
        work = self._meet("all_gather", what, x, x.nbytes * self.size, lambda xs: [_stack(xs)] * len(xs))
        return work.wait().copy()

    def broadcast(self, x, root=0):
        """Copy the root's array to everyone."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        what = ("broadcast", f"root={root}", x.shape, str(x.dtype))
        payload = x.copy() if self.rank == root else None
        into = None if self.rank == root else x  # the root's array may be read-only
        self._meet("broadcast", what, payload, x.nbytes, lambda xs: [xs[root]] * len(xs), into=into).wait()
        return x

    def scatter(self, x, out, root=0):
        """Deal the root's rows."""
        check_root(root, self.rank, self.size)
        check_output("scatter", out, self.rank)
        if self.rank == root:
            check_rows("scatter", x, self.rank, self.size)
            if x.shape[1:] != out.shape or x.dtype != out.dtype:
                raise ValueError(
                    f"rank {self.rank}: scatter deals rows of shape {x.shape[1:]} {x.dtype} "
                    f"into {out.shape} {out.dtype}"
                )
        what = ("scatter", f"root={root}", out.shape, str(out.dtype))
        payload = x.copy() if self.rank == root else None
        nbytes = out.nbytes * self.size
        return self._meet("scatter", what, payload, nbytes, lambda xs: list(xs[root]), into=out).wait()

    def gather(self, x, root=0):
        """Stack everyone's array on the root."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        what = ("gather", f"root={root}", x.shape, str(x.dtype))
        finish = lambda xs: [_stack(xs) if r == root else None for r in range(len(xs))]  # noqa: E731
        return self._meet("gather", what, x, x.nbytes * self.size, finish).wait()

    def all_to_all(self, x):
        """Transpose rows over ranks."""
        check_rows("all_to_all", x, self.rank, self.size)
        what = ("all_to_all", x.shape, str(x.dtype))
        finish = lambda xs: [_stack([q[r] for q in xs]) for r in range(len(xs))]  # noqa: E731
        return self._meet("all_to_all", what, x, x.nbytes, finish).wait()

    def barrier(self):
        """Wait for everyone."""
        self._meet("barrier", ("barrier",), None, 0, lambda xs: [None] * len(xs)).wait()

    def broadcast_obj(self, obj, root=0):
        """Copy the root's object to everyone."""
        check_root(root, self.rank, self.size)
        data = pickle.dumps(obj, protocol=5) if self.rank == root else b""
        work = self._meet(
            "broadcast", ("broadcast_obj", f"root={root}"), data, len(data), lambda xs: [xs[root]] * len(xs)
        )
        return pickle.loads(work.wait())

    def gather_obj(self, obj, root=0):
        """Collect everyone's object on the root."""
        check_root(root, self.rank, self.size)
        data = pickle.dumps(obj, protocol=5)
        finish = lambda xs: [xs if r == root else None for r in range(len(xs))]  # noqa: E731
        all_data = self._meet("gather", ("gather_obj", f"root={root}"), data, len(data) * self.size, finish).wait()
        return None if all_data is None else [pickle.loads(d) for d in all_data]

    def split(self, color, key=0):
        """Make a communicator for each color."""
        found = self._meet("all_gather", ("split",), (color, key), 16 * self.size, self._groups).wait()
        if found is None:
            return None
        context, ranks = found
        members = [self._members[r] for r in ranks]
        return type(self)(self._post, self._fibre, ranks.index(self.rank), members, context, self.clock)

    def _groups(self, pairs):
        """Decide who belongs together: (context, ranks in their new order) by rank."""
        groups = defaultdict(list)
        for rank, (color, key) in enumerate(pairs):
            if color is not None:
                groups[color].append((key, rank))
        results = [None] * len(pairs)
        for color in sorted(groups):
            ranks = [rank for _, rank in sorted(groups[color])]
            context = self._post.new_context()
            for rank in ranks:
                results[rank] = (context, ranks)
        return results


def _reduce(arrays, op):
    """Reduce in the order of ranks."""
    ufunc = REDUCTIONS[op]
    total = arrays[0].copy()
    for x in arrays[1:]:
        ufunc(total, x, out=total)
    return total


def _stack(arrays):
    """Stack the arrays of all ranks by rank."""
    return get_xp(*arrays).stack(arrays)


def _describe(what) -> str:
    """Write a collective's signature as a call."""
    name, *rest = what
    return f"{name}({', '.join(str(r) for r in rest)})"
