"""Calls between two processes, of which one runs at a time.

The judge asks, the student's process answers; while it works on the answer it may ask in turn: a rank's `all_reduce`,
the function that `numeric_gradient` is to differentiate. The judge serves that, also from several simulated ranks at
once (each has a fibre in the judge and a greenlet in the student's process), and then gets its answer.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import sys
import traceback
import types

from .arrays import SharedArrays
from .frames import Connection, ProtocolError
from .objects import Handle, make_proxy
from .values import Codec

ASK, ANSWER, ERROR = "q", "r", "e"
LONGEST = 10_000  # Characters of an exception's text that are sent.
MOST_ITEMS = 100_000  # Items that are taken from an iterator.
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError)


class Link:
    """One end of a link."""

    shared_by_ranks = True

    def __init__(self, connection: Connection, side: str, surface, allowed):
        self._connection, self._allowed = connection, allowed
        self.arrays = SharedArrays(side)
        self.codec = Codec(self.arrays, self._proxy, surface, copies=side == "j")
        self._asked = 0
        self.broken = ""
        self._errors: dict[int, BaseException] = {}

    def _proxy(self, handle: Handle):
        return make_proxy(handle, self.request)

    # -- asking -------------------------------------------------------------------------------------------------------

    def request(self, operation: str, target, *operands):
        """Have the other process do something with one of its objects; return the result, or raise what it raised."""
        self._asked += 1
        number = self._asked
        self._send(ASK, number, [operation, target, *operands])
        kind, value = self._wait(number)
        if kind == ERROR:
            raise self._error_from(value)
        return value

    def _wait(self, number: int):
        while True:
            kind, replied, value = self.receive()
            if kind == ASK:
                self.serve(replied, value)
            elif replied == number:
                return kind, value
            else:
                self.broken = f"an answer to question {replied!r:.20}, expected one to {number}"
                raise ProtocolError(self.broken)

    # -- serving ------------------------------------------------------------------------------------------------------

    def serve(self, number: int, asked) -> None:
        """Do what the other process asks for, and send it the result."""
        try:
            if not (isinstance(asked, list) and len(asked) >= 2 and isinstance(asked[0], str)):
                raise ProtocolError("a question that cannot be read")
            result = self._do(*asked)
        except ProtocolError:
            raise
        except BaseException as error:
            self._send(ERROR, number, self._described(error))
            if not isinstance(error, Exception) and self.arrays.side == "s":
                raise
        else:
            self._send(ANSWER, number, result)

    def _do(self, operation, target, *operands):
        name = operands[0] if operation in ("method", "get") else ""
        if not isinstance(name, str) or name.startswith("_") or not self._allowed(target, operation, name):
            label = getattr(target, "__name__", type(target).__name__)
            raise AttributeError(f"{label}{'.' * bool(name)}{name} cannot be used in an answer")
        match operation, operands:
            case "call", (args, kwargs):
                return target(*args, **kwargs)
            case "method", (_, args, kwargs):
                return getattr(target, name)(*args, **kwargs)
            case "get", (_,):
                return getattr(target, name)
            case "enter", ():
                return target.__enter__()
            case "exit", (failed,):
                return target.__exit__(*((RuntimeError, RuntimeError("failed"), None) if failed else (None,) * 3))
            case "items", ():
                return [item for item, _ in zip(target, range(MOST_ITEMS), strict=False)]
        raise ProtocolError(f"an operation {operation!r:.40} that is not known")

    # -- frames -------------------------------------------------------------------------------------------------------

    def _send(self, kind: str, number: int, value) -> None:
        news: list = []
        buffers: list = []
        try:
            node = self.codec.write(value, news, buffers)
        except Exception as error:
            if kind == ASK:
                raise
            kind, node = ERROR, self.codec.write(self._described(error), news, buffers)
        states, changes, released = self.arrays.outgoing(news)
        header = {"k": kind, "i": number, "v": node, "b": [len(b) for b in buffers], "n": news, "s": states}
        header |= {"z": released, "c": (places := [])}
        at = 0
        for key, low, high, data in changes:
            places.append([key, low, high, at])
            buffers.append(data)
            at += high - low
        with self._noting():
            self._connection.send(header, buffers)

    @contextlib.contextmanager
    def _noting(self):
        """Remember that the link is broken: a check that catches exceptions must not hide it."""
        try:
            yield
        except ProtocolError as error:
            self.broken = self.broken or str(error)
            raise

    def receive(self):
        """Wait for a frame; return its kind, its number and its value."""
        with self._noting():
            return self._received(*self._connection.receive())

    def _received(self, header, data):
        try:
            at, buffers = 0, []
            for size in header["b"]:
                buffers.append(data[at : at + size])
                at += size
            self.arrays.incoming(header["z"], header["n"], header["s"], header["c"], data[at:])
            return header["k"], header["i"], self.codec.read(header["v"], buffers)
        except ProtocolError:
            raise
        except _UNREADABLE as error:
            raise ProtocolError(f"a frame that cannot be read ({type(error).__name__}: {error})") from error

    # -- exceptions ---------------------------------------------------------------------------------------------------

    def _described(self, error: BaseException) -> dict:
        origin = getattr(error, "_distlearn_origin", None)
        if origin is not None:
            return {"origin": origin}
        number = len(self._errors) + 1
        self._errors[number] = error
        try:
            text = str(error)[:LONGEST]
        except Exception:
            text = ""
        frames = [[f.name, f.lineno or 0, f.line or "", f.filename] for f in traceback.extract_tb(error.__traceback__)]
        kind = type(error)
        return {
            "number": number,
            "type": kind.__name__,
            "module": kind.__module__,
            "text": text,
            "frames": frames[-30:],
        }

    def _error_from(self, told) -> BaseException:
        try:
            if "origin" in told:
                return self._errors[told["origin"]]
            kind, text = _exception_type(told["type"], told["module"]), str(told["text"])
            error = _make(kind, text)
            if self.arrays.side == "s":
                error._distlearn_origin = told["number"]
            frames = [(str(n), int(line), str(text), str(file)) for n, line, text, file in told["frames"]]
            error._distlearn_advice = str(told.get("advice", ""))[:LONGEST]
            error._distlearn_frames = [traceback.FrameSummary(f, n, name, line=t) for name, n, t, f in frames]
        except (*_UNREADABLE, ProtocolError) as unreadable:
            raise ProtocolError(f"an exception that cannot be read ({unreadable})") from None
        return error


class Stopped(Exception):
    """The student's function was interrupted, or ended its process's thread."""


def _exception_type(name: str, module: str) -> type:
    """Return the class of this name, if it is Python's, NumPy's or the library's, or one that looks like it."""
    owner = builtins if module == "builtins" else sys.modules.get(module)
    known = module == "builtins" or module.partition(".")[0] in ("distlearn", "distcourse", "numpy")
    found = getattr(owner, name, None) if known and owner is not None else None
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    if isinstance(found, type) and issubclass(found, BaseException):
        return Stopped
    return type(re.sub(r"\W", "", str(name))[:60] or "Exception", (Exception,), {})


def _make(kind: type, text: str) -> Exception:
    """Make an exception of a class, or of one like it where its constructor wants more than a text."""
    for base in kind.__mro__:
        if isinstance(base.__init__, types.FunctionType):
            continue
        with contextlib.suppress(TypeError):
            error = base(text)
            if base is not kind or str(error) != text:  # a KeyError shows its argument quoted
                error = type(kind.__name__, (base,), {"__str__": lambda self: text})(text)
            return error
    return Exception(text)
