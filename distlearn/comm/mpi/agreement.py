"""The check that all ranks make the same collective calls in the same order, with the same arguments.

Every collective of a strict communicator starts two operations: its own and, on a separate communicator of the library,
a small all-gather of what each rank calls and where. The second one is the same on all ranks whatever the calls are, so
it always ends; the result of the first is returned only when all calls have been found equal. A rank that ends takes
part once more, with the call `RETURN`: so the others learn that it makes no more calls.
"""

from __future__ import annotations

import functools
from collections import Counter

from ..base import Call
from ..protocol import CommError

CALL_BYTES, SITE_BYTES = 112, 80
RECORD_BYTES = CALL_BYTES + SITE_BYTES
RETURN = Call("return", ())


class Agreement:
    """One exchange of calls."""

    __slots__ = ("_call", "_number", "_records", "_request", "_same", "_sent")

    def __init__(self, raw, call: Call, number: int):
        self._call, self._number = call, number
        self._sent = _record(call)
        self._same = self._sent * raw.size
        self._records = bytearray(len(self._same))
        self._request = raw.Iallgather(self._sent, self._records)

    def __str__(self) -> str:
        return f"all ranks to call {self._call}"

    def done(self) -> bool:
        """Return whether the calls of all ranks are known."""
        if not self._request.Test():
            return False
        if self._records != self._same:  # the lines may differ, the calls must not
            calls = [bytes(self._records[i : i + CALL_BYTES]) for i in range(0, len(self._records), RECORD_BYTES)]
            if any(call != calls[0] for call in calls):
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
        record = self._records[rank * RECORD_BYTES : (rank + 1) * RECORD_BYTES]
        call, site = (part.decode(errors="replace").rstrip() for part in (record[:CALL_BYTES], record[CALL_BYTES:]))
        if call == str(RETURN):
            return f"rank {rank} has returned"
        return f"rank {rank} calls {call}" + (f" ({site})" if site else "")


@functools.lru_cache(maxsize=1024)
def _record(call: Call) -> bytes:
    """Format a call and its line in a fixed number of bytes; training makes the same calls in every step."""
    return _field(call, CALL_BYTES) + _field(call.site or "", SITE_BYTES)


def _field(value, length: int) -> bytes:
    """Format a value in a fixed number of bytes."""
    return str(value).encode()[:length].ljust(length)
