"""The state that simulated ranks share during a run: messages in flight, posted receives, collective calls.

Timing: a message that leaves at t arrives at t + alpha + n / beta, and is received when it has arrived *and* the
receive has been posted; a synchronous send ends at that moment too.

A send, a receive and a collective call are *events*: their attribute `when` is None until it is known at which virtual
time they happen. A fibre that waits for an event is blocked until then, and woken by the fibre that sets `when`.

This is the simulator's innermost loop. Of every message only one half becomes an object: the rank that calls first
leaves a `SendOp` or a `RecvOp` in the channel, and the other one, finding it there, computes when the message is
received. So `send` and `receive` return that virtual time if it is known, and otherwise the event to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ..backend import same_bytes
from ..comm.base import CommError
from ..comm.calls import ANY, Call, call_site, same_calls
from ..comm.recorder import Recorder
from ..trace import Message
from .meta import MetaArray
from .scheduler import Fibre, Scheduler, check_caller, getcurrent

if TYPE_CHECKING:
    from .world import SimWorld


# -- transport ---------------------------------------------------------------------------------------------------------


class Channel:
    """The messages from one rank to another with one tag, in order: sends or receives that have not been matched."""

    def __init__(self, comm, source: int, dest: int, tag: int):
        self.context, self.internal = comm._context, comm.internal
        self.sender, self.receiver = comm._members[source].rank, comm._members[dest].rank
        self.source, self.dest, self.tag = source, dest, tag
        self.label = COLLECTIVE_TAG if comm.internal else tag
        self.sends: list[SendOp] = []
        self.recvs: list[RecvOp] = []


COLLECTIVE_TAG = -1
"""The tag, in traces, of the messages that a collective sends."""


class Event:
    """Something that a rank can wait for."""

    # Its attribute `when` is its virtual time, None while that is unknown; `waiting(fibre)` describes it in the
    # report of a deadlock.

    __slots__ = ()

    problem: str | None = None
    """Its error, raised in the rank that waits for it."""

    @property
    def context(self):
        """The number of the communicator that it belongs to."""
        return self.channel.context


class SendOp(Event):
    """A message in flight; it happens when it is received."""

    __slots__ = ("arrival", "channel", "fibre", "payload", "when")

    def __init__(self, fibre: Fibre, channel: Channel, payload, arrival: float, when: float | None = None):
        self.fibre, self.channel, self.payload, self.arrival, self.when = fibre, channel, payload, arrival, when

    @property
    def nbytes(self) -> int:
        return self.payload.nbytes

    def waiting(self, fibre) -> str:
        return f"{self.shown()} of {self.nbytes} bytes"

    def shown(self) -> str:
        return f"send(dest={self.channel.dest}, tag={self.channel.tag})"


class ObjectSendOp(SendOp):
    """A pickled object in flight."""

    __slots__ = ("seq",)

    @property
    def nbytes(self) -> int:
        return len(self.payload)

    def shown(self) -> str:
        return f"send_obj(dest={self.channel.dest}, tag={self.channel.tag})"


class RecvOp(Event):
    """A posted receive; it happens when the data is there."""

    __slots__ = ("channel", "fibre", "out", "posted", "problem", "when")

    def __init__(self, fibre: Fibre, channel: Channel, out, when: float | None = None, problem: str | None = None):
        self.fibre, self.channel, self.out, self.posted = fibre, channel, out, fibre.now
        self.when, self.problem = when, problem

    def waiting(self, fibre) -> str:
        return f"{self.shown()} of {self.out.nbytes} bytes"

    def shown(self) -> str:
        return f"recv(source={self.channel.source}, tag={self.channel.tag})"


class ObjectRecvOp(Event):
    """A receive of an object, from one rank or from any; `key` is (context, dest, tag)."""

    __slots__ = ("key", "source", "when")

    def __init__(self, key: tuple[Any, ...], source: int):
        self.key, self.source, self.when = key, source, None

    @property
    def context(self):
        return self.key[0]

    def takes(self, op: ObjectSendOp) -> bool:
        return self.source in (ANY, op.channel.source)

    def waiting(self, fibre) -> str:
        return f"recv_obj(source={'anyone' if self.source == ANY else self.source}, tag={self.key[2]})"


class CollectiveCall(Event):
    """One collective call of all members of a communicator: which ranks have called so far, and with what."""

    # `seq` numbers the collectives of a communicator. `failed_ranks` are the ranks of the world on which it has failed;
    # None until it has ended, and always in a world without failures. `when`, `payloads` and `results` are those of a
    # collective that is computed at once (`formula`).

    __slots__ = ("calls", "context", "failed_ranks", "members", "payloads", "results", "seq", "when")

    def __init__(self, members: list[Fibre], context: int, seq: int):
        self.members, self.context, self.seq = members, context, seq
        self.calls: dict[int, Call] = {}  # by rank of the communicator
        self.payloads: dict[int, tuple[float, object]] = {}  # by rank: (time of the call, its array or object)
        self.results = None  # by rank
        self.when = None
        self.failed_ranks: set[int] | None = None

    def waiting(self, fibre) -> str:
        name = next(iter(self.calls.values())).name
        return f"{name} ({len(self.calls)} of {len(self.members)} ranks are there)"


class Completion(Event):
    """The end of a non-blocking collective, which runs in its own fibre."""

    def __init__(self, call: CollectiveCall, owner: Fibre):
        self.call, self.waiters, self.results, self.when = call, [owner], {}, None

    def waiting(self, fibre) -> str:
        return self.call.waiting(fibre)


def deliver(x, out) -> str | None:
    """Copy `x` into `out`; return an error text if it does not fit."""
    if x.dtype is out.dtype and x.shape == out.shape and out.__class__ is ndarray is x.__class__:
        out[...] = x  # nearly always
        return None
    if x.dtype != out.dtype or x.size != out.size:
        return f"expected {out.size} {out.dtype}, but the message holds {x.size} {x.dtype}"
    if isinstance(x, MetaArray) or isinstance(out, MetaArray):
        if type(x) is type(out):
            return None
        return f"expected a {type(out).__name__}, but the message holds a {type(x).__name__}"
    out.reshape(-1)[...] = x.reshape(-1)
    return None


class Transport:
    """The state that the ranks of one run share: channels, objects in flight, collective calls."""

    losses = ()

    def __init__(self, world: SimWorld, scheduler: Scheduler):
        self.world, self.network, self.scheduler, self.trace = world, world.network, scheduler, world._trace
        self.wake, self.block = scheduler.wake, scheduler.block
        self.alpha, self.beta = float(self.network.alpha), float(self.network.beta)
        self.plain = self.network.plain  # every message costs alpha + n / beta: no need to ask the network
        self.shared = not self.plain and self.network.shared
        self.eager_limit = world.eager_limit or -1
        self.wire: list = []  # the fields of a `Message` for each one so far, flat: no work for the garbage collector
        self.record = self.wire.extend
        self.channels: dict[tuple, Channel] = {}  # (context, source, dest, tag)
        self.objects = defaultdict(list)  # (context, dest, tag) -> pickled objects
        self.listeners: dict[tuple, Fibre] = {}  # (context, dest, tag) -> the one blocked in recv_obj
        self.calls: dict[tuple[int, int], CollectiveCall] = {}  # (context, sequence number)
        self.n_calls = defaultdict(int)  # (context, rank) -> collectives that the rank has called
        self.unwaited: dict = {}  # works that were started and not waited for so far, in order
        self.recorders = defaultdict(Recorder)  # by rank of the world
        self._groups = {0: range(world.size)}
        self.contexts = 0
        self.sequence = 0
        self._link_free: dict[tuple, float] = {}  # when a shared link is free again

    def new_context(self) -> int:
        """Return a number for a new communicator: messages of different ones never match."""
        self.contexts += 1
        return self.contexts

    def group(self, context: int, members: list[Fibre]):
        """Return the ranks of the world of a communicator's members, the same object for all of them."""
        if context not in self._groups:
            self._groups[context] = tuple(member.rank for member in members)
        return self._groups[context]

    def channel(self, comm, source: int, dest: int, tag: int) -> Channel:
        """Return the one channel that both ends share; `source` and `dest` are ranks of the communicator."""
        key = (comm._context, source, dest, tag)
        channel = self.channels.get(key)
        if channel is None:
            channel = self.channels[key] = Channel(comm, source, dest, tag)
        return channel

    def flush(self) -> None:
        """Write the messages so far into the trace."""
        in_turn = [iter(self.wire)] * len(Message._fields)
        self.trace.messages.extend(map(Message._make, zip(*in_turn, strict=True)))
        self.wire.clear()

    # -- the wire ------------------------------------------------------------------------------------------------------
    def launch(self, fibre: Fibre, channel: Channel, nbytes: int) -> float:
        """Send a message through the sender's network card, which sends one after another; return when it arrives."""
        nic = fibre.nic
        if nic.users or self.shared:  # first come, first served, in virtual time: let earlier fibres run first
            self.scheduler.yield_until(fibre, fibre.now)
        now = start = fibre.now
        if self.plain:
            if nic.free > start:
                start = nic.free
            arrival = start + (self.alpha + nbytes / self.beta)
            nic.free = arrival - self.alpha
        else:
            arrival = self._travel(fibre, channel, nbytes)
        self.record((channel.sender, channel.receiver, nbytes, now, arrival, channel.label))
        return arrival

    def _travel(self, fibre: Fibre, channel: Channel, nbytes: int) -> float:
        """Route a message through a network whose links are shared or differ: `Network.route` names them."""
        network = self.network
        latency, seconds, links = network.route(nbytes, channel.sender, channel.receiver)
        free = self._link_free
        start = fibre.now
        for link in links:
            if (carried := free.get(link, start)) > start:
                start = carried
        for link in links:
            free[link] = start + seconds
        return start + (latency + seconds)

    # -- sends and receives --------------------------------------------------------------------------------------------
    def send(self, fibre: Fibre, channel: Channel, x) -> float | SendOp:
        """Send `x`: return when it is received or buffered, or the operation to wait for."""
        nbytes = x.nbytes
        arrival = self.launch(fibre, channel, nbytes)
        eager = nbytes <= self.eager_limit
        recvs = channel.recvs
        if not recvs:
            op = SendOp(fibre, channel, x.copy() if eager else x, arrival)
            channel.sends.append(op)
            return fibre.now if eager else op
        op = recvs.pop(0)
        op.when = when = arrival if arrival > op.posted else op.posted
        op.problem = deliver(x, op.out)
        receiver = op.fibre
        if receiver.waits is op:
            self.wake(receiver, when if when > receiver.now else receiver.now)
        return fibre.now if eager else when

    def receive(self, fibre: Fibre, channel: Channel, out) -> float | RecvOp:
        """Receive into `out`: return when the data is there, or the operation to wait for."""
        now, sends = fibre.now, channel.sends
        if not sends:
            op = RecvOp(fibre, channel, out)
            channel.recvs.append(op)
            return op
        op = sends.pop(0)
        op.when = when = op.arrival if op.arrival > now else now
        problem = deliver(op.payload, out)
        sender = op.fibre
        if sender.waits is op:
            self.wake(sender, when if when > sender.now else sender.now)
        return when if problem is None else RecvOp(fibre, channel, out, when, problem)

    def complete(self, event, when: float, fibre: Fibre) -> None:
        """Set the time of `event`, and wake the fibre if it waits for it."""
        event.when = when
        if fibre.waits is event:
            self.wake(fibre, when if when > fibre.now else fibre.now)

    def wait_for(self, fibre: Fibre, event: Event | float) -> None:
        """Block the fibre until `event` has happened; `event` may also be the time at which it happens."""
        if not isinstance(event, Event):
            if event > fibre.now:
                fibre.now = event
            return
        if event.when is None:
            self.block(fibre, event)
        elif event.when > fibre.now:
            fibre.now = event.when
        if event.problem is not None:
            raise ValueError(f"rank {event.channel.dest}: {event.shown()} {event.problem}")

    def put_object(self, key: tuple[Any, ...], op: ObjectSendOp) -> None:
        """Put an object in flight to `key`, which is (context, dest, tag), and wake the fibre that waits for it."""
        op.seq = self.sequence = self.sequence + 1
        self.objects[key].append(op)
        listener = self.listeners.get(key)
        if listener and listener.waits.takes(op):
            self.wake(listener, max(listener.now, min(self.arrivals(listener.waits))))

    def arrivals(self, event: ObjectRecvOp) -> list[float]:
        """Return when the objects in flight arrive that a receive may get."""
        return [op.arrival for op in self.objects[event.key] if event.takes(op)]

    def listen(self, fibre: Fibre, event: ObjectRecvOp) -> None:
        """Block until an object has come that `event` may get."""
        if arrivals := self.arrivals(event):  # a rank whose clock is earlier may still send one that arrives before
            self.wake(fibre, max(fibre.now, min(arrivals)))
        self.listeners[event.key] = fibre
        self.block(fibre, event)
        del self.listeners[event.key]

    # -- collectives ---------------------------------------------------------------------------------------------------
    def join(self, call: Call, rank: int, members: list[Fibre], context: int) -> CollectiveCall:
        """Let a rank join the next collective of its communicator: the n-th call of every rank is the same one."""
        if members[rank].greenlet is not getcurrent():  # else no call: this is the way of every collective
            check_caller(members[rank])
        seq = self.n_calls[context, rank]
        self.n_calls[context, rank] += 1
        joined = self.calls.get((context, seq))
        if joined is None:
            joined = self.calls[context, seq] = CollectiveCall(members, context, seq)
        elif joined.calls:
            other, first = next(iter(joined.calls.items()))
            if first[:2] != call[:2]:
                raise CommError(
                    f"rank {rank} calls {call.located} where rank {other} calls {first.located}: "
                    f"{same_calls(call, first)} (this is number {seq + 1})"
                )
        joined.calls[rank] = call
        if len(joined.calls) == len(members):
            del self.calls[context, seq]
        return joined

    # -- the end -------------------------------------------------------------------------------------------------------
    def check_empty(self) -> None:
        """Raise if a message was sent and never received, or work was started and never waited for."""
        left = [op for channel in self.channels.values() for op in channel.sends if not channel.internal]
        left += [op for box in self.objects.values() for op in box]
        if left:
            op, channel = left[0], left[0].channel
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            who = f"rank {channel.dest} never received the message of {op.nbytes} bytes from rank {channel.source}"
            raise CommError(f"{who}, tag {channel.tag}{more}")
        for work in self.unwaited:
            raise CommError(f"rank {work.rank}: {work} was started and never waited for ({work.site})")


