"""SimComm's half in which all ranks take part: they meet, and the last to come computes everybody's result."""

from __future__ import annotations

import pickle
from collections import defaultdict

from ..backend import get_xp
from ..comm.collectives import shares
from ..comm.protocol import (
    REDUCTIONS,
    CommError,
    check_buffer,
    check_deal,
    check_op,
    check_output,
    check_reducible,
    check_root,
    check_rows,
)
from ..trace import Span
from .timeline import first_common
from .work import MeetingWork, UntouchedWork


class Collectives:
    """Collective operations of `SimComm`."""

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
        check_reducible("all_reduce", x, op, self.rank)
        what = ("all_reduce", f"op={op!r}", x.shape, str(x.dtype))
        snapshot = x.copy()
        work = self._meet("all_reduce", what, snapshot, x.nbytes, lambda xs: [_reduce(xs, op)] * len(xs), into=x)
        return UntouchedWork(work, x, snapshot, f"rank {self.rank}: the array given to iall_reduce")

    def all_reduce(self, x, op="sum"):
        """All-reduce in place."""
        return self.iall_reduce(x, op).wait()

    def reduce_scatter(self, x, op="sum"):
        """Reduce, and keep this rank's share."""
        return self._reduce_scatter(x, x, op).wait()

    def ireduce_scatter(self, x, op="sum"):
        """Start a reduce-scatter."""
        check_buffer("reduce_scatter", x, self.rank)
        snapshot = x.copy()
        work = self._reduce_scatter(x, snapshot, op)
        return UntouchedWork(work, x, snapshot, f"rank {self.rank}: the array given to ireduce_scatter")

    def _reduce_scatter(self, x, payload, op) -> MeetingWork:
        check_op(op, self.rank)
        check_buffer("reduce_scatter", x, self.rank)
        check_reducible("reduce_scatter", x, op, self.rank)
        what = ("reduce_scatter", f"op={op!r}", x.shape, str(x.dtype))

        def finish(xs):
            return [_reduce([q.reshape(-1)[share] for q in xs], op) for share in shares(x.size, self.size)]

        return self._meet("reduce_scatter", what, payload, x.nbytes, finish)

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
            check_deal("scatter", x, out, self.rank, self.size)
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
