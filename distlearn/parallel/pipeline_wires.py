"""What travels between the stages of a pipeline: activations forward, gradients backward, none of it can deadlock.

Sends never block: `isend` is started when an array is there, and waited for when it is known to have been received.
Receives are posted one action ahead, in the schedule's order. So a rank waits for nothing but data that it needs, and
whatever `check_schedule` calls right runs to its end even if every send is synchronous.
"""

from __future__ import annotations

from .schedule import Action, Schedule


class Wires:
    """The messages of one step on one rank.

    Parameters
    ----------
    comm : Communicator
    schedule : Schedule
    shape_of : callable
        `shape_of(action) -> (shape, dtype)` of the array that an action takes.
    xp : array module
        Makes the buffers.
    place : callable, optional
        `place(action)` tells in which order a rank takes what it takes; the schedule's by default.
    """

    def __init__(self, comm, schedule: Schedule, shape_of, xp, place=None):
        self.comm, self.schedule, self.shape_of, self.xp = comm, schedule, shape_of, xp
        self.place = schedule.place.__getitem__ if place is None else place
        self._here: dict[Action, object] = {}  # arrays that stay on this rank, by the action that takes them
        self._coming: dict[Action, object] = {}  # receives under way, by the action that takes them
        self._going: dict[int, list] = {}  # peer -> [(action there that takes it, work)]

    def peer(self, action: Action, step: int) -> int | None:
        """Return the rank of the stage so many further, or None at the ends of the pipeline."""
        stage = action.stage + step
        return self.schedule.rank_of(stage) if 0 <= stage < self.schedule.n_stages else None

    def _tag(self, action: Action) -> int:
        """A number of its own for what an action takes: a schedule may send micro-batches in any order."""
        return 2 * (action.microbatch * self.schedule.n_stages + action.stage) + (action.kind == "B") + 1

    def post(self, action: Action) -> None:
        """Start to receive what an action takes, if it comes from another rank."""
        source = self.peer(action, -1 if action.kind == "F" else 1)
        if source in (None, self.comm.rank) or action in self._coming:
            return
        shape, dtype = self.shape_of(action)
        self._coming[action] = self.comm.irecv(self.xp.empty(shape, dtype), source, self._tag(action))

    def take(self, action: Action):
        """Return the array that an action takes."""
        if action in self._here:
            return self._here.pop(action)
        self.post(action)
        x = self._coming.pop(action).wait()
        self._settle(self.peer(action, -1 if action.kind == "F" else 1), action)
        return x

    def keep(self, action: Action, x) -> None:
        """Put the array there that an action on this rank takes."""
        self._here[action] = x

    def give(self, action: Action, x) -> None:
        """Hand an action's result to the stage that takes it."""
        step = 1 if action.kind == "F" else -1
        taker, dest = action._replace(stage=action.stage + step), self.peer(action, step)
        if dest is None:
            return
        if dest == self.comm.rank:
            self._here[taker] = x
            return
        x = self.xp.ascontiguousarray(x)
        self._going.setdefault(dest, []).append((taker, self.comm.isend(x, dest, self._tag(taker))))

    def _settle(self, peer: int, action: Action) -> None:
        """Let go of arrays that a rank has received before it sent what has just come from it."""
        came_from = action._replace(stage=action.stage + (-1 if action.kind == "F" else 1))
        now, left = self.place(came_from), []
        for taker, work in self._going.get(peer, ()):
            if self.place(taker) <= now:
                work.wait()
            else:
                left.append((taker, work))
        self._going[peer] = left

    def finish(self) -> None:
        """Wait until everything has been received."""
        for sends in self._going.values():
            for _, work in sends:
                work.wait()
        self._going.clear()
