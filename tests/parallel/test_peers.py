"""Checkpoints in the memory of peers: sharded training goes on without lost ranks, and from the right step."""

from itertools import combinations

import numpy as np
import pytest

from distlearn import data, nn, optim
from distlearn.comm import Network, PeerLostError, RevokedError
from distlearn.data import Batches
from distlearn.parallel import DataParallel, ZeRO
from distlearn.parallel.checkpoint.peers import PeerCheckpoints, holders
from distlearn.parallel.checkpoint.store import CheckpointError
from distlearn.sim import Failure, Roofline, SimWorld
from distlearn.testing import assert_same_params

DATASET = data.load("digits", dtype="float64").take(96)
STEPS, BATCH, EVERY = 9, 24, 2
NETWORK, COMPUTE = Network(1e-5, 1e9), Roofline(1e7)


def make(comm, stage):
    model = nn.MLP((64, 10, 10), seed=3, dtype="float64")
    optimizer = optim.Optimizer(model.params, optim.Adam(), 0.01)
    parts = comm, model, nn.SoftmaxCrossEntropy(), optimizer
    return ZeRO(*parts, stage=stage) if stage else DataParallel(*parts)


def program(comm, stage, copies=2):
    """Train through losses; return the parameters and the steps from which training went on."""
    strategy, peers = make(comm, stage), PeerCheckpoints(comm, copies)
    step, resumed = 0, []
    while step < STEPS:
        try:
            if step % EVERY == 0:
                peers.save(step, strategy)
            batches = Batches(DATASET.x_train, DATASET.y_train, BATCH, rank=comm.rank, size=comm.size, seed=1)
            strategy.step(next(iter(batches.epoch(step))))
            step += 1
        except (PeerLostError, RevokedError):
            comm.revoke()
            comm = comm.shrink()
            strategy = make(comm, stage)
            step = peers.restore(comm, strategy)
            peers = PeerCheckpoints(comm, 1 if comm.size % copies else copies)
            resumed.append(step)
    return strategy.gather_params(), resumed


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_rank_is_lost_at_any_time_and_the_others_go_on_from_memory(stage):
    quiet = SimWorld(4, NETWORK, COMPUTE)
    want = quiet.run(program, stage, 2)[0][0]
    steps = set()
    for i, share in enumerate(np.linspace(0.15, 0.95, 5)):
        failures = [Failure(1 + i % 3, share * quiet.makespan)]
        world = SimWorld(4, NETWORK, COMPUTE, failures=failures, detection=quiet.makespan / 50)
        params, resumed = world.run(program, stage, 2)[0]
        assert_same_params(params, want, tol=1e-12)
        assert len(resumed) == 1
        steps.update(resumed)
    assert len(steps) > 1


def test_where_all_that_kept_a_state_are_lost_every_rank_says_so():
    quiet = SimWorld(4, NETWORK, COMPUTE)
    quiet.run(program, 1)
    for ranks, lost in (((2, 3), True), ((1, 2), False)):
        failures = [Failure(rank, 0.5 * quiet.makespan) for rank in ranks]
        world = SimWorld(4, NETWORK, COMPUTE, failures=failures, detection=quiet.makespan / 50)
        if lost:
            with pytest.raises(Exception, match=r"the state of rank 2 after step .* is lost") as caught:
                world.run(program, 1)
            assert isinstance(caught.value.original, CheckpointError)
        else:
            assert world.run(program, 1)[0][1]


def survived(keep, lost):
    """The share of all ways to lose ranks after which every state is left."""
    ways = [set(ranks) for ranks in combinations(range(len(keep)), lost)]
    return sum(not any(one <= ranks for one in keep) for ranks in ways) / len(ways)


def test_groups_survive_more_losses_than_a_ring():
    groups = {n: [set(holders(rank, 16, n)) for rank in range(16)] for n in (2, 4)}
    rings = {n: [{(rank + k) % 16 for k in range(n)} for rank in range(16)] for n in (2, 4)}
    assert survived(groups[2], 2) == pytest.approx(1 - 8 / 120)
    assert survived(rings[2], 2) == pytest.approx(1 - 16 / 120)
    assert all(survived(groups[n], lost) > survived(rings[n], lost) for n in (2, 4) for lost in range(n, 6))


@pytest.mark.parametrize("copies", [3, 0])
def test_copies_that_cannot_be_are_refused(copies):
    with pytest.raises(ValueError, match=f"{copies} copies on 4 ranks"):
        holders(0, 4, copies)
