"""The comparison of emulator and card: on a card where there is one, its parts everywhere."""

import pytest

from tests.emulated import NEEDS_COMPILER

from . import hardware


@pytest.mark.gpu
@pytest.mark.skipif(hardware.ncu() is None, reason="needs NVIDIA's profiler ncu and a GPU")
@pytest.mark.parametrize("variant", hardware.KERNELS, ids=str)
def test_the_emulator_counts_what_the_card_counts(variant):
    card, emulator = hardware.measured(variant, hardware.ncu()), hardware.emulated(variant)
    if variant.kernel == "matmul_tiled":  # NVIDIA's compiler may join a thread's reads along a row into wider ones
        assert 0 < card.pop("shared read, wavefronts") <= 1.02 * emulator.pop("shared read, wavefronts")
    assert card == pytest.approx(emulator, rel=0.02)


@NEEDS_COMPILER
def test_the_page_holds_what_the_emulator_counts():
    """Run `python -m tests.cuda.hardware --write` if it does not."""
    page = hardware.PAGE.read_text(encoding="utf-8")
    for variant in hardware.KERNELS:
        for name, count in hardware.emulated(variant).items():
            row = f"| {variant.kernel} | {name} | {count:,} |"
            assert (row in page) == (count > 0 or name in _measured_rows(page, variant)), row


def _measured_rows(page, variant):
    return [
        line for line in page.splitlines() if line.startswith(f"| {variant.kernel} |") and not line.endswith("|  |")
    ]
