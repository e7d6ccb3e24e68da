"""Run a program under every order of messages that a network allows, and find an order that fails.

    program --> run, noting every decision --> run again with another decision --> ... until there is nothing new

Two runs in which every rank's receives got the same messages look the same to the program, whatever the order of the
decisions. So a run stops as soon as it reaches a state that an earlier run has reached.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..bounds import check_number, check_positive
from ..comm.base import CommError
from ..comm.calls import ANY
from .communicator import MessageComm
from .copies import Copies
from .scheduler import Fibre, Scheduler
from .transport import ObjectRecvOp, ObjectSendOp, SendOp, Transport
from .world import SimWorld

# -- order -------------------------------------------------------------------------------------------------------------
# A simulated world in which the caller makes the network's decisions, one by one.
#
# Most messages can be delivered in one way only: a receive names its sender, and messages of one sender do not overtake
# each other. Where a network has a choice, the run stops until a choice is made:
#
#     "2->0"       the message of rank 2 is the one that rank 0's receive from any rank gets
#     "buffer 1"   the network buffers the message that rank 1 sends, and rank 1 continues before it is received
#
# A decision is made only when no rank can continue without one. That excludes no outcome: by then every message that
# could have competed has arrived, and all earlier steps would have happened in any order (Vakkalanka et al., 2008,
# section 4). Where no receive from any rank has a message, no decision can help, and the run is a deadlock: a network
# may buffer, but it need not.
#
# S. Vakkalanka, G. Gopalakrishnan, R. M. Kirby (2008), Dynamic verification of MPI programs with reductions in
# presence of split operations and relaxed orderings, CAV.


class Decision(NamedTuple):
    """What the network does next; as text "2->0" or "buffer 1"."""

    kind: str
    rank: int
    source: int | None = None

    def __str__(self) -> str:
        return f"{self.source}->{self.rank}" if self.kind == "deliver" else f"{self.kind} {self.rank}"

    @classmethod
    def parse(cls, text) -> Decision:
        found = re.fullmatch(r"\s*(?:(\d+)\s*->\s*(\d+)|buffer\s+(\d+))\s*", str(text))
        if found is None:
            raise ValueError(f'{text!r} is not a decision, expected for example "2->0" or "buffer 1"')
        source, rank, sender = found.groups()
        return cls("buffer", int(sender)) if sender else cls("deliver", int(rank), int(source))


def follow(decisions: list[Decision]) -> Callable[..., Any]:
    """Return a function that makes these decisions one after another, then always the first that is possible."""
    # So once they are made, messages are delivered in the order of sending.
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


class SpaceTimeEvent(NamedTuple):
    """One step of a rank, for `viz.plot_spacetime`."""

    rank: int
    kind: str
    message: int
    peer: int


class OrderedScheduler(Scheduler):
    """A scheduler that asks for a decision whenever no fibre can continue."""

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
    """The state that ranks share while the caller decides for the network."""

    def __init__(self, world, scheduler: OrderedScheduler, choose: Callable[..., Any], max_steps: int = 100_000):
        super().__init__(world, scheduler)
        self.choose, self.max_steps = choose, max_steps
        self.steps: dict[tuple, int] = defaultdict(int)  # operations begun, by name of the fibre
        self.received: dict[int, list] = defaultdict(list)  # by rank, whose messages its receives from any rank got
        self.decisions: list[Decision] = []
        self.events: list[SpaceTimeEvent] = []
        self._numbers: dict[SendOp, int] = {}
        self._n_messages = 0
        scheduler.resolve = self.resolve

    def state(self) -> tuple[Any, ...]:
        """Return the state that determines the rest of the run; runs in equal states behave identically."""
        received = tuple(sorted((rank, tuple(got)) for rank, got in self.received.items()))
        return tuple(sorted(self.steps.items())), received

    # -- operations are counted ----------------------------------------------------------------------------------------
    def count(self, fibre: Fibre) -> None:
        """Count an operation of a fibre; raise if the run makes too many."""
        self.steps[self.scheduler.names[fibre]] += 1
        if sum(self.steps.values()) > self.max_steps:
            raise CommError(f"rank {fibre.rank}: the run has more than {self.max_steps} operations; does it ever end?")

    def send(self, fibre, channel, x):
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

    def put_object(self, key: tuple[Any, ...], op: ObjectSendOp) -> None:
        self._numbers[op] = self._note_send(op.channel)
        super().put_object(key, op)

    def take_object(self, event: ObjectRecvOp) -> ObjectSendOp:
        """Take the first object in flight from the rank of a receive; its sender continues."""
        op = next(filter(event.takes, self.objects[event.key]))
        self.objects[event.key].remove(op)
        self._note_receive(op.channel, self._numbers[op])
        if op.when is None:
            self.complete(op, op.fibre.now, op.fibre)
        return op

    # -- decisions -----------------------------------------------------------------------------------------------------
    def options(self) -> list[Decision]:
        """Return the decisions that are possible now; none where no message can be delivered."""
        # The first one delivers the message that was sent first, of those that the lowest waiting rank may get.
        blocked = [f for f in self.scheduler.names if f.waits is not None and not f.greenlet.dead]
        deliver = [
            Decision("deliver", fibre.rank, source)
            for fibre in blocked
            if isinstance(fibre.waits, ObjectRecvOp) and fibre.waits.source == ANY
            for source in dict.fromkeys(op.channel.sender for op in self.objects[fibre.waits.key])
        ]
        buffer = [Decision("buffer", f.rank) for f in blocked if isinstance(f.waits, SendOp)]
        return deliver + buffer if deliver else []

    def resolve(self) -> bool:
        """Make one decision; return False if there is none to make."""
        options = self.options()
        if not options:
            return False
        decision = self.choose(options, self)
        self.decisions.append(decision)
        (self._deliver if decision.kind == "deliver" else self._buffer)(decision)
        return True

    def _blocked(self, rank: int, kind) -> Fibre:
        return next(f for f in self.scheduler.names if f.rank == rank and isinstance(f.waits, kind))

    def _deliver(self, decision: Decision) -> None:
        fibre = self._blocked(decision.rank, ObjectRecvOp)
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


class OrderedComm(MessageComm):
    """A simulated rank's communicator in a world whose network's decisions are chosen."""

    def _recv_obj(self, source, tag):
        transport, fibre = self._transport, self._fibre
        transport.count(fibre)
        event = ObjectRecvOp((self._context, self.rank, tag), source)
        if source == ANY:
            transport.block(fibre, event)  # until it is decided whose object it gets
        elif not transport.arrivals(event):
            transport.listen(fibre, event)
        return pickle.loads(transport.take_object(event).payload)

    def _poll(self, event):
        raise CommError(f"rank {self.rank}: Work.done() depends on time, which chosen orders do not have; use wait()")


# -- exploration -------------------------------------------------------------------------------------------------------


MAX_RANKS = 4


@dataclass
class OrderedRun:
    """One order, and its outcome."""

    order: list[str]  # what `run_in_order` takes to repeat it
    options: list[list[str]]  # the possible decisions at each step, and at the step whose decision was refused
    results: list[Any] | None  # by rank; None if it failed
    error: Exception | None
    events: list[SpaceTimeEvent]
    waiting: dict[int, str]  # by rank: the call in which it waited at the end
    size: int

    @property
    def n_interleavings(self) -> int:
        """Number of sequences of its sends and receives with the same deliveries."""
        return count_interleavings(self.events, self.size)

    def length(self) -> tuple[int, int]:
        return len(self.events), len(self.order)

    def __str__(self) -> str:
        return f"order: {', '.join(self.order) or 'no choice'}\n{self.error or 'another result'}"


@dataclass
class Exploration:
    """What `explore` found."""

    size: int
    n_runs: int = 0  # runs that it took
    complete: bool = True  # whether every order was tried; False if `max_runs` came first
    runs: list[OrderedRun] = field(default_factory=list, repr=False)  # one of each order

    @property
    def n_orders(self) -> int:
        """Number of orders that differ in what some rank receives, and that ran to their end or failed."""
        return len(self.runs)

    @property
    def failures(self) -> list[OrderedRun]:
        return [run for run in self.runs if run.error is not None]

    @property
    def failure(self) -> OrderedRun | None:
        """The shortest run that deadlocked, lost a message, or raised."""
        return min(self.failures, key=OrderedRun.length, default=None)

    @property
    def first(self) -> OrderedRun | None:
        """The first run that ended."""
        return next((run for run in self.runs if run.error is None), None)

    @cached_property
    def other(self) -> OrderedRun | None:
        """The shortest run whose results differ from those of the first one."""
        ended = [run for run in self.runs if run.error is None]
        found = (run for run in ended if not same(run.results, ended[0].results))
        return min(found, key=OrderedRun.length, default=None)

    @property
    def ok(self) -> bool:
        """Whether no order failed, and all gave the same result."""
        return self.failure is None and self.other is None

    def __str__(self) -> str:
        tried = f"{self.n_orders} order{'s' * (self.n_orders != 1)}"
        if self.complete and self.n_orders == 1:
            tried = "the only order"
        more = "" if self.complete else f" (there are more: stopped after {self.n_runs} runs)"
        if self.ok:
            every = "all " * (self.complete and self.n_orders > 1)
            return f"no deadlock, no lost message, the same result in {every}{tried}{more}"
        if self.failure is not None:
            fail = "fails" if len(self.failures) == 1 else "fail"
            which = tried if self.n_orders == 1 else f"{len(self.failures)} of {tried}"
            return f"{which} {fail}{more}; the shortest:\n{self.failure}"
        return f"the result depends on the order ({tried}{more}); the shortest that differs:\n{self.other}"


def explore(
    fn: Callable[..., Any],
    size: int,
    *args: Any,
    max_runs: int = 10_000,
    max_steps: int = 10_000,
    **kwargs: Any,
) -> Exploration:
    """Call `fn(comm, *args, **kwargs)` on every rank, under every order of messages that a network may show.

    What can differ: which pending message a receive from any rank gets, and which sends are buffered. Nothing is
    buffered where no receive from any rank is pending: a program that needs that is one that hangs.

    Parameters
    ----------
    fn : callable
        A deterministic program: the same messages received lead to the same calls.
    size : int
        At most 4.
    max_steps : int
        Operations of all ranks in one run; a program that makes more is taken to run without end.

    Notes
    -----
    Orders that deliver the same messages to the same receives are run once. Numbers of results are compared to nine
    digits, since sums in another order differ in the last ones.

    References
    ----------
    S. Vakkalanka, G. Gopalakrishnan, R. M. Kirby (2008), Dynamic verification of MPI programs with reductions in
    presence of split operations and relaxed orderings, CAV, section 4.

    Examples
    --------
    >>> def head_to_head(comm):
    ...     x, other = np.zeros(3), 1 - comm.rank
    ...     comm.send(x, dest=other)
    ...     comm.recv(x, source=other)
    >>> type(explore(head_to_head, 2).failure.error).__name__
    'DeadlockError'
    """
    check_number("explore", whole=True, least=1, most=MAX_RANKS, size=size)  # the number of orders explodes
    check_positive("explore", max_runs=max_runs, max_steps=max_steps)
    found = Exploration(size)
    _explore(found, Copies("explore", fn, args, kwargs), max_runs, max_steps)
    return found


def run_in_order(fn: Callable[..., Any], size: int, order: Any = (), *args: Any, **kwargs: Any) -> OrderedRun:
    """Run `fn(comm, *args, **kwargs)` once, on a network that decides as `order` says.

    It returns a failure instead of raising it, and says what else the network could have done. After the last decision,
    the first one that is possible is made. Time stands still.

    Examples
    --------
    >>> def first_come(comm):
    ...     return [comm.recv_obj(), comm.recv_obj()] if comm.rank == 0 else comm.send_obj(comm.rank, 0)
    >>> run = run_in_order(first_come, 3, ["2->0"])
    >>> run.results[0], run.order, run.options[0]
    ([2, 1], ['2->0', '1->0'], ['1->0', '2->0', 'buffer 1', 'buffer 2'])
    """
    choose = follow([Decision.parse(text) for text in order])
    run, _ = _run(Copies("run_in_order", fn, args, kwargs), size, choose, max_steps=10_000)
    return run


def count_interleavings(events: list[SpaceTimeEvent], size: int) -> int:
    """Count the sequences of events in which each rank's keep their order and a send comes before its receive."""
    lines = [[e for e in events if e.rank == rank] for rank in range(size)]
    sent_at = {e.message: (e.rank, i) for line in lines for i, e in enumerate(line) if e.kind == "send"}
    ways = {(0,) * size: 1}  # by how many events of each rank have happened
    for _ in events:
        after: dict[tuple, int] = defaultdict(int)
        for done, n in ways.items():
            for rank, i in enumerate(done):
                if i == len(lines[rank]):
                    continue
                event = lines[rank][i]
                sender, at = sent_at[event.message]
                if event.kind == "send" or done[sender] > at:
                    after[(*done[:rank], i + 1, *done[rank + 1 :])] += n
        ways = after
    return sum(ways.values())