# -- work --------------------------------------------------------------------------------------------------------------
# Handles of a simulated rank's operations in progress: `Work` over an event.


class SimWork:
    """A handle on an event, for one rank, which must wait for it; an array `x` of it must not change before that."""

    __slots__ = ("_comm", "_event", "_snapshot", "_x", "rank", "site")

    def __init__(self, comm, event, site=None, x=None, snapshot=None):
        self._comm, self._event, self.rank = comm, event, comm.rank
        self._x, self._snapshot = x, snapshot
        self.site = call_site() if site is None else site
        comm._transport.unwaited[self] = None

    def __str__(self) -> str:
        return self._event.waiting(self._comm._fibre)

    def _wait(self, call: str = "") -> None:
        self._comm._transport.unwaited.pop(self, None)
        self._comm._transport.wait_for(self._comm._fibre, self._event)
        if self._snapshot is not None and not same_bytes(self._x, self._snapshot):
            raise CommError(f"rank {self.rank}: the array given to i{call} was changed before wait() ({self.site})")
        self._snapshot = None

    def done(self) -> bool:
        self._comm._poll(self._event)
        if self._event.when is None or self._event.when > self._comm._fibre.now:
            return False
        self._comm._transport.unwaited.pop(self, None)
        return True


class SendWork(SimWork):
    """A send in progress."""

    __slots__ = ("_eager",)

    def __init__(self, comm, op, eager: bool, x):
        super().__init__(comm, op, x=x, snapshot=None if eager else x.copy())
        self._eager = eager
        if eager:
            comm._transport.unwaited.pop(self)

    def wait(self) -> None:
        if not self._eager:
            self._wait(self._event.shown())

    def done(self) -> bool:
        return super().done() or self._eager


class RecvWork(SimWork):
    """A receive in progress."""

    __slots__ = ()

    def wait(self):
        self._wait()
        return self._event.out


class CollectiveWork(SimWork):
    """A collective in progress."""

    __slots__ = ("_call", "_result")

    def __init__(self, comm, event, call, x, snapshot):
        super().__init__(comm, event, call.site, x, snapshot)
        self._call, self._result = call, None

    def __str__(self) -> str:
        return f"{self._call.name} of {self._x.nbytes} bytes"

    def wait(self):
        if self._snapshot is None:
            return self._result  # waited for before
        self._wait(self._call.name)
        self._result = self._event.results[self.rank]
        if self._call.name == "all_reduce":
            self._x[...] = self._result
            self._result = self._x
        return self._result
