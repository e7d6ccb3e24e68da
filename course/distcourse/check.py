"""What a check shows: a line for each case, what was expected, what came, and which mistake explains the difference.

A `Check` collects lines inside a `with` block, shows them as one table, and then raises `CheckFailed` if anything was
wrong, so that nbgrader takes the points. Warnings and stderr are caught as well: nbgrader gives no points to a cell
that writes to stderr.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import dis
import inspect
import os
import sys
import traceback
import types
import warnings

import numpy as np

import distlearn
from distlearn.comm.base import RankError
from distlearn.cuda import CompileError
from distlearn.sim.copies import INSTALLED

from . import show
from .advice import advise, missing_method
from .diagnose import compare
from .show import BAD, GOOD, NOTE, Card, Line

CHECK_FILE = "<check>"  # What the file of a check is called while it is graded.
_NOT_WRITTEN = "not written yet: the function still raises NotImplementedError"


class CheckFailed(AssertionError):
    """At least one check of an exercise failed; the text is the whole table."""

    def __init__(self, card: Card, place: str = ""):
        super().__init__(card.text())
        self.title = card.title
        self._lines = [f"CheckFailed: {card.title}"] + ([place] if place else [])

    def _render_traceback_(self) -> list[str]:
        return self._lines


class Check:
    """Checks of one exercise, to be used in a `with` statement; `hints` refers to those below when something fails.

    Examples
    --------
    >>> with Check("double") as check:
    ...     check.close("y", 2 * np.ones(3), np.full(3, 2.0))
    ✓ double: 1 of 1 checks passed
      ✓ y  float64 (3,)
    """

    def __init__(self, title: str, hints: bool = True):
        self.title, self.hints = title, hints
        self.lines: list[Line] = []
        self.cases: tuple[int, int] | None = None  # how many are right, and how many there are; None counts lines
        self._stack = contextlib.ExitStack()

    def close(self, name, got, want, **options) -> None:
        """Add a line on numbers; see `compare` for the options."""
        finding = compare(name, got, want, **options)
        self._add(GOOD if finding.ok else BAD, name, finding.seen, finding.mistake)

    def vet(self, fn, label, without=()) -> None:
        """Report an answer that is the library's own, or uses what it must not."""
        told = getattr(fn, "_distlearn_home", None)  # while grading an answer is in another process
        home = (home_of(fn) if told is None else told).partition(".")[0]
        if home == "distlearn" or (told and home == "distcourse"):  # in a notebook a lab's function runs some answers
            self._add(BAD, label, "this is the library's own function", "write it yourself, without the library's")
        if "distlearn" in self._look(fn, label, without) and not isinstance(fn, type):  # parts of a class are given
            self._add(NOTE, label, "uses the library: calling its version of an answer counts as not written")

    def line(self, ok: bool, name, text: str = "", advice: str = "") -> None:
        """Add a line that is right or wrong."""
        self._add(GOOD if ok else BAD, name, text, advice)

    def note(self, text: str) -> None:
        """Add a line that is neither right nor wrong."""
        self._add(NOTE, "", text)

    def stopped(self, name, error, advice: str = "") -> None:
        """Report an exception of the answer, with advice unless it has some of its own."""
        text, own, _ = self._explain(error)
        self._add(BAD, name, text, advice or own)

    @property
    def ok(self) -> bool:
        return all(line.tone != BAD for line in self.lines)

    # -- the with statement -----------------------------------------------------------------------------------------

    def __enter__(self) -> Check:
        self.warned = self._stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("default")
        self._stack.enter_context(contextlib.redirect_stderr(sys.stdout))
        return self

    def __exit__(self, kind, error, tb) -> bool:
        self._stack.close()
        if kind is not None and not issubclass(kind, Exception):
            return False  # an interrupt is not an answer
        place = ""
        if error is not None:
            text, advice, place = self._explain(error)
            self._add(BAD, "stopped", text, advice)
        elif not self.lines:
            self._add(BAD, "empty", "this check checks nothing")
        if not self.ok:  # a right answer may overflow on the way to its result
            for text in dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in self.warned):
                self._add(NOTE, "warning", text)
        card = self._card()
        show.display(card)
        if not self.ok:
            raise CheckFailed(card, place) from None
        return True

    def _card(self) -> Card:
        graded = [line.tone == GOOD for line in self.lines if line.tone != NOTE]
        right, of = self.cases or (sum(graded), len(graded))
        title = f"{self.title}: {right} of {of} {'cases' if self.cases else 'checks'} passed"
        foot = "" if self.ok or not self.hints else "Stuck? Three hints are folded below this cell."
        return Card(title, _folded(self.lines), GOOD if self.ok else BAD, foot)

    def _explain(self, error) -> tuple[str, str, str]:
        rank, check_file = "", error.__traceback__.tb_frame.f_code.co_filename
        if isinstance(error, RankError) and error.original is not None:
            rank, error = f"rank {error.rank}: ", error.original
        if isinstance(error, NotImplementedError):
            lost = _told(error, "advice") or missing_method(error, is_library)
            return rank + (lost or _NOT_WRITTEN), "", ""
        text = f"{rank}{type(error).__name__}: {error}"
        advice = _told(error, "advice") or advise(error, check_file, is_library)
        frame = self._students_frame(error, check_file)
        if frame is not None and not isinstance(error, CompileError):  # its own exception, whatever was returned before
            where = f"in {frame.name}, line {frame.lineno}: {frame.line}"
            return f"{text}\n{where}", advice, f"{type(error).__name__}: {error}\n  {where}"
        return text, advice, ""

    def _students_frame(self, error, check_file):
        """The innermost frame in the student's code; None if the check's code, which holds this object, raised it."""
        frames = _told(error, "frames")
        if frames is None:
            pairs = zip(traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__), strict=True)
            frames = [f for (frame, _), f in pairs if not any(value is self for value in frame.f_locals.values())]
        frames = [f for f in frames if not is_library(f.filename) and not f.filename.startswith(CHECK_FILE)]
        frames = [f for f in frames if f.name != "<module>" and not f.name.startswith("<cell line")]
        return frames[-1] if frames and frames[-1].filename != check_file else None

    def _look(self, answer, label, without) -> dict:
        """Refuse an answer by what it uses; return that, by its package."""
        used = {name.partition(".")[0]: name for name in sorted({label, *uses(answer)})}
        for name in used.keys() & set(without):
            self._add(BAD, label, f"this is {used.pop(name)}, or uses it", "write it yourself, without that")
        return used

    def _add(self, tone, name, text="", advice="") -> None:
        line = Line(tone, name, text, advice)
        if line not in self.lines or tone == GOOD:  # a mistake that every rank makes is reported once
            self.lines.append(line)