class _Seen(Exception):
    """The run has reached a state that another run has reached."""


def _explore(found: Exploration, copies, max_runs: int, max_steps: int) -> None:
    """Try all orders, shortest first."""
    seen: set = set()
    todo = deque([[]])  # the decisions with which a run begins
    while todo:
        if found.n_runs >= max_runs:
            found.complete = False
            break
        prefix = todo.popleft()
        made: list[Decision] = []

        def choose(options, transport, prefix=prefix, made=made):
            at = len(made)
            if at < len(prefix):
                decision = prefix[at]
            else:
                state = transport.state()
                if state in seen:
                    raise _Seen
                seen.add(state)
                todo.extend([*made, other] for other in options[1:])
                decision = options[0]
            made.append(decision)
            return decision

        found.n_runs += 1
        run, transport = _run(copies, found.size, choose, max_steps)
        state = "end", transport.state()
        if run is None or state in seen:
            continue
        seen.add(state)
        found.runs.append(run)


def _run(copies: Copies, size: int, choose, max_steps: int) -> tuple[OrderedRun | None, OrderedTransport]:
    """Run once; the run is None if it reached a state that is known."""
    options: list[list[str]] = []

    def noted(possible, transport):
        options.append([str(decision) for decision in possible])
        return choose(possible, transport)

    scheduler = OrderedScheduler(size)
    transport = OrderedTransport(SimWorld(size), scheduler, noted, max_steps)
    results, error = None, None

    def main(fibre):
        fn, args, kwargs = copies.make()
        return fn(OrderedComm(transport, fibre, fibre.rank, scheduler.fibres), *args, **dict(kwargs))

    try:
        results = scheduler.run(main)
        transport.check_empty()
    except _Seen:
        return None, transport
    except (CommError, ValueError) as caught:
        error = caught
    order = [str(decision) for decision in transport.decisions]
    results = None if error else results
    return OrderedRun(order, options, results, error, transport.events, scheduler.waiting, size), transport


def same(a, b, rtol: float = 1e-9, atol: float = 1e-12) -> bool:
    """Compare results: numbers to nine digits by default, everything else exactly."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], rtol, atol) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, rtol, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float, np.ndarray, np.generic)) and isinstance(b, (int, float, np.ndarray, np.generic)):
        a, b = np.asarray(a), np.asarray(b)
        return a.shape == b.shape and bool(np.allclose(a, b, rtol, atol, equal_nan=True))
    return type(a) is type(b) and bool(a == b)
