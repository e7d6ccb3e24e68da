"""Elastic training: whatever fails and when, those that are left end with the model of an undisturbed run."""

import numpy as np
import pytest

from distlearn import data
from distlearn.comm import CutOffError, Network
from distlearn.nn import MLP, BatchNorm, Dropout, Linear, ReLU, Sequential
from distlearn.optim import Momentum
from distlearn.parallel import CheckpointStore, DataParallel, ElasticDataParallel
from distlearn.sim import Failure, Roofline, SimWorld
from distlearn.testing import assert_same_params
from distlearn.train import Settings, fit, train

from .programs import parts

DATASET = data.load("digits", dtype="float64").take(70)
EPOCHS, BATCH = 2, 16


def a_model(normalised):
    if not normalised:
        return MLP((64, 9, 10), "sigmoid", seed=3, dtype="float64")
    dense = Linear(64, 6, 1, dtype="float64"), Linear(6, 10, 2, dtype="float64")
    return Sequential(dense[0], BatchNorm(6, dtype="float64"), ReLU(), dense[1])


def program(comm, *, normalised=False, make=ElasticDataParallel):
    """Train; return losses, parameters and recoveries, or None on a rank that the others have given up."""
    model = a_model(normalised)
    try:
        strategy = make(comm, *parts(model, Momentum()), cap_bytes=800)
        history = fit(strategy, DATASET, epochs=EPOCHS, batch_size=BATCH, evaluate_every=0)
    except CutOffError:
        return None
    return history.losses, {p.name: p.data.copy() for p in model.params}, history.recoveries


@pytest.fixture(scope="module")
def undisturbed():
    return SimWorld(1).run(program, make=DataParallel)[0]


def test_a_rank_may_be_lost_while_the_generators_of_all_masks_are_gathered(tmp_path):
    def program(comm, folder):
        dense = [Linear(64, 6, 1, dtype="float64"), Dropout(0.2, comm.rank), Linear(6, 10, 2, dtype="float64")]
        strategy = ElasticDataParallel(comm, *parts(Sequential(*dense)))
        options = {"epochs": 1, "batch_size": BATCH, "evaluate_every": 0}
        return len(fit(strategy, DATASET, **options, checkpoints=CheckpointStore(folder), every=1).losses)

    sound = a_world(3)
    (steps, *_) = sound.run(program, tmp_path / "sound")
    ranks_saved = set()
    for i, at in enumerate(np.linspace(0.1, 0.99, 20) * sound.makespan):
        folder = tmp_path / str(i)
        assert a_world(3, Failure(1, at)).run(program, folder) == [steps, None, steps]
        ranks_saved.add(len(CheckpointStore(folder).load(steps).meta["state"]["generators"]))
    assert ranks_saved == {2}


def a_world(size, *failures, detection=1e-3):
    return SimWorld(size, Network(1e-6, 1e9), Roofline(1e7), failures=failures, detection=detection)


def test_a_recovery_says_who_was_lost_what_it_cost_and_what_was_done_again():
    base = a_world(4, Failure(0, 1e9))
    base.run(program)
    ends = [span.end for span in base.trace.select(rank=0, name="update")]
    middle = (ends[2] + ends[3]) / 2
    world = a_world(4, Failure(2, middle))
    results = world.run(program)
    assert results[2] is None
    for rank in (0, 1, 3):
        (recovery,) = results[rank][2]
        assert (recovery.lost, recovery.size, recovery.step, recovery.redone) == ([2], 3, 3, BATCH)
        assert recovery.began == pytest.approx(ends[2])
        assert recovery.noticed == pytest.approx(middle + 1e-3, abs=2e-6)
        assert recovery.resumed > recovery.noticed
        assert str(recovery).startswith("lost rank 2; went on with 3 ranks after ")
        assert str(recovery).endswith("step 4 (16 samples) again")
    assert {s.rank for s in world.trace.select(name="recover")} == {0, 1, 3}
    assert world.makespan > base.makespan + 1e-3


