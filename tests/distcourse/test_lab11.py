"""The experiments of lab 11: simulated runs replayed with gradients, a race of policies, a given server."""

import numpy as np
import pytest
from distcourse import lab11
from distcourse.events import simulate

from distlearn.data import load
from distlearn.nn import SoftmaxCrossEntropy
from distlearn.parallel.asynchronous.param_server import FlatModel, Speeds, asp, bsp

from ..course.submissions import answered

ALWAYS, SAME = np.ones(1000, bool), np.ones(1000)


def by_staleness(workers, lead, staleness):
    return 1, False, lead >= 0, staleness + 10.0


def test_an_occasional_delay_keeps_the_mean_and_hits_its_share():
    speeds = Speeds(50, 2.0, law="occasional", shape=0.1, seed=3)
    seconds = np.array([speeds.step_times(step) for step in range(400)])
    assert seconds.mean() == pytest.approx(2.0, rel=0.03)
    assert (seconds > 5).mean() == pytest.approx(0.1, abs=0.01)
    with pytest.raises(ValueError, match="0 or more and up to 1"):
        Speeds(2, law="occasional", shape=1.5)


def test_a_replay_uses_the_version_that_a_worker_had_pulled():
    equal = Speeds(4, law="constant")
    w, h, lr = np.array([1.0, -2.0]), np.array([1.0, 3.0]), 0.1
    times, versions = lab11.replay(simulate(asp(), equal, 5), w, lambda v, i: h * v, lambda g, staleness: lr * g)
    want = [w]
    for t in range(20):  # in turn: a gradient is of three versions ago
        want.append(want[t] - lr * h * want[max(0, t - 3)])
    np.testing.assert_allclose(versions, want)
    assert times[[0, 1, 4, 20]].tolist() == [0, 1, 1, 5]
    times, versions = lab11.replay(simulate(bsp(), equal, 3), w, lambda v, i: h * v, lambda g, staleness: lr * g)
    np.testing.assert_allclose(versions, [w * (1 - 4 * lr * h) ** t for t in range(4)])
    assert times.tolist() == [0, 1, 2, 3]


def test_many_synchronous_workers_fail_at_the_rate_of_one_as_asynchronous_ones_do():
    one, sync, stale = (
        {lr: lab11.train(policy, Speeds(workers), lr).losses[-80:].mean() for lr in (0.05, 0.2)}
        for policy, workers in ((asp(), 1), (bsp(), 16), (asp(), 16))
    )
    assert max(one.values()) < 0.3
    assert sync[0.2] > 2 < stale[0.2]
    assert sync[0.05] < stale[0.05] < 0.5


def test_a_damped_gradient_counts_less_the_staler_it_is():
    speeds = Speeds(8, law="pareto", seed=1)
    plain, damped = (lab11.train(asp(), speeds, 0.05, 160, damped=d) for d in (False, True))
    assert not np.array_equal(plain.versions[-1], damped.versions[-1])
    first = plain.events.used == 0
    assert np.array_equal(plain.losses[first], damped.losses[first]), "the same samples"
    fresh = [lab11.train(bsp(), speeds, 0.05, 160, damped=d).versions[-1] for d in (False, True)]
    assert np.array_equal(*fresh), "without staleness nothing is damped"


def test_the_loss_that_is_expected_is_the_mean_over_drawn_labels():
    zeros = np.zeros(64 * 32 + 32 + 32 * 10 + 10)
    assert lab11.expected_loss(zeros) == pytest.approx(np.log(10))
    w, digits = lab11.train(asp(), Speeds(1), 0.05, 400).versions[-1], load("digits", dtype="float64")
    labels = digits.y_train, *np.indices((10, len(digits.y_train)))[0]
    right, *others = (lab11.loss_and_gradient(w, digits.x_train, y)[0] for y in labels)
    assert lab11.expected_loss(w) == pytest.approx((1 - lab11.WRONG) * right + lab11.WRONG * np.mean(others), rel=1e-5)
    assert lab11.expected_loss(np.full_like(w, np.inf)) == 2.5


def test_gradients_at_several_rates_are_those_of_the_layers():
    rng = np.random.default_rng(0)
    x, y, flat = rng.normal(size=(5, 64)), rng.integers(10, size=5), FlatModel(lab11.make_model(1))
    stack = flat.data + rng.normal(size=(3, len(flat.data))) / 10
    losses, gradients = lab11.loss_and_gradient(stack, x, y)
    for w, value, found in zip(stack, losses, gradients, strict=True):
        flat.load(w)
        assert flat.gradient(x, y, SoftmaxCrossEntropy()) == pytest.approx(value)
        np.testing.assert_allclose(found, flat.grad, atol=1e-14)
    one = lab11.loss_and_gradient(stack[0], x, y)
    assert one[0] == pytest.approx(losses[0])
    assert one[1].shape == flat.data.shape
    several = lab11.train(asp(), Speeds(4), np.array([0.02, 0.1]), 80)
    alone = lab11.train(asp(), Speeds(4), 0.1, 80)
    np.testing.assert_allclose(several.versions[-1][1], alone.versions[-1], rtol=1e-3, atol=1e-5)


