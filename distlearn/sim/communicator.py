"""A simulated rank's communicator.

`SimComm` sends and receives; its collectives take the seconds of a formula. Those of a `MessageComm` are the messages
of `comm.collectives`: a student steps through the code that the simulated ranks run. A collective that blocks runs in
the rank's own fibre, so that a breakpoint in `ring_all_reduce` shows the user's call further down the stack. A
non-blocking one runs in its own fibre, which shares the rank's network card. Collectives of one communicator run
one after another, in the order of their calls; those of different ones may overlap.
"""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict

from numpy import float16, ndarray

from ..backend import get_xp
from ..comm import collectives
from ..comm.base import Communicator
from ..comm.calls import check_apart, check_buffer, check_output, check_peer, check_tag, reduced
from ..comm.network.cost import BY_ROWS
from ..shares import shares
from ..trace import Span
from .clock import SimClock
from .meta import Block, MetaArray
from .scheduler import Fibre, check_caller, first_common
from .transport import (
    CollectiveCall,
    CollectiveWork,
    Completion,
    ObjectRecvOp,
    ObjectSendOp,
    RecvOp,
    RecvWork,
    SendOp,
    SendWork,
    Transport,
)

POLL_SECONDS = 1e-6
"""Virtual time that a call of `Work.done()` takes: without it a loop that polls would never end."""