def _folded(lines: list[Line]) -> list[Line]:
    """Keep the first of three or more failures with one advice or text, and below it the names of the others.

    The advice is compared without the line's own name: ranks and shapes that fail alike are told once.
    """
    alike: dict[str, list[Line]] = {}
    for line in lines:
        if line.tone == BAD and (line.advice or line.text):
            alike.setdefault(line.advice.replace(line.name, "") or line.text, []).append(line)
    kept = list(lines)
    for first, *others in alike.values():
        if len(others) > 1:
            kept = [line for line in kept if line not in others]
            names = "; ".join(dict.fromkeys(line.name for line in others))
            kept.insert(kept.index(first) + 1, Line(NOTE, "", f"the same: {names}"))
    return kept


def home_of(fn) -> str:
    """Return the module in which a function was written, or a class whose instance is called; "" if unknown."""
    written = inspect.unwrap(getattr(fn, "__func__", fn))
    return getattr(written, "__module__", None) or ""


def uses(fn) -> set[str]:
    """Return the global names that an answer reads, and the modules of the library that they come from."""
    told = getattr(fn, "_distlearn_uses", None)  # while grading it is in another process
    if told is not None:
        return set(told)
    found, ours = set(), ("distlearn", "distcourse")
    for part in list(vars(fn).values()) if isinstance(fn, type) else [fn]:
        part = inspect.unwrap(getattr(part, "__func__", part))
        if isinstance(part, types.FunctionType) and not home_of(part).startswith(ours):
            found |= globals_of(part.__code__)
            values = [part.__globals__.get(name) for name in found]
            values = [v for v in values if not _is_data(v)]
            homes = {v.__name__ if isinstance(v, types.ModuleType) else home_of(v) for v in values}
            found |= {home for home in homes if home.startswith(ours)}
    return found


