"""Ctrl-C at safe places only, in the process that drives the ranks and on an engine.

Python raises KeyboardInterrupt between any two bytecodes of the main thread: after a process was started and before
its id was stored, while a queue is locked that another thread needs, in the middle of cleaning up. A block that must
not be interrupted there defers interrupts, and checks for them where it can be left:

    with defer_interrupts():
        start_processes()
        while not ready():
            check_interrupts()             # KeyboardInterrupt is raised here
            wait_a_moment()
    # or here

A second Ctrl-C, more than `INSIST_SECONDS` after one that had no effect, is raised at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from .outcome import frames_of_stack

INSIST_SECONDS = 1.0


class _Deferral:
    """The process's handler of SIGINT while interrupts are deferred: a singleton, since a signal has one handler."""

    def __init__(self):
        self.depth, self.pending_since, self.previous_handler = 0, None, signal.default_int_handler

    def handle(self, signum, frame):
        """Note an interrupt; raise it if an earlier one has been pending for `INSIST_SECONDS`."""
        now = time.monotonic()
        if self.depth == 0 or (self.pending_since is not None and now - self.pending_since > INSIST_SECONDS):
            self.deliver(frame)
        elif self.pending_since is None:
            self.pending_since = now

    def deliver(self, frame):
        """Do what SIGINT does where it is not deferred: as a rule raise KeyboardInterrupt."""
        self.pending_since = None
        self.previous_handler(signal.SIGINT, frame)


_deferral = _Deferral()


class defer_interrupts:
    """A block in which interrupts are raised only by `check_interrupts` and at its end."""

    # Blocks can be nested; the outermost counts. It has no effect in threads other than the main one, which receive no
    # signals, or where SIGINT is ignored or ends the process.

    def __enter__(self):
        before = signal.getsignal(signal.SIGINT)
        self._active = threading.current_thread() is threading.main_thread() and callable(before)
        if not self._active:
            return
        if before != _deferral.handle:
            _deferral.previous_handler, _deferral.depth = before, 0
            signal.signal(signal.SIGINT, _deferral.handle)
        _deferral.depth += 1

    def __exit__(self, kind, error, trace):
        if not self._active:
            return
        _deferral.depth -= 1
        if _deferral.depth > 0:
            return
        signal.signal(signal.SIGINT, _deferral.previous_handler)
        pending, _deferral.pending_since = _deferral.pending_since, None
        if pending is not None and not isinstance(error, KeyboardInterrupt):
            _deferral.previous_handler(signal.SIGINT, sys._getframe(1))


def check_interrupts() -> None:
    """Raise KeyboardInterrupt if one was deferred."""
    if _deferral.pending_since is not None and threading.current_thread() is threading.main_thread():
        _deferral.deliver(sys._getframe(1))


class EngineInterrupts:
    """SIGINT on an engine while a launch runs: keeps the stack that it found, and raises KeyboardInterrupt."""

    # Inside `with interrupts:` the exception waits for the end of the block.

    def __init__(self):
        self.frames: list | None = None
        self._armed, self._deferred = True, False
        signal.signal(signal.SIGINT, self._handle)

    @property
    def arrived(self) -> bool:
        return self.frames is not None

    def _handle(self, signum, frame):
        if self.frames is None:
            self.frames = frames_of_stack(frame)
        if self._armed and not self._deferred:
            raise KeyboardInterrupt

    def disarm(self) -> None:
        """Stop raising: the launch is over."""
        self._armed = False

    def __enter__(self):
        self._deferred = True

    def __exit__(self, *exc):
        self._deferred = False
        if self.arrived and self._armed:
            raise KeyboardInterrupt
