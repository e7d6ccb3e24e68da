"""The experiments on asynchrony, small: they find what is known, and their figures show it."""

from types import SimpleNamespace

import numpy as np
import pytest

from distlearn import viz
from distlearn.comm import Network
from distlearn.experiments import (
    alternatives,
    calibrate,
    compare_policies,
    digits_task,
    mnist_task,
    real_beside_simulated,
    run_policy,
    scenario_speeds,
)
from distlearn.parallel.asynchronous.param_server import Speeds, asp, backup, bsp, simulate, ssp
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


def test_alternatives_on_the_same_axes():
    found = alternatives(TASK, workers=4, seeds=1, steps=24, period=3)
    assert list(found) == ["BSP", "ASP", "EASGD(3)", "Hogwild"]
    for name, (run,) in found.items():
        assert run.curve["loss"][-1] < run.curve["loss"][0], name
        assert run.applied["rows"].sum() == pytest.approx(24 * 4 * 8, rel=0.15), name
    assert found["EASGD(3)"][0].updates == 32
    assert found["Hogwild"][0].seconds < found["BSP"][0].seconds / 2
    axes = viz.plot_policies(found)
    assert [line.get_label() for line in axes[1].lines] == list(found)


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


def test_simulation_calibrated_from_a_run_gives_that_run():
    """The "real" ranks are simulated ones, with messages and speeds that the calibration has to find."""
    world = SimWorld(5, Network(1e-4, 1e8))
    pace = Speeds(4, 0.02, slow={0: 4.0}, seed=1)
    pair = real_beside_simulated(world, TASK, pace=pace, steps=20, policies=(bsp(), ssp(1), asp()))
    assert pair.speeds.seconds == pytest.approx(0.02, rel=0.05)
    assert pair.speeds.slow[0] == pytest.approx(4, rel=0.1)
    assert pair.speeds.shape == pytest.approx(0.1, rel=0.4)
    assert all(ratio == pytest.approx(1, rel=0.1) for ratio in pair.ratios().values())
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
