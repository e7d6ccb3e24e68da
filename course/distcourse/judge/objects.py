"""Objects that stay in the process which made them: what stands for them in the other one, and what it may do.

Functions are called, communicators and clocks have the methods of their protocols. Everything else of the library is
copied (`None`), so that nothing else of the judge's is within reach.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from typing import NamedTuple

from distlearn.comm.base import Communicator, DoneWork
from distlearn.trace import Clock, WallClock


class Handle(NamedTuple):
    """Description of an object that lives in the other process."""

    key: tuple
    kind: str
    name: str
    methods: tuple
    attributes: tuple
    signature: tuple | None
    home: str
    uses: tuple = ()


class Remote:
    """An object of the other process: attributes are read there, calls run there."""

    # What else it can do depends on the object: `make_proxy` adds `__call__` and so on where the object has them.

    shared_by_ranks = True  # the object is in the other process, once
    __slots__ = ("__dict__", "_ask", "_attributes", "_methods", "_text")

    def __init__(self, handle: Handle, ask):
        set_ = object.__setattr__
        set_(self, "_ask", ask)
        set_(self, "_methods", tuple(handle.methods))
        set_(self, "_attributes", tuple(handle.attributes))
        set_(self, "_text", handle.name)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"{self._text!r} has no attribute {name!r} here")
        if name in self._methods:
            return lambda *args, **kwargs: self._ask("method", self, name, args, kwargs)
        if self._attributes and name not in self._attributes and "*" not in self._attributes:
            raise AttributeError(f"{self._text!r} has no attribute {name!r} that an answer can use")
        return self._ask("get", self, name)

    def __setattr__(self, name, value):
        raise AttributeError(f"{name!r} of {self._text!r} cannot be set")

    def __repr__(self) -> str:
        return f"<{self._text}>"


# Methods of a proxy, by what the object can do.
SPECIAL = {
    "call": {"__call__": lambda self, /, *args, **kwargs: self._ask("call", self, args, kwargs)},
    "context": {
        "__enter__": lambda self: self._ask("enter", self),
        "__exit__": lambda self, kind, error, tb: bool(self._ask("exit", self, kind is not None)),
    },
    "items": {"__iter__": lambda self: iter(self._ask("items", self))},
}


def make_proxy(handle: Handle, ask) -> Remote:
    """Return what stands for an object; its class has the name of the object's class or function."""
    space = {"__slots__": ()}
    for ability in handle.kind.split(","):
        space |= SPECIAL.get(ability, {})
    proxy = type(handle.name, (Remote,), space)(handle, ask)
    if "__call__" in space:
        proxy.__dict__.update(__name__=handle.name, _distlearn_home=handle.home, _distlearn_uses=handle.uses)
        if handle.signature is not None:
            with contextlib.suppress(ValueError, TypeError):
                defaults = {True: None, False: inspect.Parameter.empty}
                proxy.__dict__["__signature__"] = inspect.Signature([
                    inspect.Parameter(str(name), inspect._ParameterKind(kind), default=defaults[default])
                    for name, kind, default in handle.signature
                ])  # fmt: skip
    return proxy


def signature_of(value) -> tuple | None:
    """Names and kinds of the parameters of a function, and which have defaults."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return tuple((p.name, int(p.kind), p.default is not p.empty) for p in parameters)


def _abilities(value) -> str:
    kind = type(value)
    found = ["call"] * callable(value)
    if not isinstance(value, type):
        found += ["context"] * (hasattr(kind, "__enter__") and hasattr(kind, "__exit__"))
        found += ["items"] * hasattr(kind, "__iter__")
    return ",".join(found)


def _methods(cls) -> tuple[str, ...]:
    return tuple(name for name, value in vars(cls).items() if callable(value) and not name.startswith("_"))


_OF_THE_LIBRARY = ("abort", "agreement", "state")  # of a communicator: for those who build one, not for programs
_COMM = tuple(m for m in _methods(Communicator) if m not in _OF_THE_LIBRARY), ("rank", "size", "clock")
_CLOCK = _methods(Clock), ()
_WORK = ("wait", "done"), ()
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
_COPIED = {"distlearn", "distcourse", "numpy"}
_COPIED |= {"builtins", "collections", "functools", "datetime", "fractions", "decimal"}


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
    if kind.__module__ == "distlearn.sim.transport" or kind is DoneWork:
        return "", *_WORK
    if isinstance(value, (*_FUNCTIONS, type)):
        if getattr(value, "__self__", None) is None and importable(value):
            return None
        return "call", (), ()
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
    if operation == "method":
        return name in methods
    if operation == "get":
        return name in attributes
    return ("context" if operation in ("enter", "exit") else operation) in can.split(",")


def of_student(value):
    """Return the same of an object of the student's process: all of its public names."""
    if isinstance(value, types.ModuleType):
        raise TypeError(f"the module {value.__name__} cannot be sent")
    return _abilities(value), (), ("*",)


def importable(value) -> bool:
    """Return whether the other process can import it, too: it is the library's, NumPy's or Python's own."""
    home = (getattr(value, "__module__", None) or "").partition(".")[0]
    return home in ("distlearn", "distcourse", "numpy", "builtins", "math") and "<" not in getattr(
        value, "__qualname__", "<"
    )
