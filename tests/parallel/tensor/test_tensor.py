"""Tensor parallelism equals serial training, whatever is sharded over however many ranks, and sends what it says."""

from collections import Counter

import numpy as np
import pytest

from distlearn import nn
from distlearn.comm import Network
from distlearn.comm.base import RankError
from distlearn.optim import Momentum
from distlearn.parallel import TensorParallel, account, parallelize
from distlearn.parallel.meta import meta_copy
from distlearn.sim import Roofline, SimWorld

from ..programs import assert_same_params, parts
from .cases import MODELS, PAIRS, batches, loss_of, serial, train


def tensor(comm, kind, **options):
    return train(lambda *args: TensorParallel(comm, *args), kind, **options)


def assert_equal(results, want):
    """Compare all that training gives, on every rank."""
    assert_same_params(results[0].params, want.params)
    for result in results:
        np.testing.assert_allclose(result.losses, want.losses, atol=1e-12)
        np.testing.assert_allclose(result.predicted, want.predicted, atol=1e-11)
    assert [r.params for r in results[1:]] == [None] * (len(results) - 1)


@pytest.mark.parametrize("kind", MODELS)
def test_equals_serial(kind):
    want = serial(kind)
    for size in (2, 3):
        assert_equal(SimWorld(size, Network(1e-5, 1e8), Roofline(1e9)).run(tensor, kind), want)


@pytest.mark.parametrize("kind", MODELS)
def test_the_account_is_what_a_step_on_real_numbers_sends(kind):
    batch = next(batches(kind, 1))

    def program(comm):
        model, loss = parallelize(MODELS[kind](), comm), loss_of(kind)
        y, saved = model.forward(batch.x)
        model.backward(loss(y, batch.y)[1], saved)

    world, told = SimWorld(2, collectives="formula"), account(MODELS[kind](), batch.x.shape, 2)
    world.run(program)
    calls = Counter((s.name, s.nbytes) for s in world.trace.select(rank=0, lane="comm") if s.name in COLLECTIVES)
    calls += Counter(("send", m.nbytes) for m in world.trace.messages if m.source == 0)
    assert Counter(told.forward + told.backward) == calls
    assert told.nbytes
    assert not account(MODELS[kind](), batch.x.shape, 1).nbytes


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def test_account_reads_as_a_table():
    text = str(account(nn.build("alexnet28"), (8, 784), 3))
    assert "3 ranks, input (8, 784), bytes per sample" in text
    assert "on every rank: 2 groups" in text
    assert "serial masks" in text


def test_alexnet_on_two_ranks_has_the_towers_of_the_paper():
    """Convolutions 4 and 5 look at what lies on the same rank; only 1, 2 and 3 need the channels of the other."""

    def program(comm):
        model = parallelize(meta_copy(outline), comm)
        shapes = [p.data.shape for p in model.params]
        return [type(layer).__name__ for layer in model.layers], shapes

    outline = meta_copy(nn.build("alexnet", seed=None))
    (kinds, shapes), _ = SimWorld(2).run(program)
    told = account(outline, (1, 227, 227, 3), 2)
    after_third = kinds[kinds.index("FilterParallelConv2d", 1) :]
    assert "Gather" not in after_third
    assert [k for k in after_third if "Conv" in k] == [
        "FilterParallelConv2d",
        "GroupParallelConv2d",
        "GroupParallelConv2d",
    ]
    assert shapes[:3] == [(11, 11, 3, 48), (48,), (5, 5, 48, 128)]
    channels = 4 * (55 * 55 * 96 + 27 * 27 * 256)
    assert sum(t.nbytes for t in told.forward) == channels + 4 * (4096 + 1000)
    assert sum(t.nbytes for t in told.backward) == channels + 4 * 4096


def test_a_rank_holds_its_part_alone():
    """Weights, gradients and the optimizer's state of the dense layers shrink with the number of ranks."""

    def program(comm):
        strategy = TensorParallel(comm, *parts(nn.MLP((64, 256, 64), seed=1), Momentum()))
        return sum(p.size for p in strategy.model.params), sum(s.size for s in strategy.optimizer.states)

    whole = 64 * 256 + 256 + 256 * 64
    for held, remembered in SimWorld(4).run(program):
        assert held == remembered == whole // 4 + 64  # the second layer's bias is on every rank


def test_attention_has_its_share_of_the_heads_and_sums_outputs_and_gradients():
    layer = nn.MultiHeadAttention(12, 6, range(4))
    told = account(nn.Sequential(layer), (2, 8, 12), 2)
    assert told.rows[0].layout == "heads over ranks, outputs summed"
    assert [t.nbytes for t in told.forward + told.backward] == [2 * 8 * 12 * 4] * 2
    whole = sum(p.size for p in layer.params)
    for n in SimWorld(3).run(lambda comm: sum(p.size for p in parallelize(nn.Sequential(layer), comm).params)):
        assert n == (whole - 12) // 3 + 12  # but for the output's bias, which all have


def test_only_a_sequential_is_taken():
    with pytest.raises(RankError, match="model is Linear, expected a Sequential"):
        SimWorld(2).run(lambda comm: parallelize(nn.Linear(3, 4), comm))


def test_time_lines_show_work_and_waiting_apart():
    """Compute spans hold no communication, and the second half of a column's backward hides the all-reduce."""

    def program(comm):
        model = parallelize(nn.Sequential(nn.Linear(64, 64, 1), nn.Linear(64, 64, 2), nn.Linear(64, 64, 3)), comm)
        y, saved = model.forward(np.ones((64, 64), "float32"))
        began = comm.clock.now()
        model.backward(y, saved)
        return began

    world = SimWorld(2, Network(0, 2e7), Roofline(1e9))
    began = max(world.run(program))
    compute = world.trace.total(rank=0, lane="compute")
    assert compute == pytest.approx(3 * 3 * 2 * 64**3 / 2 / 1e9)  # three products of three layers, half of each
    backward = world.trace.window(began)
    assert 0 < backward.exposed(0) < backward.total(rank=0, lane="comm")


@pytest.mark.parametrize("kind", PAIRS)
def test_twins_on_two_ranks_are_used_where_they_are_exact(kind):
    def program(comm):
        return [type(layer).__name__ for layer in parallelize(MODELS[kind](), comm).layers]

    assert SimWorld(2).run(program)[0] == ["Siamese" if "dropout" in kind else "SiameseParallel"]
    assert SimWorld(3).run(program)[0] == ["Siamese"]