def test_the_state_comes_from_the_rank_that_is_furthest():
    """A rank is lost while the last bucket travels: if one of the others had it in time, nobody does the step again."""
    parts = Network(1e-5, 1e7), Roofline(1e7)
    base = SimWorld(4, *parts)
    base.run(program)
    update = base.trace.select(rank=0, name="update")[3]
    travelling = max((s for s in base.trace.select(rank=0, lane="comm") if s.end <= update.start), key=lambda s: s.end)
    at = (travelling.start + travelling.end) / 2
    redone = []
    for seed in range(12):
        world = SimWorld(4, *parts, failures=[Failure(1, at)], detection=1e-3, seed=seed)
        results = [r for r in world.run(program) if r is not None]
        assert len({tuple(losses) for losses, _, _ in results}) == 1
        redone.append({r.redone for _, _, recoveries in results for r in recoveries})
    last = 70 % BATCH  # samples of step 5, which the ranks that had finished step 4 had begun
    nobody, some, everybody = frozenset({BATCH}), frozenset({0, last}), frozenset({last})
    assert {nobody, some} <= {frozenset(r) for r in redone} <= {nobody, some, everybody}


def test_down_to_one_rank(undisturbed):
    base = a_world(5)
    base.run(program)
    world = a_world(5, *[Failure(rank, (0.15 + 0.2 * rank) * base.makespan) for rank in range(4)])
    *gone, (losses, params, recoveries) = world.run(program)
    assert gone == [None] * 4
    assert [r.lost for r in recoveries] == [[0], [1], [2], [3]]
    assert [r.size for r in recoveries] == [4, 3, 2, 1]
    np.testing.assert_allclose(losses, undisturbed[0], atol=1e-12)
    assert_same_params(params, undisturbed[1])


def test_all_ranks_of_a_node_at_once(undisturbed):
    base = a_world(6)
    base.run(program)
    world = a_world(6, *(Failure(rank, base.makespan / 2) for rank in (2, 3)))
    left = [r for r in world.run(program) if r is not None]
    assert [loss.rank for loss in world.losses] == [2, 3]
    assert len(left) == 4
    for losses, params, _ in left:
        np.testing.assert_allclose(losses, undisturbed[0], atol=1e-12)
        assert_same_params(params, undisturbed[1])


def test_a_rank_that_was_given_up_and_wakes_must_not_go_on():
    base = a_world(3)
    base.run(program)
    world = a_world(3, Failure(0, base.makespan / 2, "hang", until=base.makespan * 3))
    results = world.run(program)
    assert results[0] is None
    assert all(r is not None for r in results[1:])


def test_a_step_done_again_moves_running_statistics_once():
    """A lost rank changes who normalises what, but not how often: with one rank left, the statistics are serial."""
    base = a_world(2, Failure(0, 1e9))
    base.run(program, normalised=True)
    first = [base.trace.select(rank=0, name=name)[0] for name in ("forward", "update")]
    world = a_world(2, Failure(0, (first[0].start + first[1].start) / 2))  # in the first step: all are the survivor's
    _, (losses, params, _) = world.run(program, normalised=True)
    want = SimWorld(1).run(program, normalised=True, make=DataParallel)[0]
    np.testing.assert_allclose(losses, want[0], atol=1e-12)
    assert_same_params(params, want[1])


def test_by_settings():
    settings = Settings(hidden=(9,), dtype="float64", epochs=2, batch_size=50, n_train=200, strategy="elastic")
    want = SimWorld(1).run(train, settings.but(strategy="serial"))[0]
    base = a_world(3)
    base.run(train, settings)
    world = a_world(3, Failure(0, base.makespan / 3), Failure(1, base.makespan / 2, "cut"))
    first, second, last = world.run(train, settings)
    assert first is second is None
    assert [r.lost for r in last.history.recoveries] == [[0], [1]]
    assert_same_params(last.params, want.params)
    assert last.history.last.test_accuracy == want.history.last.test_accuracy
