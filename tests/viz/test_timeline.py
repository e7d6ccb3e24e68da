import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

import distlearn as dl
from distlearn import viz
from distlearn.trace import Span, Trace
from distlearn.viz.timeline import select


def boxes(ax, gid):
    """Boxes of one kind, as rows of (left, right, top, bottom)."""
    found = [c for c in ax.collections if c.get_gid() == gid and isinstance(c, PolyCollection)]
    assert len(found) == 1, f"{len(found)} collections {gid!r}"
    corners = np.array([p.vertices[:4] for p in found[0].get_paths()]).reshape(-1, 4, 2)
    return np.column_stack([corners[:, 0, 0], corners[:, 2, 0], corners[:, 0, 1], corners[:, 1, 1]])


def seconds(ax, gid, row):
    """Time in the boxes of one kind on one row."""
    drawn = boxes(ax, gid)
    mine = drawn[(drawn[:, 2] > row - 0.5) & (drawn[:, 3] < row + 0.5)]
    return float((mine[:, 1] - mine[:, 0]).sum())


def colours(ax):
    """Legend entry to colour."""
    legend = ax.get_legend()
    entries = zip(legend.get_texts(), legend.legend_handles, strict=True)
    return {text.get_text(): handle.get_facecolor() for text, handle in entries if isinstance(handle, Patch)}


def test_what_is_drawn_is_the_trace(trace):
    ax = viz.plot_timeline(trace)
    for rank in range(4):
        assert seconds(ax, "compute", rank) == pytest.approx(trace.total(rank=rank, lane="compute"))
        assert seconds(ax, "comm, exposed", rank) == pytest.approx(trace.exposed(rank))
        hidden = trace.total(rank=rank, lane="comm") - trace.exposed(rank)
        assert seconds(ax, "comm, hidden", rank) == pytest.approx(hidden)
        assert hidden > 0
    assert seconds(ax, "idle", 0) == pytest.approx(trace.makespan - min(s.start for s in trace))


def test_exposed_communication_fills_the_row_and_hidden_is_a_strip_at_its_foot(trace):
    ax = viz.plot_timeline(trace)
    computing, exposed, hidden = (boxes(ax, gid)[0] for gid in ("compute", "comm, exposed", "comm, hidden"))
    height = computing[3] - computing[2]
    assert exposed[3] - exposed[2] == pytest.approx(height)
    assert hidden[3] - hidden[2] < 0.4 * height
    assert hidden[3] % 1 == pytest.approx(computing[3] % 1)


def test_a_window_cuts_spans_off(trace):
    low, high = 0.3 * trace.makespan, 0.6 * trace.makespan
    ax = viz.plot_timeline(trace, start=low, end=high)
    assert ax.get_xlim() == (low, high)
    drawn = boxes(ax, "compute")
    assert drawn[:, 0].min() >= low
    assert drawn[:, 1].max() <= high
    wanted = sum(max(0, min(s.end, high) - max(s.start, low)) for s in trace.select(rank=2, lane="compute"))
    assert seconds(ax, "compute", 2) == pytest.approx(wanted)


@pytest.mark.parametrize(("scale", "unit"), [(3.0, "s"), (3e-3, "ms"), (3e-6, "µs"), (3e-9, "ns")])
def test_the_time_axis_has_a_unit_that_fits(scale, unit):
    ax = viz.plot_timeline(Trace([Span(0, "compute", "forward", 0, scale)]))
    assert ax.get_xlabel() == f"time [{unit}]"
    ax.figure.canvas.draw()
    labels = [t.get_text() for t in ax.get_xticklabels() if t.get_text()]
    assert labels[0] == "0"
    assert {"1", "2", "3"} <= set(labels)
    assert ax.get_xlim()[1] == scale, "the axis itself holds seconds"


def test_a_hundred_thousand_spans_are_a_few_artists():
    spans = [Span(r, "compute", f"forward[{i}]", i, i + 0.5) for r in range(50) for i in range(2000)]
    ax = viz.plot_timeline(Trace(spans))
    assert len(ax.collections) <= 4
    assert len(boxes(ax, "compute")) == 100_000


def test_an_outer_span_lies_below_the_inner_ones():
    spans = [Span(0, "compute", "inner", 1, 2), Span(0, "compute", "outer", 1, 5)]  # the inner one ends first
    lengths = np.diff(boxes(viz.plot_timeline(Trace(spans)), "compute")[:, :2]).ravel()
    assert lengths.tolist() == [4, 1]


