"""How strong are the cases of an exercise? Changes to its solution by rule, and wrappers that no right answer has.

Each must fail in a visible case or a drawn one. What passes shows that no case varies something, or is as right as the
solution: then the exercise says so in `may_pass`.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import difflib
import inspect
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from .. import exercise as checks
from ..exercise import wrong_in
from .exercise import ARROW, Solved

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.USub: ast.UAdd,
}  # fmt: skip


def survivors(solved: Solved, name: str) -> list[str]:
    """Return the changes and wrappers that pass every case, visible or drawn, and are not in `may_pass`."""
    exercise, rng = solved.exercises[name], np.random.default_rng(0)
    cases = exercise.cases + exercise.drawn(rng, 2 * exercise.draws)
    table = solved.right(name, cases)

    def passes(answers) -> bool:
        for case, want in zip(cases, table.right, strict=True):
            if wrong_in(solved.results(name, answers, [case])[0], want, exercise.at_most, exercise.rtol):
                return False
        return True

    found = []
    for what, text in changes(solved.texts[name]):
        with contextlib.suppress(Exception), patch.object(checks, "LIMIT", 3.0):  # some do not end
            if passes(solved.answers(name, text)):
                found.append(what)
    answers = solved.answers(name)
    for k, answer in enumerate(answers):
        for wrapper in () if isinstance(answer, type) else wrappers(answer, exercise.inplace):
            with contextlib.suppress(Exception):
                if passes((*answers[:k], wrapper, *answers[k + 1 :])) and wrapper.acted:
                    found.append(f"{answer.__name__}, {wrapper.what}" if len(answers) > 1 else wrapper.what)
    return [what for what in found if not any(part in what for part in exercise.may_pass)]


# -- changes by rule ---------------------------------------------------------------------------------------------------
def changes(text: str) -> Iterator[tuple[str, str]]:
    """Yield a solution with one change, and the line that it makes of another."""
    tree = ast.parse(text)
    assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names = sorted(assigned | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)})
    before, seen = ast.unparse(tree), set()
    for i, node in enumerate(ast.walk(tree)):
        for k in range(len(list(_edits(node, names)))):
            new = copy.deepcopy(tree)
            target = next(n for j, n in enumerate(ast.walk(new)) if j == i)
            list(_edits(target, names))[k]()
            code = ast.unparse(ast.fix_missing_locations(new))
            if code not in seen and code != before:
                seen.add(code)
                yield _difference(before, code), code


def _difference(before: str, after: str) -> str:
    lines = [d for d in difflib.ndiff(before.splitlines(), after.splitlines()) if d[0] in "-+"]
    return ARROW.join(" ".join(d[1:].strip() for d in lines if d[0] == sign) or "nothing" for sign in "-+")


def _edits(node, names) -> Iterator:
    """Yield functions that each change the node in one way."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for value in {node.value + 1, node.value - 1, 0} - {node.value}:
            yield lambda value=value: setattr(node, "value", value)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda: setattr(node, "value", not node.value)
    operator = getattr(node, "op", None) or next(iter(getattr(node, "ops", [])), None)
    if type(operator) in OPERATORS:
        other = OPERATORS[type(operator)]()
        yield lambda: node.ops.__setitem__(0, other) if hasattr(node, "ops") else setattr(node, "op", other)
    if isinstance(node, (ast.If, ast.IfExp)):
        for value in (True, False):
            yield lambda value=value: setattr(node, "test", ast.Constant(value))
    if isinstance(node, ast.Call):
        for word in node.keywords:
            yield lambda word=word: node.keywords.remove(word)
        if len(node.args) == 2:
            yield node.args.reverse
    if isinstance(node, ast.Slice):
        for end in ("lower", "upper", "step"):
            if getattr(node, end) is not None:
                yield lambda end=end: setattr(node, end, None)
    for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
        for k, statement in enumerate(block if isinstance(block, list) else ()):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.For, ast.Return)) and not is_text:
                yield lambda block=block, k=k: block.__setitem__(k, ast.Pass())
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        for other in names:
            if other != node.id:
                yield lambda other=other: setattr(node, "id", other)


