"""Checkpoints of what differs from rank to rank: replicas between two averages, and what codes have left out."""

from functools import partial

import numpy as np
import pytest

from distlearn.data import Batch
from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import SGD, Adam, Momentum, Optimizer
from distlearn.parallel import (
    FP16,
    DataParallel,
    Int8,
    LocalSGD,
    OneBit,
    TopK,
)
from distlearn.parallel.checkpoint.state import capture, restore
from distlearn.sim import SimWorld

from .programs import assert_same_params
from .test_checkpoint import DATA, DATASET, a_model, interrupted, train, without_times

LOSS = SoftmaxCrossEntropy()


# -- local SGD ---------------------------------------------------------------------------------------------------------


def local(every=3):
    return partial(LocalSGD, every=every)


@pytest.mark.parametrize(
    ("stop", "kind", "rule", "options"),
    [
        (7, "mlp", "adam", {}),  # from step 4, one after an average
        (13, "mlp", "adam", {}),  # from step 12, right after one
        (9, "noisy", "momentum", {}),
        (13, "noisy", "momentum", {}),
        (13, "mlp", "sgd", {"every": None}),
    ],
)
def test_as_many_replicas_go_on_bit_for_bit(tmp_path, stop, kind, rule, options):
    """Every rank with its own parameters, momentum, running statistics and masks, and as far from the next average."""
    make = local(**options)
    want = SimWorld(3).run(train, make, kind=kind, rule=rule)
    interrupted(3, make, tmp_path, stop, kind=kind, rule=rule)
    got = SimWorld(3).run(train, make, tmp_path, kind=kind, rule=rule, resume=True)
    for (_, _, own, _), (_, _, want_own, _) in zip(got, want, strict=True):
        assert_same_params(own, want_own, tol=0)
    assert without_times(got[0][0]) == without_times(want[0][0])  # others' losses are their own; rank 0's are kept


def replicas(comm, every=3, steps=4, arrays=None, rule=Adam, uneven=True):
    """Train apart for some steps; return the state, what `finish` would make of it, and the strategy."""
    model = a_model()
    strategy = LocalSGD(comm, model, LOSS, Optimizer(model.params, rule(), 0.05), every=every)
    if arrays is not None:
        strategy.load_state_dict(arrays)
    weights = np.arange(comm.size) if uneven and comm.size > 1 else np.ones(comm.size)
    bounds = np.round(np.concatenate([[0], np.cumsum(weights)]) / weights.sum() * 20).astype(int)
    for step in range(steps):
        rows = slice(20 * step + bounds[comm.rank], 20 * step + bounds[comm.rank + 1])
        strategy.step(Batch(DATASET.x_train[rows], DATASET.y_train[rows], min(20, len(DATASET.x_train) - 20 * step)))
    state, _ = capture(strategy)
    strategy.finish()
    return state, strategy.gather_params(), strategy


def test_the_serial_part_is_the_average_that_the_ranks_would_have_made():
    """Weighted by the samples of each; one rank has none."""
    state, averaged, _ = SimWorld(3).run(replicas)[0]
    for name, value in averaged.items():
        np.testing.assert_allclose(state[f"param/{name}"], value, atol=1e-14)
        assert abs(state[f"ranks/1/param/{name}"] - value).max() > 1e-6  # the replicas are apart


