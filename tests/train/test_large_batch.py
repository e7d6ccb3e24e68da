"""Large batches on real images: what they lose, and what linear scaling, warm-up and LARS bring back."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from distlearn.comm import RankError
from distlearn.sim import SimWorld
from distlearn.train import DivergedError, Settings, train

SMALL = Settings(data="digits", hidden=(64,), batch_size=16, lr=0.01, epochs=20, evaluate_every=20, dtype="float64")
LARGE = SMALL.but(batch_size=512)
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _one_thread():
    """Products this small are slower on several threads."""
    with threadpool_limits(1):
        yield


def accuracies(settings, size=1):
    """Test accuracy for every seed; that of guessing where training diverged."""
    found = []
    for seed in SEEDS:
        with np.errstate(all="ignore"):
            try:
                found.append(SimWorld(size).run(train, settings.but(seed=seed))[0].history.last.test_accuracy)
            except RankError as error:
                if not isinstance(error.original, DivergedError):
                    raise
                found.append(0.1)
    return np.array(found)


@pytest.mark.nightly
def test_the_scaled_rate_recovers_what_a_large_batch_loses():
    """Goyal et al. (2017), section 2.1: 32 times the batch, a 32nd of the steps, 32 times the rate."""
    small, unscaled = accuracies(SMALL), accuracies(LARGE)
    scaled = accuracies(LARGE.but(reference_batch=16, warmup_epochs=5))
    assert small.min() > 0.95
    assert unscaled.max() < small.min() - 0.05
    assert scaled.min() > small.mean() - 0.02


def test_a_large_rate_needs_its_warm_up():
    """Section 2.2: at once, it throws the network far off, from where it rarely returns."""
    eager = LARGE.but(lr=0.05, reference_batch=16, epochs=30, evaluate_every=30)
    assert accuracies(eager).mean() < 0.9
    assert accuracies(eager.but(warmup_epochs=10)).min() > 0.94


def test_lars_trains_with_nearly_the_whole_data_set_as_a_batch():
    """You et al. (2017): a batch of 1,024 of 1,293 digits, a rate for each layer."""
    assert accuracies(SMALL.but(batch_size=1024)).mean() < 0.85
    lars = SMALL.but(batch_size=1024, optimizer="lars", lr=2.0, warmup_epochs=5, epochs=30, evaluate_every=30)
    assert accuracies(lars).min() > 0.93
