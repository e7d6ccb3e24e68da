"""The table of programs with a mistake, which a decorator fills.

The lines that an error may name are marked by a comment that begins with an arrow.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import NamedTuple

SIZE = 3
REAL = ("engines", "mpiexec")  # only the user can interrupt what runs in his own process
MISUSES = []


class Misuse(NamedTuple):
    """A program, what its error must match, which ranks it may name, and the worlds that notice."""

    program: object
    text: str
    ranks: tuple[int, ...]
    worlds: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the program."""
        return self.program.__name__

    @property
    def file(self) -> str:
        """Name of the file that holds the program."""
        return Path(inspect.getsourcefile(self.program)).name

    @property
    def lines(self) -> list[int]:
        """Numbers of the lines that an error may name."""
        source, first = inspect.getsourcelines(self.program)
        return [first + i for i, line in enumerate(source) if "# <-" in line]


def expect(text, ranks=(0, 1, 2), worlds=("sim", "engines", "mpiexec")):
    """Enter a program into the table."""

    def enter(program):
        MISUSES.append(Misuse(program, text, ranks, worlds))
        return program

    return enter
