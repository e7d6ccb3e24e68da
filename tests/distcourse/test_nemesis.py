"""A nemesis: whatever strikes, training comes out as if nothing had happened, or an error names who was struck."""

from collections import Counter

import numpy as np
import pytest
from distcourse import nemesis

from distlearn.train import saving
from tests.world import faults
from tests.world.faults import draw, problems, shrink, strike

RUNS, PORTIONS = 192, 12


@pytest.mark.parametrize("portion", [pytest.param(p, marks=[pytest.mark.nightly] * (p > 1)) for p in range(PORTIONS)])
def test_every_invariant_holds_or_the_fault_is_named(portion):
    """Plans of up to four faults on 2 to 6 simulated ranks, restarted on as many or fewer: 192 runs a night."""
    came = Counter()
    for seed in range(RUNS // PORTIONS * portion, RUNS // PORTIONS * (portion + 1)):
        size = 2 + seed % 5
        outcome = strike(draw(seed, size), size, fewer=seed % 2 == 1)
        assert problems(outcome) == [], f"strike({outcome.plan}, {size}) with seed {seed}"
        came["error" if outcome.error else "restarted" if outcome.run.restarts else "went on"] += 1
    assert len(came) >= 2


def forget_the_momentum(monkeypatch):
    """A restart that loads the parameters alone."""
    real = saving.restore

    def restore(strategy, arrays, state):
        real(strategy, {n: a if n.startswith("param/") else np.zeros_like(a) for n, a in arrays.items()}, state)

    monkeypatch.setattr(saving, "restore", restore)


def skip_a_batch(monkeypatch):
    """A restart that begins one batch too late."""
    real = nemesis.fit.__globals__["datasets"].Batches.epoch
    batches = nemesis.fit.__globals__["datasets"].Batches
    monkeypatch.setattr(batches, "epoch", lambda self, epoch, start=0: real(self, epoch, start + (start > 0)))


@pytest.mark.parametrize("bug", [forget_the_momentum, skip_a_batch])
def test_a_planted_bug_is_found_and_its_plan_shrunk(bug, monkeypatch):
    bug(monkeypatch)

    def fails(plan):
        return bool(problems(strike(plan, 3)))

    failing = next(plan for seed in range(60) if fails(plan := draw(seed, 3)))
    smallest = shrink(failing, fails)
    assert fails(smallest)
    assert len(smallest) == 1
    assert type(smallest[0]).__name__ in ("Kill", "Hang", "Partition")
    assert smallest[0].step == int(smallest[0].step)
    assert eval(repr(smallest), vars(faults)) == smallest  # it can be pasted
