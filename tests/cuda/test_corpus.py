"""Kernels as they stand in public sources: each is right, without a finding, and compiles for a card.

Every fourth is tried; with --thorough all are.
"""

import importlib

import numpy as np
import pytest

from distlearn.cuda import compile_check, has_nvrtc
from distlearn.cuda.arguments import arrays_in, holds_pointers

from .corpus import HERE, LAUNCHES, fresh

for module in sorted(HERE.glob("[a-z]*.py")):
    importlib.import_module(f"{__package__}.corpus.{module.stem}")


def contents(arg):
    """Return what an argument holds, flat."""
    return np.concatenate([a.ravel() for _, a in arrays_in(arg)]) if holds_pointers(arg) else arg.ravel()


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        cases = LAUNCHES if metafunc.config.getoption("--thorough", default=False) else LAUNCHES[::4]
        metafunc.parametrize("case", cases, ids=lambda c: f"{c.file}:{c.name}")


def test_kernel(case):
    """Against NumPy."""
    grid, block, args, want = case.make()
    given = fresh(args)
    report = case.kernel().check(grid, block, given, shared_mem=case.shared_mem)
    assert report.errors == [], str(report)
    assert [w.kind for w in report.warnings if w.kind not in case.may_warn] == case.warnings, str(report)
    for which, value in want.items():
        np.testing.assert_allclose(contents(given[which]), np.ravel(value), rtol=case.rtol, atol=case.atol)


def test_there_are_enough():
    assert len({(c.file, c.name) for c in LAUNCHES}) >= 100


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("file", sorted({c.file for c in LAUNCHES} - {"nvcc.cu"}))  # which says why
def test_files_compile_for_a_card(file):
    cases = [c for c in LAUNCHES if c.file == file]
    options = dict.fromkeys(o for c in cases for o in c.flags)
    check = compile_check(cases[0].source, [80], names=[c.name for c in cases if "<" in c.name], options=tuple(options))
    assert check.ok, str(check)
