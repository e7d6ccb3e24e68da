"""Errors of building and checking a kernel; each message says what to do."""

from __future__ import annotations


class KernelError(RuntimeError):
    """A kernel did something that would be wrong on a GPU; `report` holds what the emulator saw."""

    def __init__(self, message, report=None):
        super().__init__(message)
        self.report = report


class CompileError(KernelError):
    """The source does not compile; `problems` is a list of (line, column, message)."""

    def __init__(self, message, problems=()):
        super().__init__(message)
        self.problems = list(problems)


class UnsupportedFeature(CompileError):
    """The source uses something that exists on a GPU but that the emulator cannot run."""


class CompilerNotFound(KernelError):
    """No C++ compiler was found to build the kernel with."""
