"""What CUDA's own headers bring, structs that hold pointers, and what a kernel is warned of."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel

i32, f32 = np.int32, np.float32
rng = np.random.default_rng(0)

MATRIX = np.dtype([("width", i32), ("height", i32), ("elements", object)])
MATRICES = """struct Matrix { int width, height; float* elements; };
extern "C" __global__ void first_rows(Matrix a, const Matrix* others, float** to, int n) {
    int i = threadIdx.x;
    if (i < a.width) to[0][i] = a.elements[i + n];
    for (int k = 0; k < 2; k++)
        if (i < others[k].width) to[k + 1][i] = others[k].elements ? others[k].elements[i] : -1;
}"""


def test_structs_that_hold_pointers(compiler):
    a, b = rng.random((3, 4), f32), rng.random((2, 5), f32)
    out = np.empty(3, object)
    out[:] = [np.zeros(4, f32), np.zeros(5, f32), np.zeros(3, f32)]
    others = np.array([(5, 2, b), (3, 1, None)], MATRIX)
    kernel = RawKernel(MATRICES, "first_rows", compiler=compiler)
    kernel((1,), (8,), (np.array((4, 3, a), MATRIX)[()], others, out, i32(4)))
    for got, want in zip(out, (a[1], b[0], [-1, -1, -1]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_pointer_in_a_struct_that_leads_astray():
    a, out = np.array((4, 3, np.ones(4, f32)), MATRIX)[()], np.empty(1, object)
    out[0] = np.zeros(4, f32)
    others = np.zeros(2, MATRIX)
    report = RawKernel(MATRICES, "first_rows").check((1,), (8,), (a, others, out, i32(1)))
    assert [(e.kind, e.line, e.array) for e in report.errors] == [("out-of-bounds", 4, "a.elements")], str(report)
    packed = np.dtype([("width", "u1"), ("elements", object)])
    with pytest.raises(TypeError, match=r"argument 'a' is struct of 16 bytes; got a struct of 9 bytes.*align=True"):
        RawKernel(MATRICES, "first_rows").check((1,), (8,), (np.zeros(1, packed)[0], others, out, i32(1)))
    wrong = np.zeros(1, MATRIX)[0]
    wrong["elements"] = [1.0]
    with pytest.raises(TypeError, match=r"with a pointer at byte 8, an array; got a Python list"):
        RawKernel(MATRICES, "first_rows").check((1,), (8,), (wrong, others, out, i32(1)))
    others[1] = 5, 1, np.array([(3, 1, None)], MATRIX)
    with pytest.raises(TypeError, match=r"others\[1\].elements holds arrays, .*one level of pointers is the limit"):
        RawKernel(MATRICES, "first_rows").check((1,), (8,), (a, others, out, i32(1)))


def test_a_struct_by_value_is_a_scalar():
    kernel = RawKernel("__global__ void k(float2 a, float* o) { o[0] = a.x - a.y; }", "k")
    with pytest.raises(TypeError, match=r"struct of 8 bytes, by value: .*np.array\(\(1, 2\), 'f4,f4'\)\[\(\)\]"):
        kernel((1,), (1,), (np.zeros(2, f32), np.zeros(1, f32)))
    out = np.zeros(1, f32)
    kernel((1,), (1,), (np.array((1, 2), "f4,f4")[()], out))
    assert out == -1


PADDED = np.dtype({"names": ["a", "v"], "formats": ["f4", ("f4", 4)], "offsets": [0, 16], "itemsize": 32})


def test_a_struct_that_holds_a_float4(compiler):
    source = """struct P { float a; float4 v; };
