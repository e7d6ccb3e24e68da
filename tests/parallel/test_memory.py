"""Memory of a step: what meta arrays predict is what NumPy allocates, to the byte, for every strategy."""

import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from distlearn.data import Batch
from distlearn.nn import MLP, Linear, Recompute, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import SGD, Adam, Momentum, Optimizer
from distlearn.parallel import DataParallel, Hybrid, PipeDream, Pipeline, Serial, TensorParallel, ZeRO, record_memory
from distlearn.sim import MetaArray

from .combinations import CLASSES, LENGTH, MAKE, choose, make_model, make_optimizer
from .programs import parts

SHAPES = {"vector": (5,), "image": (72,), "sequence": (3, 5), "text": (LENGTH, 5)}


def without_data(batch) -> Batch:
    return Batch(MetaArray(batch.x.shape, batch.x.dtype), MetaArray(batch.y.shape, batch.y.dtype), batch.n)


def serial(rule):
    def make(comm, model):
        return Serial(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, 0.1))

    return make


def zero(stage, rule=None, overlap=True):
    def make(comm, model):
        return ZeRO(comm, *parts(model, rule or Adam(), 0.01), stage=stage, cap_bytes=1, overlap=overlap)

    return make


def test_predicted_is_measured_to_the_byte(request):
    """Random models and rules, at the end of every span of every rank: each strategy on several ranks once, or 400."""
    seen, thorough = set(), request.config.getoption("--thorough")
    for seed in range(400):
        c = replace(choose(random.Random(seed).choice), optimizer="plain")  # other optimizers read values
        c = c if c.dtype != "float16" else replace(c, dtype="float32")  # NumPy's buffers for sums of halves are its own
        kind = c.strategy, c.parallel.get("stage"), c.parallel.get("schedule")
        if not thorough and (c.size not in (2, 3) or len(c.layers) > 3 or kind in seen):
            continue
        seen.add(kind)
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 14))
        x = rng.normal(size=(n, *SHAPES[c.kind])).astype(c.dtype)
        batch = Batch(x, rng.integers(0, CLASSES, (n, *x.shape[1:-1])), n)
        costs = {"stages": rng.random(len(make_model(c).layers)).tolist()} if c.extra["costs"] else {}

        def make(comm, model, c=c, costs=costs):
            optimizer = make_optimizer(replace(c, extra={**c.extra, "past": False}), model)
            return MAKE[c.strategy](comm, model, SoftmaxCrossEntropy(), optimizer, **c.parallel, **costs)

        record_memory(make, make_model(c), without_data(batch), size=c.size)  # tables that are made once a process
        model = make_model(c)
        tracemalloc.start()  # so that index tables are counted, which have data beside meta arrays
        predicted = record_memory(make, model, without_data(batch), size=c.size)
        tracemalloc.stop()
        measured = record_memory(make, model, batch, size=c.size)
        told, found = ([(s.rank, s.at, s.everywhere) for s in r.samples] for r in (predicted, measured))
        assert told == found, f"seed {seed}: {c}"
    assert len({strategy for strategy, *_ in seen}) == len(MAKE)


def test_owners_of_a_step_by_hand():
    """Dense layers save their inputs, of which those behind a ReLU are the ReLU's output: one array."""
    batch = without_data(Batch(np.zeros((32, 784), "f4"), np.zeros(32, int), 32))
    record = record_memory(serial(Momentum()), MLP((784, 256, 10)), batch)
    weights = 4 * (784 * 256 + 256 + 256 * 10 + 10)
    by_name = {s.at: s.owners for s in record.samples}
    always = {"parameters": weights, "gradients": weights, "optimizer": weights, "batch": 32 * (4 * 784 + 8)}
    assert by_name["start"] == always
    assert by_name["forward[1.ReLU]"] == always | {"saved by 1.ReLU": 4 * 32 * 256}  # and what it was made from is gone
    assert by_name["forward[2.Linear]"]["saved by 2.Linear"] == 4 * 32 * 10
    assert record.peak.at == "backward[2.Linear]"
    assert f"{record.peak.total:,}" in str(record)
    assert "1 rank, rank 0 after backward[2.Linear]" in str(record)


