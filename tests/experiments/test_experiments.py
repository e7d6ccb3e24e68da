"""The experiments on asynchrony, small: they find what is known, and their figures show it."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from distlearn import viz
from distlearn.comm import Network
from distlearn.experiments import (
    SCENARIOS,
    calibrate,
    compare_policies,
    digits_task,
    lr_limits,
    mnist_task,
    real_beside_simulated,
    recovered,
    run_policy,
    scenario_speeds,
    theory,
    throughputs,
    time_to_loss,
)
from distlearn.experiments.__main__ import EXPERIMENTS, main
from distlearn.experiments.asynchrony.limits import _bisect
from distlearn.parallel.asynchronous.param_server import Speeds, asp, backup, bsp, inverse, simulate, ssp
from distlearn.sim import SimWorld
from distlearn.trace import Trace

TASK = digits_task(hidden=(12,), batch=8, lr=0.05)
SOME = (bsp(), backup(0.75), ssp(0), ssp(4), asp())


@pytest.fixture(scope="module")
def runs():
    seen = []
    found = compare_policies(
        TASK, workers=4, seeds=2, steps=30, policies=SOME, report=lambda done, total, **_: seen.append((done, total))
    )
    assert seen == [(i, 10) for i in range(1, 11)]
    return found


def test_policies_differ_in_waiting_and_staleness_alone(runs):
    assert list(runs) == ["BSP", "backup(0.75)", "SSP(0)", "SSP(4)", "ASP"]
    for several in runs.values():
        assert len(several) == 2
        assert {len(run.gradients) for run in several} == {120}
        assert several[0].params["0.W"].tobytes() != several[1].params["0.W"].tobytes()
    for seed in range(2):
        bulk, lockstep, free = (runs[name][seed] for name in ("BSP", "SSP(0)", "ASP"))
        # k times the rate for the mean of k gradients: SSP(0) adds up the very same steps
        assert np.abs(bulk.params["0.W"] - lockstep.params["0.W"]).max() < 1e-5
        assert free.seconds < 0.5 * bulk.seconds  # one of four workers takes four times as long
        assert free.throughput > 2 * runs["SSP(4)"][seed].throughput > 2 * lockstep.throughput > 2 * bulk.throughput
        assert free.curve["loss"][-1] < 0.85 * free.curve["loss"][0]


def test_the_same_again():
    a, b = (run_policy(TASK, ssp(1), scenario_speeds("heavy tail", 5, 3), steps=6, seed=3) for _ in range(2))
    assert a.gradients.tobytes() == b.gradients.tobytes()
    assert a.curve.tobytes() == b.curve.tobytes()


def test_figure_of_policies(runs):
    axes = viz.plot_policies(runs)
    updates, time, stale, speed = axes
    assert "ASP gets there" in updates.figure.get_suptitle()
    assert [line.get_label() for line in time.lines] == list(runs)
    assert [label.get_text() for label in stale.get_yticklabels()] == list(runs)[::-1]
    drawn = [patch.get_width() for patch in speed.patches]
    assert drawn == pytest.approx([np.median([r.samples_per_second for r in runs[name]]) for name in runs])
    told = [float(text.get_text().partition(" ")[0].replace(",", "")) for text in speed.texts]
    assert told == pytest.approx(drawn, rel=0.05), "the label says what the bar shows"
    assert time.lines[0].get_xdata()[-1] == pytest.approx(min(run.curve["time"][-1] for run in runs["BSP"]))
    samples = viz.plot_loss(runs, x="samples")
    assert samples.lines[4].get_xdata()[-1] == pytest.approx(960, abs=40)
    events = {str(p): [simulate(p, Speeds(4), 20)] for p in SOME}
    assert "mean 2.93" in " ".join(t.get_text() for t in viz.plot_staleness(events).texts)
    with pytest.raises(ValueError, match="x is 'epochs'"):
        viz.plot_loss(runs, x="epochs")


def test_throughput_is_what_queueing_says():
    found = throughputs(workers=(1, 4, 16), steps=40, seeds=2, policies=(bsp(), ssp(4), asp()))
    even, straggler, tail = (np.median(found.gradients[i], axis=-1) for i in range(3))
    assert even[2] == pytest.approx([1, 4, 16], rel=0.05)  # ASP: every worker all the time
    assert straggler[0, 1:] == pytest.approx([1, 4], rel=0.1)  # BSP: all at the straggler's speed
    assert straggler[2, 1:] == pytest.approx([3.25, 15.25], rel=0.1)
    for rates in (even, straggler, tail):
        assert (rates[0] <= 1.001 * rates[1]).all()
        assert (rates[1] <= 1.001 * rates[2]).all()
    assert found.staleness[0, 2, 2].mean() == pytest.approx(15, rel=0.05)
    axes = viz.plot_throughputs(found)
    assert [ax.get_title(loc="left") for ax in axes] == [name.capitalize() for name in SCENARIOS]
    assert len(axes[0].lines) == 3
    assert axes[1].lines[2].get_ydata() == pytest.approx(straggler[2] / [1, 4, 16])
    found.workers[-1], found.gradients[-1, 0] = 10_000, found.gradients[-1, 2] / 512
    assert "510 (heavy tail) times" in viz.plot_throughputs(found)[0].figure.get_suptitle()
    assert axes[0].figure.get_suptitle().startswith("16 workers: under ASP")


def test_time_to_loss():
    found = time_to_loss(TASK, loss=1.9, workers=(1, 4), policies=(bsp(), asp()), gradients=120, seeds=2)
    assert np.isfinite(found.seconds["ASP"]).all()
    assert (found.seconds["ASP"][1] < found.seconds["BSP"][1]).all()
    assert (found.samples["BSP"] % 8 == 0).all()
    _left, right = viz.plot_time_to_loss(found)
    assert [line.get_label() for line in right.lines] == ["BSP", "ASP"]
    assert right.get_xlabel() == "workers"
    never = time_to_loss(TASK, loss=1e-9, workers=(2,), policies=(asp(),), gradients=8, seeds=1)
    assert np.isnan(never.seconds["ASP"]).all()
    assert "a line ends where" in viz.plot_time_to_loss(never)[0].get_xlabel()


def test_more_workers_bear_less_and_staleness_aware_rates_recover():
    limits = lr_limits(TASK.but(hidden=()), workers=(1, 4, 16), seeds=1, gradients=400, low=0.05, high=12.8, factor=2.1)
    plain, aware = (np.median(limits.lr[name], axis=1) for name in ("lr", "lr / staleness"))
    assert plain[0] == aware[0]
    assert plain[0] > plain[1] > plain[2]
    assert aware[2] > 3 * plain[2]
    assert limits.slope("lr") < -0.4
    ax = viz.plot_lr_limits(limits)
    assert "falls like" in ax.get_title(loc="left")
    curve = {line.get_label(): line for line in ax.lines}["theory: a quadratic, staleness n - 1"]
    assert curve.get_ydata()[-1] / curve.get_ydata()[0] == pytest.approx(float(theory(15)), rel=1e-9)
    with pytest.raises(ValueError, match="expected two numbers of 4 or more"):
        lr_limits(TASK, workers=(1,), seeds=1, gradients=8, factor=1e4).slope("lr")


def test_theory_is_where_the_recursion_begins_to_grow():
    """w(t + 1) = w(t) - lr w(t - tau): the largest root of z^(tau + 1) - z^tau + lr crosses 1 there."""
    for tau in (0, 1, 2, 7, 30):
        for share, stable in ((0.98, True), (1.02, False)):
            polynomial = np.zeros(tau + 2)
            polynomial[0] += 1
            polynomial[1] -= 1
            polynomial[-1] += share * 2 * theory(tau)
            assert (np.abs(np.roots(polynomial)).max() < 1) == stable


def test_bisection():
    assert _bisect(lambda lr: lr < 0.37, 0.01, 10, 1.01) == pytest.approx(0.37, rel=0.01)


def test_recovered():
    rates = {"lr": lambda n: (lambda staleness, step: 1.0), "lr / staleness": lambda n: inverse}
    found = recovered(TASK.but(lr=0.2), workers=(1, 16), seeds=2, gradients=400, rates=rates)
    ends = {name: [np.median([r.curve["test_accuracy"][-1] for r in by[n]]) for n in by] for name, by in found.items()}
    assert ends["lr"][0] == ends["lr / staleness"][0] > 0.7
    assert ends["lr / staleness"][1] > ends["lr"][1] + 0.2
    ax = viz.plot_recovered(found)
    assert ax.get_title(loc="left").startswith("16 workers: lr ends at ")
    assert ax.lines[0].get_ydata() == pytest.approx(ends["lr"])


def test_simulation_calibrated_from_a_run_gives_that_run():
    """The "real" ranks are simulated ones, with messages and speeds that the calibration has to find."""
    world = SimWorld(5, Network(1e-4, 1e8))
    pace = Speeds(4, 0.02, slow={0: 4.0}, seed=1)
    pair = real_beside_simulated(world, TASK, pace=pace, steps=20, policies=(bsp(), ssp(1), asp()))
    assert pair.speeds.seconds == pytest.approx(0.02, rel=0.05)
    assert pair.speeds.slow[0] == pytest.approx(4, rel=0.1)
    assert pair.speeds.shape == pytest.approx(0.1, rel=0.4)
    assert all(ratio == pytest.approx(1, rel=0.1) for ratio in pair.ratios().values())
    left, right = viz.plot_real_and_simulated(pair)
    assert len(left.lines) == len(right.patches) == 6
    with pytest.raises(ValueError, match="expected ASP among them"):
        real_beside_simulated(world, TASK, policies=(bsp(),))
    with pytest.raises(ValueError, match="no span 'gradient' of worker 0"):
        calibrate(Trace(), 1, 2)


def test_tasks_and_scenarios(monkeypatch, tmp_path):
    monkeypatch.setenv("DISTLEARN_DATA", str(tmp_path))
    assert mnist_task(hidden=(5,)).dataset.name == "digits"
    with pytest.raises(ValueError, match="'storm', expected one of even, straggler, heavy tail"):
        scenario_speeds("storm", 4)
    assert scenario_speeds("straggler", 4).slow == {0: 4.0}


def test_experiments_from_a_terminal(tmp_path, monkeypatch):
    def run(*words):
        return CliRunner().invoke(main, [str(tmp_path / "figures"), *words])

    def tiny(task, report, seeds):
        return throughputs(workers=(1, 2), steps=5, seeds=seeds, report=report)

    monkeypatch.setitem(EXPERIMENTS, "tiny", (tiny, viz.plot_throughputs))
    done = run("--only", "tiny", "--seeds", "2")
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["tiny.pickle", "tiny.png"]
    assert pickle.loads((tmp_path / "figures" / "tiny.pickle").read_bytes()).gradients.shape[-1] == 2
    assert "no experiment is called 'nothing', expected part of policies-even" in run("--only", "nothing").output
    assert "0 is not in the range x>=1" in run("--seeds", "0").output


def test_real_runs_are_measured_on_warm_ranks(monkeypatch):
    """The first run of fresh engines loads modules: that is no property of the policy that happens to be first."""
    ran, network = [], Network(1e-4, 1e8)

    class Recorded(SimWorld):
        def run(self, fn, task, policy, **options):
            ran.append((str(policy), options["steps"]))
            return super().run(fn, task, policy, **options)

    monkeypatch.setattr(Network, "fit", lambda world, **options: SimpleNamespace(network=network))
    pair = real_beside_simulated(Recorded(3, network), TASK, policies=(bsp(), asp()), steps=4)
    assert ran == [("ASP", 1), ("ASP", 4), ("BSP", 4)]
    assert list(pair.real) == ["ASP", "BSP"]
    _, right = viz.plot_real_and_simulated(pair)
    assert right.get_title("left").startswith("The simulation is")
