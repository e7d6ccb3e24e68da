"""What greyscale leaves of a figure: the series that a print without colours no longer tells apart.

Two series differ by lines or areas, line style, marker, hatch, width (a factor of 2), lightness (`SAME_GREY`), or a
name beside the bar or at the end of the curve.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.collections import Collection, FillBetweenPolyCollection, LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.container import ErrorbarContainer
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.quiver import Quiver
from matplotlib.text import Annotation

from distlearn.viz.files import figure_of
from distlearn.viz.look import lightness

SAME_GREY = 9.0  # Lightnesses closer than this count as the same: 9 steps of CIE L* are a WCAG contrast of 1.3 to 1.4.
CATEGORIES = 20  # A colour map of at most so many colours stands for categories; a longer one for a quantity.


class _Series(NamedTuple):
    """A look that occurs in an axes or a legend."""

    name: str
    form: tuple  # All of the look that is not a colour.
    colors: tuple  # Of its parts, as RGBA.
    beside: str = ""  # A text beside it in the figure: of its tick, in its bar, at the end of its curve.
    width: float = 1.0  # Of a line, in points.

    def looks_like(self, other: _Series) -> bool:
        """Whether greyscale does not tell the two apart."""
        same = self.form == other.form and not (self.beside and other.beside and self.beside != other.beside)
        same = same and max(self.width, other.width) < 2 * min(self.width, other.width)
        return same and all(
            abs(_grey(a) - _grey(b)) < SAME_GREY for a, b in zip(self.colors, other.colors, strict=True)
        )

    def means_another(self, other: _Series) -> bool:
        """Whether a reader is to tell the two apart: by name, or by hue. Shades of one hue may stand for a quantity."""
        hue = [to_hex(c) for c in self.colors] != [to_hex(c) for c in other.colors]
        return hue or bool(self.name and other.name and self.name != other.name)

    def __str__(self):
        return f"{self.name or 'a series without a name'} (lightness {_grey(self.colors[0]):.0f})"


def same_in_grey(drawn) -> list[str]:
    """Return the pairs of series that are meant to differ and look the same in greyscale, each in a sentence.

    References
    ----------
    W3C, Web Content Accessibility Guidelines 2.2: relative luminance; success criterion 1.4.1, use of colour.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> _ = ax.plot([1, 2], "-", color="#ff0000", label="a"), ax.plot([2, 1], "-", color="#008a00", label="b")
    >>> same_in_grey(ax)
    ['axes 1: a (lightness 53) and b (lightness 50) look the same in grey']
    >>> ax.lines[1].set_linestyle("--")
    >>> same_in_grey(ax)
    []
    """
    figure = figure_of(drawn)
    found = []
    for i, ax in enumerate(figure.axes, 1):
        where = f"axes {i}" + f" {ax.get_title('left') or ax.get_title()!r}" * bool(
            ax.get_title("left") or ax.get_title()
        )
        found += _pairs(where, _of_axes(ax)) + _maps(where, ax)
        found += _pairs(f"the legend of {where}", _of_legend(ax.get_legend()))
    for legend in figure.legends:
        found += _pairs("the legend of the figure", _of_legend(legend))
    return found


def _pairs(where: str, series: list[_Series]) -> list[str]:
    pairs = ((a, b) for a, b in combinations(dict.fromkeys(series), 2) if a.means_another(b) and a.looks_like(b))
    return list(dict.fromkeys(f"{where}: {a} and {b} look the same in grey" for a, b in pairs))


def _grey(rgba) -> float:
    return lightness(1 - rgba[3] * (1 - np.array(rgba[:3])))


def _of_legend(legend) -> list[_Series]:
    if legend is None:
        return []
    entries = zip(legend.legend_handles, legend.get_texts(), strict=True)
    return [s for handle, text in entries for s in _looks(handle, text.get_text())[:1]]


def _of_axes(ax) -> list[_Series]:
    containers = {id(part): c.get_label() for c in ax.containers for part in c if isinstance(part, mpl.artist.Artist)}
    bars = {id(part) for c in ax.containers if isinstance(c, ErrorbarContainer) for group in c[1:] for part in group}
    arrows = [t.arrow_patch for t in ax.texts if getattr(t, "arrow_patch", None) is not None]
    found = []
    for artist in (*ax.lines, *ax.patches, *ax.collections, *arrows):
        moved = artist.get_data_transform() if isinstance(artist, mpl.patches.Patch) else artist.get_transform()
        guide = moved != ax.transData and isinstance(artist, Line2D | mpl.patches.Rectangle)
        band = isinstance(artist, FillBetweenPolyCollection) and (artist.get_alpha() or 1) < 0.5
        if artist.get_visible() and not (guide or band or id(artist) in bars):
            name = str(containers.get(id(artist), artist.get_label()))
            found += _looks(artist, "" if name.startswith("_") else name, _text_beside(artist, ax))
    return found


def _looks(artist, name: str, beside: str = "") -> list[_Series]:
    if isinstance(artist, Line2D):
        return _line(artist, name, beside)
    if isinstance(artist, LineCollection):
        dashes = [(pattern and tuple(pattern)) for _, pattern in artist.get_linestyle()]
        return [
            _Series(name, ("line", dashes[0], None), (tuple(c),), beside) for c in np.unique(artist.get_color(), axis=0)
        ]
    if isinstance(artist, Collection):
        if artist.get_array() is not None:
            return []  # `_maps` looks at these
        shape = artist.get_paths()[0].vertices.round(3).tobytes() if isinstance(artist, PathCollection) else None
        kind = "arrow" if isinstance(artist, Quiver) else "marker" if shape else "area"
        colors = np.unique(np.atleast_2d(artist.get_facecolor()), axis=0)
        edges = np.atleast_2d(artist.get_edgecolor()) if np.any(artist.get_linewidth()) else ()
        forms = [(kind, shape, artist.get_hatch() or None, _outlined(c, edges)) for c in colors]
        return [_Series(name, form, (tuple(c),), beside) for form, c in zip(forms, colors, strict=True) if c[3]]
    if isinstance(artist, mpl.patches.Patch):
        face, edge = artist.get_facecolor(), artist.get_edgecolor()
        if not (artist.get_fill() and face[3]):
            return [_Series(name, ("outline", artist.get_hatch() or None), (edge,), beside, artist.get_linewidth())]
        form = ("area", None, artist.get_hatch() or None, _outlined(face, [edge] if artist.get_linewidth() else []))
        return [_Series(name, form, (face,), beside)]
    return []  # a container's legend entry, a text


def _outlined(face, edges) -> bool:
    """Whether an area has an edge that is clearly darker than itself; a light gap between neighbours does not count."""
    return any(_grey(edge) < _grey(face) - 2 * SAME_GREY for edge in edges)


def _line(line, name: str, beside: str) -> list[_Series]:
    drawn = line.get_linestyle() not in ("None", "", " ") and line.get_linewidth() > 0
    marker = None if line.get_marker() in ("None", "", " ", None) else str(line.get_marker())
    dashes = str(line._unscaled_dash_pattern[1]) if drawn else None  # get_linestyle calls all patterns "--"
    colors = [line.get_color()] * drawn + [line.get_markerfacecolor()] * (marker is not None)
    colors = tuple(to_rgba(c, line.get_alpha()) if str(c) != "none" else (1, 1, 1, 1) for c in colors)
    return (
        [_Series(name, ("line", dashes, marker), colors, beside, line.get_linewidth() or 1)]
        if colors and len(line.get_xdata())
        else []
    )


def _text_beside(artist, ax) -> str:
    if isinstance(artist, Line2D):
        points = set(map(tuple, artist.get_xydata()))
        return next((t.get_text() for t in ax.texts if isinstance(t, Annotation) and _place(t) in points), "")
    if not isinstance(artist, mpl.patches.Patch):
        return ""
    box = artist.get_extents().transformed(ax.transData.inverted())
    inside = [t.get_text() for t in ax.texts if box.contains(*t.get_position())]
    return " ".join([*inside, *_ticks(ax.xaxis, box.x0, box.x1), *_ticks(ax.yaxis, box.y0, box.y1)])


def _place(text) -> tuple:
    try:
        return tuple(map(float, text.xy))
    except (TypeError, ValueError):  # at an artist, or on an axis of units
        return ()


def _ticks(axis, low: float, high: float) -> list[str]:
    """Words at the ticks of an axis between two values, or next to them: bars side by side share a tick.

    Numbers are a scale, not a name.
    """
    low, high = min(low, high), max(low, high)
    labels = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=False)
    words = [(place, label.get_text()) for place, label in labels if label.get_text()[:1].isalpha()]
    inside = [word for place, word in words if low <= place <= high]
    return inside or [word for place, word in words if low - 0.25 <= place <= high + 0.25]


def _maps(where: str, ax) -> list[str]:
    """Colour maps of an axes in which two categories, or two values of a quantity, are one grey."""
    told = []
    for artist in (*ax.images, *ax.collections):
        if artist.get_array() is None or (isinstance(artist, AxesImage) and artist.get_array().ndim > 2):
            continue
        cmap = artist.get_cmap()
        if cmap.N <= CATEGORIES:
            used = np.unique(artist.norm(np.ma.compressed(artist.get_array())))
            told += _pairs(where, [_Series("", ("area",), (cmap(float(v)),)) for v in used])
        elif np.unique(np.sign(np.diff([_grey(c) for c in cmap(np.linspace(0, 1, 33))]))).size > 1:
            told.append(f"{where}: the colour map {cmap.name} has two values of one grey")
    return told