def test_other_lanes_lie_below_computing_and_communication():
    spans = [Span(0, lane, lane, 0, 1) for lane in ("input", "comm", "compute")]
    ax = viz.plot_timeline(Trace(spans))
    compute, extra = boxes(ax, "compute")[0], boxes(ax, "input")[0]
    assert extra[2] == pytest.approx(compute[3])
    assert extra[3] < 0.5


def test_given_axes_are_used_and_pyplot_is_left_alone(trace, ax):
    assert viz.plot_timeline(trace, ax=ax, title="", legend=False) is ax
    assert plt.get_fignums() == []
    assert ax.get_legend() is None
    assert ax.get_title() + ax.get_title("left") == ""


@pytest.mark.parametrize(
    ("spans", "options", "match"),
    [
        ([], {}, "the trace is empty"),
        ([Span(0, "compute", "forward", 1, 1)], {}, "no time passes in .* plot_spacetime"),
        ([Span(0, "compute", "forward", 0, 1)], {"start": 2.0, "end": 1.0}, "start is 2.0 and end 1.0"),
        ([Span(0, "compute", "forward", 0, 1)], {"start": 2.0, "end": 3.0}, "nothing happens .* runs from 0 s to 1 s"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_a_figure_is_made(spans, options, match):
    with pytest.raises(ValueError, match=match):
        viz.plot_timeline(Trace(spans), **options)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("reduce", [lambda comm, x: comm.all_reduce(x), dl.comm.collectives.ring_all_reduce])
def test_waiting_for_another_rank_has_a_look_of_its_own(reduce):
    def program(comm):
        with comm.clock.span("forward", flops=1e6 * (1 + 2 * comm.rank)):
            pass
        reduce(comm, np.zeros(1000))

    world = dl.SimWorld(2, dl.Network(alpha=1e-6, beta=1e9), dl.Roofline(1e9))
    world.run(program)
    row, start, end = select(world.trace).waiting(world.trace)
    assert row.tolist() == [0], "rank 1 comes last and waits for none"
    assert (start[0], end[0]) == pytest.approx((1e-3, 3e-3), rel=1e-2)
    ax = viz.plot_timeline(world.trace)
    assert "waiting" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_waiting_of_real_ranks_is_known_from_when_each_entered():
    spans = [
        Span(0, "comm", "all_reduce", 1, 5),
        Span(1, "compute", "forward", 0, 4),
        Span(1, "comm", "all_reduce", 4, 5),
    ]
    row, start, end = select(Trace(spans)).waiting(Trace(spans))
    assert (row.tolist(), start.tolist(), end.tolist()) == ([0], [1], [4])
    ax = viz.plot_timeline(Trace(spans))
    assert "waiting" in [text.get_text() for text in ax.get_legend().get_texts()]
    hidden = [Span(0, "compute", "backward", 0, 3), *spans]
    assert select(Trace(hidden)).waiting(Trace(hidden))[1].tolist() == [3], "exposed only"


@pytest.mark.parametrize(
    "spans",
    [
        [Span(0, "comm", "broadcast", 1, 5), Span(1, "comm", "broadcast", 4, 5)],
        [Span(0, "comm", "all_reduce", 1, 2), Span(1, "comm", "all_reduce", 4, 5)],
        [Span(0, "comm", "all_reduce", 1, 5), Span(1, "comm", "all_reduce", 4, 5), Span(1, "comm", "all_reduce", 6, 7)],
        [Span(0, "comm", "all_reduce", 1, 5), Span(1, "comm", "all_reduce", 4, 5), Span(2, "compute", "f", 1, 7)],
    ],
    ids=["one way", "two groups", "not all calls", "not all ranks"],
)
def test_no_waiting_is_claimed_where_it_is_not_known(spans):
    assert Trace(spans).waits() == []


def test_the_labels_of_a_window_count_from_its_start():
    world = dl.SimWorld(2, dl.Network(alpha=1e-6, beta=1e9), dl.Roofline(1e9))

    def program(comm):
        for _ in range(4):
            with comm.clock.span("forward", flops=1e6):
                pass

    world.run(program)
    ax = viz.plot_timeline(world.trace, start=2.3e-3, end=3.3e-3)
    ticks = [t for t in ax.get_xticks() if 2.3e-3 - 1e-9 <= t <= 3.3e-3 + 1e-9]
    assert ticks[0] == pytest.approx(2.3e-3)
    assert ax.xaxis.get_major_formatter()(ticks[0], 0) == "0"
