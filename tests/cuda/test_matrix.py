"""Whatever builds a kernel, it computes the same: compilers, instruction sets, levels of optimisation of this machine.

With --cuda-matrix (`pytest tests/cuda --cuda-matrix`) each kernel of the library and of the corpus is built in all of
these ways, which takes hours of processor time; test_kernels.py takes one way for each of the library's.
"""

import re

import numpy as np
import pytest

from distlearn.cuda import RawKernel, kernels
from distlearn.cuda.kernels.variant import source

from .corpus import LAUNCHES, fresh
from .matrix import builds, installed
from .test_corpus import contents
from .test_kernels import arguments, assert_same, reference

BUILDS = builds()
pytestmark = pytest.mark.skipif(not BUILDS, reason="no C++ compiler")


def pytest_generate_tests(metafunc):
    everything = metafunc.config.getoption("--cuda-matrix", False)
    if "variant" in metafunc.fixturenames:
        metafunc.parametrize("variant", kernels.VARIANTS if everything else [], ids=str)
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", LAUNCHES if everything else [], ids=lambda c: f"{c.file}:{c.name}")


def assert_equal(results, code):
    """Bit for bit, except where floating-point sums of several blocks come in any order."""
    equal = np.testing.assert_array_equal
    if re.search(r"\batomic(Add|Sub|CAS)\b", code):

        def equal(a, b, err_msg):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=err_msg)

    first, *others = results.items()
    for how, arrays in others:
        for a, b in zip(first[1], arrays, strict=True):
            equal(b, a, err_msg=f"{how} against {first[0]}")


def test_library(variant):
    wanted, results = reference(variant, arguments(variant)), {}
    code = source(variant.file)
    for build in BUILDS:
        for checked in (True, False):
            args = arguments(variant)
            grid, block, given, shared_mem = variant.launch(*args)
            RawKernel(code, variant.kernel, checked=checked, compiler=build)(grid, block, given, shared_mem=shared_mem)
            assert_same(variant, args, wanted)
            results[f"{build}, {'checked' if checked else 'fast'}"] = [a for a in args if isinstance(a, np.ndarray)]
    assert_equal(results, code)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("compiler", installed(), ids=str)
def test_a_lane_may_pass_on_what_it_has_not_set(compiler, checked):
    """One atomic for a warp: clang took every lane for the leader, since only the leader sets what is shuffled."""
    case = next(c for c in LAUNCHES if c.name == "filter_positive")
    grid, block, args, want = case.make()
    case.kernel(checked=checked, compiler=compiler)(grid, block, args)
    for which, value in want.items():
        np.testing.assert_array_equal(args[which], value)


def test_corpus(case):
    grid, block, args, want = case.make()
    results = {}
    for build in BUILDS:
        for checked in (True, False):
            given = fresh(args)
            case.kernel(checked=checked, compiler=build)(grid, block, given, shared_mem=case.shared_mem)
            for which, value in want.items():
                value = np.asarray(value).ravel()
                np.testing.assert_allclose(contents(given[which]), value, rtol=case.rtol, atol=case.atol)
            results[f"{build}, {'checked' if checked else 'fast'}"] = [contents(given[which]) for which in want]
    assert_equal(results, case.source)
