"""ZeRO equals serial training at every stage, keeps what the paper says it keeps, and sends what its docstring says."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest

from distlearn.comm import Network
from distlearn.data import Batch
from distlearn.nn import MLP
from distlearn.optim import Adam
from distlearn.parallel import ZeRO
from distlearn.parallel.sharding import HeldElsewhere
from distlearn.sim import Roofline, SimWorld

from .programs import messages, parts

STAGES = [1, 2, 3]


def deep(comm, stage, width=64, overlap=True, steps=1):
    """Train a model of equal layers; return the strategy."""
    options = {"stage": stage, "cap_bytes": 8 * width**2, "overlap": overlap}
    strategy = ZeRO(comm, *parts(MLP((width,) * 9, seed=0, dtype="float64"), Adam(), 0.01), **options)
    for _ in range(steps):
        strategy.step(Batch(np.ones((2, width)), np.zeros(2, int), 2 * comm.size))
    return strategy


# -- communication ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_messages_and_bytes_on_a_ring_are_the_docstrings(stage, size):
    groups = SimWorld(size).run(deep, stage)[0].groups
    b, n = len(groups), sum(g.own.nbytes for g in groups) * size
    calls, nbytes = (3 * b - 1, 3 * n - n / b) if stage == 3 else (2 * b, 2 * n)  # all layers are alike
    loss = 2 * (size - 1), 16 * 2 * (size - 1) / size
    sent, total = messages(size, deep, stage) - messages(size, partial(deep, steps=0), stage)
    assert sent == calls * (size - 1) + loss[0]
    assert total == pytest.approx(size * (nbytes * (size - 1) / size + loss[1]))


@pytest.mark.parametrize("stage", STAGES)
def test_the_time_line_tells_waiting_from_computing(stage):
    """Gathers stand beside the layers' spans, not inside them: nothing looks hidden that is not."""
    world = SimWorld(4, Network(1e-5, 1e9), Roofline(1e10))
    world.run(deep, stage, overlap=False)
    trace = world.trace
    assert trace.exposed(0) == pytest.approx(trace.total(rank=0, lane="comm"))
    layers = [s for s in trace.select(rank=0, lane="compute") if s.name != "update"]
    assert len(layers) == 2 * len(MLP((64,) * 9).layers)
    assert all(s.seconds > 0 for s in layers if s.flops)


def test_the_next_layers_parameters_are_gathered_beside_this_one():
    """Exposed are those of the first layer, the last reduce-scatter, and the loss: with eight layers a small share."""

    def exposed(overlap):
        world = SimWorld(4, Network(1e-7, 8e9), Roofline(2e9))
        world.run(deep, 3, overlap=overlap)
        step = world.trace.window(min(s.start for s in world.trace.select(name="all_gather")))
        return step.exposed(0) / step.total(rank=0, lane="comm"), step.makespan

    (share, fast), (whole, slow) = exposed(True), exposed(False)
    assert whole == pytest.approx(1)
    assert share < 0.15
    assert fast < slow


@pytest.mark.parametrize("stage", [1, 2])
def test_reduce_scatters_hide_behind_backward(stage):
    """Where they are faster than backward, all but those of the last layer: one of eight."""

    def timed(overlap):
        world = SimWorld(4, Network(1e-7, 5e9), Roofline(2e9))
        world.run(deep, stage, overlap=overlap)
        trace = world.trace
        hidden = trace.total(rank=0, lane="comm") - trace.exposed(0)
        return trace.total(rank=0, name="reduce_scatter"), hidden, world.makespan

    (work, hidden, fast), (same, nothing, slow) = timed(True), timed(False)
    assert work == pytest.approx(same)
    assert nothing == pytest.approx(0, abs=1e-12)
    assert hidden == pytest.approx(7 / 8 * work)
    assert slow - fast == pytest.approx(hidden)


def test_a_released_parameter_takes_no_memory():
    strategy = SimWorld(2).run(deep, 3)[0]
    assert all(isinstance(p.data, HeldElsewhere) for p in strategy.model.params)
    data = strategy.model.params[0].data
    for use in (
        np.asarray,
        np.copy,
        abs,
        len,
        bool,
        lambda d: d + 1,
        lambda d: d.mean(),
        lambda d: d.tolist(),
        lambda d: d.T,
        copy.deepcopy,
        pickle.dumps,  # the file would hold no weights
    ):
        with pytest.raises(ValueError, match=r"is held in shards .* strategy.gather_params\(\)"):
            use(data)
    assert not hasattr(data, "__cuda_array_interface__")
