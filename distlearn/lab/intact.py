"""Checks judge with tools that nobody has changed: what a submission does to them is undone before each check.

A student who writes `np.sum = 0` by accident would lose every exercise below, and one who writes `np.allclose = yes` on
purpose would win them. So grading calls `remember` in a new kernel, and `restore` before every check: functions and
classes of NumPy, of this library and of Python itself are again what they were, names such as `list` mean what they
mean, and working directory and environment are where it began. This is no wall against an attack (that is a container),
but what is left must be written on purpose.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
import types

import numpy as np

TOOLS = ("numpy.linalg", "numpy.random", "distlearn.lab", "distlearn.nn", "distlearn.optim", "distlearn.data")
TOOLS += (
    "distlearn.comm",
    "distlearn.sim",
    "distlearn.parallel",
    "distlearn.train",
    "distlearn.cuda",
    "distlearn.trace",
)
TOOLS += ("matplotlib.pyplot",)
"""Loaded before anything is remembered: what checks use, and what takes long in the setup of every lab."""
OWNERS = ("builtins", "math", "numpy", "distlearn")
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, property, classmethod, staticmethod)
_CALLED = ("__init__", "__enter__", "__exit__", "__eq__", "__call__", "__import__", "__getitem__")
_THE_SHELLS = ("input", "get_ipython", "display")
"""Builtins that IPython itself replaces, for every cell."""

_KEPT: dict[str, tuple[object, dict[str, object]]] = {}
"""By dotted name: a module or a class, and its functions, classes and modules as they were."""
_SURROUNDINGS: dict = {}
"""Working directory, search path, environment, and what NumPy does at an overflow."""


def remember(shell=None) -> None:
    """Keep what checks rely on, as it is now; call it before any code of a student runs.

    Parameters
    ----------
    shell : InteractiveShell, optional
        From now on `exit()` and `quit()` end a cell, but not the kernel (it would be gone some cells later).
    """
    if shell is not None:
        shell.ask_exit = _stay
        streams = sys.stdout, sys.stderr
        shell.events.register("post_run_cell", lambda *_: _set_streams(*streams))  # or the kernel answers no more
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
    """Undo what was changed since `remember`, and say what that was.

    Parameters
    ----------
    shell : InteractiveShell, optional
        Its namespace loses variables that hide a builtin, and it its transformers: code runs as it is written.
    names : iterable of str
        Only builtins among these are uncovered.

    Returns
    -------
    list of str
        Dotted names that were put back (`numpy.allclose`), and names of variables that were removed (`list`).
    """
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
