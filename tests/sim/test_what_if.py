"""A recording, replayed, takes what it took; changed, what the changed run takes."""

import numpy as np
import pytest

from distlearn import EngineWorld, Network, RankError, Roofline, SimWorld, Trace, record_run, replay
from distlearn.sim.what_if import Step
from distlearn.train import Settings
from distlearn.train.program import train
from distlearn.viz import plot_timeline

NETWORK, COMPUTE = Network(1e-5, 1e8), Roofline(1e9)
STRATEGIES = {
    "data": {},
    "data_naive": {},
    "zero1": {},
    "zero3": {},
    "tensor": {},
    "local_sgd": {},
    "hybrid": {"dp": 2, "tp": 2},
}
CHANGES = (
    {"network": Network(1e-5, 5e7)},
    {"network": Network(1e-4, 1e8)},
    {"slowdown": {1: 1.5}},
    {"compute": 0.1},  # what nobody waited for in the recording is waited for
    {"compute": 3.0},
    {},
)


def settings(strategy, **options):
    return Settings(data="digits", strategy=strategy, epochs=1, batch_size=300, hidden=(64, 64, 32), **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replay_takes_what_the_run_took_and_changed_what_the_changed_run_takes(strategy):
    run = train, settings(strategy, **STRATEGIES[strategy])
    world = SimWorld(4, NETWORK, COMPUTE)
    results, trace = record_run(world, *run)
    assert len(results) == 4
    for change in CHANGES:
        network, slowdown = change.get("network", NETWORK), change.get("slowdown")
        changed = SimWorld(4, network, Roofline(COMPUTE.peak / change.get("compute", 1.0)), slowdown=slowdown)
        changed.run(*run)
        again = replay(trace, **change)  # recorded, an object is a few bytes longer
        assert again.makespan == pytest.approx(changed.makespan, rel=0.05 if change else 1e-4)
        assert sum(step.end - step.start for step in again.path) == pytest.approx(again.makespan)
        assert [step.start for step in again.path[1:]] == pytest.approx([step.end for step in again.path[:-1]])
    assert replay(trace, network=NETWORK, recorded_on=NETWORK).makespan == pytest.approx(trace.makespan, rel=0.02)


@pytest.mark.nightly
def test_real_ranks_are_replayed_and_their_file_too(tmp_path):
    with EngineWorld(2, progress=False) as world:
        for strategy in ("data", "zero3"):
            errors = []
            while not errors or (min(errors) > 0.05 and len(errors) < 5):  # a busy machine may disturb some runs
                _, trace = record_run(world, train, settings(strategy))
                errors.append(abs(replay(trace).makespan / trace.makespan - 1))
            assert min(errors) <= 0.05, (strategy, errors)
            loaded = Trace.load(trace.save(tmp_path / "trace.json"))
            assert replay(loaded).makespan == pytest.approx(replay(trace).makespan)
            slower = replay(trace, network=Network(0, 1e6), recorded_on=Network(0, 1e9)).makespan
            assert slower > trace.makespan + 64 * 64 * 4 / 1e6


def parts(comm):
    """Two groups, and what is not waited for at once."""
    part = comm.split(comm.rank % 2)
    x = np.full(50, float(comm.rank))
    with comm.clock.span("compute", flops=1 + comm.rank):
        work = part.iall_reduce(x)
    with comm.clock.span("compute", flops=2):
        assert not work.done() or work.done()
    work.wait()
    part.broadcast(x)
    comm.barrier()


def test_groups_are_replayed():
    network = Network(0.1, 1e3)
    world = SimWorld(4, network, Roofline(1.0))
    _, trace = record_run(world, parts)
    assert replay(trace).makespan == pytest.approx(world.makespan)
    slow = SimWorld(4, network, Roofline(1.0), slowdown={0: 2.0})
    slow.run(parts)
    assert replay(trace, slowdown={0: 2.0}).makespan == pytest.approx(slow.makespan, rel=0.1)


def chain(comm):
    with comm.clock.span("forward", flops=3.0 - comm.rank):
        pass
    comm.all_reduce(np.zeros(10))
    if comm.rank == 1:
        with comm.clock.span("backward", flops=4.0):
            pass
    comm.broadcast(np.zeros(4), 1)


def test_the_critical_path_goes_through_who_comes_last():
    _, trace = record_run(SimWorld(2, Network(0.5, 1e9), Roofline(1.0)), chain)
    found = replay(trace)
    want = [(0, "compute", "forward", 0, 3), (1, "comm", "all_reduce", 3, 4), (1, "compute", "backward", 4, 8)]
    assert [tuple(step) for step in found.path[:-1]] == [
        pytest.approx(step, abs=1e-6) for step in map(Step._make, want)
    ]
    assert found.shares() == pytest.approx({"backward": 4, "forward": 3, "all_reduce": 1, "broadcast": 0.5}, abs=1e-6)
    assert replay(trace, compute={"backward": 0.25}).makespan == pytest.approx(5.5, abs=1e-6)
    assert replay(trace, compute=2.0).makespan == pytest.approx(15.5, abs=1e-6)
    ax = plot_timeline(found.trace, path=found.path, title="the backward pass is the longest step")
    assert "critical path" in [text.get_text() for text in ax.get_legend().get_texts()]
    (line,) = (line for line in ax.lines if line.get_gid() == "path")
    assert line.get_xdata()[[0, -1]] == pytest.approx([0, found.makespan])


def test_what_cannot_be_replayed_is_refused():
    world = SimWorld(2, NETWORK, COMPUTE)
    world.run(chain)
    with pytest.raises(ValueError, match="has no operations; record it"):
        replay(world.trace)
    _, trace = record_run(world, chain)
    trace.operations = [op for op in trace.operations if (op.rank, op.name) != (1, "all_reduce")]
    with pytest.raises(ValueError, match="lacks rank 1"):
        replay(trace)
    with pytest.raises(RankError, match="the program calls send; a replay knows collectives"):
        record_run(world, lambda comm: comm.send(np.zeros(1), 1 - comm.rank))
