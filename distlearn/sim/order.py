"""A simulated world whose network is played by the caller, decision by decision.

Most of what ranks exchange can happen in one way only: a receive names its sender, and messages of one sender do not
overtake each other. Where a network has a choice, the run stops until a choice is made:

    "2->0"       the message of rank 2 is the one that rank 0's receive from any rank gets
    "buffer 1"   the network keeps the message that rank 1 sends, and rank 1 goes on before it is received
    "lost 2"     rank 2 is told that a rank it waits for has died

A decision is asked for only when no rank can go on without one. That loses nothing: by then every message that could
have competed is there, and what was done before would have been done in any order (Vakkalanka et al., 2008, section 4).
Where no receive from any rank has a message, no decision can help, and the run is a deadlock: a network may buffer, but
it need not.

S. Vakkalanka, G. Gopalakrishnan, R. M. Kirby (2008), Dynamic verification of MPI programs with reductions in presence
of split operations and relaxed orderings, CAV.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from ..comm.protocol import ANY, CommError, PeerLostError
from .communicator import MessageComm
from .scheduler import BlockReason, Fibre, GreenletExit, Scheduler
from .transport import CollectiveCall, Completion, Event, ObjectSendOp, RecvOp, SendOp, Transport


class Decision(NamedTuple):
    """What the network does next; as text "2->0", "buffer 1" or "lost 2"."""

    kind: str
    rank: int
    source: int | None = None

    def __str__(self) -> str:
        return f"{self.source}->{self.rank}" if self.kind == "deliver" else f"{self.kind} {self.rank}"

    @classmethod
    def parse(cls, text) -> Decision:
        """Read a decision from its text."""
        if isinstance(text, cls):
            return text
        source, arrow, rank = str(text).partition("->")
        kind, _, of = str(text).strip().partition(" ")
        try:
            if arrow:
                return cls("deliver", int(rank), int(source))
            if kind in ("buffer", "lost"):
                return cls(kind, int(of))
        except ValueError:
            pass
        raise ValueError(f'{text!r} is not a decision, expected for example "2->0", "buffer 1" or "lost 2"')


def follow(decisions: list[Decision]) -> Callable:
    """Return a function that makes these decisions one after another, then always the first that is possible.

    So once they are made, messages are delivered in the order of sending.
    """
    left = iter(decisions)

    def choose(options, transport):
        decision = next(left, options[0])
        if decision not in options:
            made = ", ".join(map(str, transport.decisions)) or "none so far"
            raise ValueError(
                f'order: "{decision}" is not possible here, expected one of {", ".join(map(str, options))} '
                f"(decisions made: {made})"
            )
        return decision

    return choose


class AnyReceive(Event):
    """A receive from any rank, until the network decides whose message it gets."""

    __slots__ = ("key", "source", "when")

    def __init__(self, key: tuple):
        self.key, self.source, self.when = key, None, None

    def waiting(self, fibre) -> str:
        """Say what its receiver waits for."""
        return f"recv_obj(source=anyone, tag={self.key[2]})"


class SpaceTimeEvent(NamedTuple):
    """One step of a rank, for `viz.plot_spacetime`."""

    rank: int
    kind: str
    message: int
    peer: int


class OrderedScheduler(Scheduler):
    """A scheduler that asks for a decision whenever no fibre can go on."""

    resolve: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, size: int):
        super().__init__(size)
        self.names: dict[Fibre, tuple] = {f: (f.rank, 0) for f in self.fibres}  # the same in every order
        self._n_spawned: dict[int, int] = defaultdict(int)

    def spawn(self, owner, task):
        self._n_spawned[owner.rank] += 1
        name = owner.rank, self._n_spawned[owner.rank]

        def named(fibre):
            self.names[fibre] = name
            task(fibre)

        super().spawn(owner, named)

    def is_stuck(self) -> bool:
        return not self.resolve()


class OrderedTransport(Transport):
    """What ranks share while the network is played."""

    def __init__(self, world, scheduler: OrderedScheduler, choose: Callable, kill=None, max_steps: int = 100_000):
        super().__init__(world, scheduler)
        self.choose, self.kill, self.max_steps = choose, kill, max_steps
        self.steps: dict[tuple, int] = defaultdict(int)  # operations begun, by name of the fibre
        self.received: dict[int, list] = defaultdict(list)  # by rank, whose messages its receives from any rank got
        self.decisions: list[Decision] = []
        self.events: list[SpaceTimeEvent] = []
        self.dead: int | None = None
        self._told: set[int] = set()  # ranks that know of the death
        self._numbers: dict[SendOp, int] = {}
        self._n_messages = 0
        scheduler.resolve = self.resolve

    def state(self) -> tuple:
        """Return what determines how the run goes on: equal states are reached by orders that differ in nothing."""
        received = tuple(sorted((rank, tuple(got)) for rank, got in self.received.items()))
        return tuple(sorted(self.steps.items())), received, self.dead, tuple(sorted(self._told))

    # -- operations are counted ----------------------------------------------------------------------------------------
    def count(self, fibre: Fibre) -> None:
        """Count an operation of a fibre; the rank dies here if it is to."""
        name = self.scheduler.names[fibre]
        if self.kill == (name[0], self.steps[name]) and name[1] == 0:
            self.dead = name[0]
            raise GreenletExit
        self.steps[name] += 1
        if sum(self.steps.values()) > self.max_steps:
            raise CommError(f"rank {fibre.rank}: the run has more than {self.max_steps} operations; does it ever end?")

    def send(self, fibre, channel, x):
        self.count(fibre)
        number = self._note_send(channel)
        event = super().send(fibre, channel, x)
        if isinstance(event, SendOp):
            self._numbers[event] = number
        else:  # a receive was waiting for it
            self._note_receive(channel, number)
        return event

    def receive(self, fibre, channel, out):
        self.count(fibre)
        first = channel.sends[0] if channel.sends else None
        event = super().receive(fibre, channel, out)
        if first is not None:
            self._note_receive(channel, self._numbers[first])
        return event

    def launch(self, fibre, channel, nbytes):
        self.count(fibre)
        return super().launch(fibre, channel, nbytes)

    def join(self, call, rank, members, context):
        self.count(members[rank])
        return super().join(call, rank, members, context)

    def wait_for(self, fibre, event):
        self.count(fibre)
        super().wait_for(fibre, event)

    # -- what happened, for `viz.plot_spacetime` -----------------------------------------------------------------------
    def _note_send(self, channel) -> int:
        number, self._n_messages = self._n_messages, self._n_messages + 1
        self.events.append(SpaceTimeEvent(channel.sender, "send", number, channel.receiver))
        return number

    def _note_receive(self, channel, number: int) -> None:
        self.events.append(SpaceTimeEvent(channel.receiver, "receive", number, channel.sender))

    def put_object(self, key: tuple, op: ObjectSendOp) -> None:
        self._numbers[op] = self._note_send(op.channel)
        super().put_object(key, op)

    def take_object(self, key: tuple, source: int) -> ObjectSendOp:
        """Take the first object in flight from a rank of the communicator; its sender goes on."""
        op = next(op for op in self.objects[key] if op.channel.source == source)
        self.objects[key].remove(op)
        self._note_receive(op.channel, self._numbers[op])
        if op.when is None:
            self.complete(op, op.fibre.now, op.fibre)
        return op

    # -- decisions -----------------------------------------------------------------------------------------------------
    def options(self) -> list[Decision]:
        """Return the decisions that are possible now; none where no message can be delivered.

        The first one delivers the message that was sent first, of those that the lowest waiting rank may get.
        """
        blocked = [f for f in self.scheduler.names if f.waits is not None and not f.greenlet.dead]
        deliver = [
            Decision("deliver", fibre.rank, source)
            for fibre in blocked
            if isinstance(fibre.waits, AnyReceive)
            for source in dict.fromkeys(op.channel.sender for op in self.objects[fibre.waits.key])
        ]
        lost = [] if self.dead is None else [Decision("lost", f.rank) for f in blocked if self._needs_dead(f)]
        if not deliver and not lost:
            return []
        buffer = [Decision("buffer", f.rank) for f in blocked if isinstance(f.waits, SendOp)]
        return deliver + lost + buffer

    def resolve(self) -> bool:
        """Make one decision; return False if there is none to make."""
        options = self.options()
        if not options:
            return False
        decision = self.choose(options, self)
        self.decisions.append(decision)
        {"deliver": self._deliver, "buffer": self._buffer, "lost": self._tell}[decision.kind](decision)
        return True

    def _blocked(self, rank: int, kind) -> Fibre:
        return next(f for f in self.scheduler.names if f.rank == rank and isinstance(f.waits, kind))

    def _deliver(self, decision: Decision) -> None:
        fibre = self._blocked(decision.rank, AnyReceive)
        waiting = (op.channel for op in self.objects[fibre.waits.key])
        fibre.waits.source = next(channel.source for channel in waiting if channel.sender == decision.source)
        self.received[decision.rank].append(decision.source)
        self.complete(fibre.waits, fibre.now, fibre)

    def _buffer(self, decision: Decision) -> None:
        fibre = self._blocked(decision.rank, SendOp)
        op = fibre.waits
        if not isinstance(op, ObjectSendOp):
            op.payload = op.payload.copy()  # its sender may write into the array now
        self.complete(op, fibre.now, fibre)

    # -- a rank that has died ------------------------------------------------------------------------------------------
    def _needs_dead(self, fibre: Fibre) -> bool:
        """Say whether a fibre waits for the rank that has died; nothing it waits for is on its way then."""
        event = fibre.waits
        if isinstance(event, Completion):
            event = event.call
        if isinstance(event, CollectiveCall):
            return any(member.rank == self.dead for member in event.members)
        if isinstance(event, (SendOp, RecvOp)):
            return self.dead in (event.channel.sender, event.channel.receiver)
        if isinstance(event, AnyReceive):  # it is told once, after the last message; then it waits for those left
            sent = any(op.channel.sender == self.dead for op in self.objects[event.key])
            return not sent and fibre.rank not in self._told
        listening = [source for listener, source in self.listeners.values() if listener is fibre]
        return bool(listening) and listening[0] == self.dead

    def _tell(self, decision: Decision) -> None:
        fibre = next(f for f in self.scheduler.names if f.rank == decision.rank and f.waits and self._needs_dead(f))
        what = fibre.waits.waiting(fibre)
        self._told.add(fibre.rank)
        fibre.greenlet.throw(PeerLostError((self.dead,), f"rank {fibre.rank}: rank {self.dead} was lost during {what}"))

    def check_empty(self) -> None:
        if self.dead is None:  # messages to a rank that has died are lost with it
            super().check_empty()


class OrderedComm(MessageComm):
    """A simulated rank's communicator in a world whose network is played."""

    def _recv_obj(self, source, tag):
        transport, fibre, key = self._transport, self._fibre, (self._context, self.rank, tag)
        transport.count(fibre)
        if source == ANY:
            event = AnyReceive(key)
            transport.scheduler.block(fibre, event)
            source = event.source
        elif not any(op.channel.source == source for op in transport.objects[key]):
            transport.listen(fibre, key, source, BlockReason(f"recv_obj(source={source}, tag={tag})"))
        return pickle.loads(transport.take_object(key, source).payload)

    def _poll(self, event):
        raise CommError(
            f"rank {self.rank}: Work.done() depends on time, and where orders are chosen there is none; use wait()"
        )
