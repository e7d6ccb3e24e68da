"""The scheduler of a world where ranks fail: fibres end or hang at the times of their failure timelines."""

from __future__ import annotations

import math

from ..scheduler import Fibre, GreenletExit, Scheduler
from .schedule import FailureTimeline


class FaultyScheduler(Scheduler):
    """A scheduler whose fibres can end and hang while they are blocked; its monitor wakes those that are affected.

    Parameters
    ----------
    timelines : list of FailureTimeline
        By rank.
    measures : bool
        As for `Scheduler`.
    """

    def __init__(self, timelines: list[FailureTimeline], measures: bool = False):
        super().__init__(len(timelines), measures, self._watch)
        self.timelines = timelines
        self.notify = None  # called with the time after every event

    def _watch(self, monitor: Fibre) -> None:
        """Wake each rank at the time at which it ends, and all ranks when a loss is noticed."""
        moments = {t for timeline in self.timelines for t in (timeline.ends_at, timeline.noticed_at) if t < math.inf}
        for when in sorted(moments):
            self.yield_until(monitor, when)
            if all(fibre.greenlet.dead for fibre in self.fibres):
                return
            for fibre, timeline in zip(self.fibres, self.timelines, strict=True):
                if timeline.ends_at <= when and fibre.waits is not None:
                    self.wake(fibre, when)
            self.notify(when)

    def run(self, main):
        """Run `main(fibre)` on every fibre; one that has been killed by the time it returns has no result."""

        def survive(fibre):
            result = main(fibre)
            self.apply_failures(fibre)
            return result

        return super().run(survive)

    def block(self, fibre: Fibre, event) -> None:
        """Switch to other fibres; failures of this rank meanwhile are applied when it runs again."""
        super().block(fibre, event)
        self.apply_failures(fibre)

    def apply_failures(self, fibre: Fibre) -> None:
        """End the fibre if its rank has been killed by now; move its clock on to the end of a hang."""
        if fibre.rank >= len(self.timelines):
            return
        timeline = self.timelines[fibre.rank]
        if fibre.now >= timeline.ends_at:
            fibre.now = timeline.ends_at
            raise GreenletExit
        for start, end in timeline.pauses:
            if start <= fibre.now < end:
                fibre.now = end
