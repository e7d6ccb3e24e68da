"""What a lab needs around its subject: predictions, checks that explain, deliberate failures, figures with a text.

A lab uses one object, `lab = distcourse.Lab("07")`; see `Lab`. Nothing here depends on machine learning, writes a file
or seeds a generator. How to write a lab with it: course/AUTHORING.md.
"""

from __future__ import annotations

import importlib

# public names by the module that has them; they are loaded when they are first used: `distlearn --help` is quick
_NAMES = {
    name: module
    for module, names in {
        "check": ("Check", "CheckFailed"),
        "diagnose": ("Comparison", "compare"),
        "kernels": ("at_cell_lines", "in_parallel", "kernel_of", "no_errors"),
        "lab": ("Expected", "Lab", "NothingFailed"),
        "predict": ("Prediction", "PredictionInvalid", "PredictionMissing"),
        "show": ("Card", "Line"),
        "study": ("Study",),
    }.items()
    for name in names
}

__all__ = list(_NAMES)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'distcourse' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_NAMES})
