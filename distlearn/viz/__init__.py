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
    "same_in_grey": "grey",
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
    "plot_accesses": "accesses",
    "plot_sectors": "accesses",
    "describe_schedule": "pipeline",
    "plot_bubble": "bubble",
    "plot_schedule": "pipeline",
    "plot_crossover": "crossover",
    "plot_devices": "devices",
    "plot_fastest": "crossover",
    "plot_checkpoint_intervals": "failures",
    "plot_recoveries": "failures",
    "plot_restarts": "failures",
    "plot_spacetime": "spacetime",
    "plot_placements": "placements",
    "plot_plan": "steps",
    "plot_memory": "memory",
    "plot_remedies": "stall",
    "plot_stall": "stall",
    "plot_backups": "race",
    "plot_bounds": "race",
    "plot_floors": "staleness",
    "plot_loss": "policies",
    "plot_loss_by_rate": "staleness",
    "plot_losses": "staleness",
    "plot_policies": "policies",
    "plot_overlap": "overlap",
    "plot_race": "race",
    "plot_staleness": "policies",
    "plot_throughput": "policies",
    "plot_batching": "layers",
    "plot_messages": "phases",
    "plot_phases": "phases",
    "plot_recipes": "phases",
    "plot_sent": "phases",
    "plot_bits": "convolving",
    "plot_ways": "convolving",
    "plot_first_steps": "optimizing",
    "plot_hyperbola": "optimizing",
    "plot_paths": "optimizing",
    "plot_rules": "optimizing",
    "plot_benchmarks": "benchmarks",
    "plot_layers": "layers",
    "plot_products": "layers",
    "confusion": "pictures",
    "images": "pictures",
    "table": ".tables",  # of the package above
    "readme_picture": "readme",
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
