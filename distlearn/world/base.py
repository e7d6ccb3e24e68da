"""What every world offers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..trace import Trace


@runtime_checkable
class World(Protocol):
    """A number of ranks that run one function together.

    Attributes
    ----------
    size : int
        Number of ranks.
    trace : Trace
        What happened when on which rank, in the last run.
    """

    size: int
    trace: Trace

    def run(self, fn, *args, **kwargs) -> list:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank.

        Raises
        ------
        RankError
            If a rank raised, died or hung; the other ranks are ended.
        """
