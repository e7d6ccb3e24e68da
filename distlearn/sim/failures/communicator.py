"""A simulated rank's communicator in a world where ranks fail: adds `revoke`, `agree` and `shrink`."""

from __future__ import annotations

import math
import pickle

from ...comm.base import check_report
from ..communicator import SimComm
from ..transport import ObjectSendOp
from .events import Vanished


class FaultyComm(SimComm):
    """A simulated rank's `Communicator` that is also `FaultTolerant`."""

    def __init__(self, transport, fibre, rank, members, context=0, clock=None):
        super().__init__(transport, fibre, rank, members, context, clock)
        transport.members.setdefault(context, members)
        self._gatherings = {"agree": 0, "shrink": 0}

    @property
    def lost(self) -> tuple[int, ...]:
        """Ranks of this communicator that are known to be lost."""
        now, timelines = self._fibre.now, self._transport.timelines
        return tuple(r for r, member in enumerate(self._members) if timelines[member.rank].noticed_at <= now)

    def report(self, step, total, **values):
        """Pass on the progress of the lowest surviving rank."""
        check_report(self.rank, step, total)
        transport, fibre = self._transport, self._fibre
        first = next(r for r, timeline in enumerate(transport.timelines) if timeline.noticed_at > fibre.now)
        if fibre.rank == first and transport.world.report:
            transport.world.report(step, total, **values)

    def _meet(self, call, payload, nbytes, finish):
        """Join the next collective, unless it can no longer succeed."""
        self._transport.enter(self._fibre, self._context)
        self._transport.refuse_lost(self._fibre, self._context)
        return super()._meet(call, payload, nbytes, finish)

    def _send_obj(self, obj, dest, tag):
        """Send a pickled object."""
        transport, fibre = self._transport, self._fibre
        transport.enter(fibre, self._context)
        try:
            super()._send_obj(obj, dest, tag)
        except Vanished:
            data = pickle.dumps(obj, protocol=5)
            if len(data) > transport.eager_limit:
                channel = transport.channel(self._context, self._members, self.rank, dest, tag)
                transport.wait_for(fibre, ObjectSendOp(fibre, channel, data, math.inf))

    def _poll(self, event) -> None:
        """Let the time of one poll pass; raise if the event will never happen."""
        super()._poll(event)
        problem = self._transport.problem(self._fibre, event) if event.when is None else None
        if problem is not None:
            raise problem

    # -- surviving -----------------------------------------------------------------------------------------------------
    def revoke(self) -> None:
        """Make all ranks' operations on this communicator raise."""
        self._fibre.failures.apply(self._fibre)
        self._transport.revoke(self._fibre, self._context)

    def _gather_survivors(self, name, value):
        number = self._gatherings[name]
        self._gatherings[name] += 1
        return self._transport.gather_survivors(self._fibre, name, self._context, number, value)

    def agree(self, flag: bool) -> bool:
        """Return whether all survivors passed True."""
        return all(self._gather_survivors("agree", bool(flag))[1])

    def shrink(self) -> FaultyComm:
        """Return a communicator of the survivors."""
        members, _, context = self._gather_survivors("shrink", None)
        return FaultyComm(self._transport, self._fibre, members.index(self._fibre), members, context, self.clock)
