"""Simulated curves are the strategy's own time line, and agree with what a formula says of them."""

import numpy as np
import pytest
from distcourse import scaling

from distlearn.comm import Network
from distlearn.comm.network import cost
from distlearn.data import Batch
from distlearn.nn import SoftmaxCrossEntropy, build
from distlearn.nn.models import MODELS
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import FP16, DataParallel, Int8, OneBit, TopK
from distlearn.parallel.meta import MetaCodec, meta_batch, meta_loss, meta_model
from distlearn.sim import MetaArray, Roofline, SimWorld

NETWORK, COMPUTE = Network(20e-6, 1e9), Roofline(1e12, 1e11)
CODECS = [FP16(), Int8(), OneBit(), TopK(0.05)]


def one_step(comm, name, real, codec=None, n=10):
    """A training step of a small network, with numbers or without."""
    model = build(name, seed=0, dtype="float32")
    batch = meta_batch(n, MODELS[name].sample, comm.rank, comm.size)
    if real:
        rng, mine = np.random.default_rng(comm.rank), len(batch.x)
        batch = Batch(rng.random(batch.x.shape, np.float32), rng.integers(0, 10, mine), n)
        strategy = DataParallel(
            comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.1), cap_bytes=1e5, compress=codec
        )
    else:
        model = meta_model(model)
        codec = None if codec is None else MetaCodec(codec)
        optimizer = Optimizer(model.params, Momentum(), 0.1)
        strategy = DataParallel(comm, model, meta_loss, optimizer, cap_bytes=1e5, compress=codec)
    strategy.step(batch)


@pytest.mark.parametrize("codec", [None, *CODECS], ids=str)
@pytest.mark.parametrize("name", ["lenet", "googlenet28"])
def test_a_model_without_numbers_has_the_time_line_of_the_real_one(name, codec):
    lines = []
    for real in (True, False):
        world = SimWorld(3, NETWORK, COMPUTE)
        world.run(one_step, name, real, codec)
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


def test_a_batch_too_small_is_named():
    with pytest.raises(ValueError, match="a batch of 16 for 32 nodes"):
        scaling.simulate_step("lenet", 32, NETWORK, batch=16)


@pytest.mark.parametrize("nodes", [2, 7, 64])
def test_without_overlap_an_iteration_is_computing_and_one_ring(nodes):
    point = scaling.simulate_step(
        "alexnet", nodes, NETWORK, batch=nodes * 8, compute=COMPUTE, cap_bytes=1e12, overlap=False
    )
    nbytes = scaling.facts("alexnet").weights_mb * 1e6 + 8  # loss and rows ride along
    ring = 2 * (nodes - 1) * (20e-6 + nbytes / nodes / 1e9)
    alone = scaling.simulate_step("alexnet", 1, NETWORK, batch=8, compute=COMPUTE)
    assert point.computing == pytest.approx(alone.seconds, rel=1e-9)
    assert point.exposed == pytest.approx(ring, rel=1e-9)
    assert point.exposed == pytest.approx(cost.seconds("ring", nbytes, nodes, NETWORK), rel=1e-9)
    assert point.seconds == pytest.approx(alone.seconds + ring, rel=1e-9)


@pytest.mark.parametrize("name", ["alexnet", "googlenet"])
def test_overlap_hides_communication_within_what_is_possible(name):
    for batch in (8, 512):
        bare = scaling.simulate_step(name, 4, "ethernet-10g", batch=4 * batch, overlap=False)
        point = scaling.simulate_step(name, 4, "ethernet-10g", batch=4 * batch)
        assert point.computing == pytest.approx(bare.computing)
        assert max(point.computing, point.communicating) <= point.seconds < bare.seconds
        assert point.seconds <= point.computing + point.communicating + 1e-12
        assert point.exposed == pytest.approx(point.seconds - point.computing)
    assert point.exposed < 0.7 * point.communicating, "512 images leave time to hide in"


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


@pytest.mark.parametrize("nodes", [2, 5, 16])
@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_codes_take_what_their_bytes_take(codec, nodes):
    options = {"batch": nodes, "compute": COMPUTE, "cap_bytes": 1e12, "overlap": False}
    point = scaling.simulate_step("alexnet", nodes, NETWORK, codec=codec, **options)
    n = round(scaling.facts("alexnet").weights_mb * 1e6 / 4)
    code = codec.nbytes(n if codec.sparse else -(-n // nodes), np.float32)
    phases = 1 if codec.sparse else 2
    want = phases * (20e-6 + (nodes - 1) * code / 1e9)  # a card sends one message after another
    assert point.exposed == pytest.approx(want, rel=2e-3)


def test_every_node_has_a_batch_of_its_own():
    curve = scaling.scaling_curve("lenet", NETWORK, nodes=[2, 4, 8], batch=16, compute=COMPUTE)
    assert [p.batch for p in curve.points] == [32, 64, 128]
    assert {round(p.computing, 12) for p in curve.points} == {round(curve.alone.computing, 12)}
    for p in curve.points:
        assert curve.efficiency(p) == pytest.approx((p.batch / p.seconds) / (p.nodes * 16 / curve.alone.seconds))


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
