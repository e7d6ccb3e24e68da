"""Undo before each check what a submission has changed in NumPy, Python or this library.

A student who writes `np.sum = 0` by accident would lose every exercise below, and one who writes `np.allclose = yes` on
purpose would win them. So grading calls `remember` in a new kernel, and `restore` before every check. This is no
protection against an attack (the sandbox is), but it leaves nothing that happens by accident.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
import types

import numpy as np

TOOLS = ("numpy.linalg", "numpy.random", "distcourse.lab")
TOOLS += tuple(f"distlearn.{name}" for name in ("nn", "optim", "data", "comm", "sim", "parallel"))
# Loaded before anything is remembered: what checks use, and what every lab's setup cell is slow to import.
TOOLS += ("distlearn.train", "distlearn.cuda", "distlearn.trace", "matplotlib.pyplot")
OWNERS = ("builtins", "math", "numpy", "distlearn", "distcourse")
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, property, classmethod, staticmethod)
_CALLED = ("__init__", "__enter__", "__exit__", "__eq__", "__call__", "__import__", "__getitem__")
_THE_SHELLS = ("input", "get_ipython", "display")  # Builtins that IPython itself replaces, for every cell.

# By dotted name: a module or a class, and its functions, classes and modules as they were.
_KEPT: dict[str, tuple[object, dict[str, object]]] = {}
_SURROUNDINGS: dict = {}  # Working directory, search path, environment, and NumPy's floating-point error settings.


def remember(shell=None) -> None:
    """Save what checks rely on; call it before any of the student's code runs."""
    if shell is not None:
        shell.ask_exit = _stay
        streams = sys.stdout, sys.stderr
        shell.events.register("post_run_cell", lambda *_: _set_streams(*streams))  # or the kernel stops responding
    for name in TOOLS:
        importlib.import_module(name)
    _KEPT.clear()
    _SURROUNDINGS.update(cwd=os.getcwd(), path=list(sys.path), environ=dict(os.environ), errors=np.geterr())
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in OWNERS or not isinstance(module, types.ModuleType):
            continue
        _keep(name, module)
        for cls in [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]:
            _keep(f"{name}.{cls.__qualname__}", cls)


def restore(shell=None, names=()) -> list[str]:
    """Undo what was changed since `remember`, and say what that was."""
    if _SURROUNDINGS:
        os.chdir(_SURROUNDINGS["cwd"])
        sys.path[:] = [*_SURROUNDINGS["path"], *(p for p in sys.path if p not in _SURROUNDINGS["path"])]
        os.environ.update(_SURROUNDINGS["environ"])
        np.seterr(**_SURROUNDINGS["errors"])
    found = []
    for dotted, (owner, kept) in _KEPT.items():
        now = vars(owner)
        for name, value in kept.items():
            if now.get(name) is not value:
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(owner, name, value)
                    found.append(f"{dotted}.{name}")
    if shell is not None:
        for name in names:
            if hasattr(builtins, name) and name in shell.user_ns:
                del shell.user_ns[name]
                found.append(name)
        for hooks in (shell.ast_transformers, *shell.events.callbacks.values()):
            for hook in [h for h in hooks if getattr(h, "__module__", "") == "__main__"]:  # made in the notebook
                hooks.remove(hook)
                found.append(f"get_ipython.{getattr(hook, '__name__', type(hook).__name__)}")
    return found


def _set_streams(stdout, stderr) -> None:
    sys.stdout, sys.stderr = stdout, stderr


def _stay() -> None:
    raise SystemExit("the cell ends here; the kernel goes on, as the notebook is being graded")


def _keep(dotted: str, owner) -> None:
    kept = {name: value for name, value in vars(owner).items() if isinstance(value, _CODE) or callable(value)}
    left = _THE_SHELLS if owner is builtins else ()
    told = {name: value for name, value in kept.items() if not name.startswith("__") or name in _CALLED}
    _KEPT[dotted] = owner, {name: value for name, value in told.items() if name not in left}
