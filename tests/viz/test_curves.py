import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import same_color

from distlearn import viz
from distlearn.train import Epoch, History


def history(losses, accuracies=None, steps=2):
    epochs = [
        Epoch(i + 1, 0.5 * (i + 1), 100 * (i + 1), loss, val=None if accuracies is None else accuracies[i])
        for i, loss in enumerate(losses)
    ]
    return History(epochs, list(np.repeat(losses, steps)))


def test_a_panel_for_the_loss_and_one_for_the_accuracies(histories):
    run = histories["2 ranks"]
    loss, accuracy = viz.plot_history(run, y=("train_accuracy", "loss", "val_accuracy"))
    assert [line.get_ydata().tolist() for line in loss.lines] == [run.column("loss").tolist()]
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [
        run.column("train_accuracy").tolist(),
        run.column("val_accuracy").tolist(),
    ]
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("training loss", "accuracy [%]")
    assert (loss.get_title("left"), accuracy.get_title("left")) == ("Training loss", "Accuracy")


@pytest.mark.parametrize(
    ("x", "label"),
    [("epoch", "epoch"), ("seconds", "training time [ms]"), ("samples", "samples trained on"), ("step", "step")],
)
def test_x(histories, x, label):
    run = histories["4 ranks"]
    ax = viz.plot_history(run, x=x, y="loss")
    wanted = np.arange(1, len(run.losses) + 1) if x == "step" else run.column(x)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), wanted)
    assert ax.get_xlabel() == label


def test_accuracy_stands_at_the_last_step_of_its_epoch(histories):
    run = histories["1 ranks"]
    ax = viz.plot_history(run, x="step", y="val_accuracy")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), len(run.losses) / 3 * np.arange(1, 4))


def test_curves_on_top_of_each_other_stay_visible(histories):
    for ax in viz.plot_history(histories):
        lines = ax.lines
        spread = max(np.ptp([line.get_ydata()[i] for line in lines]) for i in range(3))
        assert spread < 1e-12, "the runs of 1, 2 and 4 ranks should be the same"
        widths, greys = [line.get_linewidth() for line in lines], [viz.lightness(line.get_color()) for line in lines]
        assert all(np.diff(widths) <= -2), widths
        assert all(np.diff(greys) <= -10), greys
        assert [text.get_text() for text in ax.get_legend().get_texts()] == list(histories)


def test_curves_apart_have_one_width_and_a_look_each():
    loss, accuracy = viz.plot_history(
        {"a": history([3, 2, 1], [0.1, 0.2, 0.3]), "b": history([3, 1, 0.1], [0.1, 0.7, 0.9])}
    )
    for ax in (loss, accuracy):
        a, b = ax.lines
        assert a.get_linewidth() == b.get_linewidth()
        assert a.get_marker() != b.get_marker()
        assert a.get_linestyle() != b.get_linestyle()
    assert [same_color(p.get_color(), q.get_color()) for p, q in zip(loss.lines, accuracy.lines, strict=True)] == [
        True
    ] * 2


def test_names_stand_at_the_ends_where_there_is_room():
    apart = viz.plot_history({"a": history([3, 2, 1]), "b": history([3, 1, 0.1])}, y="loss")
    assert apart.get_legend() is None
    assert {t.get_text(): t.xy for t in apart.texts} == {"a": (3, 1), "b": (3, 0.1)}
    close = viz.plot_history({"a": history([3, 2, 1]), "b": history([3, 1, 1.01])}, y="loss")
    assert [t.get_text() for t in close.get_legend().get_texts()] == ["a", "b"]


def test_runs_of_other_lengths_and_results_instead_of_histories(worlds):
    ax = viz.plot_history({"real": worlds[1][1], "short": history([2.0])}, y="loss")
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 1]
    assert ax.lines[1].get_marker() not in ("", "None"), "a single point needs a marker"


def test_many_steps_have_no_markers():
    ax = viz.plot_history(history(np.linspace(3, 1, 50)), x="step", y="loss")
    assert ax.lines[0].get_marker() == ""


def test_seven_runs_and_more():
    ax = viz.plot_history({str(i): history([3 + i, 1 + i]) for i in range(9)}, y="loss")
    looks = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in ax.lines}
    assert len(looks) == len(ax.lines) == 9
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1, "names hide the curves"
    same = viz.plot_history({str(i): history([3, 1]) for i in range(9)}, y="loss")
    assert same.lines[-1].get_linewidth() < same.lines[0].get_linewidth() < 12


def test_only_runs_that_agree_in_every_panel_are_stacked():
    runs = {str(i): history([3, 2.5 - 0.2 * i], [0.1, 0.9]) for i in range(8)}  # accuracies are level, losses are not
    runs["7"] = runs["0"]
    loss, accuracy = viz.plot_history(runs)
    for ax in (loss, accuracy):
        widths = [line.get_linewidth() for line in ax.lines]
        assert widths[0] > widths[7]
        assert len(set(widths[1:7])) == 1
    assert loss.get_legend() is None, "the panels share one legend"
    assert [t.get_text() for t in accuracy.get_legend().get_texts()] == list(runs)


def test_a_single_epoch_stands_at_1():
    loss, accuracy = viz.plot_history(history([2.5], [0.4]))
    for ax in (loss, accuracy):
        assert {1.0} == {t for t in ax.get_xticks() if 0 < t < 2}


def test_epochs_without_accuracy_are_left_out():
    ax = viz.plot_history(history([3, 2, 1], [None, 0.5, 0.6]), y="val_accuracy")
    assert ax.lines[0].get_xdata().tolist() == [2, 3]


def test_given_axes_are_used_and_pyplot_is_left_alone(histories, ax):
    assert viz.plot_history(histories, y="loss", ax=ax, title="They agree") is ax
    assert ax.get_title("left") + ax.get_title() == "They agree"
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("histories", "options", "match"),
    [
        ({}, {}, "no histories"),
        (History(), {}, "no epochs"),
        ({"a": History()}, {}, "'a' has no epochs"),
        ([1.0, 2.0], {}, "list, expected a History"),
        (history([1.0]), {"x": "hours"}, "x is 'hours', expected one of epoch"),
        (history([1.0]), {"y": "los"}, "y is 'los', expected one of loss"),
        (history([1.0]), {"y": ()}, "y is empty"),
        (history([1.0]), {}, "val_accuracy was never evaluated"),
        ({"b": history([1.0])}, {}, "val_accuracy of the history 'b'"),
        (history([1.0], [0.5]), {"ax": 1}, "one ax for 2 panels"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_a_figure_is_made(histories, options, match):
    with pytest.raises(ValueError, match=match):
        viz.plot_history(histories, **options)
    assert plt.get_fignums() == []
