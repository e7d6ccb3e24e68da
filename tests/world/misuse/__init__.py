"""Programs with a student's mistake each, for three ranks: every world must say which rank, on which line.

Each module holds one kind; none is named like a module of the package, because errors name files without their folder.
`python -m tests.world.misuse NAME PATIENCE TIMEOUT` runs a program under mpiexec.
"""

from . import arguments, calls, endings, exchanges
from .table import MISUSES, SIZE

__all__ = ["MISUSES", "SIZE", "arguments", "calls", "endings", "exchanges"]
