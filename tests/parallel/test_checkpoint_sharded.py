"""Checkpoints of strategies that shard the state: those of the serial model, whichever strategy saves and resumes."""

from functools import partial

import numpy as np
import pytest

from distlearn.parallel import CheckpointStore, DataParallel, Hybrid, PipeDream, Pipeline, TensorParallel
from distlearn.parallel.checkpoint.state import all_generators
from distlearn.sim import SimWorld

from .programs import assert_same_params, serial
from .test_checkpoint import interrupted, train, without_times

TENSOR, STAGES = TensorParallel, partial(Pipeline, n_microbatches=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((3, TENSOR), (3, TENSOR)),
        ((2, TENSOR), (4, TENSOR)),
        ((1, serial), (3, TENSOR)),
        ((4, TENSOR), (1, serial)),
        ((2, STAGES), (1, serial)),  # its ranks have one generator each
        ((3, STAGES), (2, STAGES)),
        ((3, TENSOR), (2, STAGES)),
        ((4, partial(Hybrid, pp=2, tp=2, n_microbatches=1)), (3, STAGES)),
    ],
)
def test_masks_of_dropout_and_running_statistics_go_on_with_sharded_layers(tmp_path, before, after):
    """Every rank draws the serial run's masks, before and after."""
    noisy = {"kind": "noisy", "rule": "momentum"}
    want_history, want, *_ = SimWorld(1).run(train, serial, **noisy)[0]
    interrupted(*before, tmp_path, 11, **noisy)
    history, got, *_ = SimWorld(after[0]).run(train, after[1], tmp_path, resume=True, **noisy)[0]
    np.testing.assert_allclose(history.losses, want_history.losses, atol=1e-12)
    assert_same_params(got, want)


def test_masks_are_never_those_of_ranks_that_saw_other_samples(tmp_path):
    """Data-parallel ranks' generators may stand apart; ranks that share the batch must draw the same."""
    interrupted(3, DataParallel, tmp_path, 11, kind="noisy")
    results = SimWorld(3).run(train, TensorParallel, tmp_path, resume=True, kind="noisy")
    first, *others = [
        [rng.bit_generator.state for rng in all_generators(strategy).values()] for *_, strategy in results
    ]
    assert len(first) == 2
    assert all(other == first for other in others)


def pipedream(make=PipeDream, n_microbatches=7, **options):
    return partial(make, n_microbatches=n_microbatches, **options)


def falling(step):
    """A learning rate that falls with every update."""
    return 0.05 / (1 + 0.1 * step)


DEEP = {"kind": "deep", "lr": falling}


@pytest.mark.parametrize(
    ("size", "rule", "options"),
    [
        (1, "adam", {}),
        (3, "adam", {}),
        (3, "momentum", {}),
        (2, "adam", {"schedule": "interleaved", "n_microbatches": 4}),
    ],
)
def test_pipedream_goes_on_bit_for_bit(tmp_path, size, rule, options):
    """Steps end with an empty pipeline, though up to p versions are held within one; updates go on being counted."""
    given, make = {"rule": rule, **DEEP}, pipedream(**options)
    want_history, want, _, strategy = SimWorld(size).run(train, make, **given)[0]
    assert strategy.optimizer.steps == 15 * options.get("n_microbatches", 7)
    assert max(strategy.versions_held.values()) >= min(size, 2)
    interrupted(size, make, tmp_path, 11, **given)
    assert CheckpointStore(tmp_path).latest().meta["state"]["steps"] == 8 * strategy.optimizer.steps // 15
    history, got, _, again = SimWorld(size).run(train, make, tmp_path, resume=True, **given)[0]
    assert_same_params(got, want, tol=0)
    assert without_times(history) == without_times(want_history)
    assert again.optimizer.steps == strategy.optimizer.steps


def test_pipedreams_checkpoint_holds_the_newest_weights_and_nothing_of_the_stash(tmp_path):
    """Those that `gather_params` gives, bit for bit: all that a serial model has, and no more."""
    _, params, _, strategy = SimWorld(3).run(train, pipedream(), tmp_path, **DEEP)[0]
    found = CheckpointStore(tmp_path).latest()
    assert strategy.versions_held == {0: 3}
    assert_same_params({n: found.arrays[f"param/{n}"] for n in params}, params, tol=0)
    names = {name.partition("/")[0] for name in found.arrays}
    assert names == {"param", "optimizer", "history"}
    assert len(found.arrays) == 1 + len(params) + 2 * (len(params) - 1)  # the losses, Adam's two, one is frozen
