"""Checkpoints of strategies that shard the state: those of the serial model, whichever strategy saves and resumes."""

from functools import partial

import numpy as np
import pytest

from distlearn.nn import MLP, BatchNorm, Dropout, Linear, ReLU, Sequential, Sigmoid, SoftmaxCrossEntropy
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import CheckpointStore, DataParallel, Hybrid, PipeDream, Pipeline, Serial, TensorParallel, ZeRO
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params

from .test_checkpoint import fit_until, without_times


def hybrid(comm, *args):
    axes = {"pp": 2} if comm.size == 2 else {"tp": 3} if comm.size == 3 else {"dp": 2, "tp": 2}
    return Hybrid(comm, *args, **axes)


def a_model(kind):
    if kind == "mlp":
        model = MLP((64, 10, 9, 8, 10), "sigmoid", seed=3, dtype="float64")
        model.params[3].frozen = True
        return model
    if kind == "tied":
        shared = Linear(9, 9, 1, dtype="float64")
        ends = Linear(64, 9, 2, dtype="float64"), Linear(9, 10, 3, dtype="float64")
        return Sequential(ends[0], shared, Sigmoid(), shared, Sigmoid(), ends[1])
    first, last = Linear(64, 9, 1, dtype="float64"), Linear(9, 10, 2, dtype="float64")
    ends = last, Dropout(0.1, rng=6)  # of what all ranks have: other masks would be other losses
    return Sequential(first, BatchNorm(9, dtype="float64"), ReLU(), Dropout(0.3, rng=5), *ends)


KINDS = {
    "serial": lambda comm, *args: Serial(*args),
    "data": DataParallel,
    "hybrid": hybrid,
    **{f"zero{stage}": partial(ZeRO, stage=stage, cap_bytes=500) for stage in (1, 2, 3)},
    "tensor": TensorParallel,
    "pipeline": Pipeline,
}


def train_sharded(comm, folder=None, *, strategy, kind="mlp", rule="adam", stop=None, resume=False):
    model = a_model(kind)
    optimizer = Optimizer(model.params, RULES[rule](), 0.05)
    made = KINDS[strategy](comm, model, SoftmaxCrossEntropy(), optimizer)
    history = fit_until(stop, made, folder, 3, every=4, resume=resume)
    return history, made.gather_params()


@pytest.mark.parametrize("strategy", [name for name in KINDS if name not in ("serial", "data")])
@pytest.mark.parametrize(("kind", "rule"), [("mlp", "adam"), ("tied", "momentum"), ("mlp", "sgd")])
def test_a_sharded_state_goes_on_bit_for_bit(tmp_path, strategy, kind, rule):
    options = {"strategy": strategy, "kind": kind, "rule": rule}
    want_history, want = SimWorld(3).run(train_sharded, **options)[0]
    with pytest.raises(Exception, match="Stop"):
        SimWorld(3).run(train_sharded, tmp_path, stop=11, **options)
    (history, got), *others = SimWorld(3).run(train_sharded, tmp_path, resume=True, **options)
    assert CheckpointStore(tmp_path).latest().step == 15
    assert_same_params(got, want, tol=0)
    for other in (history, *(h for h, _ in others)):
        assert without_times(other) == without_times(want_history)


@pytest.mark.parametrize(("before", "after"), [(3, 3), (2, 4), (1, 3), (4, 1)])
def test_masks_of_dropout_and_running_statistics_go_on_with_sharded_layers(tmp_path, before, after):
    """Every rank draws the serial run's masks, before and after."""
    noisy = {"kind": "noisy", "rule": "momentum"}
    want_history, want = SimWorld(1).run(train_sharded, strategy="serial", **noisy)[0]
    names = ["serial" if size == 1 else "tensor" for size in (before, after)]
    with pytest.raises(Exception, match="Stop"):
        SimWorld(before).run(train_sharded, tmp_path, stop=11, strategy=names[0], **noisy)
    history, got = SimWorld(after).run(train_sharded, tmp_path, resume=True, strategy=names[1], **noisy)[0]
    np.testing.assert_allclose(history.losses, want_history.losses, atol=1e-12)
    assert_same_params(got, want)


