"""Simulated curves are the strategy's own time line, and agree with what a formula says of them."""

import numpy as np
import pytest
from distcourse import scaling

from distlearn.comm import Network
from distlearn.data import Batch
from distlearn.nn import SoftmaxCrossEntropy, build
from distlearn.nn.models import MODELS
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import DataParallel
from distlearn.parallel.meta import meta_batch, meta_loss, meta_model
from distlearn.sim import MetaArray, Roofline, SimWorld

NETWORK, COMPUTE = Network(20e-6, 1e9), Roofline(1e12, 1e11)


def one_step(comm, name, real, n=10):
    """A training step of a small network, with numbers or without."""
    model = build(name, seed=0, dtype="float32")
    batch = meta_batch(n, MODELS[name].sample, comm.rank, comm.size)
    if real:
        rng, mine = np.random.default_rng(comm.rank), len(batch.x)
        batch = Batch(rng.random(batch.x.shape, np.float32), rng.integers(0, 10, mine), n)
        loss = SoftmaxCrossEntropy()
    else:
        model, loss = meta_model(model), meta_loss
    DataParallel(comm, model, loss, Optimizer(model.params, Momentum(), 0.1), cap_bytes=1e5).step(batch)


@pytest.mark.parametrize("name", ["lenet", "googlenet28"])
def test_a_model_without_numbers_has_the_time_line_of_the_real_one(name):
    lines = []
    for real in (True, False):
        world = SimWorld(3, NETWORK, COMPUTE)
        world.run(one_step, name, real)
        lines.append(world.trace)
    assert lines[0].spans == lines[1].spans
    assert lines[0].messages == lines[1].messages
    assert len(lines[0].select(rank=0, lane="compute")) == 2 * len(build(name, seed=None).layers) + 1


def test_meta_models_keep_names_ties_and_frozen_parameters():
    model = build("gru", seed=None)
    model.params[1].frozen = True
    meta = meta_model(model)
    assert [(p.name, p.data.shape, p.frozen) for p in meta.params] == [
        (p.name, p.data.shape, p.frozen) for p in model.params
    ]
    again = meta_model(meta)
    assert [p.name for p in again.params] == [p.name for p in model.params]
    assert all(a is not b for a, b in zip(again.params, meta.params, strict=True)), "every rank has its own"
    assert isinstance(again.params[0].grad, MetaArray)


def test_computing_takes_what_the_roofline_says():
    s, want = (16, 227, 227, 3), 0.0
    model = build("alexnet", seed=None)
    for layer in model.layers:
        flops, moved = layer.flops(s), layer.bytes_moved(s)
        want += max(flops / 1e12, moved / 1e11) + max(layer.backward_flops(s) / 1e12, 2 * moved / 1e11)
        s = layer.output_shape(s)
    want += 5 * sum(p.nbytes for p in model.params) / 1e11  # the update reads gradients, reads and writes two more
    assert scaling.simulate_step("alexnet", 1, NETWORK, batch=16, compute=COMPUTE).seconds == pytest.approx(
        want, rel=1e-9
    )


def test_every_node_has_a_batch_of_its_own():
    curve = scaling.scaling_curve("lenet", NETWORK, nodes=[2, 4, 8], batch=16, compute=COMPUTE)
    assert [p.batch for p in curve.points] == [32, 64, 128]
    assert {round(p.computing, 12) for p in curve.points} == {round(curve.alone.computing, 12)}
    for p in curve.points:
        assert curve.efficiency(p) == pytest.approx((p.batch / p.seconds) / (p.nodes * 16 / curve.alone.seconds))


@pytest.mark.nightly
def test_the_lectures_finding_and_where_it_ends():
    """AlexNet stalls at once over 10 Gb/s, GoogLeNet later, and no model stalls on a network without cost."""
    curves = {
        (name, batch): scaling.scaling_curve(name, nodes=[2, 8, 64], batch=batch)
        for name in ("alexnet", "googlenet")
        for batch in (32, 256)
    }
    assert [c.stall() for c in curves.values()] == [2, 2, 8, None]
    for c in curves.values():
        assert c.stall() == next((p.nodes for p in c.points if c.efficiency(p) < 0.5), None)
    free = scaling.scaling_curve("alexnet", Network(), nodes=[64], batch=32)
    assert free.efficiency(free.points[0]) > 0.999


def test_the_two_networks_against_the_lecture():
    ours = {name: scaling.facts(name) for name in scaling.LECTURE}
    for name, ours_now in ours.items():
        assert ours_now[1:3] == scaling.LECTURE[name][1:3]
        assert ours_now.dense_layers == scaling.LECTURE[name].dense_layers
        assert ours_now.dense_weights == pytest.approx(scaling.LECTURE[name].dense_weights, rel=0.07)
    assert ours["alexnet"].weights_mb == pytest.approx(250, rel=0.03)
    assert ours["googlenet"].weights_mb + scaling.auxiliary_mb() == pytest.approx(4 * 13_378_280 / 1e6)
    assert scaling.without_towers() == pytest.approx(scaling.LECTURE["alexnet"].exaflop, rel=0.06)
    assert 4 * ours["googlenet"].exaflop == pytest.approx(scaling.LECTURE["googlenet"].exaflop, rel=0.1)
    assert "118 images" in str(scaling.two_networks())
    assert scaling.two_networks().rows[-1] == ["flop per byte of weights", "4,367", "7,111", "10,664", "22,000"]