def test_right_after_an_average_parameters_are_saved_once_and_to_the_bit():
    state, averaged, _ = SimWorld(3).run(replicas, steps=3)[0]
    assert not [name for name in state if name.startswith("ranks/") and "/param/" in name]
    assert {"ranks/0/optimizer/0.W/0", "ranks/2/optimizer/0.W/1"} <= set(state)  # the memory is each rank's own
    for name, value in averaged.items():
        assert state[f"param/{name}"].tobytes() == value.tobytes()
    plain, _, _ = SimWorld(3).run(replicas, steps=3, rule=SGD)[0]
    assert [name for name in plain if name.startswith("ranks/")] == [f"ranks/{r}/since_average" for r in range(3)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_another_number_of_replicas_begins_at_the_average(size):
    """As if the ranks had averaged when they saved: the next average is every steps later."""
    state, _, _ = SimWorld(3).run(replicas)[0]

    def program(comm):
        _, _, strategy = replicas(comm, steps=0, arrays=state)
        at_first = {p.name: p.data.copy() for p in strategy.model.params}
        memory = strategy.optimizer.states[0][0].copy()
        together = []
        for step in range(4):
            rows = slice(20 * step + comm.rank * 5, 20 * step + comm.rank * 5 + 5)
            strategy.step(Batch(DATASET.x_train[rows], DATASET.y_train[rows], 5 * comm.size))
            together.append(comm.all_gather(strategy.model.params[0].data).std(axis=0).max() == 0)
        return at_first, memory, together

    for at_first, memory, together in SimWorld(size).run(program):
        assert_same_params(at_first, {name: state[f"param/{name}"] for name in at_first})
        assert memory.tobytes() == state["optimizer/0.W/0"].tobytes()
        assert together == [size == 1, size == 1, True, size == 1]


@pytest.mark.parametrize("before", [DATA, partial(DATA, compress=OneBit())])
def test_replicas_go_on_from_the_state_that_data_parallelism_saved(tmp_path, before):
    """What codes have left out is nothing that replicas have a use for."""
    interrupted(3, before, tmp_path, 6)
    got = SimWorld(3).run(train, local(1), tmp_path, rule="adam", resume=True)
    assert len(got[0][0].losses) == 15


def test_a_smaller_h_than_the_saved_runs_averages_at_once():
    """Five steps since the last average of every 8th; every 4th would never come again if it had to be met exactly."""
    state, _, _ = SimWorld(2).run(replicas, every=8, steps=5, uneven=False)[0]

    def program(comm):
        return replicas(comm, every=4, steps=1, arrays=state, uneven=False)[0]

    after = SimWorld(2).run(program)[0]
    assert not [name for name in after if name.startswith("ranks/") and "/param/" in name]


# -- what codes have left out ------------------------------------------------------------------------------------------

CODECS = [OneBit(), TopK(0.05), Int8(), FP16()]


@pytest.mark.parametrize(("make", "codec"), [(DataParallel, c) for c in CODECS], ids=str)
def test_as_many_ranks_with_codecs_go_on_bit_for_bit(tmp_path, codec, make):
    """With the errors of every bucket and rank, and the generators that round at random."""

    made = partial(make, cap_bytes=500, compress=codec)
    want_history, want, *_ = SimWorld(3).run(train, made)[0]
    interrupted(3, made, tmp_path, 11)
    history, got, *_ = SimWorld(3).run(train, made, tmp_path, resume=True)[0]
    assert_same_params(got, want, tol=0)
    assert without_times(history) == without_times(want_history)


@pytest.mark.parametrize(
    ("size", "options"), [(3, {}), (2, {"cap_bytes": 1e6}), (2, {"compress": TopK(0.2)}), (2, {"compress": None})]
)
def test_with_other_ranks_buckets_or_codecs_nothing_is_left_out(size, options):
    """The errors of a code are of use to the same ranks with the same buckets alone: then they are all there again."""

    def program(comm, state=None, **options):
        model = a_model()
        options = {"cap_bytes": 500, "compress": OneBit()} | options
        strategy = DataParallel(comm, model, LOSS, Optimizer(model.params, Momentum(), 0.1), **options)
        if state is None:
            rows = slice(9 * comm.rank, 9 * comm.rank + 9)
            strategy.step(Batch(DATASET.x_train[rows], DATASET.y_train[rows], 18))
        else:
            restore(strategy, *state)
        return capture(strategy)

    state = SimWorld(2).run(program)[0]
    kept = {name for name in state[0] if name.startswith("ranks/")}
    again = SimWorld(2).run(program, state)[0][0]
    assert all(again[name].tobytes() == state[0][name].tobytes() and abs(again[name]).max() > 0 for name in kept)
    assert {name for name in again if name.startswith("ranks/")} == kept
    assert {name[:8] for name in kept} == {"ranks/0/", "ranks/1/"}
    other = SimWorld(size).run(program, state, **options)[0][0]
    assert not [name for name in other if name.startswith("ranks/")]
