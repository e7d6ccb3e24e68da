"""A plan: the cost of every layout, by simulation of its strategy, and which one is recommended."""

from functools import cache, partial

import numpy as np
import pytest

from distlearn.comm import HierarchicalNetwork, Network
from distlearn.comm.network.cost import sent_bytes
from distlearn.data import Batch
from distlearn.nn import GPT, MLP, Linear, SoftmaxCrossEntropy, build
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import (
    DataParallel,
    Hybrid,
    Layout,
    OneWeirdTrick,
    TensorParallel,
    plan,
    record_memory,
    simulate_layout,
)
from distlearn.parallel.meta import meta_batch, meta_copy, meta_loss
from distlearn.parallel.planning import layouts
from distlearn.sim import MetaArray, Roofline, SimWorld

NETWORK, COMPUTE = Network(20e-6, 1e9), Roofline(2e12, 2e11)
CLUSTER = HierarchicalNetwork(Network(2e-6, 2e11), Network(10e-6, 2e9), ranks_per_node=4)

WIDE = MLP((784, 2048, 2048, 2048, 10), seed=None)
"""Dense layers like AlexNet's: nearly all of a network's weights in a few of them."""
SMALL = MLP((784, 32, 32, 10), seed=None)

CASES = {
    "lenet": ("lenet", NETWORK, 4, {"batch_size": 512}, "data 4"),
    "small": (SMALL, NETWORK, 4, {"batch_size": 4096, "input_shape": (784,)}, "data 4"),
    "googlenet28": ("googlenet28", "ethernet-10g", 4, {"batch_size": 256}, "data 4"),
    "wide": (WIDE, NETWORK, 8, {"batch_size": 64, "input_shape": (784,)}, "tensor 8"),
    "lenet, cluster": ("lenet", CLUSTER, 8, {"batch_size": 512}, "data 2 x tensor 4"),
    "cnn, nearly a rank for each layer": ("cnn", NETWORK, 8, {"batch_size": 64}, "data 8"),
    "alexnet": ("alexnet", "ethernet-10g", 4, {"batch_size": 128}, "one weird trick 4"),
    "siamese": ("siamese", NETWORK, 4, {"batch_size": 64}, "data 4"),
    "gru": ("gru", NETWORK, 2, {"batch_size": 64}, "data 2"),
}


@cache
def planned(case):
    """The plan of a case."""
    model, network, n, options, _ = CASES[case]
    compute = {} if isinstance(network, str) else {"compute": COMPUTE}
    return plan(model, network, n, **options, **compute)


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize("case", CASES)
def test_the_fastest_layout_is_recommended(case):
    found, best = planned(case), CASES[case][-1]
    assert len(found.costs) >= 3
    assert found.best.seconds == min(c.seconds for c in found.costs)
    assert str(found.best.layout) == best, found


@pytest.mark.parametrize("layout", [Layout(8), Layout(6, 2), Layout(4, 1, 2), Layout(9)], ids=str)
@pytest.mark.parametrize("network", [NETWORK, CLUSTER])
def test_two_replicas_stand_for_many(layout, network, monkeypatch):
    """Of large layouts two replicas are simulated; here all of them can be."""
    options = {"batch_size": 4 * layout.dp, "compute": COMPUTE}
    whole = simulate_layout("lenet", layout, network, **options)
    monkeypatch.setattr("distlearn.parallel.planning.search.MOST_RANKS", 4)
    part = simulate_layout("lenet", layout, network, **options)
    assert len(part.trace.ranks) < layout.size == len(whole.trace.ranks)
    assert part.seconds == pytest.approx(whole.seconds, rel=0.01)
    assert part.nbytes == pytest.approx(whole.nbytes)
    assert (part.memory.at, part.memory.owners) == (whole.memory.at, whole.memory.owners)


