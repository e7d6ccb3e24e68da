"""Pictures of what a checked kernel did to memory."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel
from distlearn.viz import plot_accesses, plot_sectors

f32 = np.float32
REVERSE = """__global__ void reverse(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    BARRIER
    y[t] = s[31 - t];
}"""
STRIDED = """__global__ void strided(const float* x, float* y) {
    int t = threadIdx.x;
    y[t] = x[t];
    y[t] += x[t * 8];
}"""


def recorded(source, name, args, **kw):
    return RawKernel(source, name).check((2,), (32,), args, record=(1,), **kw)


def points(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return {(int(x), int(y)) for x, y in zip(*line.get_data(), strict=True)}


def test_a_missing_barrier_is_drawn():
    report = recorded(REVERSE.replace("BARRIER", ""), "reverse", (np.ones(32, f32), np.ones(64, f32)))
    ax = plot_accesses(report, "s")
    assert points(ax, "write") == {(t, t) for t in range(32)}
    assert points(ax, "read") == {(31 - t, t) for t in range(32)}
    assert points(ax, "clash") == points(ax, "read") | points(ax, "write")
    assert ax.get_title(loc="left") == "32 elements of s are touched by several threads before the first barrier"


def test_with_the_barrier_nothing_clashes():
    report = recorded(REVERSE.replace("BARRIER", "__syncthreads();"), "reverse", (np.ones(32, f32), np.ones(32, f32)))
    for interval, kind, other in ((0, "write", "read"), (1, "read", "write")):
        ax = plot_accesses(report, "s", interval)
        labels = [line.get_label() for line in ax.lines]
        assert kind in labels
        assert other not in labels
        assert "clash" not in labels
    assert "none another's element" in ax.get_title(loc="left")


def test_sectors_by_line():
    report = recorded(STRIDED, "strided", (np.ones(256, f32), np.ones(32, f32)))
    ax = plot_sectors(report, "x")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["line 3", "line 4"]
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert labels == ["line 3: 4 sectors an access", "line 4: 32 sectors an access", "moved, not requested"]
    pale = [p for p in ax.patches if p.get_alpha() == 0.3]
    assert len(pale) == 36
    assert ax.get_title(loc="left") == "Warp 0 moves 1,152 bytes of x for 256 that it requests"


def test_what_was_not_recorded():
    kernel, args = RawKernel(STRIDED, "strided"), (np.ones(256, f32), np.ones(32, f32))
    with pytest.raises(ValueError, match="record is 3: the grid"):
        kernel.check((2,), (32,), args, record=3)
    with pytest.raises(ValueError, match="nothing was recorded"):
        plot_sectors(kernel.check((1,), (32,), args), "x")
    report = kernel.check((1,), (32,), args, record=0)
    with pytest.raises(ValueError, match="no access to 'z' was recorded in interval 0, only to x, y"):
        plot_accesses(report, "z")
    with pytest.raises(ValueError, match="warp 1 made no recorded access to global 'x', only to x, y"):
        plot_sectors(report, "x", warp=1)
