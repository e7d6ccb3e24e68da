import numpy as np
import pytest
from matplotlib import pyplot as plt

from distlearn import viz


def line(ax, label):
    handles, labels = ax.get_legend_handles_labels()
    found = handles[labels.index(label)]
    return (found[0] if isinstance(found, tuple) else found).get_ydata()


def test_medians_and_bars_from_slowest_to_fastest():
    left, right = viz.plot_speedup([1, 2, 4], [[8, 9, 10], [4, 5, 6], 3.0], simulated=[4.0, 2.0, 1.25])
    np.testing.assert_allclose(line(left, "measured"), [1, 9 / 5, 3])
    np.testing.assert_allclose(line(right, "measured"), [1, 9 / 10, 3 / 4])
    np.testing.assert_allclose(line(left, "simulated"), [1, 2, 3.2])
    np.testing.assert_allclose(line(right, "simulated"), [1, 1, 0.8])
    np.testing.assert_allclose(line(left, "ideal"), [1, 2, 4])
    np.testing.assert_allclose(line(right, "ideal"), [1, 1, 1])
    for ax, unit in ((left, 1), (right, 2)):
        bars = ax.containers[0].lines[2][0].get_segments()
        np.testing.assert_allclose(bars[1][:, 1], [9 / 6 / unit, 9 / 4 / unit])


def test_single_runs_have_no_bars():
    left, _ = viz.plot_speedup([1, 2], [2.0, 1.1])
    assert left.containers[0].lines[2] == ()


def test_dicts_may_leave_sizes_out():
    left, _ = viz.plot_speedup([1, 2, 8], {1: 4.0, 2: 2.5}, simulated={1: 4.0, 8: 1.0})
    assert line(left, "measured").tolist() == [1, 1.6]
    assert line(left, "simulated").tolist() == [1, 4]


def test_axes_and_their_labels():
    left, right = viz.plot_speedup([1, 2, 4], [3.0, 2.0, 1.0])
    assert left.get_xlabel() == right.get_xlabel() == "ranks"
    assert left.get_ylabel() == "speed-up T(1) / T(p) [times]"
    assert right.get_ylabel() == "parallel efficiency [%]"
    left.figure.canvas.draw()
    assert [t.get_text() for t in left.get_xticklabels()] == ["1", "2", "4"]
    assert left.get_xscale() == "linear"
    far, _ = viz.plot_speedup([1, 32, 1024], simulated=[100.0, 4.0, 1.0])
    assert far.get_xscale() == far.get_yscale() == "log"


def test_super_linear_speedup_stays_inside():
    _, right = viz.plot_speedup([1, 2], [4.0, 1.0])
    assert right.get_ylim()[1] > 2


def test_labels_and_given_axes():
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 2)
    left, right = viz.plot_speedup([1, 2], [2.0, 1.0], axes=axes, labels={"measured": "4 engines"}, title="T")
    assert (left, right) == tuple(axes)
    assert left.get_legend_handles_labels()[1] == ["ideal", "4 engines"]
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("sizes", "measured", "options", "match"),
    [
        ([1, 2], None, {}, "neither measured nor simulated"),
        ([2, 4], [1.0, 2.0], {}, r"measured times without T\(1\)"),
        ([1, 2], [1.0], {}, "1 measured times for 2 sizes"),
        ([1, 2], {1: 1.0, 3: 1.0}, {}, r"sizes \[3\] that are not in"),
        ([1, 2], [1.0, 0.0], {}, "measured time of 2 ranks is 0.0"),
        ([1, 2], [1.0, []], {}, "time of 2 ranks is"),
        ([1, 2], [1.0, float("nan")], {}, "time of 2 ranks is nan"),
        ([2, 1], [1.0, 2.0], {}, "increasing ranks"),
        ([], [], {}, "increasing ranks"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_a_figure_is_made(sizes, measured, options, match):
    with pytest.raises(ValueError, match=match):
        viz.plot_speedup(sizes, measured, **options)
    assert plt.get_fignums() == []
