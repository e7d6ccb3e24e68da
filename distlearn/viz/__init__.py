"""The figures of the command line, of the README, and of more than one lab, each by one call.

A plot function takes the result of a run (a `History`, a `Trace`, times) and returns the Axes it drew on; given
`ax=` or `axes=` it draws there and leaves the rest of the figure alone. None of them shows or writes anything: a
notebook shows the figure of a cell by itself, `save` writes one. The data of a time axis are seconds, whatever unit its
labels have.

matplotlib is loaded when the first name is used, not by `import distlearn`.
"""

from __future__ import annotations

from .. import lazy

__all__, __getattr__, __dir__ = lazy(
    __name__,
    {
        "look": "COLORS LINES MARKERS lightness style use_style",
        "files": "describe save",
        "curves": "plot_history",
        "timeline": "plot_timeline",
        "scaling": "plot_speedup",
        "roofline": "plot_roofline",
        "pipeline": "plot_schedule",
        "spacetime": "plot_spacetime",
        "memory": "plot_memory",
        "layers": "plot_layers plot_products",
        ".tables": "table",  # of the package above
    },
)
