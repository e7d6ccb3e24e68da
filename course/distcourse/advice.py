"""What to do about an exception in a check: which cell to run, which name was meant, which shapes met."""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import itertools
import linecache
import sys

# What is evaluated a second time to learn its shape: no calls.
_HARMLESS = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.Constant,
             ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)  # fmt: skip


def advise(error, check_file: str, is_library) -> str:
    """Say what to do about an exception, or return ""."""
    steps = list(_steps(error.__traceback__))
    mine = [step for step in steps if not is_library(step.tb_frame.f_code.co_filename)]
    if not mine:
        return ""
    frame = mine[-1].tb_frame
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and error.name:
        if frame.f_code.co_filename == check_file:
            return f"run the cell above that defines {error.name}, then this one again"
        if error.name in sys.stdlib_module_names:
            return f"import {error.name}"
        meant = _did_you_mean(error.name, {*frame.f_locals, *frame.f_globals, *dir(builtins)})
        return meant or f"is {error.name} defined in a cell that has not been run?"
    if isinstance(error, UnboundLocalError) and "'" in str(error):  # its `name` is None
        return _assigned(str(error).split("'")[1], frame, [step.tb_frame for step in mine[:-1]])
    if isinstance(error, AttributeError) and error.name:
        if hasattr(getattr(error.obj, "data", None), error.name):
            return f"its array has that: .data.{error.name}"
        return _again(error.obj, error.name) or _did_you_mean(error.name, dir(error.obj))
    if isinstance(error, (ValueError, TypeError)) and mine[-1] is (steps[-1] if steps else None):
        return _shapes(mine[-1])
    return ""


def missing_method(error, is_library) -> str:
    """Say that a class of the notebook lacks a method, where the base class in the library raises; or return ""."""
    frames = [step.tb_frame for step in _steps(error.__traceback__)]
    if not frames or not is_library(frames[-1].f_code.co_filename):
        return ""
    return _again(frames[-1].f_locals.get("self"), frames[-1].f_code.co_name)


def _steps(tb):
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _again(owner, name: str) -> str:
    cls = owner if inspect.isclass(owner) else type(owner)
    if owner is None or cls.__module__ != "__main__":
        return ""
    why = "run the cell that defines it, again if an earlier cell of the class was run since"
    return f"{cls.__name__} has no {name}: {why}"


def _assigned(name: str, frame, outer) -> str:
    where = frame.f_code.co_name
    if any(name in f.f_locals for f in outer if f.f_code is not frame.f_code):
        return f"{where} assigns to {name}, so it has a {name} of its own: write `nonlocal {name}` in {where}"
    return f"{where} assigns to {name} further down, and reads it before"


def _did_you_mean(name: str, known) -> str:
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("__")], n=1, cutoff=0.7)
    return f"did you mean {near[0]!r}?" if near else ""


def _shapes(step) -> str:
    code = step.tb_frame.f_code
    line, end_line, start, end = next(itertools.islice(code.co_positions(), step.tb_lasti // 2, None))
    if start is None or line != end_line:
        return ""
    text = linecache.getline(code.co_filename, line).encode("utf-8")[start:end].decode("utf-8")
    try:
        node = ast.parse(text.strip()).body[0]
    except (SyntaxError, IndexError):
        return ""
    node = node.value if isinstance(node, ast.Expr) else node
    if isinstance(node, ast.BinOp):
        pair = node.left, node.right
    elif isinstance(node, ast.AugAssign):
        pair = node.target, node.value
    else:
        return ""
    told = [f"{ast.unparse(part)} is {shape}" for part in pair if (shape := _shape(part, step.tb_frame)) is not None]
    if len(told) < 2:
        return ""
    low, high = sorted((_shape(part, step.tb_frame) for part in pair), key=len)
    row = len(low) == 1 and len(high) == 2 and low[0] == high[0] and not isinstance(node.op, ast.MatMult)
    advice = f"; NumPy takes {low} for one row: [:, None], or keepdims=True in a sum, makes it a column"
    return ", ".join(told) + (advice if row else "")


def _shape(node, frame):
    if not all(isinstance(part, _HARMLESS) for part in ast.walk(node)):
        return None
    try:
        value = eval(ast.unparse(node), frame.f_globals, frame.f_locals)
    except Exception:
        return None
    return getattr(value, "shape", None)
