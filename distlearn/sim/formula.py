"""Collectives by a closed formula: the last rank to call computes the results of all ranks and when they are there.

For large worlds: one collective costs the simulator one switch per rank, whatever its number of messages.
"""

from __future__ import annotations

import pickle
from collections import defaultdict

from ..backend import get_xp
from ..comm.base import Communicator
from ..comm.calls import reduced
from ..shares import shares
from ..trace import Span
from .scheduler import first_common
from .transport import CollectiveCall, CollectiveWork


class FormulaCollectives(Communicator):
    """The collectives of a simulated rank's communicator, taking the seconds that the network's formula gives."""

    def _meet(self, call, payload, nbytes, finish) -> CollectiveCall:
        """Join the next collective: the last rank to call computes `finish(payloads by rank) -> results by rank`."""
        transport, fibre = self._transport, self._fibre
        joined = transport.join(call, self.rank, self._members, self._context)
        joined.payloads[self.rank] = (fibre.now, payload)
        if len(joined.payloads) == self.size:
            timelines = [member.timeline for member in self._members]
            ranks = [member.rank for member in self._members]
            name = FORMULA_OF.get(call.name, call.name)
            seconds = transport.network.collective(name, nbytes, ranks) if self.size > 1 else 0.0
            start = first_common(timelines, max(t for t, _ in joined.payloads.values()), seconds)
            joined.results = finish([joined.payloads[r][1] for r in range(self.size)])
            for r, (member, timeline) in enumerate(zip(self._members, timelines, strict=True)):
                began = max(joined.payloads[r][0], min(start, timeline.last_end(start)))
                timeline.take(start, start + seconds)
                transport.trace.spans.append(Span(member.rank, "comm", name, began, start + seconds, 0, nbytes))
                transport.complete(joined, start + seconds, member)
        return joined

    def _result(self, call, payload, nbytes, finish):
        joined = self._meet(call, payload, nbytes, finish)
        self._transport.wait_for(self._fibre, joined)
        return joined.results[self.rank]

    def _iall_reduce(self, call, x, op):
        """Sums are formed in the order of ranks, so every run gives the same bits."""
        snapshot = x.copy()
        joined = self._meet(call, snapshot, x.nbytes, lambda xs: [reduced(xs, op)] * len(xs))
        return CollectiveWork(self, joined, call, x, snapshot)

    def _ireduce_scatter(self, call, x, op):
        snapshot = x.copy()

        def reduced_shares(xs):
            return [reduced([q.reshape(-1)[share] for q in xs], op) for share in shares(x.size, self.size)]

        joined = self._meet(call, snapshot, x.nbytes, reduced_shares)
        return CollectiveWork(self, joined, call, x, snapshot)

    def _iall_gather(self, call, x):
        snapshot = x.copy()
        joined = self._meet(call, snapshot, x.nbytes * self.size, lambda xs: [_stack(xs) for _ in xs])
        return CollectiveWork(self, joined, call, x, snapshot)

    def _broadcast(self, call, x, root):
        payload = x.copy() if self.rank == root else None
        result = self._result(call, payload, x.nbytes, lambda xs: [xs[root]] * len(xs))
        if self.rank != root:  # the root's array may be read-only
            x[...] = result
        return x

    def _scatter(self, call, x, out, root):
        payload = x.copy() if self.rank == root else None
        out[...] = self._result(call, payload, out.nbytes * self.size, lambda xs: list(xs[root]))
        return out

    def _gather(self, call, x, root):
        finish = lambda xs: [_stack(xs) if r == root else None for r in range(len(xs))]  # noqa: E731
        return self._result(call, x, x.nbytes * self.size, finish)

    def _all_to_all(self, call, x):
        finish = lambda xs: [_stack([q[r] for q in xs]) for r in range(len(xs))]  # noqa: E731
        return self._result(call, x, x.nbytes, finish)

    def _barrier(self, call):
        self._result(call, None, 0, lambda xs: [None] * len(xs))

    def _broadcast_obj(self, call, obj, root):
        data = pickle.dumps(obj, protocol=5) if self.rank == root else b""
        return pickle.loads(self._result(call, data, len(data), lambda xs: [xs[root]] * len(xs)))

    def _gather_obj(self, call, obj, root):
        data = pickle.dumps(obj, protocol=5)
        finish = lambda xs: [xs if r == root else None for r in range(len(xs))]  # noqa: E731
        everyone = self._result(call, data, len(data) * self.size, finish)
        return None if everyone is None else [pickle.loads(d) for d in everyone]

    def _split(self, call, color, key):
        found = self._result(call, (color, key), 16 * self.size, self._groups)
        if found is None:
            return None
        context, ranks = found
        members = [self._members[r] for r in ranks]
        return type(self)(self._transport, self._fibre, ranks.index(self.rank), members, context, self.clock)

    def _groups(self, pairs):
        """Group the ranks by color: (context, ranks in their new order) by rank."""
        groups = defaultdict(list)
        for rank, (color, key) in enumerate(pairs):
            if color is not None:
                groups[color].append((key, rank))
        results = [None] * len(pairs)
        for color in sorted(groups):
            ranks = [rank for _, rank in sorted(groups[color])]
            context = self._transport.new_context()
            for rank in ranks:
                results[rank] = (context, ranks)
        return results


FORMULA_OF = {"broadcast_obj": "broadcast", "gather_obj": "gather", "split": "all_gather"}
"""Collectives that cost the same as another one."""


def _stack(arrays):
    return get_xp(*arrays).stack(arrays)
