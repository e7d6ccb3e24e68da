"""Every figure that the labs, the command line and the README show, each by one call.

A plot function takes the result of a run (a `History`, a `Trace`, times) and returns the Axes it drew on; given
`ax=` or `axes=` it draws there and leaves the rest of the figure alone. None of them shows or writes anything: a
notebook shows the figure of a cell by itself, `save` writes one. The data of a time axis are seconds, whatever unit its
labels have.

matplotlib and rich are loaded when the first name is used, not by `import distlearn`.
"""

from __future__ import annotations

import importlib

# where each public name lives
_NAMES = {
    "COLORS": "look",
    "LINES": "look",
    "MARKERS": "look",
    "lightness": "look",
    "style": "look",
    "use_style": "look",
    "describe": "files",
    "save": "files",
    "plotted_tables": "plotted",
    "plot_history": "curves",
    "plot_timeline": "timeline",
    "plot_speedup": "scaling",
    "plot_roofline": "roofline",
    "kernel_film": "film",
    "plot_benchmarks": "benchmarks",
    "plot_schedule": "pipeline",
    "plot_spacetime": "spacetime",
    "plot_batching": "layers",
    "plot_layers": "layers",
    "plot_products": "layers",
    "confusion": "pictures",
    "images": "pictures",
    "table": ".tables",  # of the package above
}

__all__ = list(_NAMES)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'distlearn.viz' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_NAMES})
