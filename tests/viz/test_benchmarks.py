"""The chart beside the table of `distlearn bench`."""

from itertools import pairwise

import pytest
from matplotlib.colors import same_color

from distlearn import viz
from distlearn.viz.look import COLORS, VERMILION


def row(name, ratio, goal="", holds=None):
    return {"name": name, "unit": "ms", "ours": ratio, "peer": 1.0, "ratio": ratio, "goal": goal, "holds": holds}


ROWS = [
    row("all-reduce 1 MB", 1.1, "ratio <= 1.2", True),
    row("all-reduce 8 MB", 1.3, "ratio <= 1.1", False),
    row("ASP", 3.0, "ratio >= 2", True),
    row("start", None),
    row("step", 0.8),
]


def parts(ax, kind):
    return {line.get_gid(): line for line in ax.lines if (line.get_gid() or "").startswith(kind)}


def test_ratios_goals_and_what_was_missed():
    ax = viz.plot_benchmarks(ROWS, title="mine")
    ratios = parts(ax, "ratio")
    assert [line.get_xdata()[0] for line in ratios.values()] == [1.1, 1.3, 3.0, 0.8], "without a peer there is none"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all-reduce 1 MB", "all-reduce 8 MB", "ASP", "step"]
    assert [same_color(line.get_color(), VERMILION) for line in ratios.values()] == [False, True, False, False]
    assert same_color(ratios["ratio 0"].get_color(), COLORS[0])
    goals = {gid: line.get_xdata()[0] for gid, line in parts(ax, "goal").items()}
    assert goals == {"goal 0": 1.2, "goal 1": 1.1, "goal 2": 2.0}
    assert ax.get_title("left") == "mine"
    assert ax.yaxis_inverted(), "in the order of the table"
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("ratios", [(1.05, 1.2, 1.44), (0.97, 1.01), (0.4, 1.5, 30)])
def test_names_are_whole_and_ticks_several(ratios):
    name = "data-parallel step of 2 ranks, small CNN, fused, batch 1,024 (ratio: torch DDP's time / ours)"
    ax = viz.plot_benchmarks([row(f"{name} {i}", ratio) for i, ratio in enumerate(ratios)])
    assert [" ".join(label.get_text().split()) for label in ax.get_yticklabels()] == [
        f"{name} {i}" for i in range(len(ratios))
    ]
    low, high = ax.get_xlim()
    assert sum(low <= tick <= high for tick in ax.get_xticks()) >= 3
    ax.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert min(box.x0 for box in boxes) >= 0
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))
