"""The comparison of emulator and card: on a card where there is one, its parts everywhere."""

import pytest
from distcourse import recorded

from tests.emulated import NEEDS_COMPILER

from . import hardware

COUNTED = [c for c in recorded.COUNTED.values() if hardware.launch_of(c)]


@pytest.mark.gpu
@pytest.mark.skipif(hardware.ncu() is None, reason="needs NVIDIA's profiler ncu and a GPU")
@pytest.mark.parametrize("counted", COUNTED[::4], ids=lambda c: c.name)
def test_the_card_counts_what_was_recorded(counted):
    assert hardware.measured(counted, hardware.ncu()) == pytest.approx(counted.card, rel=0.02)


@pytest.mark.nightly(but_every=4)
@NEEDS_COMPILER
@pytest.mark.parametrize("counted", COUNTED, ids=lambda c: c.name)
def test_the_emulator_counts_what_was_recorded(counted):
    assert hardware.emulated(counted) == counted.emulator


@pytest.mark.parametrize("path", hardware.PAGES, ids=lambda path: path.stem)
def test_the_pages_hold_the_record(path):
    """Run `python -m tests.cuda.hardware` if one does not."""
    assert hardware.page(path) == path.read_text(encoding="utf-8")


def test_what_the_readme_says_of_the_counts():
    near = [pytest.approx(c.card, rel=0.02) == c.emulator for c in recorded.COUNTED.values()]
    joined = [pytest.approx(c.card._replace(shared_read=0), rel=0.02) == c.emulator._replace(shared_read=0)
              for c in recorded.COUNTED.values()]  # fmt: skip
    readme = (hardware.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{sum(near)} of {len(near)} kernels" in readme
    assert f"in {sum(joined) - sum(near)} only the reads of shared memory" in readme
