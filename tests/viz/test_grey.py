"""Series that greyscale does not tell apart are found. `tests/conftest.py` looks for them in all figures of tests."""

from pathlib import Path

import numpy as np
import pytest
from grey import SAME_GREY, same_in_grey
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from distlearn import viz

GREEN, RED, DARK = "#008a00", "#ff0000", "#7a0000"
"""GREEN and RED have one lightness."""
CURVE = [1.0, 3.0, 2.0]


def found(draw, **kw):
    """What is reported of a drawing in one axes."""
    ax = Figure(**kw).subplots()
    draw(ax)
    return same_in_grey(ax)


def two_lines(first, second):
    def draw(ax):
        ax.plot(CURVE, **{"linestyle": "-", "color": RED, "label": "a"} | first)
        ax.plot(CURVE[::-1], **{"linestyle": "-", "color": GREEN, "label": "b"} | second)

    return found(draw)


def test_the_two_colours_are_one_grey():
    assert abs(viz.lightness(RED) - viz.lightness(GREEN)) < SAME_GREY < viz.lightness(RED) - viz.lightness(DARK)


def test_two_lines_of_one_lightness_are_named():
    assert two_lines({}, {}) == ["axes 1: a (lightness 53) and b (lightness 50) look the same in grey"]
    assert two_lines({"linestyle": (0, (3, 1))}, {"linestyle": (0, (3, 1))})
    assert two_lines({"marker": "o"}, {"marker": "o"})
    assert two_lines({}, {"color": RED}), "another name and the same look"
    assert two_lines({}, {"label": None}), "a line without a name is in another hue for a reason"


@pytest.mark.parametrize(
    "second",
    [
        {"color": DARK},
        {"linestyle": "--"},
        {"linestyle": (0, (3, 1))},
        {"marker": "o"},
        {"linewidth": 5},
        {"color": RED, "label": None},
        {"alpha": 0.3},
        {"visible": False},
    ],
)
def test_what_greyscale_keeps(second):
    assert two_lines({}, second) == []


def test_lines_over_names_are_compared_as_well():
    ax = Figure().subplots()
    for look in ("-o", "--s"):
        ax.plot(["8 bit", "1 bit"], [1, 2], look, color="0.3", label=look)
    assert same_in_grey(ax.figure) == []


def test_two_dash_patterns_and_a_filled_and_an_open_marker_differ():
    assert two_lines({"linestyle": (0, (3, 1))}, {"linestyle": (0, (1, 1))}) == []
    look = {"marker": "o", "linestyle": ""}
    assert two_lines(look, look)
    assert two_lines(look, look | {"markerfacecolor": "white"}) == []


def test_names_at_the_ends_of_lines_are_enough():
    def draw(ax, name_both=True):
        for color, curve, name in ((RED, CURVE, "a"), (GREEN, CURVE[::-1], "b")):
            ax.plot(curve, "-", color=color, label=name)
            if name_both or name == "a":
                ax.annotate(name, (2, curve[-1]), xytext=(5, 0), textcoords="offset points")

    assert found(draw) == []
    assert found(lambda ax: draw(ax, name_both=False))


@pytest.mark.parametrize(
    ("look", "others", "told"),
    [
        ({}, {}, True),
        ({}, {"hatch": "//"}, False),
        ({}, {"color": DARK}, False),
        ({"alpha": 0.5}, {"alpha": 0.5}, True),
    ],
)
def test_stacked_bars(look, others, told):
    def draw(ax):
        ax.bar(["x", "y"], [1, 2], color=RED, label="a", **look)
        ax.bar(["x", "y"], [1, 2], bottom=[1, 2], **{"color": GREEN, "label": "b"} | others)
        ax.legend()

    pairs = found(draw)
    assert any("legend" in pair for pair in pairs) == told
    assert bool(pairs) == told


def test_bars_are_named_by_their_ticks():
    assert found(lambda ax: ax.bar(["x", "y"], [1, 2], color=[RED, GREEN])) == []
    assert found(lambda ax: ax.barh([0, 1], [1, 2], color=[RED, GREEN])), "numbers are a scale"

    def side_by_side(ax, *places):
        ax.barh(places, [1, 2], 0.3, color=[RED, GREEN])
        ax.set_yticks([0, 1], ["x", "y"])

    assert found(lambda ax: side_by_side(ax, 0.2, 1.2)) == []
    assert found(lambda ax: side_by_side(ax, -0.2, 0.2)), "two bars of one tick"


def test_points_and_areas():
    def points(marker):
        return lambda ax: (ax.scatter([1], [1], color=RED), ax.scatter([2], [2], color=GREEN, marker=marker))

    assert found(points("o"))
    assert found(points("s")) == []
    assert found(lambda ax: (ax.stackplot([0, 1], [[1, 2], [2, 1]], colors=[RED, GREEN])))
    assert found(lambda ax: (ax.stackplot([0, 1], [[1, 2], [2, 1]], colors=[RED, DARK]))) == []


def test_bands_rules_and_error_bars_go_with_something_else():
    def draw(ax):
        for color, line in ((RED, "-"), (GREEN, "--")):
            ax.errorbar([0, 1], [1, 2], [0.1, 0.1], color=color, linestyle=line)
            ax.fill_between([0, 1], [0, 1], [2, 3], color=color, alpha=0.2)
            ax.axhline(2, color=color)

    assert found(draw) == []


def test_colour_maps():
    values = np.arange(9.0).reshape(3, 3)
    assert found(lambda ax: ax.imshow(values, cmap="cividis")) == []
    assert found(lambda ax: ax.imshow(values, cmap="RdBu")) == [
        "axes 1: the colour map RdBu has two values of one grey"
    ]
    assert found(lambda ax: ax.imshow(np.ones((3, 3, 3)))) == []
    assert found(lambda ax: ax.pcolormesh(values % 2, cmap=ListedColormap([RED, GREEN])))
    assert found(lambda ax: ax.pcolormesh(values % 2, cmap=ListedColormap([RED, DARK]))) == []
    assert found(lambda ax: ax.contour(values, colors="0.8")) == []


def test_the_legend_of_a_figure_counts_too():
    figure = Figure()
    figure.subplots().set_title("T")
    figure.legend(handles=[Patch(color=RED, label="a"), Patch(color=GREEN, label="b")])
    assert same_in_grey(figure) == [
        "the legend of the figure: a (lightness 53) and b (lightness 50) look the same in grey"
    ]


def test_some_test_draws_every_figure_of_the_library():
    """`tests/conftest.py` looks at what the tests draw; so they have to draw everything."""
    tests = "\n".join(path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    names = [name for name in viz.__all__ if name.startswith("plot_")]
    missing = [name for name in names if f"{name}(" not in tests]
    assert not missing
