"""When every action of a pipeline runs, on a network whose cards send one message after another."""

from __future__ import annotations

from collections.abc import Callable

from ..pipeline.schedule import Action, Schedule
from ..pipeline.schedule.play import needs


def timeline(
    schedule: Schedule,
    seconds: Callable[[Action], float],
    message: Callable[[Action], tuple[float, float]] = lambda taker: (0.0, 0.0),
) -> dict[Action, tuple[float, float]]:
    """Run every rank's actions in order, each as soon as what it takes is there.

    Parameters
    ----------
    schedule : Schedule
        A right one: see `check_schedule`.
    seconds : callable
        How long an action takes.
    message : callable
        Latency and seconds on the wire of what an action takes from another rank.

    Returns
    -------
    times : dict of Action to (start, end)

    Notes
    -----
    `schedule.simulate` has one cost for all messages, and any number of them travel at once; here they wait at the
    sender's card, which decides where the network is slow.
    """
    times: dict[Action, tuple[float, float]] = {}
    there: dict[Action, float] = {}  # when what an action takes has arrived
    free, wire, at = ([0] * schedule.n_ranks for _ in range(3))
    progress = True
    while progress:
        progress = False
        for rank, order in enumerate(schedule.orders):
            while at[rank] < len(order) and all(b in times for b in needs(order[at[rank]], schedule.n_stages)):
                action = order[at[rank]]
                start = max(free[rank], there.get(action, 0.0))
                times[action] = start, start + seconds(action)
                free[rank], progress = times[action][1], True
                at[rank] += 1
                taker = _taker(action, schedule)
                if taker is not None and schedule.rank_of(taker.stage) != rank:
                    latency, long = message(taker)
                    wire[rank] = max(wire[rank], free[rank]) + long
                    there[taker] = wire[rank] + latency
    return times


def _taker(action: Action, schedule: Schedule) -> Action | None:
    """The action on another stage that takes what an action gives; None at the ends."""
    stage = action.stage + (1 if action.kind == "F" else -1)
    return action._replace(stage=stage) if 0 <= stage < schedule.n_stages else None