def test_a_floor_rises_with_the_rate():
    low, high = lab11.floors(0, "1 worker", (0.05, 0.4)).values()
    assert high > low + 0.2
    still = {lab11.floors(1, method, (0.0,))[0.0] for method in lab11.METHODS}
    assert len(still) == 1, "at a rate of zero nothing moves"


@pytest.mark.nightly
def test_every_rival_is_best_at_a_rate_inside_the_grid():
    outcome = lab11.race(lab11.make_entry(by_staleness), mixes=lab11.draw_mixes(1, 2))
    assert all(0 < outcome.best(name)[1] < len(lab11.RATES) - 1 for name in outcome.curves)
    assert [row["policy"] for row in outcome.table()] == outcome.order
    assert outcome.order[0] == "yours", "it wins"
    above, below = lab11.plot_race(outcome).axes
    assert [label.get_text().partition(":")[0] for label in above.get_yticklabels()] == outcome.order
    assert len(below.lines) == len(outcome.curves) + 1


def test_a_single_error_below_the_target_does_not_count():
    curves = np.full((1, 2, len(lab11.TIMES)), 2 * lab11.TARGET)
    curves[0, 0, [5, -1]] = 0
    curves[0, 1, 30:] = 0
    seconds, rate = lab11.Race({"one": curves}, []).best("one")
    assert (seconds.tolist(), rate) == ([lab11.TIMES[30]], 1)
    for level, want in ((0.0, lab11.TIMES[0]), (1.0, lab11.DEADLINE)):
        assert lab11.Race({"one": np.full_like(curves, level)}, []).best("one")[0] == want


def test_mixes_have_the_kinds_of_workers_that_were_drawn():
    slow, delayed, both = (mix.table(400) for mix in lab11.draw_mixes(3))
    assert 1 <= (slow.mean(axis=0) > 2).sum() <= 3
    assert 4 <= (delayed.max(axis=0) > 8).sum() <= 8
    assert delayed.mean(axis=0).max() < 2.5
    assert (both.max(axis=0) > 8).sum() == 4
    assert 1 <= (both.mean(axis=0) > 2.4).sum() <= 2


def test_a_race_is_the_same_in_every_run_and_a_rate_is_no_design():
    mix = lab11.draw_mixes(1)[0]
    small, large = (lab11.error_curves(lab11.Entry(1, False, ALWAYS, scale * SAME), mix) for scale in (0.01, 7))
    np.testing.assert_allclose(small, large, rtol=1e-6)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ((16, True, ALWAYS, SAME), "wait for the slowest"),
        ((1, False, np.arange(1000) <= 4, SAME), "holds up all others"),
        ((1, False, ALWAYS, 1.0 / np.arange(1, 1001)), "biased"),
        ((1, False, ALWAYS, SAME), "weigh the same"),
        ((1, False, ALWAYS, np.arange(1.0, 1001)), "a few gradients decide"),
    ],
)
def test_an_entry_that_loses_is_told_what_it_has_in_common_with_a_rival(entry, fault):
    assert fault in lab11.fault_of(lab11.Entry(*entry))


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ((0, False, ALWAYS, SAME), "quorum is 0"),
        ((17, False, ALWAYS, SAME), "from 1 to 16"),
        ((1, False, ~ALWAYS, SAME), "lead 0"),
        ((1, False, np.arange(1000) % 2 == 0, SAME), "stay False"),
        ((1, False, ALWAYS, -SAME), "0 or more"),
        ((1, False, ALWAYS, SAME * np.inf), "finite"),
        ((1, False, np.arange(1000), SAME), "True or False"),
        ((1, False, ALWAYS, 0.05), "np.ones"),
        ((1, False, ALWAYS, SAME[:16]), "has shape .16,"),
    ],
)
def test_an_entry_that_cannot_race_is_told_why(entry, match):
    with pytest.raises(ValueError, match=match):
        lab11.Entry(*entry)


def test_a_policy_that_returns_too_little_is_told_what_is_missing():
    with pytest.raises(ValueError, match="returns 2 things, expected four"):
        lab11.make_entry(lambda workers, lead, staleness: (1, False))
    with pytest.raises(ValueError, match="returns NoneType"):
        lab11.make_entry(lambda workers, lead, staleness: None)


def test_a_log_and_what_it_must_lead_to():
    targets, ranks = lab11.try_server(answered("lab11", "async_sgd")["async_sgd"], 4, 3, slow={2: 3.0})
    w, log, _ = ranks[0]
    assert lab11.check_log(log, 3, 3) == ""
    np.testing.assert_allclose(w, lab11.work_out(targets, log, 0.1), rtol=1e-12)
    assert not np.allclose(w, lab11.work_out(targets, sorted(log), 0.1))
    assert "expected its log" in lab11.check_log(None, 3, 3)
    assert "expected pairs" in lab11.check_log([1], 3, 3)
