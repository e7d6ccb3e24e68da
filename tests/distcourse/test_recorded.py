"""What labs show of a recorded card, and that the same cells measure where there is one."""

import numpy as np
import pytest
from distcourse import lab04, lab05, recorded

from distlearn import nn
from distlearn.cuda.cards import CARDS
from tests.emulated import NEEDS_COMPILER


def test_least_times():
    """The recorded ones keep them, but where caches serve: a product without tiles; and by hand, from bytes."""
    card, times = lab04.kernel_times()
    for title, least in lab04.bounds(card).items():
        caches = least.pop("memory") if title == "product, no tiles" else 0
        assert max(least.values()) < times[title][0] < caches / 4 or not caches
    moved = {title: least["memory"] for title, least in lab04.bounds(CARDS["H100"]._replace(bandwidth=1.0)).items()}
    square, half, product = 4 * 4096**2, 4 * 2048**2, 8 * 2048**3
    numbers = [9 * square, 2 * square, 2 * square, *[square * 33 / 32] * 3]  # a sum of 256 numbers costs a sector
    numbers += [half + product / 32 * 20, half + product / 16, half + product / 64]
    assert list(moved.values()) == pytest.approx(numbers)


@NEEDS_COMPILER
def test_kernels_are_measured_where_there_is_a_card(monkeypatch):
    monkeypatch.setattr(lab04, "measure_gpu", lambda: "a card")
    monkeypatch.setattr(lab04, "fewest_seconds", lambda call, xp: len(call()))
    assert lab04.kernel_times(xp=np, size=64) == ("a card", dict.fromkeys(lab04.TIMED.values(), (1, 1)))


def test_layers_and_steps_are_measured_where_there_is_a_card(monkeypatch):
    (p,) = nn.profile_sweep("alexnet28", batches=(2,), repeats=1)
    (kinds,), (measured,) = lab05.by_kind([p]), lab05.card_layers("alexnet28", (2,), device="cpu")
    assert kinds.seconds == pytest.approx(p.seconds)
    assert sum(t.flops for t in measured.layers) == sum(t.flops for t in p.layers)
    assert set(recorded.profiles("alexnet")[0].shares()) <= {t.name for t in measured.layers} == set(kinds.shares())
    name, steps = lab05.card_steps()
    assert all(took > least for _, _, took, least in steps)
    monkeypatch.setattr(recorded, "STEPS", recorded.STEPS[:1])
    here, found = lab05.card_steps(device="cpu")
    assert (name, here) == ("H100", "this GPU")
    assert [row[:2] for row in found] == [row[:2] for row in steps[:1]]
