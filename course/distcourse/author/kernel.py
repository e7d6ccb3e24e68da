"""The two processes of a submission: its kernel, and the judge of its checks. Both run in sandboxes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

from .sandbox import Sandbox, require

START = 120.0
"""Seconds within which a judge must be ready."""


class SandboxedKernel(AsyncKernelManager):
    """Starts kernels in a sandbox; they are reached through sockets in a folder, since they have no network."""

    sandbox: Sandbox | None = None

    def confine(self, sandbox: Sandbox | None, shared: Path) -> None:
        """Say where the kernel is to run, before it starts."""
        self.sandbox = sandbox
        if sys.platform != "win32":
            self.transport, self.ip = "ipc", str(shared / "k")
        if sandbox is not None:
            self.kernel_spec.interrupt_mode = "message"  # a signal would end the sandbox

    def format_kernel_cmd(self, extra_arguments=None) -> list[str]:
        """Return the command that starts the kernel."""
        command = super().format_kernel_cmd(extra_arguments)
        if self.sandbox is None:
            return command
        return self.sandbox.command(command, dict(os.environ), files=[self.connection_file])


class JudgeLost(RuntimeError):
    """The judge's process ended, or took too long."""


class Judge:
    """The process that runs the checks of one submission."""

    def __init__(self, sandbox: Sandbox | None, shared):
        self._sandbox, self._shared, self._count, self._process = sandbox, Path(shared), 0, None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command, environment = [sys.executable, "-m", "distcourse.judge.process"], dict(os.environ)
        environment |= {"NBGRADER_EXECUTION": "autograde", "MPLBACKEND": "agg"}
        if self._sandbox is not None:
            command = self._sandbox.command(command, environment)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        self._rest = b""

    def begin(self, code: str, helpers: str, names) -> str:
        """Have a check run; return the socket to which the student's process is to connect."""
        self.start()
        self._count += 1
        path = str(self._shared / f"j{self._count}")
        self._write({"code": code, "helpers": helpers, "names": sorted(names), "socket": path})
        self.answer(START)
        return path

    def answer(self, seconds: float) -> dict:
        """Wait for the next line of the judge."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, end - time.monotonic())):
                    raise JudgeLost("took too long")
                more = os.read(self._process.stdout.fileno(), 1 << 20)
                if not more:
                    raise JudgeLost("the judge's process ended")
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()
        self._process = None

    def _write(self, request: dict) -> None:
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise JudgeLost("the judge's process ended") from error


@contextlib.contextmanager
def processes(work, hidden, *, unsafe: bool, memory: int):
    """Provide (sandbox of the kernel or None, folder for sockets, judge) for one submission.

    Parameters
    ----------
    work : path or None
        Folder of the submission.
    hidden : iterable of path
        Folders that neither process may see.
    unsafe : bool
        Run without a sandbox.
    memory : int
        Bytes that a process may use.
    """
    if not unsafe:
        require()
    shared = Path(tempfile.mkdtemp(prefix="dl-"))  # short: the path of a socket has at most 107 characters
    judge = None
    try:
        (shared / "kernel").mkdir()
        (shared / "link").mkdir()
        boxes = [None, None]
        if not unsafe:
            boxes = [Sandbox(shared, folder, hidden, memory=memory) for folder in (work, None)]
        judge = Judge(boxes[1], shared / "link")
        judge.start()  # while the kernel starts, too
        yield boxes[0], shared / "kernel", judge
    finally:
        if judge is not None:
            judge.stop()
        shutil.rmtree(shared, ignore_errors=True)