class SimComm(Communicator):
    """A simulated rank's `Communicator`."""

    internal = False
    """Whether its messages are those that a collective sends: they leave no spans and no records."""

    def __init__(self, transport: Transport, fibre: Fibre, rank: int, members: list[Fibre], context=0, clock=None):
        self._transport, self._fibre, self._members, self._context = transport, fibre, members, context
        self.rank = rank
        self.size = len(members)
        self.members = transport.group(context, members)
        self.recorder = None if self.internal else transport.recorders[fibre.rank]
        self.clock = SimClock(transport, fibre) if clock is None else clock
        if fibre.rank == 0 and transport.world.report:
            self._report = transport.world.report
        self._outgoing, self._incoming = {}, {}  # (peer, tag), or peer where tag is 0 -> channel

    # -- arrays: as in the base class, but for speed ranks and tags are checked once per channel, not per message
    def _open(self, what, peer, tag):
        """Open the channel to ("dest") or from ("source") a peer for the first message."""
        check_caller(self._fibre)
        check_peer(what, peer, self.rank, self.size)
        check_tag(tag, self.rank)
        ends, channels = (self.rank, int(peer)), self._outgoing
        if what == "source":
            ends, channels = ends[::-1], self._incoming
        channel = channels[(peer, tag) if tag else peer] = self._transport.channel(self, *ends, tag)
        return channel

    def _begin_send(self, x, dest, tag):
        """Send; return the virtual time at which it is done, or the operation to wait for while that is unknown."""
        try:
            channel = self._outgoing[(dest, tag) if tag else dest]
        except (KeyError, TypeError):  # the first message, or an invalid argument such as an array, which is unhashable
            channel = None
        if channel is None:
            channel = self._open("dest", dest, tag)
        if x.__class__ is ndarray:
            if not x.flags.c_contiguous or x.dtype.hasobject:
                check_buffer("send", x, self.rank)
        elif x.__class__ is not MetaArray:
            check_buffer("send", x, self.rank)
        return self._transport.send(self._fibre, channel, x)

    def _begin_recv(self, out, source, tag):
        """Receive; return the virtual time at which it is done, or the operation to wait for while that is unknown."""
        try:
            channel = self._incoming[(source, tag) if tag else source]
        except (KeyError, TypeError):  # as in `_begin_send`
            channel = None
        if channel is None:
            channel = self._open("source", source, tag)
        if out.__class__ is ndarray:
            if not out.flags.carray or out.dtype.hasobject:
                check_output("recv", out, self.rank)
        elif out.__class__ is not MetaArray:
            check_output("recv", out, self.rank)
        return self._transport.receive(self._fibre, channel, out)

    def isend(self, x, dest, tag=0):
        event = self._begin_send(x, dest, tag)
        eager = x.nbytes <= self._transport.eager_limit
        if not isinstance(event, SendOp):  # its time is known, or it completes without this rank
            channel = self._outgoing[(dest, tag) if tag else dest]
            event = SendOp(self._fibre, channel, x, self._fibre.now, event)
        return SendWork(self, event, eager, x)

    def send(self, x, dest, tag=0):
        self._transport.wait_for(self._fibre, self._begin_send(x, dest, tag))

    def irecv(self, out, source, tag=0):
        event = self._begin_recv(out, source, tag)
        if not isinstance(event, RecvOp):
            event = RecvOp(self._fibre, self._incoming[(source, tag) if tag else source], out, event)
        return RecvWork(self, event)

    def recv(self, out, source, tag=0):
        self._transport.wait_for(self._fibre, self._begin_recv(out, source, tag))
        return out

    def send_recv(self, x, dest, out, source, tag=0):
        fibre, start, internal = self._fibre, self._fibre.now, self.internal
        sent, received = self._begin_send(x, dest, tag), self._begin_recv(out, source, tag)
        if not internal and (x is out or getattr(x, "base", x) is not None or getattr(out, "base", out) is not None):
            check_apart("send_recv", x, out, self.rank)
        for event in (received, sent):
            if event.__class__ is not float:
                self._transport.wait_for(fibre, event)
            elif event > fibre.now:
                fibre.now = event
        if not internal:
            span = Span(fibre.rank, "comm", "send_recv", start, fibre.now, 0, out.nbytes)
            self._transport.trace.spans.append(span)
        return out

    # -- objects -------------------------------------------------------------------------------------------------------
    def _send_obj(self, obj, dest, tag):
        """Send a pickled object; blocks until it is received, unless it is small enough to be eager."""
        check_caller(self._fibre)
        data = pickle.dumps(obj, protocol=5)
        transport, fibre = self._transport, self._fibre
        channel = transport.channel(self, self.rank, dest, tag)
        op = ObjectSendOp(fibre, channel, data, transport.launch(fibre, channel, len(data)))
        transport.put_object((self._context, dest, tag), op)
        if len(data) > transport.world.eager_limit:
            transport.wait_for(fibre, op)

    def _recv_obj(self, source, tag):
        """Receive the object from `source` (or any rank) that arrives first."""
        check_caller(self._fibre)
        transport, fibre = self._transport, self._fibre
        event = ObjectRecvOp((self._context, self.rank, tag), source)
        transport.listen(fibre, event)
        box = transport.objects[event.key]
        op = min(filter(event.takes, box), key=lambda q: (q.arrival, q.seq))
        box.remove(op)
        transport.complete(op, fibre.now, op.fibre)
        return pickle.loads(op.payload)

    def _poll(self, event) -> None:
        """Let the time of one poll of `event` pass, and every fibre whose clock is earlier run first."""
        self._transport.scheduler.yield_until(self._fibre, self._fibre.now + POLL_SECONDS)

    # -- collectives: the last rank to call computes the results of all ranks, and when they are there -----------------
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

    def _begin(self, call, x, nbytes, finish) -> CollectiveWork:
        snapshot = x.copy()
        return CollectiveWork(self, self._meet(call, snapshot, nbytes, finish), call, x, snapshot)

    def _iall_reduce(self, call, x, op):
        """Sums are formed in the order of ranks, so every run gives the same bits."""
        return self._begin(call, x, x.nbytes, lambda xs: [reduced(xs, op)] * len(xs))

    def _ireduce_scatter(self, call, x, op):
        def reduced_shares(xs):
            return [reduced([q.reshape(-1)[share] for q in xs], op) for share in shares(x.size, self.size)]

        return self._begin(call, x, x.nbytes, reduced_shares)

    def _iall_gather(self, call, x):
        return self._begin(call, x, x.nbytes * self.size, lambda xs: [_stack(xs) for _ in xs])

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


class InnerComm(SimComm):
    """Sends the messages of collectives."""

    internal = True


