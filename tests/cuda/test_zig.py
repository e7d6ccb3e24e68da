"""The compiler that comes as a Python package. Its very first build makes a C library, which takes half a minute."""

import os

import numpy as np
import pytest

from distlearn.cuda.emulator.compilers import find_compilers
from distlearn.cuda.kernels import matmul

from .cases import CASES

pytestmark = [
    pytest.mark.skipif("zig" not in {c.kind for c in find_compilers()}, reason="no zig (pip install ziglang)"),
    pytest.mark.skipif(os.environ.get("DISTLEARN_TEST_ZIG") != "1", reason="slow; set DISTLEARN_TEST_ZIG=1"),
]


@pytest.mark.timeout(600)
def test_a_kernel():
    (args,) = (case.arguments() for case in CASES if case.variant is matmul.TILED)
    report = matmul.TILED.check(*args, compiler="zig")
    assert report.errors == []
    assert report.flops == 2 * 128 * 64 * 192
    np.testing.assert_allclose(args[2], args[0] @ args[1], rtol=1e-5)
