"""What a lab needs around its subject: predictions, checks that explain, deliberate failures, figures with a text.

A lab uses one object, `lab = distcourse.Lab("07")`; see `Lab`. Nothing here depends on machine learning, writes a file
or seeds a generator. How to write a lab with it: course/AUTHORING.md.
"""

from __future__ import annotations

import importlib

# where each public name lives; they are loaded when they are first used, so that `distlearn --help` is quick
_NAMES = {
    "Check": "check",
    "CheckFailed": "check",
    "Comparison": "diagnose",
    "compare": "diagnose",
    "at_cell_lines": "kernels",
    "in_parallel": "kernels",
    "kernel_of": "kernels",
    "no_errors": "kernels",
    "Expected": "lab",
    "Lab": "lab",
    "NothingFailed": "lab",
    "Prediction": "predict",
    "Study": "study",
    "PredictionInvalid": "predict",
    "PredictionMissing": "predict",
    "Card": "show",
    "Line": "show",
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
