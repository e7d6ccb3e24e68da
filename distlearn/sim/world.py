"""The simulator: any number of ranks in this process, under virtual time, the same in every run.

A message of n bytes that leaves at t arrives at t + alpha + n / beta. `send` is *synchronous* unless the message is
small enough for `eager_limit`: it returns when the message has been received. A program that is correct here
is correct on every MPI, and one that relies on buffering fails at any message size with a `DeadlockError` that says
which ranks wait for which.

Overview: `SimWorld.run` makes a `Scheduler` with one fibre per rank and hands each a communicator. In small
worlds that is a `MessageComm`, whose collectives are the messages of `comm.collectives`, in large ones a plain
`SimComm`, whose collectives take the seconds of a formula.
They share the run's `Transport` (messages in flight, posted receives, collective calls) and block their fibre while
they wait. In a world with failures every fibre has the `FailureTimeline` of its rank, which the scheduler and the clock
apply, and `FaultyTransport` loses messages and reports lost ranks.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..bounds import check_number, check_positive
from ..comm.network import Network
from ..comm.recorder import Record
from ..trace import Message, Trace
from .clock import ComputeModel, Free, Roofline
from .communicator import MessageComm, SimComm
from .copies import Copies
from .failures import Failure, FaultyComm, FaultyTransport, Loss
from .scheduler import Scheduler
from .transport import RecvOp, SendOp, Transport

COMMUNICATORS = {"messages": MessageComm, "formula": SimComm}

LARGEST_WITH_MESSAGES = 64
"""By default the collectives of worlds of up to this many ranks send messages; above they use the formula."""

T = TypeVar("T")


class SimWorld:
    """Simulated ranks in this process: a `World` under virtual time.

    Parameters
    ----------
    size : int
        Number of ranks.
    network : Network or str
        What a message costs; free by default. A name is that of a preset, such as "ethernet-10g".
    compute : ComputeModel or str
        What a span costs: `Free()`, `Roofline(peak, bandwidth)` or `Measured()`; free by default. A name is that of a
        graphics card, at its roofline.
    eager_limit : int
        A message of up to this many bytes is buffered: `send` returns at once (real MPIs do so up to about 10 KiB).
    slowdown : dict of int to float
        Stragglers: the factor by which a rank computes more slowly.
    jitter : float
        Standard deviation of the logarithm of a random factor on every span; drawn from `seed` and the rank.
    report : callable, optional
        Called with rank 0's `comm.report(step, total, **values)`.
    failures : sequence of Failure
        Which ranks fail, how and when.
    collectives : {"messages", "formula"}, optional
        How collectives of arrays take their time: as the messages of the algorithms in `comm.collectives`, the default
        up to 64 ranks; or all at once, as long as the formula of the network says, the default above and where ranks
        fail (an algorithm of several messages would have to survive the loss of a rank between two of them). Those of
        objects, and `split`, always go by the formula.
    detection : float
        Silence after which a rank is reported to the others as lost [virtual s].

    Attributes
    ----------
    makespan : float
        Virtual seconds until the last rank of the last run ended.
    waiting : dict of int to str
        After a run that failed, by rank: the call in which it still waited.

    Examples
    --------
    >>> def hello(comm):
    ...     x = np.array([float(comm.rank)])
    ...     return comm.all_reduce(x)[0]
    >>> SimWorld(4).run(hello)
    [np.float64(6.0), np.float64(6.0), np.float64(6.0), np.float64(6.0)]
    """

    rank = 0
    shared_by_ranks = True  # a program may read the trace of its own world

    def __init__(
        self,
        size: int,
        network: Network | str | None = None,
        compute: ComputeModel | str | None = None,
        *,
        eager_limit: int = 0,
        slowdown: dict[int, float] | None = None,
        jitter: float = 0.0,
        seed: int = 0,
        report: Callable[..., Any] | None = None,
        failures: Sequence[Failure] = (),
        detection: float = 1.0,
        collectives: str | None = None,
    ):
        check_positive("SimWorld", size=size)
        self.size = int(size)
        compute = Free() if compute is None else compute
        self.network = Network() if network is None else Network.of(network)
        self.compute = Roofline.of(compute) if isinstance(compute, str) else compute
        if not hasattr(self.compute, "seconds"):
            raise TypeError(f"SimWorld: compute is {compute!r}, expected a model of costs, or the name of one")
        check_number("SimWorld", least=0, eager_limit=eager_limit)
        check_number("SimWorld", least=0, below=np.inf, jitter=jitter)
        check_number("SimWorld", whole=True, least=0, seed=seed)
        check_number("SimWorld", above=0, detection=detection)
        self.eager_limit = eager_limit
        self.slowdown = dict(slowdown or {})
        for rank, factor in self.slowdown.items():
            check_number("SimWorld: slowdown", whole=True, least=0, below=self.size, rank=rank)
            check_number("SimWorld: slowdown", above=0, below=np.inf, factor=factor)
        self.jitter, self.seed, self.report = jitter, seed, report
        self.failures, self.detection = list(failures), detection
        for failure in self.failures:
            if not isinstance(failure, Failure) or not 0 <= failure.rank < size:
                raise ValueError(f"SimWorld: {failure!r}, expected a Failure of a rank from 0 to {size - 1}")
        if collectives not in (None, "messages", "formula"):
            raise ValueError(f"SimWorld: collectives is {collectives!r}, expected 'messages' or 'formula'")
        if self.failures and collectives == "messages":
            raise ValueError("SimWorld: collectives is 'messages', but where ranks fail they go by the formula")
        small = self.size <= LARGEST_WITH_MESSAGES and not self.failures
        self.collectives = collectives or ("messages" if small else "formula")
        self._trace, self._transport = Trace(), None
        self.makespan = 0.0
        self.waiting: dict[int, str] = {}

    def __repr__(self) -> str:
        return f"SimWorld({self.size}, {self.network}, {self.compute})"

    def __reduce__(self):
        raise TypeError("a SimWorld cannot be sent to another process; make one there")

    def __enter__(self) -> SimWorld:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    @property
    def trace(self) -> Trace:
        """What happened when on which rank, in the last run."""
        if self._transport is not None:
            self._transport.flush()  # messages are written down in short while the ranks run
        return self._trace

    @property
    def undelivered(self) -> list[Message]:
        """Messages of the last run that were never received."""
        transport = self._transport
        if transport is None:
            return []
        ops = [op for channel in transport.channels.values() for op in channel.sends]
        ops += [op for box in transport.objects.values() for op in box]
        left = {(op.channel.sender, op.channel.receiver, op.arrival, op.nbytes) for op in ops}
        return [m for m in self.trace.messages if (m.source, m.dest, m.arrived, m.nbytes) in left]

    @property
    def losses(self) -> list[Loss]:
        return list(self._transport.losses) if self._transport is not None else []

    @property
    def records(self) -> dict[int, list[Record]]:
        """The last calls of every rank in the last run: collectives, objects, and an array that it waits for."""
        # messages of arrays are too many to be noted one by one
        transport, found = self._transport, {}
        for rank in range(self.size):
            event, text, site = transport.scheduler.pending.get(rank, (None, "", None))
            array = event.__class__ in (SendOp, RecvOp)
            found[rank] = transport.recorders[rank].records(waiting=bool(text) and not array)
            if array:
                found[rank].append(Record((event.channel.sender, event.channel.receiver), 0, text, site, "waiting"))
        return found

    def close(self) -> None:
        """Do nothing: a simulated world holds no processes."""

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """Call `fn(comm, *args, **kwargs)` on every rank; return the results by rank.

        Each rank has its own copy of the arguments and of the objects that `fn` refers to, as on engines; code
        (modules, classes) is shared, and so is what belongs to the process (`np.random`, of whose use it warns).

        `RankError`: a rank raised; `DeadlockError`: all remaining ranks wait for each other; `CommError`: a message was
        never received.
        """
        __tracebackhide__ = True  # an error shows the program of the ranks, not what runs them
        copies = Copies("SimWorld.run", fn, args, kwargs)
        self._trace = Trace()
        scheduler, transport, make_comm = self._parts()
        self._transport = transport
        drawn = _drawn()

        def main(fibre):
            __tracebackhide__ = True
            fn, args, kwargs = copies.make()
            result = fn(make_comm(transport, fibre, fibre.rank, scheduler.fibres), *args, **dict(kwargs))
            if fibre.failures is not None:  # one that has been killed by now has no result
                fibre.failures.apply(fibre)
            return result

        try:
            with ranks_in_output(scheduler.running_rank):
                results = scheduler.run(main)
        finally:
            self.makespan = max(f.now for f in scheduler.fibres)
            self.waiting = scheduler.waiting
        transport.check_empty()
        if self.size > 1 and _drawn() != drawn:
            warnings.warn(
                "SimWorld.run: ranks drew from np.random, whose state they share here and not on engines: use "
                "rng = np.random.default_rng(comm.rank)",
                stacklevel=2,
            )
        return results

    def _parts(self):
        """Make the scheduler and the transport, and choose the communicator class."""
        scheduler = Scheduler(self.size, self.compute.measures)
        if not self.failures:
            return scheduler, Transport(self, scheduler), COMMUNICATORS[self.collectives]
        return scheduler, FaultyTransport(self, scheduler), FaultyComm


def _drawn() -> tuple[bytes, int]:
    """Return where the process's own generator stands."""
    numbers, place = np.random.get_state()[1:3]  # noqa: NPY002  (nothing is drawn from it)
    return numbers.tobytes(), place  # no array: a study may count what NumPy holds in the run


# -- ranks' output -----------------------------------------------------------------------------------------------------


class RankedOutput:
    """A text stream that begins every line with the rank that prints it; everything else is delegated."""

    def __init__(self, stream, running_rank):
        self._stream, self._running_rank = stream, running_rank
        self._open: int | None = None  # the rank whose line has not ended

    def write(self, text: str) -> int:
        """Write text at once, with the rank before each new line."""
        rank = self._running_rank()
        if rank is None or not text:
            return self._stream.write(text)
        lines = text.splitlines(keepends=True)
        if self._open is not None and self._open != rank:
            self._stream.write("\n")
        first = "" if self._open == rank else f"[rank {rank}] "
        self._stream.write(first + f"[rank {rank}] ".join(lines))
        self._open = None if text.endswith("\n") else rank
        return len(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextmanager
def ranks_in_output(running_rank):
    """Prefix lines printed in the block with their rank; do nothing inside another such block."""
    before = sys.stdout
    if before is None or isinstance(before, RankedOutput):
        yield
        return
    sys.stdout = out = RankedOutput(before, running_rank)
    try:
        yield
    finally:
        if sys.stdout is out:
            sys.stdout = before