__global__ void k(P p, const P* more, float* o) { P q = more[0]; o[0] = p.a + p.v.y; o[1] = q.v.w; }"""
    p, out = np.array([(3, (1, 2, 3, 4))], PADDED), np.zeros(2, f32)
    RawKernel(source, "k", compiler=compiler)((1,), (1,), (p[0], p, out))
    assert out.tolist() == [5, 4]
    packed = np.zeros(8, [("a", "f4"), ("v", "f4", 4)])
    with pytest.raises(TypeError, match=r"got a struct of 20 bytes.*a float4 in it also offsets and itemsize"):
        RawKernel(source, "k")((1,), (1,), (packed[0], p, out))
    with pytest.raises(TypeError, match="argument 'more' is const struct of 32 bytes"):
        RawKernel(source, "k")((1,), (1,), (p[0], packed, out))


def test_dynamic_arrays_that_overlay_each_other():
    source = """__device__ void other() { extern __shared__ int c[]; c[0] = 1; }
    __global__ void k(float* x) {
        extern __shared__ float a[];
        CUT
        a[0] = 1, b[1] = 2, x[0] = a[0] + b[1]; if (x[0] == 0) other();
    }"""
    for cut, found in (("extern __shared__ float b[];", [("overlaid", 4)]), ("float* b = &a[1];", [])):
        report = RawKernel(source.replace("CUT", cut), "k").check((1,), (1,), (np.zeros(1, f32),), shared_mem=64)
        assert [(w.kind, w.line) for w in report.warnings] == found, str(report)
        assert not found or "b begins where a does" in str(report)


SETS = {  # what may set the elements of `float a[4];` before they are added to, and what does not
    "": True,
    "float b[2]; b[0] = 1;": True,
    "if (n > 0 && a[1] > 2) n = 1;": True,
    "for (int i = 0; i < 4; i++) a[i] = 0;": False,
    "memset(a, 0, sizeof a);": False,
    "float* p = a; for (int i = 0; i < 4; i++) p[i] = 0;": False,
    "for (int i = 0; i < 4; i++) { float& v = a[i]; v = 0; }": False,
    "for (int i = 0; i < 4; i++) zero(a[i]);": False,
    "\n#define ZERO for (int q = 0; q < 4; q++) a[q] = 0\nZERO;": False,
}


@pytest.mark.parametrize("before", SETS)
def test_a_local_array_that_is_never_set_is_named_and_holds_no_zeros(before, compiler):
    source = """struct Sum { float a[4]; __device__ void add(float x) { a[0] += x; } };
    __device__ void zero(float& x) { x = 0; }
    __global__ void k(const float* x, float* y, int n) {
        float a[4];
        BEFORE
        for (int i = 0; i < n; i++) a[i % 4] += x[i];
        Sum sum = {};
        sum.add(a[0] + a[1]);
        y[0] = sum.a[0];
    }"""
    x, y = np.ones(8, f32), np.zeros(1, f32)
    report = RawKernel(source.replace("BEFORE", before), "k", compiler=compiler).check((1,), (1,), (x, y, i32(8)))
    found = [(w.line, w.message.partition(":")[0]) for w in report.warnings if w.kind == "uninitialised-local"]
    assert ((4, "a is added to but never set") in found) == SETS[before], str(report)
    assert (y[0] == 4) != SETS[before]


def test_groups_of_threads(run):
    source = """#include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void groups(const int* x, int* sums, unsigned* together, int* of_tile, size_t m, unsigned long long n) {
        __shared__ cg::block_tile_memory<128> memory;
        cg::thread_block block = cg::this_thread_block(memory);
        cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
        int i = block.thread_rank(), v = x[i];
        int total = cg::reduce(tile, v, cg::plus<int>()), most = cg::reduce(tile, v, cg::greater<int>());
        if (tile.thread_rank() == 0) { sums[tile.meta_group_rank()] = total; sums[8 + tile.meta_group_rank()] = most; }
        if (i % 3 == 0) together[i] = __activemask();
        else together[i] = cg::coalesced_threads().size();
        cg::sync(block);
        of_tile[i] = tile.shfl(v, 2) + 1000 * tile.any(v > 90) + 10000 * (tile.shfl_down(v, 1) == v) + cg::this_grid().thread_rank() + block.group_index().x;
        auto half = cg::tiled_partition<16>(block);
        cg::thread_group same = cg::tiled_partition(block, 16);
        of_tile[64 + i] = half.shfl_xor(v, 1) + 100 * same.size() + 10000 * (sqrt(m) + sqrt(n));
    }"""  # noqa: E501
    x, i = rng.integers(0, 95, 64).astype(i32), np.arange(64)
    args = x, np.zeros(16, i32), np.zeros(64, np.uint32), np.zeros(128, i32), np.uint64(16), np.uint64(9)
    run(source, "groups", (1,), (64,), args)
    tiles = x.reshape(8, 8)
    np.testing.assert_array_equal(args[1], np.concatenate([tiles.sum(1), tiles.max(1)]))
    thirds = np.array([sum(1 << lane for lane in range(32) if (w * 32 + lane) % 3 == 0) for w in (0, 1)], np.uint32)
    others = np.array([32 - int(m).bit_count() for m in thirds])
    np.testing.assert_array_equal(args[2], np.where(i % 3 == 0, thirds[i // 32], others[i // 32]))
    below = np.where(i % 8 < 7, np.roll(x, -1), x)
    want = tiles[:, 2].repeat(8) + 1000 * (tiles > 90).any(1).repeat(8) + 10000 * (below == x) + i
    np.testing.assert_array_equal(args[3][:64], want)
    np.testing.assert_array_equal(args[3][64:], x[i ^ 1] + 71600)


def test_names_of_the_library_and_odd_numbers(run):
    source = """#include <limits>
    #include <cuComplex.h>
    #include <thrust/complex.h>
    #include <cuda_bf16.h>
    __global__ void odd(const __nv_bfloat16* a, nv_bfloat16* b, const cuFloatComplex* u, thrust::complex<float>* v, int* k) {
        int i = threadIdx.x, p = 1, q = 2;
        b[i] = __hadd(a[i], __float2bfloat16(1.0f));
        cuFloatComplex w = cuCmulf(u[i], make_cuFloatComplex(0, 1));
        v[i] = thrust::complex<float>(w.x, w.y) * 2.0f + thrust::conj(v[i]);
        std::swap(p, q);
        k[i] = p + std::numeric_limits<int>::max() / (1 << 30) + umin(i, 3u) + (int)pow(2, i % 8) + (int)fmin(i, 2.5f);
        k[i] += (int)std::nearbyint(0.5f) + (int)std::fdim(1.0f, 2.0f);
        if (std::numeric_limits<float>::infinity() == INFINITY && isnan(NAN)) k[i] += 100;
    }"""  # noqa: E501
    i = np.arange(32)
    a = (np.arange(32, dtype=f32).view(np.uint32) >> 16).astype(np.uint16)
    u = (rng.random(32) + 1j).astype(np.complex64)
    b, v, k = np.zeros(32, np.uint16), u.copy(), np.zeros(32, i32)
    run(source, "odd", (1,), (32,), (a, b, u, v, k))
    np.testing.assert_array_equal((b.astype(np.uint32) << 16).view(f32), i + 1)
    np.testing.assert_allclose(v, 2j * u + u.conj(), rtol=1e-5)
    np.testing.assert_array_equal(k, 103 + np.minimum(i, 3) + 2 ** (i % 8) + np.minimum(i, 2))


def test_warnings(compiler):
    source = """__global__ void w(const float* x, int* over, float* y, int n) {
        float s;
        *over = 1;
        for (int k = 0; k < n; k++)
            s += x[k];
        if (threadIdx.x < 8) return;
        __syncthreads();
        y[threadIdx.x] = s;
    }"""
    x, over, y = np.ones(8, f32), np.zeros(1, i32), np.zeros(32, f32)
    kernel = RawKernel(source, "w", compiler=compiler)
    report = kernel.check((2,), (32,), (x, over, y, i32(8)))
    assert {(w.kind, w.line) for w in report.warnings} >= {("same-value", 3), ("exited-threads", 7)}, str(report)
    (left,) = (w for w in report.warnings if w.kind == "exited-threads")
    assert "of block (0, 0, 0) returned from the kernel instead of waiting at this barrier" in left.message
    assert {w.line for w in report.warnings if w.kind == "uninitialised-local"} & {5, 8}
    assert "warning: same-value, line 3: thread (1, 0, 0) of block (0, 0, 0) writes over[0], written by" in str(report)
    with pytest.warns(UserWarning, match="8 threads of block .* returned"):
        kernel((1,), (32,), (x, over, y, i32(8)))  # a plain launch raises for errors only