class MessageComm(SimComm):
    """A simulated rank's `Communicator` whose collectives of arrays send messages."""

    # Collectives of objects, and `split`, take the time of the formula: they set a program up, and their payloads
    # differ in length from rank to rank, which an algorithm that receives into buffers would first have to
    # communicate.

    def __init__(self, transport, fibre, rank, members, context=0, clock=None):
        super().__init__(transport, fibre, rank, members, context, clock)
        self._inner = InnerComm(transport, fibre, rank, members, ("inner", context), self.clock)
        self._latest: Completion | None = None  # of the non-blocking collectives

    def _run(self, call, *args, nbytes=None):
        """Perform a collective in the rank's own fibre, after those in progress; `args` begin with its array."""
        joined = self._transport.join(call, self.rank, self._members, self._context)
        if self._latest is not None:
            self._finish_earlier()
        return self._perform(self._fibre, call, joined, nbytes, *args)

    def _finish_earlier(self) -> None:
        self._transport.wait_for(self._fibre, self._latest)
        self._latest = None

    def _start(self, call, x, *op) -> CollectiveWork:
        """Perform a collective of a copy of `x` in its own fibre."""
        transport = self._transport
        joined = transport.join(call, self.rank, self._members, self._context)
        before, done = self._latest, Completion(joined, self._fibre)
        self._latest = done
        snapshot, mine = x.copy(), x.copy()
        if Block.watched is not None:  # these are not of the layer whose span is open
            Block.watched.give([snapshot, mine], "communication")

        def task(fibre):
            if before is not None:
                before.waiters.append(fibre)
                transport.wait_for(fibre, before)
            done.results[self.rank] = self._perform(fibre, call, joined, None, mine, *op)
            for waiter in done.waiters:
                transport.complete(done, fibre.now, waiter)

        transport.scheduler.spawn(self._fibre, task)
        return CollectiveWork(self, done, call, x, snapshot)

    def _perform(self, fibre, call, joined, nbytes, *args):
        if nbytes is None:
            nbytes = args[0].nbytes * (self.size if call.name in BY_ROWS else 1)
        previous = fibre.call
        fibre.call = joined
        comm = self._inner
        if fibre is not self._fibre:
            comm = copy.copy(comm)
            comm._fibre = fibre
        start = fibre.now
        algorithm = collectives.ALGORITHMS[call.name]
        if call.name in ("all_reduce", "reduce_scatter") and args[0].dtype == float16:
            result = self._reduce_halves(call, joined, algorithm, comm, *args)
        else:
            result = algorithm(comm, *args)
        fibre.call = previous
        self._transport.trace.spans.append(Span(fibre.rank, "comm", call.name, start, fibre.now, 0, nbytes))
        return result

    def _reduce_halves(self, call, joined, algorithm, comm, x, op):
        """Send zeros in place of halves, and form their sum, the same in any order, once for all ranks."""
        if x.__class__ is MetaArray:
            return algorithm(comm, x, op)
        joined.payloads[self.rank] = None, x
        result = algorithm(comm, get_xp(x).zeros_like(x), op)
        if joined.results is None:  # every rank has come by now, and none has left
            joined.results = reduced([joined.payloads[rank][1] for rank in range(self.size)], op)
        if call.name == "all_reduce":
            x[...] = joined.results
            return x
        result[...] = collectives.rings.cut(joined.results, self.size)[self.rank]
        return result

    # the first argument of these is their array
    _all_reduce = _reduce_scatter = _all_gather = _broadcast = _gather = _all_to_all = _run
    _iall_reduce = _ireduce_scatter = _iall_gather = _start

    def _scatter(self, call, x, out, root):
        return self._run(call, x, out, root, nbytes=out.nbytes * self.size)

    def _barrier(self, call):
        self._run(call, nbytes=0)

    def _meet(self, call, payload, nbytes, finish):
        """Join a collective that takes the time of the formula, after those in progress."""
        if self._latest is not None:
            self._finish_earlier()
        return super()._meet(call, payload, nbytes, finish)
