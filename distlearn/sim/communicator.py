"""A simulated rank's communicator: its primitives between two ranks; those for all ranks are in `collectives`."""

from __future__ import annotations

import pickle

from numpy import ndarray

from ..comm.base import BaseComm
from ..comm.protocol import ANY, check_buffer, check_output, check_peer, check_tag
from .clock import SimClock
from .meta import MetaArray
from .scheduler import BlockReason, Fibre
from .transport import ObjectSendOp, RecvOp, SendOp, Transport
from .work import RecvWork, SendWork

POLL_SECONDS = 1e-6
"""Virtual time that a call of `Work.done()` takes: without it a loop that polls would never end."""


class SimComm(BaseComm):
    """A simulated rank's `Communicator`, without its collectives.

    Parameters
    ----------
    transport : Transport
    fibre : Fibre
        Runs the calls.
    rank : int
    members : list of Fibre
        By rank of the communicator.
    context : int
        Messages of different contexts never match.
    clock : SimClock, optional
    """

    clock_class = SimClock

    def __init__(
        self, transport: Transport, fibre: Fibre, rank: int, members: list[Fibre], context: int = 0, clock=None
    ):
        self._transport, self._fibre, self._members, self._context = transport, fibre, members, context
        self.rank = rank
        self.size = len(members)
        self.clock = self.clock_class(transport, fibre) if clock is None else clock
        self._outgoing, self._incoming = {}, {}  # (peer, tag), or peer where tag is 0 -> channel

    def report(self, step, total, **values):
        """Pass rank 0's progress to the world's `report`."""
        if self._fibre.rank == 0 and self._transport.world.report:
            self._transport.world.report(step, total, **values)

    # -- arrays: as in the base class, but for speed ranks and tags are checked once per channel, not per message
    def _to(self, dest, tag):
        """Open the channel to `dest` for the first message."""
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank)
        channel = self._transport.channel(self._context, self._members, self.rank, int(dest), tag)
        self._outgoing[(dest, tag) if tag else dest] = channel
        return channel

    def _from(self, source, tag):
        """Open the channel from `source` for the first message."""
        check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank)
        channel = self._transport.channel(self._context, self._members, int(source), self.rank, tag)
        self._incoming[(source, tag) if tag else source] = channel
        return channel

    def _begin_send(self, x, dest, tag):
        """Send; return the virtual time at which it is done, or the operation to wait for while that is unknown."""
        try:
            channel = self._outgoing[(dest, tag) if tag else dest]
        except (KeyError, TypeError):  # the first message, or an invalid argument such as an array, which is unhashable
            channel = None
        if channel is None:
            channel = self._to(dest, tag)
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
            channel = self._from(source, tag)
        if out.__class__ is ndarray:
            if not out.flags.carray or out.dtype.hasobject:
                check_output("recv", out, self.rank)
        elif out.__class__ is not MetaArray:
            check_output("recv", out, self.rank)
        return self._transport.receive(self._fibre, channel, out)

    def isend(self, x, dest, tag=0):
        """Start a send."""
        event = self._begin_send(x, dest, tag)
        eager = x.nbytes <= self._transport.eager_limit
        if not isinstance(event, SendOp):  # its time is known, or it completes without this rank
            channel = self._outgoing[(dest, tag) if tag else dest]
            event = SendOp(self._fibre, channel, x, self._fibre.now, event)
        return SendWork(self, event, eager, None if eager else x)

    def send(self, x, dest, tag=0):
        """Send, and wait until it is received."""
        self._transport.wait_for(self._fibre, self._begin_send(x, dest, tag))

    def irecv(self, out, source, tag=0):
        """Start a receive."""
        event = self._begin_recv(out, source, tag)
        if not isinstance(event, RecvOp):
            event = RecvOp(self._fibre, self._incoming[(source, tag) if tag else source], out, event)
        return RecvWork(self, event)

    def recv(self, out, source, tag=0):
        """Receive into `out`."""
        self._transport.wait_for(self._fibre, self._begin_recv(out, source, tag))
        return out

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once."""
        sent, received = self._begin_send(x, dest, tag), self._begin_recv(out, source, tag)
        self._transport.wait_for(self._fibre, received)
        self._transport.wait_for(self._fibre, sent)
        return out

    # -- objects -----------------------------------------------------------------------------------------------------
    def _send_obj(self, obj, dest, tag):
        """Send a pickled object; blocks until it is received, unless it is small enough to be eager."""
        data = pickle.dumps(obj, protocol=5)
        transport, fibre = self._transport, self._fibre
        channel = transport.channel(self._context, self._members, self.rank, dest, tag)
        op = ObjectSendOp(fibre, channel, data, transport.launch(fibre, channel, len(data)))
        op.seq = transport.sequence = transport.sequence + 1
        key = (self._context, dest, tag)
        transport.objects[key].append(op)
        listener = transport.listeners.get(key)
        if listener and listener[1] in (ANY, self.rank):
            first = min(q.arrival for q in transport.objects[key] if listener[1] in (ANY, q.channel.source))
            transport.wake(listener[0], max(listener[0].now, first))
        if len(data) > transport.world.eager_limit:
            transport.wait_for(fibre, op)

    def _recv_obj(self, source, tag):
        """Receive the object from `source` (or any rank) that arrives first."""
        transport, fibre, key = self._transport, self._fibre, (self._context, self.rank, tag)
        box = transport.objects[key]
        waiting = [q.arrival for q in box if source in (ANY, q.channel.source)]
        if waiting:  # a rank whose clock is earlier may still send one that arrives before
            transport.wake(fibre, max(fibre.now, min(waiting)))
        what = "anyone" if source == ANY else source
        transport.listen(fibre, key, source, BlockReason(f"recv_obj(source={what}, tag={tag})"))
        op = min((q for q in box if source in (ANY, q.channel.source)), key=lambda q: (q.arrival, q.seq))
        box.remove(op)
        transport.complete(op, fibre.now, op.fibre)
        return pickle.loads(op.payload)

    def _poll(self, event) -> None:
        """Let the time of one poll of `event` pass, and every fibre whose clock is earlier run first."""
        self._transport.scheduler.yield_until(self._fibre, self._fibre.now + POLL_SECONDS)