def test_layouts_of_a_thousand_ranks_that_are_too_large_to_simulate_are_left_out():
    found = plan(SMALL, NETWORK, 1000, batch_size=4000, input_shape=(784,))
    assert {c.layout.tp * c.layout.pp for c in found.costs} == {1, 2, 4, 5, 8}
    assert max(len(c.trace.ranks) for c in found.costs) == 16
    every = layouts(1000, batch_size=4000, n_layers=len(SMALL.layers))
    assert found.left_out == len(every) - len(found.costs)
    assert f" {found.left_out} layouts of too many ranks to simulate are left out" in str(found)
    assert "left out" not in str(plan(SMALL, NETWORK, 2, batch_size=8, input_shape=(784,)))
    with pytest.raises(ValueError, match="1000 ranks for 100 samples would take replicas of more than 8 ranks"):
        plan(SMALL, NETWORK, 1000, batch_size=100, input_shape=(784,))


def test_bytes_are_those_that_the_busiest_rank_sends():
    options = {"batch_size": 64, "input_shape": (784,)}
    costs = plan(WIDE, NETWORK, 4, **options)
    weights, itemsize = sum(p.nbytes for p in WIDE.params), 4
    assert costs[Layout(4)].nbytes == pytest.approx(sent_bytes("all_reduce", weights, 4), rel=1e-3)
    cuts = itemsize * 64 * 2048  # a stage in the middle sends its activations on, and a gradient back
    assert costs[Layout(1, 1, 4)].nbytes == pytest.approx(2 * cuts, rel=1e-3)
    assert costs[Layout(1, 4)].nbytes == pytest.approx(
        sent_bytes("all_reduce", 64 * (2048 * 2 + 10) * itemsize, 4), rel=1e-2
    )


GRID = {"dp": 2, "pp": 2, "tp": 2, "shape": (6, 784), "n_microbatches": 3}


