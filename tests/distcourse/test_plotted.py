"""The numbers of a figure as tables: curves, points and bars by name, in the units of their axes; no guides."""

import distcourse
import matplotlib.pyplot as plt
import numpy as np
import pytest
from distcourse import show
from distcourse.plotted import MOST, plotted_tables

from distlearn.viz.look import share_axis, time_axis


@pytest.fixture
def ax():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def cells(ax):
    """The only table of a figure: header and rows."""
    (table,) = plotted_tables(ax)
    return [table.header, *table.rows]


def test_curves_with_the_same_places_share_rows(ax):
    ax.plot([1, 2, 4], [10, 20, 40], label="ours")
    ax.plot([1, 2, 4], [9, 18.5, np.nan], label="theirs")
    ax.plot([1, 4], [1, 4], color="0.5")  # a guide
    ax.axhline(3, label="goal")
    ax.axvline(2)
    ax.set(xlabel="ranks", ylabel="images/s", title="Both scale")
    assert cells(ax) == [["ranks", "ours", "theirs"], ["1", "10", "9"], ["2", "20", "18.5"], ["4", "40", "–"]]
    assert plotted_tables(ax)[0].title == "Both scale; images/s"


def test_curves_of_other_places_and_points_are_listed_one_by_one(ax):
    ax.plot(range(100), range(100), label="long")
    ax.scatter([0.5, 7.5], [3, 4], label="measured")
    header, *rows = cells(ax)
    assert header == ["curve", "x", "value"]
    assert [row[0] for row in rows] == ["long"] * (MOST // 2) + ["measured"] * 2
    assert rows[0][1:] == ["0", "0"]
    assert rows[MOST // 2 - 1][1:] == ["99", "99"]
    assert rows[-1] == ["measured", "7.5", "4"]


def test_single_points_have_a_row_each(ax):
    for name, x, y in (("a", 1, 2), ("b", 3, 4)):
        ax.plot([x], [y], "o", label=name)
    assert cells(ax) == [["curve", "x", "value"], ["a", "1", "2"], ["b", "3", "4"]]


def test_bars_side_by_side_have_the_name_of_their_tick(ax):
    for k, name in enumerate(("weights", "saved")):
        ax.bar(np.arange(2) + 0.3 * k, [k + 1, k + 2], 0.3, label=name)
    ax.set_xticks(range(2), ["dense", "relu"])
    assert cells(ax) == [["bar", "weights", "saved"], ["dense", "1", "2"], ["relu", "2", "3"]]


def test_horizontal_bars(ax):
    ax.barh([0, 1], [2.5, 4], color=["r", "g"])
    ax.set_yticks([0, 1], ["fft", "direct"])
    ax.set_xlabel("ms")
    assert cells(ax) == [["bar", "ms"], ["fft", "2.5"], ["direct", "4"]]


def test_a_curve_over_names_instead_of_numbers(ax):
    ax.plot(["8 bit", "1 bit"], [97.5, 88], label="lost")
    assert cells(ax) == [["x", "value: lost"], ["8 bit", "97.5"], ["1 bit", "88"]]


def test_numbers_are_in_the_units_of_their_axes(ax):
    ax.plot([0.001, 0.002], [0.25, 0.5], label="run")
    time_axis(ax.xaxis, 0.002, "time")
    share_axis(ax.yaxis, "accuracy")
    assert cells(ax) == [["time [ms]", "accuracy [%]: run"], ["1", "25"], ["2", "50"]]


def test_a_long_curve_is_thinned_and_says_so(ax):
    ax.plot(range(410), np.sqrt(np.arange(410)))
    ax.set_ylabel("loss")
    (table,) = plotted_tables(ax)
    assert table.title == f"{MOST} of 410 rows"
    assert [table.rows[0][0], table.rows[-1][0], len(table.rows)] == ["0", "409", MOST]


def test_images_and_unnamed_curves_have_no_table(ax):
    ax.imshow(np.eye(3))
    ax.plot([0, 1], [0, 1])
    ax.plot([1, 0], [0, 1])
    assert plotted_tables(ax) == []


def test_a_lab_folds_the_table_below_its_figure(ax, monkeypatch):
    shown = []
    monkeypatch.setattr(show, "display", shown.append)
    ax.plot([1, 2], [3, 4], label="measured")
    distcourse.Lab("07").show(ax, alt="It rises.")
    (picture,) = shown
    assert str(picture) == "[figure: It rises.]"
    image, folded = picture._repr_html_().split("<details>")
    assert image.startswith("<img alt=")
    assert folded.startswith("<summary>The plotted numbers</summary><table>")
    assert ">4</td>" in folded
