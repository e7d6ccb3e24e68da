"""The check that all ranks make the same collective calls in the same order, with the same arguments.

Every collective of a strict communicator starts two operations: its own and, on a separate communicator of the library,
a small all-gather of what each rank calls and where. The second one is the same on all ranks whatever the calls are, so
it always ends; the result of the first is returned only when all calls have been found equal. A rank that ends takes
part once more, with the call `RETURN`: so the others learn that it makes no more calls.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..base import Call
from ..protocol import CommError

CALL_BYTES, SITE_BYTES = 112, 80
RETURN = Call("return", ())


class Agreement:
    """One exchange of calls.

    Parameters
    ----------
    raw : mpi4py.MPI.Intracomm
        Used for agreements alone.
    call : Call
        This rank's.
    number : int
        How many collective calls this rank has made on the communicator, this one included.
    """

    __slots__ = ("_call", "_number", "_records", "_request", "_sent")

    def __init__(self, raw, call: Call, number: int):
        self._call, self._number = call, number
        self._sent = _field(call, CALL_BYTES) + _field(call.site or "", SITE_BYTES)
        self._records = np.empty((raw.size, CALL_BYTES + SITE_BYTES), np.uint8)
        self._request = raw.Iallgather(np.frombuffer(self._sent, np.uint8), self._records)

    def __str__(self) -> str:
        return f"all ranks to call {self._call}"

    def done(self) -> bool:
        """Return whether the calls of all ranks are known.

        Raises
        ------
        CommError
            If they differ; every rank gets the same text.
        """
        if not self._request.Test():
            return False
        calls = [bytes(record[:CALL_BYTES]) for record in self._records]
        mine = self._sent[:CALL_BYTES]
        if any(call != mine for call in calls):
            raise CommError(self._difference(calls))
        return True

    def _difference(self, calls: list[bytes]) -> str:
        usual = Counter(calls).most_common(1)[0][0]  # of equally many: that of the lowest rank
        odd = next(rank for rank, call in enumerate(calls) if call != usual)
        parts = [self._described(rank) for rank in (odd, calls.index(usual))]
        return (
            f"{parts[0]} where {parts[1]}: every rank must make the same collective calls in the "
            f"same order (this is number {self._number})"
        )

    def _described(self, rank: int) -> str:
        record = self._records[rank]
        call, site = (bytes(part).decode(errors="replace").rstrip() for part in np.split(record, [CALL_BYTES]))
        if call == str(RETURN):
            return f"rank {rank} has returned"
        return f"rank {rank} calls {call}" + (f" ({site})" if site else "")


def _field(value, length: int) -> bytes:
    """Format a value in a fixed number of bytes."""
    return str(value).encode()[:length].ljust(length)
