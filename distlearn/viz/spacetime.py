"""Space-time diagrams: a line for each rank, an arrow for each message, and the calls in which ranks wait at the end.

Time is logical (Lamport, 1978): an event stands to the right of everything that had to happen before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.ticker import MaxNLocator

from ..comm.base import RankError
from ..sim.exploration import Exploration, OrderedRun, SpaceTimeEvent
from .look import MUTED, NAVY, VERMILION, new_axes, styled, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def plot_spacetime(what: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the messages between ranks, their order, and where each rank ended.

    Parameters
    ----------
    what : Exploration, OrderedRun, SimWorld or dict of records
        An exploration shows its shortest failure, else the order with another result, else the first run. A world
        shows its last run: after an error, the messages sent until then, and the call in which every rank waits.
        The records of a run that hangs (`world.records`) show the last calls of every rank, and which ranks made
        the same one.

    References
    ----------
    L. Lamport (1978), Time, clocks, and the ordering of events in a distributed system, Communications of the ACM
    21(7), figure 1.
    """
    if isinstance(what, dict):
        return _plot_records(what, ax, title)
    events, stopped, size = _content(what)
    times = _logical_times(events)
    last = {
        rank: max((t for t, e in zip(times, events, strict=True) if e.rank == rank), default=0) for rank in range(size)
    }
    end = max(last.values()) + 1
    if ax is None:
        (ax,) = new_axes(figsize=(7.2, 1.1 + 0.7 * size))
    for rank in range(size):
        stop = last[rank] + 0.7 if rank in stopped else end
        ax.plot([0, stop], [rank, rank], color=MUTED, lw=1.5, ls="-", zorder=1)
        if rank in stopped:
            ax.plot([stop], [rank], marker="X", color=VERMILION, ms=9, zorder=4)
            _note(ax, stopped[rank], stop, rank, VERMILION)
    received = {e.message: (t, e.rank) for t, e in zip(times, events, strict=True) if e.kind == "receive"}
    for t, event in zip(times, events, strict=True):
        if event.kind == "receive":
            continue
        if event.message in received:
            arrow = {"arrowstyle": "-|>", "color": NAVY, "lw": 1.6, "shrinkA": 3, "shrinkB": 3}
            ax.annotate("", received[event.message], (t, event.rank), arrowprops=arrow, zorder=3)
        else:  # never received: a dashed stub towards its receiver
            down = 0.4 if event.peer > event.rank else -0.4
            ax.plot([t, t + 0.4], [event.rank, event.rank + down], color=VERMILION, ls=(0, (3, 2)), lw=1.6, zorder=3)
        ax.plot([t], [event.rank], marker="o", mfc="white", mec=NAVY, ms=5, zorder=3)
    for t, rank in received.values():
        ax.plot([t], [rank], marker="o", color=NAVY, ms=4, zorder=3)
    _name_rows(ax, range(size), title)
    longest = max((len(text) for text in stopped.values()), default=0)
    ax.set_xlim(0, (end + 0.3) / (1 - min(0.0125 * longest, 0.65)) if stopped else end)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("logical time [events]")
    return ax


def _name_rows(ax, ranks, title: str) -> None:
    ax.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    ax.set_ylim(len(ranks) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    write_title(ax, title)


def _note(ax, text: str, at: float, row: int, color) -> None:
    """Write beside a rank's last event, over the lines that cross it there."""
    box = {"fc": "white", "ec": "none", "pad": 1}
    ax.annotate(text, (at, row), (9, -4), textcoords="offset points", color=color, fontsize=9, bbox=box)


CALLS = 8  # of a rank that has stopped, the last ones


def _plot_records(records, ax, title: str):
    if ax is None:
        (ax,) = new_axes(figsize=(7.2, 1.1 + 0.6 * len(records)))
    calls = {
        rank: [((tuple(r.group), r.number) if r.number else (rank, i), r) for i, r in enumerate(of_rank[-CALLS:])]
        for rank, of_rank in sorted(records.items())
    }
    times: dict[str, Any] = {}
    # A call is later than those before it on its rank, and at one time on all ranks that make it. This number of rounds
    # is always enough; there is no such time where ranks made non-blocking calls of two groups in different orders.
    for _ in range(sum(map(len, calls.values()))):
        for made in calls.values():
            now = 0
            for key, _ in made:
                times[key] = now = max(now + 1, times.get(key, 0))
    end, where = max(times.values(), default=0) + 1, {}
    for row, made in enumerate(calls.values()):
        for key, _ in made:
            where.setdefault(key, []).append(row)
        stop, last = (times[made[-1][0]], made[-1][1]) if made else (0, None)
        ax.plot([0, stop], [row, row], color=MUTED, lw=1.5, ls="-", zorder=1)
        waits = last is not None and last.state == "waiting"
        done = [times[key] for key, _ in made[: len(made) - waits]]
        ax.plot(done, [row] * len(done), ls="", marker="o", color=NAVY, ms=5, zorder=3)
        if waits:
            ax.plot([stop], [row], marker="X", color=VERMILION, ms=9, zorder=4)
        name = f"{last.call.partition('(')[0]}, number {last.number}" if last else ""
        text = f"waits in {name}" if waits else f"last seen in {name}" if last else "nothing is known"
        color = VERMILION if waits else MUTED
        _note(ax, text, stop, row, color)
    for key, rows in where.items():
        ax.plot([times[key]] * 2, [min(rows), max(rows)], color=MUTED, lw=0.8, ls="-", marker="", zorder=0)
    _name_rows(ax, calls, title)
    ax.set_xlim(0, 1.5 * end)
    ax.set_xticks([])
    ax.set_xlabel("last calls, in order")
    return ax


def _content(what) -> tuple[list[SpaceTimeEvent], dict[int, str], int]:
    """Return the events, where ranks stopped before their end, and the number of ranks."""
    if isinstance(what, Exploration):
        run = what.failure or what.other or what.first
        if run is None:
            raise ValueError("plot_spacetime: the exploration has no run that ended")
        return run.events, _stopped(run), what.size
    if isinstance(what, OrderedRun):
        return what.events, _stopped(what), what.size
    stopped = {rank: f"waits for {text}" for rank, text in what.waiting.items()}
    left = what.undelivered
    events = []
    for number, m in enumerate(what.trace.messages):
        events.append((m.sent, number, SpaceTimeEvent(m.source, "send", number, m.dest)))
        if m not in left:
            events.append((m.arrived, number, SpaceTimeEvent(m.dest, "receive", number, m.source)))
    events.sort(key=lambda entry: entry[:2])
    return [event for *_, event in events], stopped, what.size


def _stopped(run: OrderedRun) -> dict[int, str]:
    """Say where ranks stopped: the one that raised, as the others could have continued; else those that wait."""
    if isinstance(run.error, RankError):
        return {run.error.rank: f"raises {type(run.error.original or run.error).__name__}"}
    return {rank: f"waits for {text}" for rank, text in run.waiting.items()}


def _logical_times(events) -> list[int]:
    clock: dict[int, int] = {}
    sent: dict[int, int] = {}
    times = []
    for event in events:
        now = clock.get(event.rank, 0)
        if event.kind == "receive":
            now = max(now, sent[event.message])
        clock[event.rank] = now = now + 1
        if event.kind == "send":
            sent[event.message] = now
        times.append(now)
    return times
