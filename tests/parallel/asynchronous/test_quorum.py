"""DiLoCo with a quorum: with all learners it is DiLoCo; it waits for no slow learner, and survives lost ones."""

import numpy as np
import pytest

from distlearn import data, nn, optim
from distlearn.comm import Network
from distlearn.data import Batches
from distlearn.parallel.asynchronous.param_server.training import QuorumDiLoCo
from distlearn.sim import Failure, Roofline, SimWorld

from ..programs import assert_same_params

DATASET = data.load("digits", dtype="float64").take(200)
EVERY, MERGES, BATCH = 4, 5, 50


def parts(rule):
    model = nn.MLP((64, 8, 10), seed=2, dtype="float64")
    return model, nn.SoftmaxCrossEntropy(), optim.Optimizer(model.params, rule, 0.05)


def with_quorum(comm, quorum=1, rule=optim.SGD, merges=MERGES, pace=None):
    strategy = QuorumDiLoCo(comm, *parts(rule()), every=EVERY, quorum=quorum, pace=pace)
    return strategy.train(DATASET, batch_size=BATCH, steps=merges)


def diloco(comm, rule):
    """DiLoCo with an all-reduce in place of a syncer."""
    model, loss, optimizer = parts(rule())
    batches = Batches(DATASET.x_train, DATASET.y_train, BATCH, rank=comm.rank, size=comm.size)
    outer, starts = optim.Nesterov(0.9), [p.data.copy() for p in model.params]
    states, rows = [outer.init(start) for start in starts], 0
    steps = [b for epoch in range(30) for b in batches.epoch(epoch)][: EVERY * MERGES]
    for i, batch in enumerate(steps, 1):
        optimizer.zero_grad()
        y, saved = model.forward(batch.x)
        model.backward(loss(y, batch.y, len(batch.x))[1], saved)
        optimizer.step()
        rows += len(batch.x)
        if i % EVERY == 0:
            share = rows / comm.all_reduce(np.array([float(rows)]))[0]
            for p, start, state in zip(model.params, starts, states, strict=True):
                outer.update(start, start - comm.all_reduce(share * p.data), state, 0.7, i // EVERY - 1)
                p.data[...] = start
            rows = 0
    return {p.name: p.data for p in model.params}


@pytest.mark.parametrize("rule", [optim.SGD, optim.Adam])
@pytest.mark.parametrize("learners", [1, 2, 3])
def test_a_quorum_of_all_is_diloco_however_uneven_the_parts(learners, rule):
    run = SimWorld(learners + 1).run(with_quorum, learners, rule)[0]
    want = SimWorld(learners).run(diloco, rule)[0]
    assert run.updates == MERGES
    assert_same_params(run.params, want, tol=1e-12)


def test_nobody_waits_for_a_slow_learner_and_its_results_count():
    slow = {"pace": lambda learner, merge: 0.2 if learner == 2 else 0.01}
    times, versions = [], []
    for quorum in (3, 2):
        world = SimWorld(4)
        run = world.run(with_quorum, quorum, **slow)[0]
        times.append(run.curve["time"][MERGES])
        versions.append(run.applied["worker"])
    assert times[0] > 10 * times[1]
    assert 2 in versions[1]


@pytest.mark.parametrize("seed", range(12))
def test_random_failures_of_learners_never_end_the_run(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 7))
    quiet = SimWorld(size, Network(1e-5, 1e9), Roofline(1e8))
    quiet.run(with_quorum, 2)
    # neither the syncer nor one of the learners, and none before all have begun
    times = quiet.makespan * (0.1 + rng.exponential(size=size))
    failures = [Failure(r, times[r], str(rng.choice(["kill", "hang", "cut"]))) for r in range(2, size)]
    world = SimWorld(size, quiet.network, quiet.compute, failures=failures, detection=quiet.makespan / 30)
    run = world.run(with_quorum, 2)[0]
    assert run.updates >= MERGES
    assert np.isfinite(run.curve["loss"]).all()
    assert run.curve["loss"][-1] < run.curve["loss"][0]


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [(3, {"every": 0}, "every is 0"), (3, {"quorum": 0}, "quorum is 0"), (1, {}, "expected a server and one worker")],
)
def test_numbers_that_make_no_sense_are_refused(size, options, message):
    def program(comm):
        QuorumDiLoCo(comm, *parts(optim.SGD()), **options)

    with pytest.raises(Exception, match=message):
        SimWorld(size).run(program)
