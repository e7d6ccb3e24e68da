"""Figures of devices, against the numbers that they draw."""

import numpy as np
from distcourse import lab05
from distcourse.lab05 import faster_from


def test_where_another_device_begins_to_win():
    sizes = [1, 10, 1000]
    ax = lab05.plot_devices(sizes, {"cpu": [1, 10, 1000], "gpu": [20, 20, 30], "slow": [50, 500, 5000]}, xlabel="width")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["cpu", "gpu: faster from 1,000", "slow: not faster"]
    assert ax.get_title("left") == "Predicted: cpu fastest below 1,000 width"
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [1, 10, 1000])
    assert ax.get_xlabel() == "width"


def test_measured_points_belong_to_a_device():
    ax = lab05.plot_devices([1, 2], {"cpu": [1, 2], "gpu": [3, 3]}, measured={"cpu": ([1], [1.5])})
    assert "cpu, measured" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert ax.get_title("left") == "Predicted: cpu fastest at every size"


def test_a_device_that_wins_only_for_a_while_does_not_count():
    assert faster_from([1, 2, 4, 8], [5, 5, 5, 5], [4, 6, 4, 4]) == 4
    assert faster_from([1, 2], [1, 1], [0, 1]) is None