# -- wrappers ----------------------------------------------------------------------------------------------------------
class Wrapper:
    """The solution, but for what `what` says; `acted` says whether that has made any difference to a call."""

    shared_by_ranks = True

    def __init__(self, what: str, answer, arguments=None, result=None):
        self.what, self.acted = what, False
        self._answer, self._arguments, self._result, self._calls = answer, arguments, result, 0
        self.__signature__ = inspect.signature(answer)

    def __call__(self, *args, **kwargs):
        self._calls += 1
        given = args
        if self._arguments is not None:
            given = self._arguments(args)
            self.acted |= any(a is not b and not _same(a, b) for a, b in zip(args, given, strict=True))
        result = self._answer(*given, **kwargs)
        if self._result is None:
            return result
        changed = self._result(result, args, self._calls)
        self.acted |= changed is not result
        return changed


def wrappers(answer, inplace: bool) -> Iterator[Wrapper]:
    """Yield wrappers of a solution."""
    for k in range(answer.__code__.co_argcount):
        yield Wrapper(f"argument {answer.__code__.co_varnames[k]} frozen at its first value", answer, _frozen(k))
    yield Wrapper("results kept by the shapes of arguments", answer, result=_kept_by_shape())
    yield Wrapper("whole numbers as floats", answer, result=_mapped(int, float))
    yield Wrapper("arrays as lists", answer, result=_mapped(np.ndarray, lambda a: a.tolist()))
    yield Wrapper("float64 for float32", answer, result=_mapped(np.ndarray, _widened))
    yield Wrapper("rounded to three digits", answer, result=_mapped((float, np.ndarray), _rounded))
    yield Wrapper("wrong from the sixth call on", answer, result=_worn_out)
    if not inplace:
        yield Wrapper("arguments emptied afterwards", answer, result=_emptied)


def _same(a, b) -> bool:
    if type(a) is not type(b) or isinstance(a, np.ndarray):
        return type(a) is type(b) and np.array_equal(a, b)
    return bool(a == b) or repr(a) == repr(b)


def _frozen(k):
    first = []

    def arguments(args):
        if len(args) <= k:
            return args
        first.extend([copy.deepcopy(args[k])] if not first else [])
        return (*args[:k], first[0], *args[k + 1 :])

    return arguments


def _kept_by_shape():
    kept = {}

    def result(value, args, calls):
        key = repr([getattr(a, "shape", None) or (len(a) if hasattr(a, "__len__") else type(a)) for a in args])
        return kept.setdefault(key, value)

    return result


def _mapped(kind, change):
    def result(value, args=(), calls=0):
        if isinstance(value, kind) and not isinstance(value, bool):
            return change(value)
        if isinstance(value, (list, tuple)):
            new = [result(item) for item in value]
            return value if all(a is b for a, b in zip(new, value, strict=True)) else type(value)(new)
        if isinstance(value, dict):
            new = {key: result(item) for key, item in value.items()}
            return value if all(new[key] is value[key] for key in value) else new
        return value

    return result


def _widened(a):
    return a.astype(np.float64) if a.dtype in (np.float32, np.float16) else a


def _rounded(a):
    if isinstance(a, np.ndarray) and a.dtype.kind != "f":
        return a
    new = np.round(a, 3).astype(a.dtype) if isinstance(a, np.ndarray) else round(a, 3)
    return a if np.array_equal(new, a, equal_nan=True) else new


def _worn_out(value, args, calls):
    if calls < 6 or not isinstance(value, (float, int, np.ndarray)) or isinstance(value, bool):
        return value
    return value + np.asarray(1, getattr(value, "dtype", None))


def _emptied(value, args, calls):
    for a in args:
        if isinstance(a, (list, dict)):
            a.clear()
        elif isinstance(a, np.ndarray) and a.flags.writeable:
            a.fill(0)
    return copy.copy(value) if any(isinstance(a, (list, dict, np.ndarray)) for a in args) else value
