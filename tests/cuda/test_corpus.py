"""Kernels as they stand in public sources: each is right, without a finding."""

import numpy as np
import pytest

from .corpus import fresh
from .corpus.launches import LAUNCHES


@pytest.mark.nightly(but_every=4)
@pytest.mark.parametrize("case", LAUNCHES, ids=lambda c: f"{c.file}:{c.name}")
def test_kernel(case):
    """Against NumPy."""
    grid, block, args, want = case.make()
    given = fresh(args)
    report = case.kernel().check(grid, block, given, shared_mem=case.shared_mem)
    assert report.errors == [], str(report)
    assert [w.kind for w in report.warnings if w.kind not in case.may_warn] == case.warnings, str(report)
    for which, value in want.items():
        np.testing.assert_allclose(np.ravel(given[which]), np.ravel(value), rtol=case.rtol, atol=case.atol)
