"""Figures as files, with alternative text for screen readers."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..files import whole_file
from .look import settings

FORMATS = ("png", "svg", "pdf")


def figure_of(drawn):
    """Return the figure of an Axes, of several, or the figure itself."""
    first = drawn
    while isinstance(first, (tuple, list, np.ndarray)):
        if len(first) == 0:
            raise ValueError("expected a figure or axes, got an empty sequence")
        first = first[0]
    figure = first if hasattr(first, "savefig") else getattr(first, "figure", None)
    if figure is None:
        raise ValueError(f"expected a figure or axes, got a {type(drawn).__name__}")
    return figure


def describe(drawn: Any) -> str:
    """Describe a figure in words: titles, axes and curves.

    A draft of an alternative text: what the curves *do*, only its author can say.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> _ = ax.plot([1, 2], label="4 ranks"), ax.set(title="It falls", xlabel="step", ylabel="loss")
    >>> describe(ax)
    'It falls: loss against step (4 ranks).'
    """
    figure = figure_of(drawn)
    sentences = [figure.get_suptitle()] if figure.get_suptitle() else []
    for ax in figure.axes:
        title = (ax.get_title("left") or ax.get_title()).rstrip(".")
        what = " against ".join(filter(None, [ax.get_ylabel(), ax.get_xlabel()]))
        legend = ax.get_legend()
        named = [text.get_text() for text in legend.get_texts()] if legend else ax.get_legend_handles_labels()[1]
        sentence = ": ".join(filter(None, [title, what])) + (f" ({', '.join(named)})" if named else "")
        sentences += [sentence] if title or named else []
    return ". ".join(re.sub(r"\s+", " ", s).rstrip(".") for s in sentences) + "." if sentences else ""


def save(drawn: Any, path: str | Path, *, alt: str | None = None, dpi: float = 160, close: bool = False) -> Path:
    """Write a figure to a file, atomically; the format follows from the name: .png, .svg or .pdf."""
    # path: The file; its folder must exist.
    # alt: Alternative text, kept in the file (in an SVG as its title, which screen readers read); by default what
    # `describe` says.
    # dpi: Resolution of a PNG [pixels per inch].
    # close: Close the figure afterwards; else it stays in memory, and a notebook shows it, too.
    # ValueError: If the name ends in something else.
    # FileNotFoundError: If the folder does not exist.
    figure, path = figure_of(drawn), Path(os.fspath(path))
    kind = path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(f"save: {path.name!r}, expected a name that ends in {', '.join('.' + f for f in FORMATS)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save: there is no folder {str(path.parent)!r}")
    alt = describe(figure) if alt is None else alt
    maker = f"distlearn {__version__}"
    metadata = {
        "png": {"Description": alt, "Software": maker},
        "svg": {"Title": alt, "Creator": maker, "Date": None},  # no date: the same figure gives the same file
        "pdf": {"Title": alt, "Creator": maker, "CreationDate": None},
    }[kind]
    buffer = io.BytesIO()
    with settings({"svg.hashsalt": "distlearn"}):  # else the ids in an SVG are random
        figure.savefig(buffer, format=kind, dpi=dpi, bbox_inches="tight", metadata=metadata)
    with whole_file(path) as fresh:
        fresh.write_bytes(buffer.getvalue())
    if close:
        from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

        plt.close(figure)
    return path
