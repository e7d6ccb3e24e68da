"""Tensor cores through nvcuda::wmma: products of every shape and type against NumPy, and mistakes that are found."""

import numpy as np
import pytest

from distlearn.cuda import CompileError, RawKernel, UnsupportedFeature

f16, f32, i32 = np.float16, np.float32, np.int32
rng = np.random.default_rng(0)
PRODUCT = """#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;
__global__ void product(const FACTOR* a, const FACTOR* b, const SUM* c, SUM* d) {
    wmma::fragment<wmma::matrix_a, SHAPE, TYPE, wmma::LAYOUT_A> fa;
    wmma::fragment<wmma::matrix_b, SHAPE, TYPE, wmma::LAYOUT_B> fb;
    wmma::fragment<wmma::accumulator, SHAPE, SUM> sum;
    wmma::load_matrix_sync(fa, a, WIDTH_A);
    wmma::load_matrix_sync(fb, b, WIDTH_B);
    wmma::load_matrix_sync(sum, c, WIDTH_C, wmma::LAYOUT_C);
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = -fa.x[i];
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= (SUM)2;
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(d, sum, WIDTH_C, wmma::LAYOUT_C);
}"""
TYPES = {  # of factors and sums: in CUDA C, and in NumPy
    "half": ("half", "half", f16, f32),
    "half to half": ("half", "half", f16, f16),
    "bfloat16": ("__nv_bfloat16", "__nv_bfloat16", np.uint16, f32),
    "signed char": ("signed char", "signed char", np.int8, i32),
    "tf32": ("float", "wmma::precision::tf32", f32, f32),
    "double": ("double", "double", np.float64, np.float64),
}
C_NAMES = {f32: "float", f16: "half", i32: "int", np.float64: "double"}


def stored(matrix, by_row, columns):
    """Return a matrix as it lies in memory, its lines `columns` apart."""
    lines = matrix if by_row else matrix.T
    out = np.zeros((len(lines), columns), matrix.dtype)
    out[:, : lines.shape[1]] = lines
    return out


@pytest.mark.parametrize(
    ("name", "shape", "by_row"),  # the last: of a, b, and the sums
    [
        ("half", (16, 16, 16), (True, False, True)),
        ("half", (32, 8, 16), (False, True, False)),
        ("half", (8, 32, 16), (True, True, True)),
        ("half to half", (16, 16, 16), (False, False, False)),
        ("bfloat16", (32, 8, 16), (True, False, False)),
        ("signed char", (8, 32, 16), (False, True, True)),
        ("tf32", (16, 16, 8), (True, True, False)),
        ("double", (8, 8, 4), (False, False, True)),
    ],
    ids=str,
)
def test_products(run, name, shape, by_row):
    factor, kind, stored_as, summed = TYPES[name]
    m, n, k = shape
    a, b, c = (rng.integers(-8, 9, s).astype(f32) for s in ((m, k), (k, n), (m, n)))  # exact in all types
    source = PRODUCT
    widths = 48, 64, 40
    words = {"SHAPE": f"{m}, {n}, {k}", "FACTOR": factor, "TYPE": kind, "SUM": C_NAMES[summed]}
    words |= {f"WIDTH_{x}": str(w) for x, w in zip("ABC", widths, strict=True)}
    words |= {f"LAYOUT_{x}": "row_major" if r else "col_major" for x, r in zip("AB", by_row, strict=False)}
    words["LAYOUT_C"] = "mem_row_major" if by_row[2] else "mem_col_major"
    for word, text in words.items():
        source = source.replace(word, text)
    as_stored = (lambda x: (x.view(np.uint32) >> 16).astype(np.uint16)) if name == "bfloat16" else stored_as
    args = [stored(as_stored(x), r, w) for x, r, w in zip((a, b), by_row, widths, strict=False)]
    args += [stored(summed(c), by_row[2], widths[2]), stored(np.zeros((m, n), summed), by_row[2], widths[2])]
    run(source, "product", (1,), (32,), args)
    np.testing.assert_array_equal(args[3], stored(summed(2 * c - a @ b), by_row[2], widths[2]))


