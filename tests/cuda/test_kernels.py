"""The library's kernels: against NumPy, without a finding, with their known use of memory, for real cards."""

import numpy as np
import pytest

from distlearn.backend import get_xp, has_gpu, to_device, to_numpy
from distlearn.cuda import compile_check, has_nvrtc, kernels
from distlearn.cuda.kernels.variant import source
from distlearn.cuda.nvrtc import ARCHITECTURES
from distlearn.nn.attention import attend, attend_backward

from .cases import CASES, conv_reference
from .corpus import fresh


def assert_same(case, got, wanted):
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(a, np.ndarray):
            continue
        np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol, err_msg=f"argument {i}")


def reference(case, args):
    wanted = fresh(args)
    case.reference(*wanted)
    changed = [i for i, (a, b) in enumerate(zip(args, wanted, strict=True)) if np.any(a != b)]
    assert changed, "the reference changed nothing, so comparing with it would prove nothing"
    return wanted


def worst(report, array, access):
    """The sectors of the worst line, or its bank conflict."""
    sites = [s for s in report.sites if (s.array, s.access) == (array, access)]
    return max(s.worst_conflict if s.space == "shared" else s.sectors_per_request for s in sites)


def test_every_kernel_has_a_case():
    assert sorted(str(case) for case in CASES) == sorted(map(str, kernels.VARIANTS))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel(case, compiler):
    """Against NumPy, without a finding, with the memory use that is stated."""
    args = case.arguments()
    wanted = reference(case, args)
    report = case.variant.check(*args, compiler=compiler)
    assert report.errors == [], str(report)
    assert_same(case, args, wanted)
    assert case.memory, "nothing is stated"
    counted = {key: worst(report, *key) for key in case.memory}
    assert counted == pytest.approx(case.memory, abs=0.3), str(report)


@pytest.mark.nightly  # with every commit: a fourth of what is built (conftest.py)
@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("file", sorted({v.file for v in kernels.VARIANTS}))
def test_compiles_for_real_cards(file):
    names = [v.kernel for v in kernels.VARIANTS if v.file == file and "<" in v.kernel]
    check = compile_check(source(file), ARCHITECTURES, names=names)
    assert check.ok, str(check)
    assert check.problems == [], str(check)


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no GPU")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_a_gpu(case):
    args = case.arguments()
    wanted = reference(case, args)
    moved = tuple(to_device(a, "gpu") if isinstance(a, np.ndarray) else a for a in args)
    case.variant(*moved)
    assert get_xp(*moved).__name__ == "cupy"
    assert_same(case, tuple(to_numpy(a) if hasattr(a, "shape") else a for a in moved), wanted)


def test_odd_sizes():
    rng = np.random.default_rng(2)
    for m, n, k in ((1, 1, 1), (17, 33, 5), (65, 70, 31), (100, 3, 129), (100, 100, 24)):
        a, b = rng.random((m, k), dtype=np.float32), rng.random((k, n), dtype=np.float32)
        for variant in kernels.matmul.VARIANTS:
            c = np.full((m, n), np.nan, np.float32)
            report = variant.check(a, b, c)
            assert report.errors == [], str(report)
            np.testing.assert_allclose(c, a @ b, rtol=1e-5)
        for variant in kernels.transpose.VARIANTS:
            out = np.zeros((k, m), np.float32)
            assert variant.check(a, out).errors == []
            np.testing.assert_array_equal(out, a.T)


def test_nothing_to_compute():
    """An empty shard or bucket: a card would refuse a grid of no blocks."""
    none, rows, f32 = np.zeros(0, np.float32), np.zeros((0, 10), np.float32), np.float32
    kernels.reduce.SHUFFLE(none, none)
    kernels.loss.softmax_xent(rows, np.zeros(0, np.int32), none, rows, 1.0)
    kernels.matmul.TILED(rows, np.zeros((10, 4), f32), np.zeros((0, 4), f32))


