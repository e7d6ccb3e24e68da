"""The experiments of lab 11: a race of policies, backup workers under two assumptions, controls, a given server."""

from types import SimpleNamespace

import numpy as np
import pytest
from distcourse import lab11
from distcourse.asynchrony import digits_task
from distcourse.lab11 import (
    Entry,
    Method,
    backup_seconds,
    check_log,
    error_floor,
    floors,
    hidden_mixes,
    loss_by_rate,
    make_entry,
    practice_mixes,
    race,
    replay,
    run_digits_synchronous,
    runs_to_floor,
    try_server,
)

from distlearn.parallel.asynchronous.param_server import Speeds, asp, bsp

ALWAYS, SAME = np.ones(9, bool), np.full(9, 0.05)


def tuned(workers, lead, staleness):
    return 1, False, lead >= 0, 0.065 * np.minimum(1, 24 / np.maximum(1, staleness))


def test_an_occasional_delay_keeps_the_mean_and_hits_its_share():
    seconds = Speeds(50, 2.0, law="occasional", shape=0.1, seed=3).table(400)
    assert seconds.mean() == pytest.approx(2.0, rel=0.03)
    assert (seconds > 5).mean() == pytest.approx(0.1, abs=0.01)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Speeds(2, law="occasional", shape=1.5)


def test_what_backup_workers_win_depends_on_what_late_ones_do():
    often = Speeds(100, law="occasional", seed=1)
    cancelled, finishing = (backup_seconds(often, [0.6, 0.9, 1.0], cancelled=free) for free in (True, False))
    assert cancelled[2] / cancelled[1] > 3 * finishing[2] / finishing[1]
    assert finishing[2] == pytest.approx(cancelled[2], rel=0.05), "with no backups none is late"


@pytest.mark.parametrize("seed", range(4))
def test_a_tuned_entry_beats_every_reference_on_mixes_it_has_not_seen(seed):
    outcome = race(make_entry(tuned), mixes=hidden_mixes(seed))
    assert outcome.score("yours") > 1.05 * max(map(outcome.score, outcome.references))
    assert outcome.score("BSP") == 1
    assert outcome.table()[0]["policy"] == "yours"


def test_a_race_is_the_same_in_every_run_and_ends_at_an_error_floor():
    small, large = Entry(1, False, ALWAYS, SAME / 2, "small"), Entry(1, False, ALWAYS, 1.4 * SAME, "large")
    first, again = (race(small, large, seeds=2) for _ in range(2))
    assert all(np.array_equal(first.curves[name], again.curves[name]) for name in first.curves)
    assert (first.floor("large") > 2 * first.floor("small")).all()
    assert first.seconds("large")[0] < first.seconds("small")[0]


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ((0, False, ALWAYS, SAME), "quorum is 0"),
        ((17, False, ALWAYS, SAME), "from 1 to 16"),
        ((1, False, ~ALWAYS, SAME), "lead 0"),
        ((1, False, np.arange(9) % 2 == 0, SAME), "stay False"),
        ((1, False, ALWAYS, -SAME), "0 or more"),
        ((1, False, ALWAYS, SAME * np.inf), "0 or more"),
        ((1, False, np.arange(9), SAME), "True or False"),
        ((1, False, ALWAYS, 0.05), "np.full"),
    ],
)
def test_an_entry_that_cannot_race_is_told_why(entry, match):
    with pytest.raises(ValueError, match=match):
        Entry(*entry)


def test_a_policy_that_returns_too_little_is_told_what_is_missing():
    with pytest.raises(ValueError, match="returns 2 things, expected four"):
        make_entry(lambda workers, lead, staleness: (1, False))
    with pytest.raises(ValueError, match="returns NoneType"):
        make_entry(lambda workers, lead, staleness: None)


def test_many_synchronous_workers_fail_at_the_rate_of_one_as_asynchronous_ones_do():
    which = {"one": Method(1, asp()), "sync": Method(16, bsp()), "async": Method(16, asp())}
    found = loss_by_rate(digits_task(batch=32), [0.05, 0.2], which=which, seeds=1)
    assert (found["one"] < 0.3).all()
    assert found["sync"][1, 0] > 2 < found["async"][1, 0]
    assert found["sync"][0, 0] < found["async"][0, 0] < 0.5
    assert run_digits_synchronous(16, 0.2)[1][-80:].mean() > 2


def test_a_floor_is_where_the_error_no_longer_falls():
    assert error_floor([0.9, 0.3, 0.05, 0.04, 0.05, 0.04], window=2) == (pytest.approx(0.045), 2)
    assert error_floor([0.9, 0.5, 0.3, 0.2, 0.15, 0.12], window=2) is None, "it still falls"
    assert error_floor([0.1, 0.1, 0.2, 0.3], window=2) == (0.25, 0), "it rises: it has been at its floor"
    assert error_floor([0.9] * 4, window=2) == (0.9, 0), "a run that has learned nothing stays where it is"
    slow = np.linspace(0.5, 0.1, 40)
    assert error_floor(slow) is None
    assert error_floor(slow, tolerance=0.2) is not None
    with pytest.raises(ValueError, match="6 points, expected 20 or more"):
        error_floor(np.zeros(6))


