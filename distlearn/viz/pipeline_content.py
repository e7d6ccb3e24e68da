"""What a picture of a pipeline schedule shows, before it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..parallel.pipeline.schedule import (
    SCHEDULES,
    Action,
    Arrow,
    Deadlock,
    Schedule,
    Simulated,
    TimedAction,
    actions_of,
    format,
    simulate,
)
from ..trace import Trace

NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved 1F1B",
    "zero_bubble": "Zero bubble (ZB-H1)",
    "pipedream": "PipeDream",
}


@dataclass(frozen=True)
class Content:
    """Actions and updates by rank; the first one starts at 0."""

    actions: list[TimedAction]
    ranks: list[int]
    updates: list[tuple[int, float, float]] = field(default_factory=list)
    deadlock: Deadlock | None = None
    schedule: Schedule | None = None
    timed: bool = True
    name: str = ""

    @property
    def end(self) -> float:
        """When the last action or update ends."""
        return max([a.end for a in self.actions] + [end for *_, end in self.updates], default=0.0)

    @cached_property
    def stages(self) -> dict[int, list[int]]:
        """Stages of each rank."""
        return {r: sorted({a.action.stage for a in self.actions if a.rank == r}) for r in self.ranks}

    @property
    def bubble(self) -> float:
        """Share of the ranks' time, from the first start to the last end, in which they run no micro-batch."""
        length = max(a.end for a in self.actions)
        return 1 - sum(a.end - a.start for a in self.actions) / (length * len(self.ranks))

    def waits_from(self, rank: int) -> float:
        """From when on a deadlocked rank waits: those that wait for each other, when the last of them waits."""
        cycle = self.deadlock.cycle
        together = cycle if rank in cycle else [rank]
        return max((a.end for a in self.actions if a.rank in together), default=0.0)

    @cached_property
    def broken(self) -> list[Arrow]:
        """Happens-before arrows that do not hold."""
        return self.deadlock.arrows if self.deadlock else []

    def stuck(self, rank: int) -> list[tuple[Action, bool]]:
        """The action that a rank cannot start, and those behind it at which a broken arrow begins."""
        # Each with whether actions between it and the one before are left out.
        waiting = next(w for w in self.deadlock.waiting if w.rank == rank)
        wanted = {arrow.before for arrow in self.broken}
        rest = list(enumerate(self.schedule.orders[rank]))[waiting.position :]
        kept = [(i, a) for i, a in rest if i == waiting.position or a in wanted]
        return [(a, k > 0 and i > kept[k - 1][0] + 1) for k, (i, a) in enumerate(kept)]

    def short(self, action: Action) -> Action:
        """Return an action as text, without its stage if rank r has only stage r."""
        simple = all(stages in ([], [rank]) for rank, stages in self.stages.items())
        return action._replace(stage=None) if simple else action

    def finding(self) -> str:
        """What it is, and its bubble, in a line."""
        if self.deadlock is not None:
            ranks = sorted(self.deadlock.cycle)
            if len(ranks) == 1:
                return f"Deadlock: rank {ranks[0]} waits for itself"
            return f"Deadlock: ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} wait for each other"
        n, m = len(self.ranks), len({a.action.microbatch for a in self.actions})
        parts = [self.name] if self.name else []
        parts += [f"{n} rank{'s' * (n > 1)}", f"{m} micro-batch{'es' * (m > 1)}"]
        return f"{', '.join(parts)}: bubble {self.bubble:.0%}"

    def words(self) -> str:
        """The finding, and what each rank does."""
        waiting = {w.rank: w.action for w in self.deadlock.waiting} if self.deadlock else {}
        sentences = []
        for rank in self.ranks:
            mine = sorted((a for a in self.actions if a.rank == rank), key=lambda a: a.start)
            done = format(self.short(a.action) for a in mine)
            ever = f"waits forever with {self.short(waiting[rank])}" if rank in waiting else ""
            sentences.append(f"Rank {rank}: {', then '.join(filter(None, [done, ever]))}.")
        if self.broken:
            sentences.append(f"Broken: {', '.join(map(str, self.broken))}.")
        return " ".join([f"{self.finding()}.", *sentences])


def content(schedule, n_ranks=None, n_microbatches=None, **options) -> Content:
    """Find what there is to show of a schedule in any form, of what `simulate` returned, or of a trace."""
    if isinstance(schedule, (Trace, Simulated)):
        if n_ranks is not None or n_microbatches is not None or options:
            raise ValueError("plot_schedule: a Trace or a Simulated has its ranks, micro-batches and times already")
        return _of_trace(schedule) if isinstance(schedule, Trace) else _of_simulated(schedule, True, "")
    run = simulate(schedule, n_ranks, n_microbatches, allow_deadlock=True, **options)
    return _of_simulated(run, bool({"forward", "backward"} & set(options)), _name(schedule))


def _of_simulated(run: Simulated, timed: bool, name: str) -> Content:
    actions = [a for a in actions_of(run.trace) if a.end > a.start]
    ranks = list(range(run.schedule.n_ranks))
    return Content(actions, ranks, deadlock=run.deadlock, schedule=run.schedule, timed=timed, name=name)


def _of_trace(trace: Trace) -> Content:
    actions = [a for a in actions_of(trace) if a.end > a.start]
    if not actions:
        raise ValueError(
            f"plot_schedule: no action of a pipeline takes time in {trace!r}; simulate with a compute model that costs "
            "something (Roofline, Measured)"
        )
    ranks, zero = sorted({a.rank for a in actions}), min(a.start for a in actions)
    spans = [s for s in trace.select(lane="compute", name="update") if s.rank in ranks and s.end > s.start >= zero]
    updates = [(s.rank, s.start - zero, s.end - zero) for s in spans]
    return Content([a._replace(start=a.start - zero, end=a.end - zero) for a in actions], ranks, updates)


def _name(schedule) -> str:
    """Name of a schedule of the literature."""
    if callable(schedule):
        schedule = next((name for name, function in SCHEDULES.items() if function is schedule), "")
    return NAMES.get(schedule.strip(), "") if isinstance(schedule, str) else ""
