"""The communicator: the one interface that every parallel algorithm of the library is written against.

Calls block, like MPI's. Arrays are contiguous and are received into buffers that the caller provides; anything else
is sent pickled by the `_obj` forms. A `send` may block until it is received: code that relies on buffering is wrong,
and the simulator reports it as a deadlock.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from ..trace import Clock

ANY = -1
"""As `source` of `recv_obj`: take the object that arrives first, from any rank."""

REDUCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
"""The operators of `all_reduce` and `reduce_scatter`, by name."""


class CommError(RuntimeError):
    """Something went wrong between ranks."""


class CommTimeoutError(CommError):
    """A rank waited longer for the others than its timeout."""


class DeadlockError(CommError):
    """Every rank waits for another, so none can ever continue."""


class RankError(CommError):
    """A rank raised, died or hung; `rank` is the first one that did.

    `original` is the exception where known; `lost` is True if the rank died or hung, rather than raised.
    """

    def __init__(self, rank: int, message: str, original: BaseException | None = None, lost: bool = False):
        super().__init__(f"rank {rank}: {message}")
        self.rank, self.original, self.lost = rank, original, lost


class PeerLostError(CommError):
    """Other ranks are lost, so an operation that needs them cannot end; `shrink` makes a communicator without them.

    Attributes
    ----------
    ranks : tuple of int
        All ranks of the communicator that are known to be lost.
    """

    def __init__(self, ranks, message: str):
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self):
        return type(self), (self.ranks, str(self))


class RevokedError(CommError):
    """Another rank has called `revoke`: something failed, and all ranks must join the recovery."""


class CutOffError(CommError):
    """The rank itself has been declared lost by the others (it hung, or the network failed): it must stop."""


class Work(Protocol):
    """Handle of an operation in progress."""

    def wait(self):
        """Block until it is done; return its result (for receives and in-place collectives: the buffer)."""

    def done(self) -> bool:
        """Return whether it is done, without blocking."""


class DoneWork:
    """A `Work` that is already done."""

    def __init__(self, result=None):
        self._result = result

    def wait(self):
        """Return the result."""
        return self._result

    def done(self) -> bool:
        """Return True."""
        return True


@runtime_checkable
class Communicator(Protocol):
    """The operations that a parallel algorithm may use.

    Attributes
    ----------
    rank : int
        This process's index, 0 to `size` - 1.
    size : int
        Number of ranks.
    clock : Clock
        The only source of time.
    """

    rank: int
    size: int
    clock: Clock

    def report(self, step: int, total: int, **values) -> None:
        """Report to an observer, such as a progress bar, that `step` of `total` is done; only rank 0's count."""

    # -- between two ranks: arrays -------------------------------------------------------------------------------
    def send(self, x, dest: int, tag: int = 0) -> None:
        """Send the contiguous array `x`; may block until `dest` receives it."""

    def recv(self, out, source: int, tag: int = 0):
        """Receive into the contiguous array `out` (same dtype and size as what was sent) and return it."""

    def isend(self, x, dest: int, tag: int = 0) -> Work:
        """Start a send; do not touch `x` before `wait`."""

    def irecv(self, out, source: int, tag: int = 0) -> Work:
        """Start a receive; `out` is valid after `wait`."""

    def send_recv(self, x, dest: int, out, source: int, tag: int = 0):
        """Send `x` to `dest` while receiving `out` from `source`; return `out`. Cannot deadlock by itself.

        `out` may not share memory with `x`.
        """

    # -- between two ranks: anything that can be pickled ---------------------------------------------------------
    def send_obj(self, obj, dest: int, tag: int = 0) -> None:
        """Send a pickled object; may block until it is received."""

    def recv_obj(self, source: int = ANY, tag: int = 0):
        """Receive an object from `source`, or from any rank (`ANY`) the one that arrives first."""

    # -- all ranks ------------------------------------------------------------------------------------------------
    def all_reduce(self, x, op: str = "sum"):
        """Replace `x` on every rank by the element-wise `op` ("sum", "prod", "min", "max") over ranks; return it."""

    def iall_reduce(self, x, op: str = "sum") -> Work:
        """Start an `all_reduce`; do not touch `x` before `wait`."""

    def reduce_scatter(self, x, op: str = "sum"):
        """Reduce the flat array `x` over ranks; return this rank's share of the result."""
        # Shares are those of `numpy.array_split(x, size)`.

    def ireduce_scatter(self, x, op: str = "sum") -> Work:
        """Start a `reduce_scatter`; do not touch `x` before `wait`, which returns the share."""

    def all_gather(self, x):
        """Return the `x` of every rank, stacked: (size, *x.shape). Shapes must agree."""

    def broadcast(self, x, root: int = 0):
        """Replace `x` on every rank by the root's; return it."""

    def scatter(self, x, out, root: int = 0):
        """Distribute the rows of the root's `x` (size, *out.shape), one to each rank, into `out`; return it.

        Only the root's `x` is read; the others pass None. `out` may not share memory with it.
        """

    def gather(self, x, root: int = 0):
        """Return the `x` of every rank, stacked (size, *x.shape), on the root, and None elsewhere."""

    def all_to_all(self, x):
        """Send row j of `x` (size, ...) to rank j; return the rows received, by source."""

    def barrier(self) -> None:
        """Wait until every rank has called it."""

    def broadcast_obj(self, obj, root: int = 0):
        """Return the root's object on every rank."""

    def gather_obj(self, obj, root: int = 0) -> list | None:
        """Return the object of every rank, by rank, on the root, and None elsewhere."""

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks that gave the same `color`, ordered by (`key`, rank).

        A rank that gives None is in no new communicator and gets None. Every rank must call it.
        """


@runtime_checkable
class FaultTolerant(Protocol):
    """Operations of a communicator that survives the loss of ranks: MPI's "user-level failure mitigation".

    An operation that needs a lost rank raises `PeerLostError`, possibly on some ranks and not on others: a rank that
    got its part of a collective in time does not notice. So a rank that gets the error calls `revoke`, which makes the
    operations of every other rank raise too; then all survivors call `shrink` and continue on the communicator that it
    returns.

    References
    ----------
    W. Bland, A. Bouteiller, T. Herault, G. Bosilca, J. Dongarra (2013), Post-failure recovery of MPI communication
    capability: design and rationale, IJHPCA 27(3).
    """

    def revoke(self) -> None:
        """Make all operations of all ranks on this communicator raise `RevokedError`; harmless when repeated."""

    def agree(self, flag: bool) -> bool:
        """Return whether *all* survivors passed True: the same answer on each of them, whatever fails meanwhile."""
        # Works on a revoked communicator too.

    def shrink(self) -> Communicator:
        """Return a communicator of the survivors, in their old order; all of them must call it."""
        # Works on a revoked communicator too. A rank that fails meanwhile may be in it; operations on it then raise.


def ignore_report(step: int, total: int, **values) -> None:
    """Do nothing with a report."""
