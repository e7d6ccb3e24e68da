"""A simulated rank's communicator."""

from __future__ import annotations

import pickle

from numpy import ndarray

from ..comm.protocol import ANY, check_buffer, check_output, check_peer, check_tag
from .clock import SimClock
from .collectives import Collectives
from .events import Letter, Parcel, Slot
from .meta import Phantom
from .scheduler import Fibre, Waits
from .transport import Post
from .work import RecvWork, SendWork

POLL_SECONDS = 1e-6
"""Virtual time that asking `Work.done()` takes: a loop that polls must not stop the clock."""


class SimComm(Collectives):
    """A simulated rank's `Communicator`; made by `SimWorld.run` and by `split`."""

    clock_class = SimClock

    def __init__(self, post: Post, fibre: Fibre, rank: int, members: list[Fibre], context: int = 0, clock=None):
        self._post, self._fibre, self._members, self._context = post, fibre, members, context
        self.rank = rank
        self.size = len(members)
        self.clock = self.clock_class(post, fibre) if clock is None else clock
        self._outgoing, self._incoming = {}, {}  # (peer, tag), or peer where tag is 0 -> channel
        self._calls = 0  # collectives so far: the n-th call of every rank is the same collective

    def __repr__(self) -> str:
        return f"SimComm(rank {self.rank} of {self.size})"

    def report(self, step, total, **values):
        """Hand rank 0's progress to the world's `report`."""
        if self._fibre.rank == 0 and self._post.world.report:
            self._post.world.report(step, total, **values)

    # -- between two ranks -----------------------------------------------------------------------------------------
    def _to(self, dest, tag):
        """Open the channel to `dest`, which the first message needs."""
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank)
        channel = self._post.channel(self._context, self._members, self.rank, int(dest), tag)
        self._outgoing[(dest, tag) if tag else dest] = channel
        return channel

    def _from(self, source, tag):
        """Open the channel from `source`, which the first message needs."""
        check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank)
        channel = self._post.channel(self._context, self._members, int(source), self.rank, tag)
        self._incoming[(source, tag) if tag else source] = channel
        return channel

    def _send(self, x, dest, tag):
        """Send; return what to wait for: a moment, or the letter that will know it."""
        try:
            channel = self._outgoing[(dest, tag) if tag else dest]
        except (KeyError, TypeError):  # the first message; or an array, say, from arguments in the wrong order
            channel = None
        if channel is None:
            channel = self._to(dest, tag)
        if x.__class__ is ndarray:
            if not x.flags.c_contiguous or x.dtype.hasobject:
                check_buffer("send", x, self.rank)
        elif x.__class__ is not Phantom:
            check_buffer("send", x, self.rank)
        return self._post.send(channel, x)

    def _receive(self, out, source, tag):
        """Receive; return what to wait for: a moment, or the slot that will know it."""
        try:
            channel = self._incoming[(source, tag) if tag else source]
        except (KeyError, TypeError):  # as in `_send`
            channel = None
        if channel is None:
            channel = self._from(source, tag)
        if out.__class__ is ndarray:
            if not out.flags.carray or out.dtype.hasobject:
                check_output("recv", out, self.rank)
        elif out.__class__ is not Phantom:
            check_output("recv", out, self.rank)
        return self._post.receive(channel, out)

    def isend(self, x, dest, tag=0):
        """Start a send."""
        event = self._send(x, dest, tag)
        eager = x.nbytes <= self._post.eager_limit
        if not isinstance(event, Letter):  # it has happened already, or will without us
            event = Letter(self._outgoing[(dest, tag) if tag else dest], None, self._fibre.now, event)
        return SendWork(self, event, eager, None if eager else x)

    def send(self, x, dest, tag=0):
        """Send, and wait until it is received."""
        self._post.wait_for(self._fibre, self._send(x, dest, tag))

    def irecv(self, out, source, tag=0):
        """Start a receive."""
        event = self._receive(out, source, tag)
        if not isinstance(event, Slot):
            event = Slot(self._incoming[(source, tag) if tag else source], out, self._fibre.now, event)
        return RecvWork(self, event)

    def recv(self, out, source, tag=0):
        """Receive into `out`."""
        self._post.wait_for(self._fibre, self._receive(out, source, tag))
        return out

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once."""
        sent, received = self._send(x, dest, tag), self._receive(out, source, tag)
        self._post.wait_for(self._fibre, received)
        self._post.wait_for(self._fibre, sent)
        return out

    def send_obj(self, obj, dest, tag=0):
        """Send a pickled object; blocks until it is received, unless it is small enough to be eager."""
        check_peer("dest", dest, self.rank, self.size)
        check_tag(tag, self.rank)
        data = pickle.dumps(obj, protocol=5)
        post, fibre = self._post, self._fibre
        channel = post.channel(self._context, self._members, self.rank, int(dest), tag)
        letter = Parcel(channel, data, post.launch(channel, len(data)))
        letter.seq = post.sequence = post.sequence + 1
        key = (self._context, dest, tag)
        post.objects[key].append(letter)
        listener = post.listeners.get(key)
        if listener and listener[1] in (ANY, self.rank):
            first = min(q.arrival for q in post.objects[key] if listener[1] in (ANY, q.channel.source))
            post.scheduler.wake(listener[0], max(listener[0].now, first))
        if len(data) > post.world.eager_limit:
            post.wait_for(fibre, letter)

    def recv_obj(self, source=ANY, tag=0):
        """Receive the object from `source` (or anyone) that arrives first."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        check_tag(tag, self.rank)
        post, fibre, key = self._post, self._fibre, (self._context, self.rank, tag)
        box = post.objects[key]
        waiting = [q.arrival for q in box if source in (ANY, q.channel.source)]
        if waiting:  # somebody whose clock stands earlier may still send one that arrives before
            post.scheduler.wake(fibre, max(fibre.now, min(waiting)))
        what = "anyone" if source == ANY else source
        post.listen(fibre, key, source, Waits(f"recv_obj(source={what}, tag={tag})"))
        letter = min((q for q in box if source in (ANY, q.channel.source)), key=lambda q: (q.arrival, q.seq))
        box.remove(letter)
        post.settle(letter, fibre.now, letter.channel.sender)
        return pickle.loads(letter.payload)

    def _poll(self, event) -> None:
        """Spend the time of one look at `event`, and let everybody before us go first."""
        self._post.scheduler.yield_until(self._fibre, self._fibre.now + POLL_SECONDS)
