"""Runs what was handed in: a fresh process in the grading sandbox, which the parent neither imports nor believes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from .reading import Refused

MEMORY, MOST_OUTPUT = 2**31, 2**25
"""Bytes that a submission may use, and write to standard output."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: bytes
    last: str  # the last line of standard error, and why it was ended


def run(command: list[str], shared: Path, seconds: float, *, given=b"", work=None, hidden=(), unsafe=False) -> Ended:
    """Run a command that sees the folder `shared`, and a copy of `work`; `unsafe` is for what one wrote oneself."""
    watch = None
    if not unsafe:
        from ..author.sandbox import MemoryWatch, Sandbox  # nbgrader and Jupyter come with it: seconds

        command = Sandbox(shared, work, hidden, memory=MEMORY).command(command, dict(os.environ))
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(given)
        stdin.seek(0)
        where = {"cwd": work if unsafe else None, "start_new_session": True}
        with subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err, **where) as process:
            if not unsafe:
                watch = MemoryWatch(process.pid, MEMORY, shared)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Refused(f"took more than {seconds} s") from None
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                if watch:
                    watch.stop()
        if out.seek(0, os.SEEK_END) > MOST_OUTPUT:
            raise Refused("wrote too much to standard output")
        err.seek(max(0, err.seek(0, os.SEEK_END) - 300))
        last = err.read().decode("utf-8", "replace").translate({0x2018: "'", 0x2019: "'"})  # a compiler's quotes
        last = last.encode("ascii", "replace").decode().strip().split("\n")[-1]
        out.seek(0)
        return Ended(code, out.read(), last + (watch.told if watch else ""))