GEMM = """#include <mma.h>
using namespace nvcuda::wmma;
__global__ void gemm(const half* a, const half* b, half* c, int n) {
    __shared__ half tile[256];
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0);
    int row = 16 * blockIdx.y, column = 16 * blockIdx.x, t = threadIdx.x;
    for (int k = 0; k < n; k += 16) {
        for (int i = t; i < 256; i += 32) tile[i] = a[(row + i / 16) * n + k + i % 16];
        __syncthreads();
        load_matrix_sync(fa, tile, 16);
        load_matrix_sync(fb, b + k * n + column, n);
        mma_sync(sum, fa, fb, sum);
        __syncthreads();
    }
    fragment<accumulator, 16, 16, 16, half> rounded;
    for (int i = 0; i < sum.num_elements; i++) rounded.x[i] = sum.x[i];
    store_matrix_sync(tile, rounded, 16, mem_row_major);
    __syncwarp();
    for (int i = t; i < 256; i += 32) c[(row + i / 16) * n + column + i % 16] = tile[i];
}"""


def gemm(source=GEMM, block=32):
    a, b = rng.integers(-3, 4, (2, 64, 64)).astype(f16)
    c = np.zeros((64, 64), f16)
    report = RawKernel(source, "gemm").check((4, 4), (block,), (a, b, c, i32(64)), time_limit=5)
    return report, c, a.astype(f32) @ b.astype(f32)


def test_a_tiled_product_and_its_counts():
    report, c, want = gemm()
    assert report.errors == report.warnings == [], str(report)
    np.testing.assert_array_equal(c, want.astype(f16))
    assert report.flops == 2 * 64**3
    (tile,) = (s for s in report.sites if s.line == 13)
    # As ldmatrix does: a warp asks once for a tile, 8 rows of 16 bytes at a time; rows 32 bytes apart meet in a bank.
    assert (tile.size, tile.requests, tile.wavefronts) == (16, 16 * 4, 16 * 4 * 8)


MISTAKES = [  # a piece of the text, what it becomes, kind and line of the finding
    ("        mma_sync", "        if (t < 16) mma_sync", "missing-lanes", 15),
    ("    int row", "    if (threadIdx.x >= 16) return;\n    int row", "missing-lanes", 14),
    ("    __syncwarp();", "", "race", 22),
    ("        __syncthreads();\n        load", "        load", "race", 12),
    ("load_matrix_sync(fa, tile, 16)", "load_matrix_sync(fa, tile + 1, 15)", "misaligned", 13),
    ("b + k * n", "b + (k + 16) * n", "out-of-bounds", 14),
    ("i < 256; i += 32) tile", "i < 240; i += 32) tile", "uninitialised", 13),
]


@pytest.mark.parametrize(("old", "new", "kind", "line"), MISTAKES, ids=[m[2] + str(m[3]) for m in MISTAKES])
def test_mistakes(old, new, kind, line):
    assert GEMM.count(old) == 1
    report, *_ = gemm(GEMM.replace(old, new))
    assert (report.errors[0].kind, report.errors[0].line) == (kind, line), str(report)


def test_half_a_warp():
    report, *_ = gemm(block=16)
    assert report.errors[0].kind == "missing-lanes", str(report)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fragment<matrix_a, 16, 16, 8, half, row_major> f;", "tensor cores multiply 16x16x16, 32x8x16 and 8x32x16"),
        ("fragment<accumulator, 64, 4, 16, float> f;", "tensor cores multiply"),
        ("fragment<matrix_b, 16, 16, 16, half> f;", "matrix_a and matrix_b have a layout"),
        (
            "fragment<matrix_a, 16, 16, 16, signed char, row_major> a; fragment<accumulator, 16, 16, 16, float> c;"
            "fragment<matrix_b, 16, 16, 16, signed char, row_major> b; mma_sync(c, a, b, c);",
            "whole numbers to int",
        ),
        ("fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> f;", "4 bits and of 1 bit"),
    ],
)
def test_what_no_card_has(line, message):
    source = f"#include <mma.h>\nusing namespace nvcuda::wmma;\n__global__ void k(float* x) {{\n    {line}\n}}"
    with pytest.raises((CompileError, UnsupportedFeature), match=message) as caught:
        RawKernel(source, "k").compile()
    assert caught.value.problems[0][0] == 4
