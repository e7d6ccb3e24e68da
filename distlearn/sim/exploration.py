"""Run a program under every order that a network may show it, and say whether one of them fails.

    program --> run, noting every decision --> run again with another decision --> ... until there is nothing new

Two runs in which every rank's receives got the same messages differ in nothing that a program can see, whatever the
order of the decisions. So a run stops as soon as it comes to a state that an earlier run was in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..comm.protocol import CommError, PeerLostError
from .order import Decision, OrderedComm, OrderedScheduler, OrderedTransport, SpaceTimeEvent
from .world import SimWorld

MAX_RANKS = 4


@dataclass
class Run:
    """One order, and what came of it.

    Attributes
    ----------
    order : list of str
        What `SimWorld(size, order=...)` takes to repeat it.
    kill : (int, int) or None
        Rank that died, and before which of its operations.
    results : list or None
        By rank; None if it failed.
    error : Exception or None
    events : list of SpaceTimeEvent
    waiting : dict of int to str
        By rank, what it waited for at the end.
    size : int
        Number of ranks.
    """

    order: list[str]
    kill: tuple[int, int] | None
    results: list | None
    error: Exception | None
    events: list[SpaceTimeEvent]
    waiting: dict[int, str]
    size: int

    def __str__(self) -> str:
        death = "" if self.kill is None else f"rank {self.kill[0]} dies before its operation {self.kill[1] + 1}; "
        order = ", ".join(self.order) or "no choice"
        return f"{death}order: {order}\n{self.error or 'another result'}"


@dataclass
class Exploration:
    """What `explore` found.

    Attributes
    ----------
    size : int
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
    failures : list of Run
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
        more = "" if self.complete else f" (there are more: stopped after {self.n_runs} runs)"
        if self.ok:
            every = "all " * self.complete
            return f"no deadlock, no lost message, the same result in {every}{tried}{more}"
        if self.failure is not None:
            return f"{len(self.failures)} of {tried} fail{more}; the shortest:\n{self.failure}"
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
        A program without a choice of its own: it must do the same whenever its receives get the same messages.
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

    Returns
    -------
    Exploration

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
    world = SimWorld(size, order=choose)
    scheduler = OrderedScheduler(size)
    transport = OrderedTransport(world, scheduler, choose, kill, max_steps)
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
    return Run(order, kill, None if error else results, error, transport.events, scheduler.waiting, size), transport


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
