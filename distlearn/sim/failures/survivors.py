"""What the surviving ranks can do together on the simulator: revoke a communicator, agree, shrink."""

from __future__ import annotations

from ..scheduler import Fibre
from .events import Gathering, context_of


class Survivors:
    """The part of `FaultyTransport` that implements `revoke`, `agree` and `shrink`."""

    def revoke(self, fibre: Fibre, context: int) -> None:
        """Notify all ranks of a communicator, one latency from now."""
        if context in self.revoked:
            return
        self.revoked[context] = known = fibre.now + self.network.message(0)
        for other, event in list(self.blocked.values()):
            if event.__class__ is not Gathering and context_of(event) == context and self._is_pending(other, event):
                self.scheduler.wake(other, max(other.now, known))

    def gather_survivors(self, fibre: Fibre, name: str, context: int, number: int, value) -> object:
        """Wait for all survivors; return the same on each: (their fibres, their values, a new context)."""
        self._reach(fibre)
        key = (name, context, number)
        gathering = self.gatherings.setdefault(key, Gathering(name, context, self.members[context]))
        gathering.came[fibre.rank] = (fibre.now, value)
        self._close(gathering, fibre.now)
        while gathering.when is None or fibre not in gathering.result[0]:  # this rank called, but was declared lost
            self._block(fibre, gathering)
            problem = self._cut_off(fibre)
            if problem is not None:
                raise problem
        fibre.now = max(fibre.now, gathering.when)
        self.scheduler.apply_failures(fibre)
        return gathering.result

    def _close(self, gathering: Gathering, now: float) -> None:
        """End a gathering if all ranks that are not known to be lost have called."""
        now = max(now, *(t for t, _ in gathering.came.values()))
        left = [m for m in gathering.members if self.timelines[m.rank].noticed_at > now]
        if gathering.when is not None or any(m.rank not in gathering.came for m in left):
            return
        ranks = [m.rank for m in left]
        gathering.when = now + 2 * self.network.collective("barrier", 0, ranks)  # gather and broadcast
        context = self.new_context() if gathering.name == "shrink" else gathering.context
        self.members.setdefault(context, left)
        gathering.result = (left, [gathering.came[r][1] for r in ranks], context)
        for member in left:
            self.scheduler.wake(member, max(member.now, gathering.when))
