"""What answers may do with the objects that a check gives them.

Functions are called, communicators and clocks have the methods of their protocols, and objects of classes that the
check itself defines have their public names. Everything else of the library is copied (`None`), so that nothing
else of the judge's is within reach.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types

from distlearn.comm import protocol
from distlearn.comm.base import Communicator
from distlearn.trace import Clock, WallClock

from .remote import Remote, abilities

NAMESPACE = "distlearn_check"
"""`__name__` of the namespace in which a check runs."""


def _methods(cls) -> tuple[str, ...]:
    return tuple(name for name, value in vars(cls).items() if callable(value) and not name.startswith("_"))


_COMM = _methods(protocol.Communicator), ("rank", "size", "clock")
_CLOCK = _methods(Clock), ()
_WORK = ("wait", "done"), ()
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
_COPIED = (
    "distlearn",
    "distcourse",
    "numpy",
    "builtins",
    "collections",
    "functools",
    "datetime",
    "fractions",
    "decimal",
)


def of_judge(value):
    """Return (abilities, methods, attributes) that an answer may use of an object of the judge; None to copy it."""
    kind = type(value)
    home = (kind.__module__ or "").partition(".")[0]
    if isinstance(value, Remote):
        raise TypeError("this object belongs to another check")
    if isinstance(value, Communicator):
        return "", *_COMM
    if isinstance(value, WallClock) or kind.__module__ == "distlearn.sim.clock":
        return "", *_CLOCK
    if isinstance(value, contextlib.AbstractContextManager) and kind.__module__ == "contextlib":
        return "context", (), ()
    if kind.__module__ == "distlearn.sim.transport" or kind is base.DoneWork:
        return "", *_WORK
    if isinstance(value, (*_FUNCTIONS, type)):
        if getattr(value, "__self__", None) is None and _importable(value):
            return None
        return "call", (), ()
    if kind.__module__ == NAMESPACE:
        names = [n for n in dir(value) if not n.startswith("_")]
        methods = tuple(n for n in names if inspect.isroutine(getattr(kind, n, None)))
        return abilities(value), methods, ("*",)
    if home in _COPIED and not isinstance(value, types.ModuleType):
        return None
    raise TypeError(f"a check cannot pass a {kind.__module__}.{kind.__name__} to an answer")


def judge_allows(value, operation: str, name: str) -> bool:
    """Return whether an answer may do this with an object of the judge."""
    try:
        surface = of_judge(value)
    except TypeError:
        return False
    if surface is None:
        return False
    can, methods, attributes = surface
    match operation:
        case "method":
            return name in methods
        case "get":
            return name in attributes or "*" in attributes
        case "set":
            return "*" in attributes
        case "enter" | "exit":
            return "context" in can
        case "length" | "item":
            return "sequence" in can
    return {"call": "call", "items": "items", "float": "number"}.get(operation, "-") in can.split(",")


def of_student(value):
    """Return the same of an object of the student's process: all of its public names."""
    if isinstance(value, types.ModuleType):
        raise TypeError(f"the module {value.__name__} cannot be sent")
    return abilities(value), (), ("*",)


def student_allows(value, operation: str, name: str) -> bool:
    """Return True: what the judge does with an answer's object is the check's affair."""
    return True


def _importable(value) -> bool:
    home = (getattr(value, "__module__", None) or "").partition(".")[0]
    return home in ("distlearn", "distcourse", "numpy", "builtins", "math") and "<" not in getattr(
        value, "__qualname__", "<"
    )
