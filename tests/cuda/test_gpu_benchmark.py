"""The benchmarks of a GPU, as far as they can be checked without one."""

import numpy as np
import pytest

from distlearn.backend import has_gpu
from distlearn.cuda import kernels
from distlearn.cuda.cards import CARDS
from tests.benchmarks import bench_gpu, bench_gpu_kernels, gpu_cases
from tests.emulated import NEEDS_COMPILER

from .cases import REFERENCES
from .corpus import fresh

CASES = gpu_cases.cases()


def test_every_variant_is_measured():
    assert sorted(str(c.variant) for c in CASES) == sorted(map(str, kernels.VARIANTS))


@NEEDS_COMPILER
@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.variant))
def test_case(case):
    """What is timed is right twice in a row, and its cost is at most what the emulator counts (but for rims)."""
    args = case.arguments(np, 64)
    for _ in range(2):
        wanted, peer = fresh(args), fresh(args)
        REFERENCES[case.variant](*wanted)
        if case.peer:
            case.peer(np, *peer)
        case.variant(*args)
        for i, (a, b) in enumerate(zip(args, wanted, strict=True)):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
                if case.peer:
                    np.testing.assert_allclose(peer[i], b, rtol=1e-4, atol=1e-4)
    nbytes, flops = case.cost(*args)
    report = case.variant.check(*args)
    assert report.errors == []
    assert 0 < nbytes <= report.bytes_moved * 1.05
    assert flops <= report.flops * 1.1


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("case", [c for c in CASES if c.peer], ids=lambda c: str(c.variant))
def test_kernel_against_cupy(case):
    """On the card: what the kernel writes is what CuPy's own operations write."""
    import cupy

    args = case.arguments(cupy, 512)
    wanted = [a.copy() if isinstance(a, cupy.ndarray) else a for a in args]
    case.peer(cupy, *wanted)
    case.variant(*args)
    for a, b in zip(args, wanted, strict=True):
        if isinstance(a, cupy.ndarray):
            np.testing.assert_allclose(a.get(), b.get(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA A100-SXM4-80GB", "A100 80GB"), ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"), ("Tesla T4", "T4"), ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", None), ("NVIDIA B200", "B200"),
    ],
)  # fmt: skip
def test_card_of_a_device(device, card):
    found = bench_gpu_kernels.card_in(device)
    assert (found and found.name) == card
    assert card is None or found is CARDS[card]


@pytest.mark.skipif(has_gpu(), reason="there is a GPU: the rows are real")
def test_without_a_gpu_the_reason_is_the_row():
    for module in (bench_gpu, bench_gpu_kernels):
        (row,) = module.records()
        assert row["ours"] is None
        assert row["note"].startswith("skipped: needs an NVIDIA GPU")


def test_steps_and_the_best_kernels_have_goals():
    assert set(bench_gpu.GOALS) == {(name, n) for name, n, _ in bench_gpu.STEPS}
    assert set(bench_gpu_kernels.SHARES) <= {v.kernel for v in kernels.VARIANTS}
