"""What simulated ranks print, each line with its rank in front, as `EngineWorld` shows it."""

from __future__ import annotations

import sys
from contextlib import contextmanager


class RankedOutput:
    """A text stream that begins every line with the rank that prints it; all else is the stream's below."""

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
    """Put ranks before what is printed in the block; inside another such block, leave it to that one."""
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
