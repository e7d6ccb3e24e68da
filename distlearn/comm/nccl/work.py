"""Handles of NCCL operations in progress: `Work` over CUDA events."""

from __future__ import annotations

from ...trace import Span


class NCCLWork:
    """One operation on a communicator's stream."""

    __slots__ = ("_agreement", "_began", "_comm", "_ended", "_kept", "_name", "_nbytes", "_result", "_start")

    def __init__(self, comm, name, nbytes, start, began, ended, result, kept, agreement=None):
        self._comm, self._name, self._nbytes, self._start = comm, name, nbytes, start
        self._began, self._ended, self._result, self._kept = began, ended, result, kept
        self._agreement = agreement

    def __str__(self) -> str:
        return f"{self._name} of {self._nbytes} bytes"

    def wait(self):
        """Let the current stream wait until it is done; return the result, without waiting for the card.

        Whatever is launched on the current stream from now on sees the result, including a copy to the host.
        """
        if self._agreement is not None:
            self._comm.host.block(self._agreement.done, self._agreement)
            self._agreement = None
        self._comm._cupy.cuda.get_current_stream().wait_event(self._ended)
        return self._result

    def done(self) -> bool:
        """Return whether it is done, without blocking."""
        return self._ended.done

    def record(self) -> None:
        """Add its span to the trace when it is done: it begins at the call and lasts as long as the GPU took."""
        comm = self._comm
        seconds = comm._cupy.cuda.get_elapsed_time(self._began, self._ended) / 1e3
        spans = getattr(getattr(comm.clock, "trace", None), "spans", None)
        if spans is not None:
            spans.append(Span(comm.clock.rank, "comm", self._name, self._start, self._start + seconds, 0, self._nbytes))
        self._kept = None