def test_recomputation_keeps_an_input_a_block():
    def peak(wrap):
        blocks = (wrap(Sequential(*(Linear(32, 32, 4 * i + j) for j in range(4)), Tanh())) for i in range(4))
        batch = without_data(Batch(np.zeros((64, 32), "f4"), np.zeros(64, int), 64))
        record = record_memory(serial(SGD()), Sequential(*blocks), batch)
        return sum(n for owner, n in record.samples[4].owners.items() if owner.startswith("saved by"))

    assert (peak(lambda block: block), peak(Recompute)) == (4 * 4 * 4 * 64 * 32, 4 * 4 * 64 * 32)


@pytest.mark.parametrize(("rule", "arrays"), [(SGD(), 0), (Momentum(), 1), (Adam(), 2)])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_zero_keeps_what_the_formulas_say(size, rule, arrays):
    """a, g and k bytes for a parameter, its gradient and its state, of which each stage shards one kind more."""
    model = MLP((7, 12, 12, 12), dtype="float64")
    batch = without_data(Batch(np.zeros((8, 7)), np.zeros(8, int), 8))
    padded = sum(-(-p.size // size) * size for p in model.params)
    for stage in (1, 2, 3):
        if stage == 3:  # a layer is a bucket
            padded = sum(-(-sum(p.size for p in layer.params) // size) * size for layer in model.layers)
        kept = record_memory(zero(stage, rule), model, batch, size=size)[0][-1].owners
        for name, each, first in (("parameters", 1, 3), ("gradients", 1, 2), ("optimizer", arrays, 1)):
            assert kept.get(name, 0) == 8 * each * padded / (size if stage >= first else 1), (stage, name)


def test_the_peak_falls_from_stage_to_stage():
    """Stage 3 has one layer gathered and its gradients, and with overlap the next ones; four equal layers, 4 ranks."""
    model = MLP((64,) * 5, dtype="float64")
    batch = without_data(Batch(np.zeros((8, 64)), np.zeros(8, int), 8))
    layer = 8 * (64 * 64 + 64)
    for overlap in (False, True):
        records = [record_memory(zero(s, overlap=overlap), model, batch, size=4) for s in (1, 2, 3)]
        peaks = [record.peak.total for record in records]
        assert peaks[0] > peaks[1] > peaks[2]
        most = {name: max(s.owners.get(name, 0) for s in records[2][0]) for name in ("parameters", "gradients")}
        assert most == {"parameters": (4 / 4 + 1) * layer, "gradients": (4 / 4 + 1 + overlap) * layer}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Pipeline, {}), (PipeDream, {"n_microbatches": 4}), (TensorParallel, {}), (Hybrid, {"pp": 2, "tp": 2})],
)
def test_a_rank_of_a_model_that_is_split_does_not_hold_the_rest(kind, options):
    """Neither the strategy nor the optimizer that it was given keeps the parameters of other ranks alive."""
    model = MLP((1000, 1000, 1000, 1000, 10))

    def make(comm, model):
        return kind(comm, *parts(model, SGD(), 0.1), **options)

    record = record_memory(make, model, without_data(Batch(np.zeros((16, 1000), "f4"), np.zeros(16, int), 16)), size=4)
    assert all(sample.owners.get("other", 0) < 0.01 * sum(p.nbytes for p in model.params) for sample in record.samples)


def test_copies_of_what_is_summed_are_communication_with_overlap_too():
    """And not of the layer during whose backward pass they are made."""
    batch = without_data(Batch(np.zeros((64, 512), "f4"), np.zeros(64, int), 64))

    def record(overlap):
        make = lambda comm, model: DataParallel(comm, *parts(model, SGD(), 0.1), overlap=overlap)  # noqa: E731
        return record_memory(make, MLP((512, 2048, 2048, 64)), batch, size=2)

    with_overlap, without = record(True).peak.owners, record(False).peak.owners
    assert with_overlap == without
    assert with_overlap["communication"] == 2 * with_overlap["gradients"]


def test_one_copy_of_a_model_sends_no_gradients():
    """They are the sums already: a copy of them would be as large as they are."""
    batch = without_data(Batch(np.zeros((8, 512), "f4"), np.zeros(8, int), 8))
    for make, size in (
        (lambda comm, model: Hybrid(comm, *parts(model, SGD(), 0.1), pp=2), 2),
        (lambda comm, model: DataParallel(comm, *parts(model, SGD(), 0.1)), 1),
    ):
        record = record_memory(make, MLP((512, 2048, 512, 64)), batch, size=size)
        assert max(sample.owners.get("communication", 0) for sample in record[0]) < 512 * 512
