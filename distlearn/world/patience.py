"""Ranks that wait for long: whoever watches is told who waits for what, and on which line of the program.

A rank that computes for a minute lets the others wait for a minute; that is no mistake, and they are only shown. But
when *all* ranks have waited for so long, each in one call, nobody is left who could send what they wait for: that is a
deadlock, and an error.
"""

from __future__ import annotations

import sys

from .outcome import Outcome, frames_of_stack

PATIENCE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 1e6
"""Networks are faster than this: a call that moves many bytes is given the time that they may need."""
GRACE_SECONDS = 0.5
"""Ranks that wait for each other do not run out of patience at the very same moment."""


class Patience:
    """Watches one rank's waits: `Activity.on_wait`.

    Parameters
    ----------
    rank : int
    seconds : float
        So long may a call wait before anybody is told.
    tell : callable
        Gets an `Outcome` of status "waiting" when a wait has become long, and None when it is over.
    """

    def __init__(self, rank: int, seconds: float, tell):
        self._rank, self._seconds, self._tell, self._told = rank, seconds, tell, False

    def __call__(self, what, nbytes: int, seconds: float) -> None:
        """Take note that the rank has waited for `what` for so many seconds; None says that it goes on."""
        if what is None:
            if self._told:
                self._told = False
                self._tell(None)
        elif not self._told and seconds > self._seconds + nbytes / SLOWEST_BYTES_PER_SECOND:
            self._told = True
            self._tell(Outcome(self._rank, "waiting", frames=frames_of_stack(sys._getframe(1)), waits_for=str(what)))


def stop_button() -> str:
    """Say how the user ends a run."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        return "The stop button of the notebook (Interrupt Kernel) ends the run"
    return "Ctrl-C ends the run"
