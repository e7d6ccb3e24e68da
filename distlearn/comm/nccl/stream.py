"""A communicator's own CUDA stream: operations are enqueued on it, waited for and aborted."""

from __future__ import annotations

import warnings

from ..delegating import DelegatingComm
from ..protocol import CommError, CommTimeoutError
from ..waiting import poll
from .work import NCCLWork


class OnStream(DelegatingComm):
    """NCCL's connection between the ranks, and the stream on which it works; `NCCLComm` adds the collectives."""

    def __init__(self, host, cupy=None):
        if cupy is None:
            import cupy
        super().__init__(host)
        self._cupy, self._nccl = cupy, cupy.cuda.nccl
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._connection = None
        self._pending: list[NCCLWork] = []

    def _connect(self):
        """Return NCCL's communicator; the first call makes it, when all ranks are there."""
        if self._connection is None:
            number = self._nccl.get_unique_id() if self.rank == 0 else None
            number = self.host.broadcast_obj(number)
            self.host.barrier()  # can be interrupted, which the next line cannot
            try:
                self._connection = self._nccl.NcclCommunicator(self.size, number, self.rank)
            except RuntimeError as error:
                raise CommError(f"rank {self.rank}: NCCL cannot connect the ranks: {error}") from error
        return self._connection

    def _start(self, call, nbytes, result, kept, launch) -> NCCLWork:
        """Enqueue an operation on the communicator's stream, after the work enqueued on the current stream so far."""
        connection, start = self._connect(), self.clock.now()
        agreement = self.host.agreement(call)
        self._record_done()
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        began = self._stream.record(self._cupy.cuda.Event())
        try:
            self._nccl.groupStart()
            try:
                launch(connection, self._stream.ptr)
            finally:
                self._nccl.groupEnd()
        except RuntimeError as error:
            raise CommError(f"rank {self.rank}: {call.name} failed: {error}") from error
        ended = self._stream.record(self._cupy.cuda.Event())
        work = NCCLWork(self, call.name, nbytes, start, began, ended, result, kept, agreement)
        self._pending.append(work)
        return work

    def _record_done(self) -> None:
        """Release the operations that are done, in order; their spans go into the trace."""
        while self._pending and self._pending[0].done():
            self._pending.pop(0).record()

    def finish(self) -> None:
        """Wait until the GPU has finished all operations."""
        timeout = self.host.timeout
        if not poll(lambda: self._stream.done, timeout=timeout):
            names = ", ".join(str(w) for w in self._pending)
            self.abort()
            raise CommTimeoutError(f"rank {self.rank}: waited {timeout:g} s for the GPU to finish {names}")
        self._record_done()

    def abort(self) -> None:
        """Abort the operations in progress, which another rank will not join. Makes the communicator unusable."""
        if self._connection is not None:
            self._connection.abort()
        self._connection = None
        self._pending.clear()

    def end(self) -> None:
        """Finish, and end the host communicator."""
        self.finish()
        self.host.end()

    def _barrier(self, call):
        """Wait until every rank has called it and its GPU has finished all operations."""
        self.finish()
        super()._barrier(call)


def version() -> str | None:
    """Return the version of NCCL that CuPy finds ("2.27.3"), or None if it finds none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where NCCL is missing, which is what is asked here
        from cupy.cuda import nccl
    if not nccl.available:
        return None
    number = nccl.get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
