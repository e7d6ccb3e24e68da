"""The protocol of worlds, and the simplest world: one rank, in this process, in real time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from ..comm.base import RankError
from ..comm.point_to_point import LocalComm
from ..sim.copies import Copies
from ..trace import Trace, WallClock

T = TypeVar("T")


@runtime_checkable
class World(Protocol):
    """Ranks that run one function together.

    Attributes
    ----------
    size : int
        Number of ranks.
    rank : int
        Of this process: 0, unless every rank runs the script, as in an `MPIWorld`.
    trace : Trace
        Spans and messages of the last run.
    """

    size: int
    rank: int = 0
    trace: Trace

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Call `fn(comm, *args, **kwargs)` on every rank at once; return the results by rank.

        Raises
        ------
        RankError
            If a rank raised, died or hung; the other ranks are ended.
        """

    def close(self) -> None:
        """End the ranks' processes, where the world started them."""
        return None  # a method without a body would be abstract to type checkers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class LocalWorld(World):
    """A `World` of one rank, this process, without MPI.

    Parameters
    ----------
    report : callable, optional
        Called by `comm.report(step, total, **values)`.

    Examples
    --------
    >>> LocalWorld().run(lambda comm, x: (comm.rank, comm.size, x), "hello")
    [(0, 1, 'hello')]
    """

    size = 1
    rank = 0

    def __init__(self, report: Callable[..., Any] | None = None):
        self.report = report
        self.trace = Trace()

    def __repr__(self) -> str:
        return "LocalWorld()"

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Call `fn(comm, *args, **kwargs)`; return a list of its one result.

        Raises
        ------
        RankError
            If it raised, as in every world.
        """
        self.trace = Trace()
        comm = LocalComm(WallClock(0, self.trace), self.report)
        fn, args, kwargs = Copies("LocalWorld.run", fn, args, kwargs).make()
        try:
            return [fn(comm, *args, **dict(kwargs))]
        except Exception as error:
            text = str(error).removeprefix("rank 0: ")
            raise RankError(0, f"{type(error).__name__}: {text}", original=error) from error
