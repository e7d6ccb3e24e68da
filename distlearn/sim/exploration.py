"""Run a program under every order that a network may show it, and say whether one of them fails.

    program --> run, noting every decision --> run again with another decision --> ... until there is nothing new

Two runs in which every rank's receives got the same messages differ in nothing that a program can see, whatever the
order of the decisions. So a run stops as soon as it comes to a state that an earlier run was in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..comm.protocol import CommError, PeerLostError
from .order import Decision, OrderedComm, OrderedScheduler, OrderedTransport, SpaceTimeEvent, follow
from .world import SimWorld

MAX_RANKS = 4


@dataclass
class Run:
    """One order, and what came of it.

    Attributes
    ----------
    order : list of str
        What `SimWorld(size, order=...)` takes to repeat it.
    options : list of list of str
        What was possible at each decision, and at the one that was refused if the order could not be followed.
    kill : (int, int) or None
        Rank that died, and before which of its operations.
    results : list or None
        By rank; None if it failed.
    waiting : dict of int to str
        By rank, what it waited for at the end.
    size : int
        Number of ranks.
    """

    order: list[str]
    options: list[list[str]]
    kill: tuple[int, int] | None
    results: list | None
    error: Exception | None
    events: list[SpaceTimeEvent]
    waiting: dict[int, str]
    size: int

    @property
    def n_interleavings(self) -> int:
        """In how many sequences its sends and receives could happen, with the same deliveries.

        Operations of a rank keep their order, and a message is received after it was sent.
        """
        return count_interleavings(self.events, self.size)

    def __str__(self) -> str:
        death = "" if self.kill is None else f"rank {self.kill[0]} dies before its operation {self.kill[1] + 1}; "
        order = ", ".join(self.order) or "no choice"
        return f"{death}order: {order}\n{self.error or 'another result'}"


@dataclass
class Exploration:
    """What `explore` found.

    Attributes
    ----------
    n_orders : int
        Orders that differ in what some rank receives, and that ran to their end or failed.
    n_runs : int
        Runs that it took.
    complete : bool
        Whether every order was tried; False if `max_runs` came first.
    failure : Run or None
        The shortest run that deadlocked, lost a message, or raised.
    other : Run or None
        The shortest run whose results differ from those of the first one.
    first : Run or None
        The first run that ended.
    runs : list of Run
        All of them, with `keep`.
    """

    size: int
    n_orders: int = 0
    n_runs: int = 0
    complete: bool = True
    failure: Run | None = None
    other: Run | None = None
    first: Run | None = None
    failures: list[Run] = field(default_factory=list, repr=False)
    runs: list[Run] = field(default_factory=list, repr=False)

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
    fn: Callable,
    size: int,
    *args,
    kills: bool = False,
    max_runs: int = 10_000,
    max_steps: int = 10_000,
    keep: bool = False,
    **kwargs,
) -> Exploration:
    """Call `fn(comm, *args, **kwargs)` on every rank, under every order of messages that a network may show.

    What can differ: which pending message a receive from any rank gets, and which sends are buffered. Nothing is
    buffered where no receive from any rank is pending: a program that needs that is one that hangs.

    Parameters
    ----------
    fn : callable
        A program that makes no choices: it must do the same whenever its receives get the same messages.
    size : int
        Number of ranks, at most 4.
    kills : bool
        Also try every order in which one rank dies, before any of its operations. The others must end, or stop with
        the `PeerLostError` that tells them of it.
    max_runs : int
        Stop after so many runs.
    max_steps : int
        Operations of all ranks in one run; a program that makes more is taken to run without end.
    keep : bool
        Keep every run.

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
    if not 1 <= size <= MAX_RANKS:
        raise ValueError(f"explore: size is {size!r}, expected 1 to {MAX_RANKS} ranks: the number of orders explodes")
    found = Exploration(size)

    def program(comm):
        return fn(comm, *args, **kwargs)

    steps = _explore(found, program, None, max_runs, max_steps, keep)
    for rank in range(size) if kills else ():
        for n in range(steps.get(rank, 0)):
            _explore(found, program, (rank, n), max_runs, max_steps, keep)
    return found