@pytest.mark.parametrize(("k", "stride", "padding"), [(3, 1, 1), (5, 2, 2), (1, 1, 0), (3, 3, 0), (7, 2, 3)])
def test_convolutions_agree(k, stride, padding):
    rng = np.random.default_rng(k)
    x, w = rng.normal(size=(2, 3, 19, 23)).astype(np.float32), rng.normal(size=(4, 3, k, k)).astype(np.float32)
    conv = kernels.convolution
    oh, ow = ((side + 2 * padding - k) // stride + 1 for side in (19, 23))
    images, where = kernels.images, kernels.images.Windows(oh, ow, k, k, stride, stride, padding, padding)
    last, col = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.zeros((2 * oh * ow, 3 * k * k), np.float32)
    wanted = np.zeros((2, 4, oh, ow), np.float32)
    conv_reference(x, w, wanted, stride, padding)
    assert images.WINDOWS.check(last, col, where).errors == []
    product = (col @ w.transpose(2, 3, 1, 0).reshape(-1, 4)).reshape(2, oh, ow, 4)
    np.testing.assert_allclose(product.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-4)
    y = np.zeros_like(wanted)
    report = conv.CONV_NAIVE.check(x, w, y, stride, padding)
    assert report.errors == [], str(report)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    # one is the transpose of the other: <windows x, c> = <x, add_windows c>
    c, back = rng.normal(size=col.shape).astype(np.float32), np.zeros_like(last)
    assert images.ADD_WINDOWS.check(c, back, where).errors == []
    assert np.vdot(col, c) == pytest.approx(np.vdot(last, back), rel=1e-3, abs=1e-2)


def test_traffic_of_the_matrix_products():
    """What lab and books promise: tiling by 16, 64 and 128 divides the bytes that A and B cost, and shared memory's."""
    rng = np.random.default_rng(0)
    a, b = (rng.random((128, 128), dtype=np.float32) for _ in range(2))
    moved, passes = [], []
    for variant in (kernels.matmul.NAIVE, kernels.matmul.TILED, kernels.matmul.BLOCKED, kernels.matmul.WIDE):
        report = variant.check(a, b, np.zeros((128, 128), np.float32))
        assert report.flops >= 2 * 128**3
        assert report.flops < 2.01 * 128**3
        moved.append(report.bytes_moved)
        passes.append(sum(s.wavefronts for s in report.sites if s.space == "shared" and s.access == "read"))
    operands = [m - 4 * 128 * 128 for m in moved]
    assert operands[1] == 2 * 128**3 // 16 * 4
    assert operands[2] == 2 * 128**3 // 64 * 4
    assert operands[3] == 2 * 128**3 // 128 * 4
    assert [n / (128**3 // 32) for n in passes] == [0, 2, 0.5, 0.25], "a warp's multiply-adds"
    assert operands[0] == 128**3 // 32 * (1 + 4) * 32


@pytest.mark.parametrize("block", [8, 16, 32])
@pytest.mark.parametrize(("n", "m", "d"), [(64, 64, 32), (96, 32, 64)])
def test_traffic_of_attention(block, n, m, d):
    """Keys and values are read once for every block of queries: Dao et al. (2022), theorem 2."""
    rng, attention = np.random.default_rng(0), kernels.attention
    q, k, v = (rng.normal(size=(3, size, d)).astype(np.float32) for size in (n, m, m))
    y, lse = np.zeros_like(q), np.zeros((3, n), np.float32)
    report = attention.tiled(block, d).check(q, k, v, y, lse, 0)
    assert report.errors == []
    assert report.bytes_requested == 4 * 3 * (2 * n * d + 2 * n // block * m * d + n)
    naive = attention.NAIVE.check(q, k, v, np.zeros((3, n, m), np.float32), y, 0)
    assert naive.errors == []
    # Queries are read for every key, keys and values by every query; a score that is used by itself costs a sector.
    assert naive.bytes_moved == 4 * 3 * n * (3 * m * d + d + 2 * m + 8 * m + 8 * m * -(-d // 32))


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_odd_sizes(causal):
    """Rims of tiles, scores of 1000, and backward equal to the layers' own."""
    rng, attention = np.random.default_rng(1), kernels.attention
    for n, m in ((1, 1), (17, 17), (33, 33)) if causal else ((1, 40), (19, 7), (32, 33)):
        q, k, v, dy = (rng.normal(size=(2, size, 32)).astype(np.float32) for size in (n, m, m, n))
        q[:, ::2] *= 100
        want, saved = attend(q[None], k[None], v[None], causal=bool(causal))
        y, lse, inner = np.full_like(q, np.nan), np.full((2, n), np.nan, np.float32), np.zeros((2, n), np.float32)
        dq, dk, dv = (np.full_like(a, np.nan) for a in (q, k, v))
        launches = (
            (attention.tiled(8, 32), (q, k, v, y, lse, causal)),
            (attention.TILED, (q, k, v, y, lse, causal)),
            (attention.TILED_DQ, (q, k, v, y, lse, dy, inner, dq, causal)),
            (attention.TILED_DKV, (q, k, v, lse, dy, inner, dk, dv, causal)),
        )
        for variant, args in launches:
            report = variant.check(*args)
            assert report.errors == [], str(report)
            np.testing.assert_allclose(y, want[0], rtol=1e-3, atol=1e-4)
        for got, wanted in zip((dq, dk, dv), attend_backward(dy[None], saved), strict=True):
            np.testing.assert_allclose(got, wanted[0], rtol=1e-3, atol=2e-3)


def test_wrong_shapes_are_named():
    a = np.zeros((4, 5), np.float32)
    with pytest.raises(ValueError, match=r"transpose: out has shape \(4, 5\), expected \(5, 4\)"):
        kernels.transpose.PADDED(a, a)
    with pytest.raises(ValueError, match=r"matmul: shapes \(4, 5\) x \(4, 5\)"):
        kernels.matmul.TILED(a, a, a)
    with pytest.raises(ValueError, match="expected 1 for 20"):
        kernels.reduce.SHUFFLE(a.ravel(), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"attention: queries \(1, 4, 32\), keys \(1, 5, 32\)"):
        kernels.attention.NAIVE(*(np.zeros((1, n, 32), np.float32) for n in (4, 5, 5, 4, 4)), 1)
    with pytest.raises(ValueError, match="vectors of length 16, expected 32"):
        kernels.attention.TILED(*(np.zeros((1, 4, 16), np.float32) for _ in range(4)), np.zeros((1, 4), np.float32), 0)
    with pytest.raises(ValueError, match=r"attention.tiled: width is 16, expected a multiple of the block, 32"):
        kernels.attention.tiled(32, 16)
