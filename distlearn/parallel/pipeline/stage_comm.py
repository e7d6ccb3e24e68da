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

    def _rank(self, action: Action) -> int | None:
        """Return the rank of an action, or None beyond the ends of the pipeline."""
        return self.schedule.rank_of(action.stage) if 0 <= action.stage < self.schedule.n_stages else None

    def _tag(self, action: Action) -> int:
        """A number of its own for what an action takes: a schedule may send micro-batches in any order."""
        return 2 * (action.microbatch * self.schedule.n_stages + action.stage) + (action.kind == "B") + 1

    def post(self, action: Action) -> None:
        """Start to receive what an action takes, if it comes from another rank."""
        source = self._rank(giver(action))
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
        self._settle(giver(action))
        return x

    def keep(self, action: Action, x) -> None:
        """Put the array there that an action on this rank takes."""
        self._here[action] = x

    def give(self, action: Action, x) -> None:
        """Hand an action's result to the one that takes it."""
        dest = self._rank(taker(action))
        if dest == self.comm.rank:
            self.keep(taker(action), x)
        elif dest is not None:
            work = self.comm.isend(self.xp.ascontiguousarray(x), dest, self._tag(taker(action)))
            self._going.setdefault(dest, []).append((taker(action), work))

    def _settle(self, came_from: Action) -> None:
        """Let go of what a rank has taken before it ran the action whose result has just come from it."""
        peer, now, left = self._rank(came_from), self.place(came_from), []
        for action, work in self._going.get(peer, ()):
            if self.place(action) <= now:
                work.wait()  # which returns at once
            else:
                left.append((action, work))
        self._going[peer] = left

    def finish(self) -> None:
        """Wait until everything has been received."""
        for sends in self._going.values():
            for _, work in sends:
                work.wait()
        self._going.clear()


def taker(action: Action) -> Action:
    """The action that takes what an action gives: the same on the next stage, for B on the one before."""
    return action._replace(stage=action.stage + (1 if action.kind == "F" else -1))


def giver(action: Action) -> Action:
    """The action that gives what an action takes."""
    return action._replace(stage=action.stage - (1 if action.kind == "F" else -1))
