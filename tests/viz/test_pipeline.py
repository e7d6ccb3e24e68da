"""Pictures of schedules show what the schedules are."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

import distlearn as dl
from distlearn import viz
from distlearn.data import Batch
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import PipeDream, Pipeline
from distlearn.parallel.pipeline.schedule import SCHEDULES, ideal_bubble, simulate
from distlearn.trace import Span, Trace


def boxes(ax, gid):
    """Boxes of one kind as rows of (left, right, row)."""
    (found,) = [c for c in ax.collections if c.get_gid() == gid and isinstance(c, PolyCollection)]
    corners = np.array([p.vertices[:4] for p in found.get_paths()])
    return np.column_stack([corners[:, 0, 0], corners[:, 2, 0], corners[:, :, 1].mean(axis=1)])


def numbers(ax, row):
    """What is written in a row, from left to right."""
    texts = [(t.get_position()[0], t.get_text()) for t in ax.texts if t.get_position()[1] == row]
    return " ".join(text for _, text in sorted(texts))


def trained(strategy, size=3, m=6, network=None, **options):
    """The trace of one step on simulated ranks."""

    def program(comm):
        model = MLP((16,) * 7, seed=1)
        made = strategy(
            comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1), n_microbatches=m, **options
        )
        made.step(Batch(np.ones((24, 16), "float32"), np.zeros(24, int), 24))

    world = dl.SimWorld(size, network, dl.Roofline(1e9))
    world.run(program)
    return world.trace


def test_boxes_stand_where_the_actions_are_and_hold_their_numbers():
    ax = viz.plot_schedule("1f1b", 2, 3)
    run = simulate("1f1b", 2, 3)
    for kind, name in (("F", "forward"), ("B", "backward")):
        want = sorted((s.start, s.end, s.rank) for s in run.trace if s.name.startswith(kind))
        np.testing.assert_allclose(sorted(map(tuple, boxes(ax, name))), want)
    assert numbers(ax, 0) == "0 1 0 2 1 2"
    assert numbers(ax, 1) == "0 0 1 1 2 2"
    assert boxes(ax, "bubble").tolist() == [[0, run.makespan, 0], [0, run.makespan, 1]]


def test_text_generator_and_simulated_are_the_same_picture():
    text = "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2"
    forms = [("1f1b", 2, 3), (text,), (SCHEDULES["1f1b"], 2, 3), (simulate(text),)]
    drawn = [boxes(viz.plot_schedule(*form), "backward").tolist() for form in forms]
    assert drawn.count(drawn[0]) == 4


def test_a_run_is_drawn_from_its_trace():
    trace = trained(Pipeline, network=dl.Network(1e-6, 1e9))
    ax = viz.plot_schedule(trace)
    spans = trace.select(lane="stage")
    assert len(boxes(ax, "forward")) == len(boxes(ax, "backward")) == len(spans) / 2 == 18
    assert len(boxes(ax, "update")) == 3
    first = min(s.start for s in spans)
    assert boxes(ax, "forward")[0].tolist() == pytest.approx([0, spans[0].end - first, 0])
    share = 1 - sum(s.seconds for s in spans) / (3 * (max(s.end for s in spans) - first))
    assert share > ideal_bubble(3, 6)  # unequal stages, messages that take time
    assert numbers(ax, 2) == "0 0 1 1 2 2 3 3 4 4 5 5"


def test_pipedream_updates_after_every_backward():
    ax = viz.plot_schedule(trained(PipeDream))
    updates, backward = boxes(ax, "update"), boxes(ax, "backward")
    assert len(updates) == len(backward) == 18
    assert sorted(updates[:, 1]) == pytest.approx(sorted(backward[:, 1]))  # at the end of it


def test_the_halves_of_backward_differ_without_colour_too():
    ax = viz.plot_schedule("zero_bubble", 3, 4)
    hatches = {c.get_gid(): c.get_hatch() for c in ax.collections}
    assert hatches.pop("gradient of the weights")
    assert set(hatches.values()) == {None}
    assert [bool(p.get_hatch()) for p in ax.get_legend().get_patches()] == [False, False, True, False]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("F0 B0 F1 B1\nF0 B0 F1",), "rank 1, stage 1: B1 missing"),
        ((Trace([Span(0, "compute", "F[0]", 0, 1)]),), "no action of a pipeline takes time"),
        ((Trace([Span(0, "stage", "F[0]", 1, 1)]),), "no action of a pipeline takes time"),
        ((simulate("gpipe", 2, 2), 2, 2), "has its ranks, micro-batches and times already"),
        (("gpipe",), "needs to know n_ranks"),
    ],
)
def test_what_cannot_be_drawn_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        viz.plot_schedule(*args)


def test_a_deadlock_is_drawn_as_far_as_it_goes():
    schedule = "F0 B0 F1 B1\nF0 F1 B0 B1\nF0 B0 F1 B1"
    ax = viz.plot_schedule(schedule)
    assert boxes(ax, "forward").tolist() == [[0, 1, 0], [1, 2, 1], [2, 3, 2]]
    assert boxes(ax, "backward").tolist() == [[3, 5, 2]]
    waiting = boxes(ax, "waiting")
    assert waiting[:, 0].tolist() == [2, 2, 5]  # from when ranks 0 and 1 both wait, and from the end of rank 2
    assert [t.get_text() for t in ax.texts if "?" in t.get_text()] == ["B0?", "F1?", "F1?"]
    assert ax.get_legend().get_texts()[-1].get_text() == "waits forever"
    assert waiting[:, 1].max() <= ax.get_xlim()[1] + 1e-9


def arrows(ax):
    """Ends (x, row) of the arrows that are drawn, tail first."""
    found = [a for a in ax.texts if a.get_gid() == "broken"]
    return [(tuple(map(float, a.xyann)), tuple(map(float, a.xy))) for a in found]


@pytest.mark.parametrize("schedule", ["F0 B0 F1 B1\nF0 F1 B0 B1", "F0 B0 F1 B1\nF0 F1 B0 B1\nF0 B0 F1 B1"])
def test_a_broken_arrow_is_drawn_from_what_is_waited_for_back_to_what_waits(schedule):
    ax = viz.plot_schedule(schedule)
    behind, waiting = boxes(ax, "behind"), boxes(ax, "waiting")
    assert behind[:, 2].tolist() == [0, 1]  # F1 of rank 0, B0 of rank 1
    assert len(arrows(ax)) == 2
    for (tail, row), (head, other) in arrows(ax):
        assert head < tail  # back in time
        assert round(row) != round(other)
        assert any(left <= tail <= right and abs(at - row) < 0.5 for left, right, at in behind)
        assert any(left <= head <= right and abs(at - other) < 0.5 for left, right, at in waiting)
    assert behind[:, 1].max() <= ax.get_xlim()[1] + 1e-9
    assert "must come before" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_a_rank_that_waits_for_itself_has_an_arrow_in_its_row():
    ((tail, head),) = arrows(viz.plot_schedule(["F0 B1 F1 B0"]))
    assert tail[0] > head[0]
    assert tail[1] == head[1] < 0


def test_a_deadlock_before_the_first_action_is_drawn_too():
    ax = viz.plot_schedule(["B0 F0"])
    assert boxes(ax, "waiting").shape == (1, 3)


def test_words_for_those_who_cannot_see_it(ax):
    assert viz.plot_schedule("gpipe", 2, 2, ax=ax, title="GPipe") is ax
    assert viz.describe(ax).startswith("GPipe: rank against time")