def test_masks_are_never_those_of_ranks_that_saw_other_samples(tmp_path):
    """Data-parallel ranks' generators may stand apart; ranks that share the batch must draw the same."""
    with pytest.raises(Exception, match="Stop"):
        SimWorld(3).run(train_sharded, tmp_path, stop=11, strategy="data", kind="noisy")

    def program(comm):
        history, _ = train_sharded(comm, tmp_path, resume=True, strategy="tensor", kind="noisy")
        return history.losses

    first, *others = SimWorld(3).run(program)
    assert all(losses == first for losses in others)


def pipedream(comm, folder=None, *, make=PipeDream, stop=None, resume=False, rule="adam", **options):
    """Train with a learning rate that falls with every update; return history, parameters, updates and versions."""
    model = a_model("mlp")
    optimizer = Optimizer(model.params, RULES[rule](), lambda step: 0.05 / (1 + 0.1 * step))
    strategy = make(comm, model, SoftmaxCrossEntropy(), optimizer, **({"n_microbatches": 7} | options))

    history = fit_until(stop, strategy, folder, 3, every=4, resume=resume, evaluate_every=0)
    return history, strategy.gather_params(), strategy.optimizer.steps, getattr(strategy, "versions_held", None)


@pytest.mark.parametrize(
    ("size", "options"),
    [(1, {}), (3, {}), (3, {"rule": "momentum"}), (2, {"schedule": "interleaved", "n_microbatches": 4})],
)
def test_pipedream_goes_on_bit_for_bit(tmp_path, size, options):
    """Steps end with an empty pipeline, though up to p versions are held within one; updates go on being counted."""
    (want_history, want, updates, held), *_ = SimWorld(size).run(pipedream, **options)
    assert updates == 15 * (7 if "n_microbatches" not in options else 4)
    assert max(held.values()) >= min(size, 2)
    with pytest.raises(Exception, match="Stop"):
        SimWorld(size).run(pipedream, tmp_path, stop=11, **options)
    assert CheckpointStore(tmp_path).latest().meta["state"]["optimizer"]["steps"] == 8 * updates // 15
    (history, got, counted, _), *_ = SimWorld(size).run(pipedream, tmp_path, resume=True, **options)
    assert_same_params(got, want, tol=0)
    assert without_times(history) == without_times(want_history)
    assert counted == updates


def test_pipedreams_checkpoint_holds_the_newest_weights_and_nothing_of_the_stash(tmp_path):
    """Those that `gather_params` gives, bit for bit: all that a serial model has, and no more."""
    _, params, _, held = SimWorld(3).run(pipedream, tmp_path)[0]
    found = CheckpointStore(tmp_path).latest()
    assert held == {0: 3}
    assert_same_params({n: found.arrays[f"param/{n}"] for n in params}, params, tol=0)
    names = {name.partition("/")[0] for name in found.arrays}
    assert names == {"param", "optimizer", "history"}
    assert len(found.arrays) == 1 + len(params) + 2 * (len(params) - 1)  # the losses, Adam's two, one is frozen


@pytest.mark.parametrize("after", [(PipeDream, 4), (PipeDream, 1), (Pipeline, 2)])
def test_others_go_on_from_pipedreams_weights(tmp_path, after):
    """With the delays that they have; from the same weights, memory and number of updates."""
    make, size = after
    with pytest.raises(Exception, match="Stop"):
        SimWorld(3).run(pipedream, tmp_path, stop=11)
    (history, _, updates, _), *_ = SimWorld(size).run(pipedream, tmp_path, make=make, resume=True)
    assert len(history.losses) == 15
    assert history.losses[-1] < history.losses[0]
    assert updates == 8 * 7 + 7 * (7 if make is PipeDream else 1)
