import re

import pytest

from distlearn.cuda import CARDS
from distlearn.cuda.cards import card

# FP32 cores and boost clock, from the same documents: peak = 2 * cores * clock.
CORES = {"T4": (2560, 1.59), "V100": (5120, 1.53), "A100": (6912, 1.41), "A100 80GB": (6912, 1.41),
         "RTX 3090": (10496, 1.695), "RTX 4090": (16384, 2.52), "L4": (7424, 2.04), "H100": (16896, 1.98),
         "H200": (16896, 1.98)}  # fmt: skip


@pytest.mark.parametrize("name", CORES)
def test_peak_is_two_operations_per_core_and_cycle(name):
    cores, clock = CORES[name]
    assert CARDS[name].peak == pytest.approx(2 * cores * clock * 1e9, rel=0.01)


def test_the_second_level_cache():
    for c in CARDS.values():
        assert c.attainable_from_l2(1e6) in (None, c.peak)
    # Nvidia says: the A100's delivers 2.3 times what the V100's does
    assert CARDS["A100"].l2_bandwidth / CARDS["V100"].l2_bandwidth == pytest.approx(2.3, rel=0.01)


def test_roofline():
    a100 = card("A100")
    assert a100.ridge == pytest.approx(12.5, rel=0.01)
    assert a100.attainable(1.0) == a100.bandwidth
    assert a100.attainable(1000.0) == a100.peak
    assert a100.least_time(a100.peak, 0) == a100.least_time(0, a100.bandwidth) == 1.0
    for unknown in ("Voodoo", ["T4"]):
        with pytest.raises(
            ValueError, match=rf"card is {re.escape(repr(unknown))}, expected a Card or one of T4, V100"
        ):
            card(unknown)
