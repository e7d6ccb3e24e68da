"""The figure of ZeRO's memory, against the numbers that it draws."""

import numpy as np

from distlearn import nn, optim, viz
from distlearn.parallel import ZeROMemory

# Rajbhandari et al. (2020), figure 1: 7.5 billion parameters, 64 ranks, Adam in mixed precision
PARTS = [[bytes_each * 7.5e9 / (64 if stage >= first else 1) for bytes_each, first in ((2, 3), (2, 2), (12, 1))]
         for stage in range(4)]  # fmt: skip
STAGES = {f"stage {s}" if s else "data parallel": ZeROMemory(*PARTS[s], peak=sum(PARTS[s])) for s in range(4)}


def test_bars_add_up():
    ax = viz.plot_memory(STAGES)
    widths = np.array([[bar.get_width() for bar in group] for group in ax.containers])
    np.testing.assert_allclose(widths.sum(axis=0), [m.total / 1e9 for m in STAGES.values()])
    assert [group.get_label() for group in ax.containers] == ["parameters", "gradients", "optimizer's state"]
    assert ax.get_xlabel() == "memory of one rank [GB]"
    assert [t.get_text() for t in ax.get_yticklabels()] == list(STAGES)
    assert [t.get_text() for t in ax.texts] == ["120", "31.4", "16.6", "1.88"]


def test_peaks_are_marked_where_they_were_measured():
    ax = viz.plot_memory({"a": ZeROMemory(1e6, 1e6, 2e6, peak=6e6), "b": ZeROMemory(1e3, 0, 0, peak=1e3)}, title="what")
    (lines,) = ax.collections
    np.testing.assert_allclose([segment[0][0] for segment in lines.get_segments()], [6.0])
    assert ax.get_title("left") == "what"


def test_reports_with_activations_and_without_a_peak():
    x = np.zeros((8, 6), "float32")
    reports = {}
    for rule in (optim.SGD(), optim.Adam()):
        model = nn.MLP((6, 5, 3))
        optimizer = optim.Optimizer(model.params, rule, lr=0.1)
        reports[type(rule).__name__] = nn.memory_report(model, x, optimizer)
    ax = viz.plot_memory(reports)
    widths = np.array([[bar.get_width() for bar in group] for group in ax.containers])
    np.testing.assert_allclose(widths.sum(axis=0), [m.total / 1e3 for m in reports.values()])
    assert ax.containers[-1].get_label() == "activations"
    assert not ax.collections


def test_it_draws_where_it_is_told_to(ax):
    assert viz.plot_memory(STAGES, ax=ax) is ax