@pytest.mark.parametrize(
    ("way", "size", "gpt"),
    [
        (partial(Hybrid, **GRID), 8, False),
        (TensorParallel, 3, False),
        (OneWeirdTrick, 4, False),
        (DataParallel, 2, True),
        (TensorParallel, 2, True),
    ],
)
def test_the_simulated_layouts_are_those_of_real_numbers(way, size, gpt):
    """The same spans and messages with numbers and without; a GPT's input is of integers, and it computes inside."""
    rng = np.random.default_rng(0)
    text = rng.integers(0, 16, (12, 8))
    x, y = (text, text) if gpt else (rng.random((12, 784), np.float32), rng.integers(0, 10, 12))

    def program(comm, real):
        model = GPT(16, 8, 2, 1, seed=0) if gpt else build("lenet", seed=0)
        model = model if real else meta_copy(model)
        loss, optimizer = SoftmaxCrossEntropy() if real else meta_loss, Optimizer(model.params, Momentum(), 0.1)
        strategy = way(comm, model, loss, optimizer)
        rows = slice(strategy.rank * 6, strategy.rank * 6 + 12 // strategy.size)
        parts = x[rows], y[rows]
        strategy.step(Batch(*(parts if real else (MetaArray(a.shape, a.dtype) for a in parts)), 12))
        return strategy.model.forward(parts[0] if real else MetaArray(parts[0].shape, x.dtype))[0].dtype if gpt else 0

    found = []
    for real in (True, False):
        world = SimWorld(size, NETWORK, COMPUTE)
        dtypes = world.run(program, real)
        found.append((dtypes, sorted(world.trace.spans), sorted(world.trace.messages)))
    assert found[0] == found[1]


def test_the_memory_of_a_layout_is_that_of_a_recorded_step():
    def make(comm, model):
        return DataParallel(comm, model, meta_loss, Optimizer(model.params, Momentum(), 0.1), cap_bytes=25 << 20)

    found = simulate_layout("googlenet28", Layout(2), NETWORK, batch_size=8).memory
    record = record_memory(make, build("googlenet28", seed=None), meta_batch(8, (784,), 0, 1), size=2)
    assert (found.at, found.owners) == (record.peak.at, record.peak.owners)


def test_micro_batches_are_those_of_pipelines_alone():
    for layout, same in ((Layout(2, 2), True), (Layout(2, 1, 2), False)):
        one, many = (simulate_layout("lenet", layout, NETWORK, batch_size=16, n_microbatches=m).seconds for m in (1, 8))
        assert (one == many) == same, layout


def test_what_does_not_fit_is_not_recommended():
    options = {"batch_size": 512, "compute": COMPUTE}
    free = planned("lenet")
    need = free.best.memory.total
    tight = plan("lenet", NETWORK, 4, memory=need - 1, **options)
    assert tight.best.layout != free.best.layout
    assert tight.best.memory.total < need
    assert tight.best.seconds == min(c.seconds for c in tight.costs if tight.fits(c))
    assert "does not fit" in str(tight)
    none = plan("lenet", NETWORK, 4, memory=1e5, **options)
    assert none.best is None
    assert "Nothing fits" in none.why()
    assert "does not fit" in repr(none)


def test_parts_add_up():
    found = planned("lenet")
    for c in found.costs:
        assert c.layout.size == 4
        assert c.waiting > 0
        assert c.seconds == pytest.approx(c.computing + c.waiting)
    assert f"{found.best.layout}: " in found.why()
    assert "<table>" in found._repr_html_()


def test_on_a_free_network_all_that_counts_is_computing():
    found = plan("lenet", Network(), 4, batch_size=64)
    assert all((c.waiting > 1e-12) == (c.layout.pp > 1) for c in found.costs), "a bubble is left"
    alone = plan("lenet", NETWORK, 1, batch_size=64)
    assert [str(c.layout) for c in alone.costs] == ["serial"]


def test_layouts_use_every_rank_once():
    for n in (1, 6, 16):
        found = layouts(n, batch_size=1000, n_layers=1000, trick=True)
        assert len(found) == len(set(found))
        assert all(layout.size == n for layout in found)
        triples = [(a, b, n // a // b) for a in range(1, n + 1) for b in range(1, n + 1) if n % (a * b) == 0]
        assert sorted(layout[:3] for layout in found if not layout.trick) == sorted(triples)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="shape of a sample is None, expected that of the input of this Sequential"):
        plan(SMALL, NETWORK, 4, batch_size=8)
    with pytest.raises(ValueError, match="batch_size is 0"):
        plan("lenet", NETWORK, 4, batch_size=0)
    with pytest.raises(TypeError, match="expected a model or the name of one"):
        plan(5, NETWORK, 4, batch_size=8)
    for options, message in (
        ({"batch_size": 8.0}, "batch_size is 8.0"),
        ({"n_microbatches": 0}, "n_microbatches is 0, expected a whole number of 1 or more"),
        ({"memory": -1}, "memory is -1, expected a number above 0"),
        ({"memory": "16 GB"}, "memory is '16 GB', expected a number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            plan("lenet", NETWORK, 4, **{"batch_size": 8, **options})
    for model, network, options, message in (
        ("lenet", 5, {}, "the network is 5, expected a Network or the name of one"),
        (Linear(3, 4), NETWORK, {"input_shape": (3,)}, r"Linear\(3, 4\), expected a Sequential of layers that learn"),
    ):
        with pytest.raises(TypeError, match=message):
            plan(model, network, 4, batch_size=8, **options)
    small = [plan(SMALL, NETWORK, n(2), batch_size=n(8), input_shape=(784,)) for n in (int, np.int64)]
    assert str(small[0]) == str(small[1])
    with pytest.raises(ValueError, match="n is 0"):
        plan("lenet", NETWORK, 0, batch_size=8)
    with pytest.raises(KeyError, match="no layout tensor 5, there are "):
        small[0]["tensor 5"]
    assert all(np.all(p.data == 0) for p in SMALL.params), "the model is only looked at"
    assert not isinstance(SMALL.params[0].data, MetaArray)
