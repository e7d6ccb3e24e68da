"""What stands for an object of the other process."""

from __future__ import annotations

import inspect

import numpy as np


class Remote:
    """An object of the other process: attributes are read there, calls run there.

    What it can do depends on the object: `make_proxy` adds `__call__`, `__len__` and so on where the object has them.
    """

    __slots__ = ("__dict__", "_ask", "_attributes", "_key", "_methods", "_text")

    def __init__(self, handle, ask):
        set_ = object.__setattr__
        set_(self, "_ask", ask)
        set_(self, "_key", handle.key)
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
        if name.startswith("_"):
            raise AttributeError(f"{name!r} of {self._text!r} cannot be set")
        self._ask("set", self, name, value)

    def __repr__(self) -> str:
        return f"<{self._text}>"

    def __array__(self, dtype=None, copy=None):
        """Ask for the object as an array."""
        found = self._ask("array", self)
        if not isinstance(found, np.ndarray):
            raise TypeError(f"a {self._text} is not an array")
        return found if dtype is None else found.astype(dtype)

    def __reduce__(self):
        return _itself, (_Ticket(self),)


class _Ticket:
    """Takes a proxy through a pickle within one process."""

    HELD: dict = {}  # noqa: RUF012

    def __init__(self, proxy):
        self.number = id(proxy)
        self.HELD[self.number] = proxy


def _itself(ticket):
    return _Ticket.HELD[ticket.number]


def _call(self, /, *args, **kwargs):
    return self._ask("call", self, args, kwargs)


def _enter(self):
    return self._ask("enter", self)


def _exit(self, kind, error, tb):
    return bool(self._ask("exit", self, kind is not None))


SPECIAL = {
    "call": {"__call__": _call},
    "context": {"__enter__": _enter, "__exit__": _exit},
    "sequence": {
        "__len__": lambda self: int(self._ask("length", self)),
        "__getitem__": lambda self, index: self._ask("item", self, index),
    },
    "items": {"__iter__": lambda self: iter(self._ask("items", self))},
    "number": {"__float__": lambda self: float(self._ask("float", self))},
}
"""Methods of a proxy, by what the object can do."""


def abilities(value) -> str:
    """Say what an object can do, as a comma-separated list of keys of `SPECIAL`."""
    kind = type(value)
    found = ["call"] * callable(value)
    if not isinstance(value, type):
        found += ["context"] * (hasattr(kind, "__enter__") and hasattr(kind, "__exit__"))
        found += ["sequence"] * (hasattr(kind, "__len__") and hasattr(kind, "__getitem__"))
        found += ["items"] * hasattr(kind, "__iter__")
        found += ["number"] * hasattr(kind, "__float__")
    return ",".join(found)


def make_proxy(handle, ask) -> Remote:
    """Return what stands for an object; its class has the name of the object's class or function."""
    space = {"__slots__": ()}
    for ability in handle.kind.split(","):
        space |= SPECIAL.get(ability, {})
    proxy = type(handle.name, (Remote,), space)(handle, ask)
    if "__call__" in space:
        proxy.__dict__.update(__name__=handle.name, _distlearn_home=handle.home)
        if handle.signature is not None:
            proxy.__dict__["__signature__"] = _signature(handle.signature)
    return proxy


def _signature(parameters):
    """Rebuild a signature; None if it is not one."""
    try:
        return inspect.Signature([
            inspect.Parameter(str(name), inspect._ParameterKind(kind), default=None if default else inspect._empty)
            for name, kind, default in parameters
        ])  # fmt: skip
    except (ValueError, TypeError):
        return None
