"""Record the collectives of a run, and replay it as a graph of dependencies with one thing changed.

    record_run(world, program) --> results, trace: spans, messages, and every rank's `operations`
        replay(trace, network=, compute=, slowdown=) --> Replay: makespan, trace, critical path

Between two collectives a rank computes for as long as in the recording. A collective begins when the last of its ranks
enters it. So a rank that waits in the replay waits for a collective, and thereby for the rank that held it up. The
chain of these dependencies, from the end of the run to its beginning, is the critical path.

References
----------
H. Zhu, A. Phanishayee, G. Pekhimenko (2020), Daydream: accurately estimating the efficacy of optimizations for DNN
training, USENIX ATC, sections 3 and 4.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from ..bounds import check_number
from ..comm.base import DoneWork, Work
from ..comm.network import Network
from ..comm.network.cost import BY_ROWS
from ..trace import Operation, Span, Trace
from .communicator import FORMULA_OF

# -- recording ---------------------------------------------------------------------------------------------------------
CALLS = (*BY_ROWS, "all_reduce", "reduce_scatter", "broadcast", "all_to_all", "barrier", "broadcast_obj", "gather_obj",
         "split", "iall_reduce", "ireduce_scatter", "iall_gather")  # fmt: skip
MESSAGES = ("send", "recv", "isend", "irecv", "send_recv", "send_obj", "recv_obj")


def record_run(world: Any, program: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], Trace]:
    """Run `program` on the ranks of `world`, and record its collectives for `replay`.

    Parameters
    ----------
    world : World
        Simulated ranks, engines or MPI processes; those of an `MPIWorld` get the trace on rank 0 alone.
    program : callable
        Called as `world.run` does: `program(comm, *args, **kwargs)`. It sends no messages between two ranks, as a
        pipeline or a parameter server would.

    Returns
    -------
    results : list
        What `world.run` returns.
    trace : Trace
        Of all ranks, on one time axis [s], with `operations`; `trace.save` keeps them too.
    """
    found = world.run(_recorded, program, args, kwargs)
    trace = Trace(world.trace.spans, world.trace.messages)
    trace.operations = _completed([operation for _, own in found for operation in own], trace.spans)
    return [result for result, _ in found], trace


def _recorded(comm, program, args, kwargs):
    comm = RecordingComm(comm, [], itertools.count())
    return program(comm, *args, **kwargs), comm.operations


def _completed(operations: list[Operation], spans: list[Span]) -> list[Operation]:
    """Set when non-blocking operations were done, from their spans: it may be long before they were waited for."""
    ends = defaultdict(deque)
    for span in sorted(spans, key=attrgetter("start")):
        if span.lane == "comm":
            ends[span.rank, span.name].append(span)
    found = []
    for op in sorted(operations, key=attrgetter("start")):
        mine = ends[op.rank, op.name]
        while mine and mine[0].start < op.start - 1e-9:
            mine.popleft()
        hidden = op.waited > op.start and mine and mine[0].end <= op.end
        found.append(op._replace(done=mine.popleft().end) if hidden else op)
    return found


class RecordingComm:
    """Delegates every call to another communicator, and records the collectives and their times."""

    def __init__(self, host, operations: list[Operation], places: Iterator[int], name: str = ""):
        self._host, self.operations, self._places, self._name = host, operations, places, name
        self._numbers = Counter()

    def __getattr__(self, name):
        if name in MESSAGES:
            raise ValueError(
                f"record_run: the program calls {name}; a replay knows collectives, and no messages between two ranks"
            )
        found = getattr(self._host, name)
        return functools.partial(self._collective, name.removeprefix("i"), found) if name in CALLS else found

    def _collective(self, name, call, *args, **kwargs):
        group = tuple(self._host.members)
        self._numbers[name] += 1
        x = args[1] if name == "scatter" else args[0] if args else None
        nbytes = getattr(x, "nbytes", 0) * (len(group) if name in BY_ROWS else 1)
        key = f"{self._name}{name} {group} {self._numbers[name]}"
        end = functools.partial(self._end, name, group, key, nbytes, next(self._places), self._host.clock.now())
        result = call(*args, **kwargs)
        if hasattr(result, "wait") and not isinstance(result, DoneWork):
            return RecordedWork(result, self._host.clock, end)
        end()  # all of it happened in the call
        if name != "split" or result is None:
            return result
        name = f"{self._name}part {self._numbers[name]}: "
        return RecordingComm(result, self.operations, self._places, name)

    def _end(self, name, group, key, nbytes, place, start, waited=None) -> None:
        now, rank = self._host.clock.now(), self._host.members[self._host.rank]
        places, waited = (place, next(self._places)), start if waited is None else waited
        self.operations.append(Operation(rank, name, group, key, nbytes, places, start, waited, now, now))


class RecordedWork:
    """A `Work` that records when it was waited for."""

    def __init__(self, work: Work, clock, end):
        self._work, self._clock, self._end = work, clock, end

    def done(self) -> bool:
        return self._work.done()

    def wait(self):
        waited, result = self._clock.now(), self._work.wait()
        if self._end is not None:
            self._end(waited)
            self._end = None
        return result


# -- replaying ---------------------------------------------------------------------------------------------------------
class Step(NamedTuple):
    """One interval of the critical path: a rank computes, or an operation is in progress; times in seconds."""

    rank: int
    lane: str
    name: str
    start: float
    end: float


class Replay:
    """A recording, run again.

    Attributes
    ----------
    makespan : float
        Until the last rank ended [s].
    trace : Trace
        Computing and operations as spans.
    path : list of Step
        The critical path: consecutive steps whose lengths add up to the makespan.
    """

    def __init__(self, trace: Trace, path: list[Step]):
        self.trace, self.path = trace, path
        self.makespan = path[-1].end if path else 0.0

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in list(self.shares().items())[:4])
        return f"Replay({self.makespan:.3g} s; on the critical path {parts})"

    def shares(self) -> dict[str, float]:
        """Seconds of the critical path by the name of the span or operation, the longest first."""
        seconds = Counter()
        for step in self.path:
            seconds[step.name] += step.end - step.start
        return dict(seconds.most_common())


class _Shared:
    """One collective: its participants, and the times at which they entered and finished it."""

    def __init__(self, key: str, parts: dict[int, Operation]):
        self.key, self.parts = key, parts
        some = next(iter(parts.values()))
        self.name, self.group, self.nbytes = some.name, some.group, max(op.nbytes for op in parts.values())
        self.complete = max(op.start for op in parts.values())  # when its last rank entered it, in the recording
        self.entered, self.done, self.waiting = {}, {}, []  # of the replay: by rank, and the ranks that wait
        self.begins = self.last = self.before = None

    def seconds_on(self, network) -> float:
        return network.collective(FORMULA_OF.get(self.name, self.name), self.nbytes, self.group)


def replay(
    trace: Trace,
    *,
    network: Network | str | None = None,
    recorded_on: Network | str | None = None,
    compute: float | dict[str, float] = 1.0,
    slowdown: dict[int, float] | None = None,
) -> Replay:
    """Run a recording again, on another network, or where computing takes another time.

    Parameters
    ----------
    trace : Trace
        From `record_run`, or loaded.
    network : Network or str, optional
        Sets the seconds of collectives; by default they take as long as in the recording.
    recorded_on : Network or str, optional
        The network of the recording: seconds that collectives took beyond its model are added on `network`, too. On
        real ranks these are copies and the wake-up of processes.
    compute : float or dict of str to float
        Factor of the time of all computing, or of the spans of a name: ``{"backward": 0.5}``.
    slowdown : dict of int to float, optional
        Stragglers: the factor by which a rank computes more slowly.

    Examples
    --------
    >>> from distlearn import Roofline, SimWorld
    >>> def program(comm):
    ...     with comm.clock.span("forward", flops=1.0 + comm.rank):
    ...         pass
    ...     comm.barrier()
    >>> _, trace = record_run(SimWorld(2, compute=Roofline(peak=1.0)), program)
    >>> replay(trace), replay(trace, slowdown={0: 3.0}).makespan
    (Replay(2 s; on the critical path forward 2 s), 3.0)
    """
    slowdown = slowdown or {}
    factors = slowdown | (compute if isinstance(compute, dict) else {"compute": compute})
    check_number("replay", least=0, below=math.inf, **{str(name): factor for name, factor in factors.items()})
    known = {"compute", "other", *trace.ranks, *(span.name.partition("[")[0] for span in trace.spans)}
    if unknown := factors.keys() - known:
        raise ValueError(f"replay: no span or rank is called {unknown}, expected some of {known}")
    if recorded_on is not None and network is None:
        raise ValueError("replay: recorded_on is given without network, the one to run the recording on")
    if not trace.operations:
        raise ValueError(f"replay: {trace} has no operations; record it by dl.record_run(world, program)")
    by_key = defaultdict(dict)
    for op in trace.operations:
        by_key[op.key][op.rank] = op
    shared = {key: _Shared(key, parts) for key, parts in by_key.items()}
    for key, op in shared.items():
        if missing := set(op.group) - set(op.parts):
            raise ValueError(f"replay: {op.name} ({key}) lacks rank {min(missing)}, expected all of {op.group}")
    costs = _recorded_costs(shared)
    if network is not None:
        network, before = Network.of(network), recorded_on and Network.of(recorded_on)
        costs = {key: _cost_on(network, before, costs[key], op) for key, op in shared.items()}
    return _Run(trace, shared, costs, compute, slowdown).replay()


def _recorded_costs(shared: dict[str, _Shared]) -> dict[str, dict[int, float]]:
    """Return by collective and rank the seconds until it is done; those of a group run one after another."""
    free, costs = defaultdict(float), {}
    for key, op in sorted(shared.items(), key=lambda item: item[1].complete):
        begins = max(op.complete, free[op.group])
        free[op.group] = max(begins, min(part.done for part in op.parts.values()))
        costs[key] = {rank: max(0.0, part.done - begins) for rank, part in op.parts.items()}
    return costs


def _cost_on(network, before, recorded: dict[int, float], op: _Shared) -> dict[int, float]:
    """Return the same on another network; seconds beyond the model of the network `before` are added."""
    seconds = op.seconds_on(network)
    if not before:
        return dict.fromkeys(recorded, seconds)
    change = seconds - op.seconds_on(before)
    return {rank: max(0.0, took + change) for rank, took in recorded.items()}


def _computing(spans: list[Span], first: int, time: float, until: float):
    """Yield (name, seconds) of the time between two moments, by the outermost span."""
    for span in itertools.islice(spans, first, None):
        start, end = max(span.start, time), min(span.end, until)
        if span.start >= until:
            break
        if end > start:
            if start > time:
                yield "other", start - time
            yield span.name.partition("[")[0], end - start
            time = end
    if until > time:
        yield "other", until - time


class _Run:
    """The state of a replay: the time of every rank, and its steps until then."""

    def __init__(self, trace: Trace, shared: dict[str, _Shared], costs, compute, slowdown):
        self.shared, self.costs, self.compute, self.slowdown = shared, costs, compute, slowdown
        spans, operations = defaultdict(list), defaultdict(list)
        for span in sorted(trace.select(lane="compute"), key=attrgetter("start")):
            spans[span.rank].append(span)
        for op in trace.operations:
            operations[op.rank].append(op)
        self.ranks = {rank: self._rank(rank, operations[rank], spans[rank]) for rank in {*spans, *operations}}
        self.now = dict.fromkeys(self.ranks, 0.0)
        self.steps: dict[int, list] = {rank: [] for rank in self.ranks}  # (Step, the operation waited for)
        self.ready = deque(self.ranks)
        self.free: dict = defaultdict(float)  # until when a group is occupied
        self.before: dict = {}  # by group, the collective that occupies it

    def replay(self) -> Replay:
        """Run every rank until it waits for another, until all have ended."""
        while self.ready:
            next(self.ranks[self.ready.popleft()], None)
        spans = [Span(*step) for steps in self.steps.values() for step, _ in steps if step.end > step.start]
        return Replay(Trace(sorted(spans, key=attrgetter("end"))), self._critical_path())

    def _rank(self, rank: int, operations: list[Operation], spans: list[Span]):
        """Compute, enter operations and wait for them as in the recording; yield while another rank is not there."""
        events = [(place, op) for op in operations for place in op.places]
        time, first = 0.0, 0
        for place, op in sorted(events, key=itemgetter(0)):
            enters, shared = place == op.places[0], self.shared[op.key]
            until = op.start if enters else op.waited
            while first < len(spans) and spans[first].end <= time:
                first += 1
            self._compute(rank, _computing(spans, first, time, until))
            if enters:
                self._enter(rank, shared)
            else:
                while rank not in shared.done:
                    shared.waiting.append(rank)
                    yield
                self._add(rank, "comm", op.name, max(self.now[rank], shared.done[rank]), shared)
            time = max(time, until if enters else op.end)
        self._compute(rank, _computing(spans, first, time, max((span.end for span in spans), default=0.0)))

    def _add(self, rank: int, lane: str, name: str, end: float, op: _Shared | None) -> None:
        """Add a step of a rank, which ends it at `end`."""
        self.steps[rank].append((Step(rank, lane, name, self.now[rank], end), op))
        self.now[rank] = end

    def _compute(self, rank: int, parts) -> None:
        for name, seconds in parts:
            factor = self.compute.get(name, 1.0) if isinstance(self.compute, dict) else self.compute
            end = self.now[rank] + seconds * factor * self.slowdown.get(rank, 1.0)
            self._add(rank, "compute", name, end, None)

    def _enter(self, rank: int, op: _Shared) -> None:
        op.entered[rank] = (self.now[rank], len(self.steps[rank]))
        if len(op.entered) < len(op.parts):
            return
        op.last = max(op.entered, key=op.entered.get)
        seconds, came = self.costs[op.key], op.entered[op.last][0]
        op.begins = max(came, self.free[op.group])
        op.before = self.before.get(op.group) if op.begins > came else None
        # the next collective begins where one rank has done this one
        self.free[op.group], self.before[op.group] = op.begins + min(seconds.values()), op
        op.done = {r: op.begins + s for r, s in seconds.items()}
        self.ready.extend(op.waiting)

    def _critical_path(self) -> list[Step]:
        """Trace back from the end of the last rank through its computing and the operations that it waited for."""
        rank = max(self.now, key=self.now.get, default=None)
        path, i = [], len(self.steps.get(rank, ()))
        while i:
            i -= 1
            step, op = self.steps[rank][i]
            if step.end == step.start:
                continue
            if op is None:
                path.append(step)
                continue
            path.append(step._replace(start=op.begins))
            while op.before is not None:  # its group was occupied
                op, end = op.before, op.begins
                path.append(Step(op.last, "comm", op.name, op.begins, end))
            rank, i = op.last, op.entered[op.last][1]
        return [step for step in path[::-1] if step.end > step.start]
