import numpy as np
import pytest

from distlearn import viz
from distlearn.comm import Network
from distlearn.parallel import study_intervals
from distlearn.sim import Failure, Roofline, SimWorld
from distlearn.train import Settings, train
from distlearn.viz.look import AMBER, NAVY, VERMILION
from distlearn.world.elastic import ElasticRun, Restart

SETTINGS = Settings(hidden=(16,), epochs=1, n_train=300, evaluate_every=0, strategy="elastic")


@pytest.fixture(scope="module")
def world():
    parts = Network(2e-5, 1e9), Roofline(5e9)
    sound = SimWorld(4, *parts)
    sound.run(train, SETTINGS)
    end = sound.makespan
    failing = SimWorld(4, *parts, failures=[Failure(2, end / 3), Failure(0, end * 2, "cut")], detection=end / 20)
    failing.run(train, SETTINGS)
    return failing


def bars(ax, color):
    from matplotlib.colors import to_rgba

    return [p for p in ax.patches if p.get_facecolor() == to_rgba(color)]


def test_a_loss_shows_from_failure_to_notice_in_its_own_row(world):
    ax = viz.plot_recoveries(world.trace)
    loss = min(world.losses, key=lambda loss: loss.rank != 2)
    red = next(p for p in bars(ax, VERMILION) if round(p.get_y() + p.get_height() / 2) == 2)
    assert red.get_x() == pytest.approx(loss.at)
    assert red.get_width() == pytest.approx(loss.noticed - loss.at)
    rows = {round(p.get_y() + p.get_height() / 2) for p in bars(ax, AMBER)}
    assert {1, 3} <= rows
    assert 2 not in rows
    assert all(p.get_x() + p.get_width() <= loss.at + 1e-12 for p in bars(ax, NAVY) if round(p.get_y() + 0.35) == 2)
    assert "  killed" in [t.get_text() for t in ax.texts]


def test_a_run_without_failures():
    world = SimWorld(2, Network(1e-5, 1e9), Roofline(1e9))
    world.run(train, SETTINGS.but(strategy="data"))
    assert not bars(viz.plot_recoveries(world.trace), VERMILION)


def test_restarts_break_the_line_and_are_counted():
    restarts = [
        Restart(1, "killed", 4, noticed=2.0, resumed=3.0, reached=20, step=15, seconds_lost=1.5),
        Restart(0, "killed", 4, noticed=5.0, resumed=6.5, reached=40, step=38, seconds_lost=2.0),
    ]
    progress = [(0.1, 1), (1.9, 20), (3.0, 16), (4.9, 40), (6.5, 39), (8.0, 60)]
    ax = viz.plot_restarts(ElasticRun([], restarts, progress, 8.0))
    lines = [line for line in ax.get_lines() if line.get_color() == NAVY]
    assert [line.get_xydata().tolist() for line in lines] == [
        [[0.1, 1], [1.9, 20]],
        [[3.0, 16], [4.9, 40]],
        [[6.5, 39], [8.0, 60]],
    ]
    failed = [line.get_xydata().tolist() for line in ax.get_lines() if line.get_marker() == "X"]
    assert failed == [[[2.0, 20]], [[5.0, 40]]]


def test_intervals_show_formula_simulation_and_both_optima():
    study = study_intervals(86400.0, 60.0, 120.0, 40_000.0, runs=20, span=8, points=9)
    ax = viz.plot_checkpoint_intervals(study)
    (points,) = ax.containers
    np.testing.assert_allclose(points[0].get_xdata(), study.intervals)
    np.testing.assert_allclose(points[0].get_ydata(), study.seconds.mean(axis=1) / study.work)
    upright = [line.get_xdata()[0] for line in ax.get_lines() if len(set(line.get_xdata())) == 1]
    assert upright == [study.young, study.daly]
