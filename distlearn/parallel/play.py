"""Play tasks in virtual time: every queue runs its tasks in order, each as soon as its dependencies have ended.

A queue is anything that does one thing at a time: a rank that computes, a network card that sends, the collectives of a
communicator. The order in each queue is given beforehand, so nothing is decided during the simulation, and a list of
tasks is its only input. Pipeline schedules are checked, timed and drawn with it (`pipeline.schedule.play`).

Two other simulations remain, which answer questions that fixed orders cannot. `SimWorld` runs the strategies' own code.
Under a parameter server's policy, the arrivals determine which step begins when (`param_server.simulation`);
a test compares the start and end times of BSP and SSP, where the order is known, with this function.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple


class Played(NamedTuple):
    """When each task ran, and where the queues stopped."""

    times: dict[Hashable, tuple[float, float]]  # start and end of every task that ran [s]
    stopped: list[int]  # by queue: position of the first task that never ran; its length if all of them did


def play_queues(
    queues: Sequence[Sequence[Hashable]],
    seconds: Callable[[Hashable], float],
    needs: Callable[[Hashable], Iterable[tuple[Hashable, float]]] = lambda task: (),
) -> Played:
    """Run the tasks of all queues, each as soon as its queues are free and its dependencies have ended."""
    queues_of = defaultdict(list)
    for i, queue in enumerate(queues):
        for task in queue:
            queues_of[task].append(i)
    times: dict[Hashable, tuple[float, float]] = {}
    at, free = [0] * len(queues), [0.0] * len(queues)
    waiting = defaultdict(list)  # task that has not ended -> queues whose next task needs it
    ready = deque(range(len(queues)))
    while ready:
        i = ready.popleft()
        while at[i] < len(queues[i]):
            task = queues[i][at[i]]
            mine = queues_of[task]
            if len(mine) > 1 and any(queues[j][at[j] : at[j] + 1] != [task] for j in mine):
                break  # the last of its queues to reach it runs it
            start = max([free[j] for j in mine])
            missing = None
            for before, delay in needs(task):
                if before not in times:
                    missing = before
                    break
                start = max(start, times[before][1] + delay)
            if missing is not None:
                waiting[missing].append(i)
                break
            times[task] = start, start + seconds(task)
            for j in mine:
                free[j] = times[task][1]
                at[j] += 1
            ready.extend(j for j in mine if j != i)
            ready.extend(waiting.pop(task, ()))
    return Played(times, at)