def replay(fn: Callable, size: int, order=(), *args, **kwargs) -> Run:
    """Run `fn(comm, *args, **kwargs)` once, on a network that decides as `order` says.

    Unlike `SimWorld(size, order=order).run(fn)` it returns a failure instead of raising it, and says what else the
    network could have done.

    Parameters
    ----------
    order : sequence of str
        Decisions, such as `["2->0", "buffer 1"]`; after the last one, the first that is possible.

    Examples
    --------
    >>> def first_come(comm):
    ...     return [comm.recv_obj(), comm.recv_obj()] if comm.rank == 0 else comm.send_obj(comm.rank, 0)
    >>> run = replay(first_come, 3, ["2->0"])
    >>> run.results[0], run.order, run.options[0]
    ([2, 1], ['2->0', '1->0'], ['1->0', '2->0', 'buffer 1', 'buffer 2'])
    """
    choose = follow([Decision.parse(text) for text in order])
    run, _ = _run(lambda comm: fn(comm, *args, **kwargs), size, choose, None, max_steps=10_000)
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
    """The run has come to a state that another run was in."""


def _explore(found: Exploration, fn, kill, max_runs: int, max_steps: int, keep: bool) -> dict[int, int]:
    """Try all orders, shortest first; return how many operations each rank makes at most."""
    seen: set = set()
    todo = deque([[]])  # the decisions with which a run begins
    most: dict[int, int] = {}
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
        run, transport = _run(fn, found.size, choose, kill, max_steps)
        for name, n in transport.steps.items():
            if name[1] == 0:
                most[name[0]] = max(most.get(name[0], 0), n)
        state = "end", transport.state()
        if run is None or state in seen:
            continue
        seen.add(state)
        _judge(found, run)
        if keep:
            found.runs.append(run)
    return most


def _run(fn, size: int, choose, kill, max_steps: int) -> tuple[Run | None, OrderedTransport]:
    """Run once; the run is None if it came to a state that is known."""
    options: list[list[str]] = []

    def noted(possible, transport):
        options.append([str(decision) for decision in possible])
        return choose(possible, transport)

    world = SimWorld(size, order=choose)
    scheduler = OrderedScheduler(size)
    transport = OrderedTransport(world, scheduler, noted, kill, max_steps)
    results, error = None, None

    def main(fibre):
        return fn(OrderedComm(transport, fibre, fibre.rank, scheduler.fibres))

    try:
        results = scheduler.run(main)
        transport.check_empty()
    except _Seen:
        return None, transport
    except (CommError, ValueError) as caught:
        error = caught
    order = [str(decision) for decision in transport.decisions]
    results = None if error else results
    return Run(order, options, kill, results, error, transport.events, scheduler.waiting, size), transport


def _judge(found: Exploration, run: Run) -> None:
    """Add a run to what was found."""
    found.n_orders += 1
    if run.kill is not None and isinstance(getattr(run.error, "original", None), PeerLostError):
        return  # told of the loss and stopped: all that a program without recovery can do
    if run.error is not None:
        found.failures.append(run)
        if found.failure is None or _length(run) < _length(found.failure):
            found.failure = run
    elif run.kill is None:
        if found.first is None:
            found.first = run
        elif not same(run.results, found.first.results) and (
            found.other is None or _length(run) < _length(found.other)
        ):
            found.other = run


def _length(run: Run) -> tuple[int, int]:
    return len(run.events), len(run.order)


def same(a, b) -> bool:
    """Compare results: numbers to nine digits, everything else exactly."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (int, float, np.ndarray, np.generic)) and isinstance(b, (int, float, np.ndarray, np.generic)):
        a, b = np.asarray(a), np.asarray(b)
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
    return type(a) is type(b) and bool(a == b)