def _is_data(value) -> bool:
    """Return whether a value computes nothing: a card, or a dataclass without methods, such as a layout's type."""
    public = (getattr(value, name) for name in dir(value) if not name.startswith("_"))
    return isinstance(value, tuple) or (dataclasses.is_dataclass(value) and not any(map(callable, public)))


def globals_of(code, within=()) -> set[str]:
    """Return the global names that code reads, and the functions and classes in it; `within`: a class's own."""
    found = named_by(code, "LOAD_GLOBAL") | (named_by(code, "LOAD_NAME") - set(within))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= globals_of(inner, named_by(inner, "STORE_NAME"))
    return found


def named_by(code, operation: str) -> set[str]:
    """Return the names of an operation in code, but for what Python itself reads and writes in a class."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname == operation}
    return {name for name in found if not name.startswith("__")}


def _told(error, what: str):
    """Return what the other process reported about an exception it raised; see `distcourse.judge`."""
    return getattr(error, f"_distlearn_{what}", None)


_OURS = tuple(os.path.join(os.path.dirname(package.__file__), "") for package in (distlearn, show))  # wherever they are


def is_library(filename: str) -> bool:
    """Return whether code of a file belongs to Python or to a package, and not to a notebook."""
    return filename.startswith((*_OURS, "<frozen")) or INSTALLED.search(filename) is not None


def call_watched(fn, args, kwargs) -> tuple:
    """Call a function; return its result, and the name and value of each argument that it changed in place."""
    given = _named(fn, args, kwargs)
    given = {name: a for name, a in given.items() if not _is_flat(a)}
    watched = [(name, a, copy.copy(a)) for found in (_arrays, _containers) for name, a in found(given)]
    result = fn(*args, **kwargs)
    return result, [(name, a) for name, a, before in watched if not _unchanged(a, before)]


def _named(fn, args, kwargs) -> dict:
    try:
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a builtin, or a call that does not fit: the call itself will say so
        return {f"argument {i + 1}": a for i, a in enumerate(args)} | kwargs


def _is_flat(value) -> bool:
    """Return whether a value is a tuple of numbers and texts, in which nothing can be changed."""
    return type(value) is tuple and _FIXED.issuperset(map(type, value))


_FIXED = {int, float, bool, str, type(None)}


def _arrays(value, name=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _arrays(item, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _arrays(item, f"{name}[{i}]")
    elif hasattr(value, "dtype") and hasattr(value, "flags"):
        yield name, value


def _containers(value, name=""):
    """Yield the lists and dicts among arguments, and those in them."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list, tuple)):
            label = f"{name}[{key!r}]" if name else str(key)
            if not isinstance(item, tuple):
                yield label, item
            yield from _containers(item, label)


def _unchanged(value, before) -> bool:
    if hasattr(value, "dtype"):
        return np.array_equal(value, before, equal_nan=value.dtype.kind in "fc")
    pairs = zip(_parts(value), _parts(before), strict=False)
    return len(value) == len(before) and all(a is b for a, b in pairs)


def _parts(value) -> list:
    return [part for item in value.items() for part in item] if isinstance(value, dict) else list(value)
