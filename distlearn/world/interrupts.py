"""Ctrl-C at safe places only.

Python raises KeyboardInterrupt between any two bytecodes of the main thread: after a process was started and before
anybody wrote down which, while a queue is locked that another thread needs, half-way through cleaning up. A block that
must not be broken off there holds interrupts back, and lets them through where it can be left:

    with held():
        start_things()
        while not ready():
            let_through()                  # KeyboardInterrupt comes here
            wait_a_moment()
    # or here

Who presses Ctrl-C again, more than `STUBBORN` seconds after one that had no effect, is obeyed on the spot.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from .outcome import frames_of_stack

STUBBORN = 1.0


class _State:
    """The one handler of SIGINT while interrupts are held: signals belong to the process, not to an object."""

    def __init__(self):
        self.depth, self.came, self.before = 0, None, signal.default_int_handler

    def handle(self, signum, frame):
        """Take note of an interrupt; obey if the last one has been waiting for long."""
        now = time.monotonic()
        if self.depth == 0 or (self.came is not None and now - self.came > STUBBORN):
            self.obey(frame)
        elif self.came is None:
            self.came = now

    def obey(self, frame):
        """Do what SIGINT does where it is not held: as a rule raise KeyboardInterrupt."""
        self.came = None
        self.before(signal.SIGINT, frame)


_state = _State()


class held:
    """A block in which interrupts come only where it calls `let_through`, and at its end.

    Blocks may lie in each other; the outermost counts. Nothing changes in threads, which no signal reaches, nor where
    SIGINT is ignored or ends the process.
    """

    def __enter__(self):
        before = signal.getsignal(signal.SIGINT)
        self._on = threading.current_thread() is threading.main_thread() and callable(before)
        if not self._on:
            return
        if before != _state.handle:
            _state.before, _state.depth = before, 0
            signal.signal(signal.SIGINT, _state.handle)
        _state.depth += 1

    def __exit__(self, kind, error, trace):
        if not self._on:
            return
        _state.depth -= 1
        if _state.depth > 0:
            return
        signal.signal(signal.SIGINT, _state.before)
        came, _state.came = _state.came, None
        if came is not None and not isinstance(error, KeyboardInterrupt):
            _state.before(signal.SIGINT, sys._getframe(1))


def let_through() -> None:
    """Raise KeyboardInterrupt if an interrupt was held back."""
    if _state.came is not None and threading.current_thread() is threading.main_thread():
        _state.obey(sys._getframe(1))


class Interrupts:
    """SIGINT while a launch runs: remembers where it struck, and raises KeyboardInterrupt where that is safe."""

    def __init__(self):
        self.frames: list | None = None
        self._armed, self._held = True, False
        signal.signal(signal.SIGINT, self._handle)

    @property
    def struck(self) -> bool:
        """Whether there was one."""
        return self.frames is not None

    def _handle(self, signum, frame):
        if self.frames is None:
            self.frames = frames_of_stack(frame)
        if self._armed and not self._held:
            raise KeyboardInterrupt

    def disarm(self) -> None:
        """From now on the launch is over, and an interrupt comes too late."""
        self._armed = False

    def __enter__(self):
        """Hold interrupts back until the block is done."""
        self._held = True

    def __exit__(self, *exc):
        self._held = False
        if self.struck and self._armed:
            raise KeyboardInterrupt