def test_runs_to_the_floor_have_every_method_at_its_own_rate():
    which = {"one": Method(1, asp(), warm=20), "sync": Method(4, bsp())}
    found = runs_to_floor(digits_task(batch=32), {"one": 0.1, "sync": 0.0}, which=which, seeds=2, gradients=420)
    assert {name: len(runs) for name, runs in found.items()} == {"one": 2, "sync": 2}
    one, sync = (runs[1] for runs in found.values())
    assert len(one.applied["loss"]) == 400
    assert 10 < one.curve["time"][0] < one.curve["time"][-1], "the 20 seconds alone count"
    assert sync.curve["time"][0] == 0
    errors = {name: 1 - runs[1].curve["test_accuracy"] for name, runs in found.items()}
    assert errors["one"][-1] < 0.15 < errors["one"][0]
    assert np.ptp(errors["sync"]) == 0, "at a rate of zero nothing moves"
    assert min(len(one.curve["time"]), len(sync.curve["time"])) >= 40


def test_floors_say_how_many_seeds_are_there():
    times = np.arange(40.0)
    settled = np.where(times < 7, 0.9, 0.04)
    curves = [settled, np.where(times < 9, 0.9, 0.06), np.linspace(0.9, 0.1, 40)]
    runs = [SimpleNamespace(curve={"time": times, "test_accuracy": 1 - c}) for c in curves]
    two, one = floors({"settled": runs[:2], "falling": runs[2:]})
    assert two == {"method": "settled", "floor [%]": pytest.approx(5), "lowest": pytest.approx(4),
                   "highest": pytest.approx(6), "time to it [s]": 8, "at it": 2}  # fmt: skip
    assert one["at it"] == 0
    assert one["time to it [s]"] is None, "it has not reached it"
    (mixed,) = floors({"mixed": [runs[0], runs[2]]})
    assert (mixed["at it"], mixed["time to it [s]"]) == (1, 7)
    assert one["floor [%]"] == pytest.approx(100 * curves[2][-10:].mean())
    ax = lab11.plot_floors({"settled": runs[:2], "falling": runs[2:]}, [two, one])
    assert "5.0" in ax.get_title(loc="left")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["settled: 5.0 %", "falling: 19.2 %"]


def test_a_log_and_what_it_must_lead_to():
    def serve(comm, w, gradient, lr, steps):
        if comm.rank:
            for step in range(steps):
                comm.send_obj(("pull", comm.rank, None), 0)
                comm.recv(w, 0)
                comm.send_obj(("push", comm.rank, gradient(w, step)), 0)
            return None
        log = []
        for _ in range(2 * steps * (comm.size - 1)):
            kind, worker, g = comm.recv_obj()
            if kind == "pull":
                comm.send(w, worker)
            else:
                w -= lr * g
            log.append((kind, worker))
        return log

    targets, ranks = try_server(serve, 4, 3, slow={2: 3.0})
    w, log, _ = ranks[0]
    assert check_log(log, 3, 3) == ""
    np.testing.assert_allclose(w, replay(targets, log, 0.1), rtol=1e-12)
    assert not np.allclose(w, replay(targets, log, 0.1, late=True))
    assert "expected its log" in check_log(None, 3, 3)
    assert "expected pairs" in check_log([1], 3, 3)


def test_figures_of_waiting_say_what_was_found():
    outcome = race(make_entry(tuned), seeds=1)
    axes = lab11.plot_race(outcome)
    assert [ax.get_title(loc="left") for ax in axes] == [str(mix) for mix in practice_mixes()]
    assert "yours is" in axes[0].figure.get_suptitle()
    ends = {"one slow": {0: [np.cumsum(np.ones((5, 2)), axis=0)], np.inf: [np.cumsum(np.ones((5, 2)), axis=0)]}}
    left, right = lab11.plot_bounds(ends, until=5)
    assert left.lines[0].get_ydata().tolist() == [2, 2]
    assert right.get_legend_handles_labels()[1] == ["bound 0", "no bound"]
    shares = np.array([0.5, 1.0])
    _, right = lab11.plot_backups(shares, {"late ones are cancelled": np.array([[1.0, 4.0]])})
    assert "50 % if late ones are cancelled" in right.get_title(loc="left")
    found = {
        name: np.array([[low], [high]]) for name, low, high in (("1", 1, 1), ("s", 1, 9), ("a", 9, 9), ("b", 2, 9))
    }
    left, right = lab11.plot_loss_by_rate(found, [0.1, 0.2], guessing=4.6)
    assert left.get_title(loc="left").endswith("0.2, 0.1, none")
    assert "2.00 (b)" in right.get_title(loc="left")
