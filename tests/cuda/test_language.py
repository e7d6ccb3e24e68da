"""What of CUDA C the emulator runs: each kernel against NumPy."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel, compile_check, has_nvrtc

i32, f32 = np.int32, np.float32
rng = np.random.default_rng(0)


def test_three_dimensions(run):
    source = """extern "C" __global__ void index3(int* out) {
        unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
        out[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] = x + 100 * y + 10000 * z;
    }"""
    out = np.zeros((2 * 2, 3 * 5, 2 * 7), i32)
    run(source, "index3", (2, 3, 2), (7, 5, 2), (out,))
    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x + 100 * y + 10000 * z)


@pytest.mark.parametrize("block", [(1024,), (50,), (7, 5, 3), (1,), (33,)], ids=str)
def test_shuffles_and_votes_in_any_block(run, block):
    source = """extern "C" __global__ void total(const float* x, float* sums, int* counts) {
        int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int n = blockDim.x * blockDim.y * blockDim.z, lane = t & 31, left = n - (t & ~31);
        unsigned mask = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        float v = x[t];
        for (int d = 16; d; d >>= 1) { float u = __shfl_sync(mask, v, lane + d < left ? lane + d : lane); if (lane + d < left && lane + d < 32) v += u; }
        unsigned votes = __ballot_sync(mask, x[t] > 0.5f);
        __shared__ float part[32]; __shared__ int count[32];
        if (lane == 0) { part[t / 32] = v; count[t / 32] = __popc(votes); }
        __syncthreads();
        if (t == 0) {
            float s = 0; int c = 0;
            for (int i = 0; i < (n + 31) / 32; i++) { s += part[i]; c += count[i]; }
            sums[blockIdx.x] = s; counts[blockIdx.x] = c;
        }
    }"""  # noqa: E501
    n = int(np.prod(block))
    x, sums, counts = rng.random(n, dtype=f32), np.zeros(3, f32), np.zeros(3, i32)
    run(source, "total", (3,), block, (x, sums, counts))
    np.testing.assert_allclose(sums, x.sum(), rtol=1e-5)
    assert (counts == (x > 0.5).sum()).all()


def test_shuffle_variants(run):
    source = """extern "C" __global__ void shuffles(const int* x, int* out, const double* d, double* dout) {
        int t = threadIdx.x, v = x[t]; const unsigned all = 0xffffffffu;
        out[t] = __shfl_up_sync(all, v, 3);
        out[32 + t] = __shfl_down_sync(all, v, 3, 8);
        out[64 + t] = __shfl_xor_sync(all, v, 5);
        out[96 + t] = __shfl_sync(all, v, 7, 16);
        out[128 + t] = __any_sync(all, v == 3) + 2 * __all_sync(all, v >= 0);
        out[160 + t] = __match_any_sync(all, v % 4);
        out[192 + t] = __syncthreads_count(v % 2);
        dout[t] = __shfl_down_sync(all, d[t], 1);
    }"""
    x, out = np.arange(32, dtype=i32), np.zeros(224, i32)
    d, dout = rng.random(32), np.zeros(32)
    run(source, "shuffles", (1,), (32,), (x, out, d, dout))
    lane = np.arange(32)
    o = out.reshape(7, 32)
    np.testing.assert_array_equal(o[0], np.where(lane >= 3, lane - 3, lane))
    np.testing.assert_array_equal(o[1], np.where(lane % 8 + 3 < 8, lane + 3, lane))
    np.testing.assert_array_equal(o[2], lane ^ 5)
    np.testing.assert_array_equal(o[3], lane // 16 * 16 + 7)
    assert (o[4] == 3).all()
    np.testing.assert_array_equal(o[5].view(np.uint32), 0x11111111 << (lane % 4))
    assert (o[6] == 16).all()
    np.testing.assert_array_equal(dout, np.append(d[1:], d[31]))


def test_shuffles_and_votes_of_before_volta(compiler):
    """They run with a full mask, as most were replaced; a finding says that no card since takes them."""
    source = """#define ADD(v, d) v += __shfl_down(v, d)
    __global__ void old(const float* x, float* y) {
        float v = x[threadIdx.x];
        for (int d = 16; d; d /= 2) ADD(v, d);
        y[threadIdx.x] = __shfl(v, 0) + __any(v < 0) + 2 * __all(v < 99) + __popc(__ballot(threadIdx.x < 5));
        y[32 + threadIdx.x] = __shfl_up(v, 1, 8) - __shfl_xor(v, 3);
    }"""
    x, y = np.ones(32, f32), np.zeros(64, f32)
    errors = RawKernel(source, "old", compiler=compiler).check(1, 32, (x, y)).errors
    assert (y[:32] == 32 + 2 + 5).all()
    assert {(e.kind, e.line, e.message.split()[0]) for e in errors} == {
        ("removed-intrinsic", line, name)
        for line, names in {
            1: ["__shfl_down"],
            5: ["__shfl", "__any", "__all", "__ballot"],
            6: ["__shfl_up", "__shfl_xor"],
        }.items()
        for name in names
    }
    assert (
        "runs as __shfl_down_sync(0xffffffff, v, delta): write that" in next(e for e in errors if e.line == 1).message
    )


WORDS = {  # of four bytes x and y: the intrinsic, by the type that they are read as
    "__vadd4": ("u1", lambda x, y: x + y),
    "__vsub4": ("u1", lambda x, y: x - y),
    "__vaddss4": ("i1", lambda x, y: np.clip(x + y, -128, 127)),
    "__vsubus4": ("u1", lambda x, y: np.clip(x - y, 0, 255)),
    "__vaddus2": ("u2", lambda x, y: np.clip(x + y, 0, 65535)),
    "__vmaxs2": ("i2", np.maximum),
    "__vminu4": ("u1", np.minimum),
    "__vabsdiffs4": ("i1", lambda x, y: abs(x - y)),
    "__vcmpgtu4": ("u1", lambda x, y: -(x > y).astype(int)),
    "__vcmpeq2": ("u2", lambda x, y: -(x == y).astype(int)),
    "__vavgu4": ("u1", lambda x, y: (x + y + 1) // 2),
}


def test_words_of_bytes_and_halves(run):
    lines = "".join(f"y[{i} * n + t] = {name}(a[t], b[t]);\n" for i, name in enumerate(WORDS))
    source = f"""extern "C" __global__ void words(const unsigned* a, const unsigned* b, unsigned* y, unsigned* sums) {{
        int t = threadIdx.x, n = blockDim.x;
        {lines} sums[t] = __vsads4(a[t], b[t]); sums[n + t] = __dp4a(a[t], b[t], 7u);
    }}"""
    a, b = rng.integers(0, 1 << 32, (2, 256), dtype=np.uint32)
    b[::3] = a[::3]
    y, sums = np.zeros((len(WORDS), 256), np.uint32), np.zeros((2, 256), np.uint32)
    run(source, "words", (1,), (256,), (a, b, y, sums))
    for got, (name, (kind, parts)) in zip(y, WORDS.items(), strict=True):
        wanted = parts(a.view(kind).astype(int), b.view(kind).astype(int))
        np.testing.assert_array_equal(got.view(f"u{kind[1]}"), wanted.astype(f"u{kind[1]}"), name)
    signed, plain = ([v.view(kind).reshape(-1, 4).astype(int) for v in (a, b)] for kind in ("i1", "u1"))
    np.testing.assert_array_equal(sums[0], abs(signed[0] - signed[1]).sum(1))
    np.testing.assert_array_equal(sums[1], 7 + (plain[0] * plain[1]).sum(1))


@pytest.mark.parametrize("n", [1, 33, 64, 200])
def test_threads_take_turns_in_order(run, n):
    """Sums of floats by atomics are the same in every run: threads go on in their order, after whatever they met at."""
    source = """extern "C" __global__ void turns(int* next, int* turn) {
        int t = threadIdx.x, n = blockDim.x, left = n - (t & ~31), odd = t / 32 % 2;
        unsigned mask = left >= 32 ? 0xffffffffu : (1u << left) - 1;
        turn[t] = atomicAdd(next, 1);
        __syncthreads();
        turn[n + t] = atomicAdd(next + 1, 1);
        if (odd) {
            __syncwarp(mask);
            turn[2 * n + t] = atomicAdd(next + 2, 1);
            turn[2 * n + t] += __shfl_sync(mask, 0, 0);
            turn[3 * n + t] = atomicAdd(next + 3, 1);
        }
        int met = __syncthreads_count(odd);
        turn[4 * n + t] = atomicAdd(next + 4, 1);
        __syncthreads();
        turn[5 * n + t] = met;
    }"""
    turn = np.full((6, n), -1, i32)
    run(source, "turns", (1,), (n,), (np.zeros(5, i32), turn))
    odd = np.arange(n) // 32 % 2 == 1
    for phase in (0, 1, 4):
        np.testing.assert_array_equal(turn[phase], np.arange(n))
    for phase in (2, 3):
        np.testing.assert_array_equal(turn[phase][odd], np.arange(odd.sum()))
    assert (turn[5] == odd.sum()).all()


def test_atomics(run):
    source = """extern "C" __global__ void atomics(int* out, float* f, unsigned* u, unsigned long long* big) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(&out[0], i); atomicSub(&out[1], 1); atomicMax(&out[2], i); atomicMin(&out[3], -i);
        atomicOr(&out[4], 1 << i % 8); atomicAnd(&out[5], ~(1 << i % 4)); atomicXor(&out[6], i);
        atomicAdd(f, 0.5f); atomicInc(u, 9u); atomicAdd(big, 1ULL << 33);
        int seen = out[7] * 0, assumed;
        do { assumed = seen; seen = atomicCAS(&out[8], assumed, assumed + 2); } while (seen != assumed);
    }"""
    out, f, u, big = np.zeros(9, i32), np.zeros(1, f32), np.zeros(1, np.uint32), np.zeros(1, np.uint64)
    out[5] = -1
    run(source, "atomics", (4,), (32,), (out, f, u, big))
    i = np.arange(128)
    assert out.tolist() == [i.sum(), -128, 127, -127, 255, -16, np.bitwise_xor.reduce(i), 0, 256]
    assert f[0] == 64 and u[0] == 128 % 10 and int(big[0]) == 128 << 33  # noqa: PT018


def test_half_precision(run):
    source = """#include <cuda_fp16.h>
    extern "C" __global__ void halves(const half* x, half* y, float* back, half2* sum, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        back[i] = __half2float(x[i]);
        y[i] = __float2half(__half2float(x[i]) * 3.0f);
        y[n + i] = __hadd(x[i], x[i]);
        half2 p = __halves2half2(x[i], x[i]);
        y[2 * n + i] = __low2half(__hmul2(p, p));
        atomicAdd(sum, __floats2half2_rn(1.f, 2.f));
    }"""
    x = np.concatenate([rng.normal(size=200), [0, -0.0, 1e-7, -6e-8, 6.1e-5, 65504, np.inf, -np.inf]]).astype(
        np.float16
    )
    n = x.size
    y, back, total = np.zeros(3 * n, np.float16), np.zeros(n, f32), np.zeros(2, np.float16)
    run(source, "halves", (-(-n // 64),), (64,), (x, y, back, total, i32(n)))
    assert total.tolist() == [n, 2 * n]
    np.testing.assert_array_equal(back, x.astype(f32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y[:n], (x.astype(f32) * 3).astype(np.float16))
        np.testing.assert_array_equal(y[n : 2 * n], (x + x).astype(np.float16))
        np.testing.assert_array_equal(y[2 * n :], (x * x).astype(np.float16))


def test_mathematics(run):
    source = """extern "C" __global__ void maths(const float* x, float* y, int n) {
        int i = threadIdx.x; float v = x[i]; float2 p = make_float2(v, 2); uchar4 q = {1, 2, 3, 4};
        y[i] = p.x * q.w + __powf(p.y, __log2f(v)) + __fmaf_rn(v, v, v) + hypotf(v, v) + __expf(v) + rsqrtf(v)
             + fmaxf(v, 0.5f) + max(i, 7) + sqrt(v) + exp(v) + fma(v, v, v) + __saturatef(v) + __fdividef(v, 2.0f)
             + (isnan(v) ? 1 : 0) + min(3.0f, v) + __int_as_float(__float_as_int(abs(-v))) + pow(v, p.y)
             + floorf(v * 10);
    }"""
    x, y = rng.random(64, dtype=f32) + f32(0.1), np.zeros(64, f32)
    run(source, "maths", (1,), (64,), (x, y, i32(64)))
    i, v = np.arange(64), x.astype(np.float64)
    wanted = 2 * np.exp(v) + v**-0.5 + np.maximum(v, 0.5) + np.maximum(i, 7) + np.sqrt(v) + v * v + v + np.clip(v, 0, 1)
    wanted += v / 2 + np.minimum(3, v) + v + v**2 + np.floor(x * f32(10)) + 4 * v + v + v * v + v + np.sqrt(2) * v
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_two_dynamic_arrays_and_structs(run):
    source = """struct Pair { float a; int b; };
    extern __shared__ unsigned char raw[];
    extern "C" __global__ void both(const Pair* in, float* out, int n) {
        float* f = (float*)raw;
        int* k = (int*)&f[n];
        int t = threadIdx.x;
        f[t] = in[t].a; k[t] = in[t].b;
        __syncthreads();
        out[t] = f[n - 1 - t] * k[n - 1 - t];
    }"""
    pairs = np.zeros(64, np.dtype([("a", f32), ("b", i32)]))
    pairs["a"], pairs["b"] = rng.random(64), np.arange(64)
    out = np.zeros(64, f32)
    run(source, "both", (1,), (64,), (pairs.view(f32), out, i32(64)), shared_mem=512)
    np.testing.assert_allclose(out, (pairs["a"] * pairs["b"])[::-1])


def test_language_at_large(run):
    """Odds and ends that courses use, all of which NVRTC takes, too."""
    source = """const int SIZE = 32;
    static __device__ int counter; __device__ const float w[3] = {1, 2, 3};
    const float table[4] = {1, 2, 3, 4};
    __device__ __forceinline__ float f(float x) { return x + table[(int)x % 4]; }
    __device__ int later(int n);
    template <int N> __device__ float total(const float (&a)[N]) { float s = 0; for (float v : a) s += v; return s; }
    struct V { float x, y; __device__ float len() const { return sqrtf(x * x + y * y); } };
    __device__ V operator+(V p, V q) { return {p.x + q.x, p.y + q.y}; }
    struct P { int n; float s; };
    extern "C" __global__ void __launch_bounds__(256) k(P p, float* __restrict__ o, bool add) {
        extern __shared__ __align__(16) float s[];
        float4* wide = reinterpret_cast<float4*>(s);
        if (threadIdx.x < 8) wide[threadIdx.x] = make_float4(1, 2, 3, 4);
        __syncthreads();
        V v = {3, 4}; v = v + V{0, 0};
        atomicAdd(&counter, 1);
        dim3 d = blockDim;
        auto twice = [=](int i) { return i * 2; };
        const float local[3] = {1, 2, 3};
        float r = v.len() + w[threadIdx.x % 3] + f(threadIdx.x) + later(2) + d.x + twice(3) + total(local) + s[1];
        switch (threadIdx.x % 3) { case 0: r += 1; break; case 1: r += 2; default: r += 4; }
        if (p.n < 0) __trap();
        o[threadIdx.x] = add ? r + p.n + p.s : 0;
    }
    __device__ int later(int n) { return n + 1; }"""
    p = np.array((5, 0.5), dtype=[("n", "i4"), ("s", "f4")])[()]
    o, i = np.zeros(32, f32), np.arange(32)
    run(source, "k", (1,), (32,), (p, o, True), shared_mem=128)
    wanted = 5 + (1 + i % 3) + (i + 1 + i % 4) + 3 + 32 + 6 + 6 + 2 + np.choose(i % 3, [1, 6, 4]) + 5.5
    np.testing.assert_array_equal(o, wanted)
    if has_nvrtc():
        assert compile_check(source, [80]).ok


def test_memory_shared_by_arguments(compiler):
    source = """extern "C" __global__ void shift(const float* from, float* to, int n) {
        int i = threadIdx.x; float v = i < n ? from[i] : 0; __syncthreads(); if (i < n) to[i] = v;
    }"""
    x = np.arange(33, dtype=f32)
    report = RawKernel(source, "shift", compiler=compiler).check((1,), (32,), (x[:-1], x[1:], i32(32)))
    assert report.errors == []
    np.testing.assert_array_equal(x, np.maximum(np.arange(33) - 1, 0))
    assert report.find("from/to", "write").sectors_per_request == 5  # 128 bytes that begin 4 bytes after a sector


def test_a_loop_around_compare_and_swap(run):
    """The CUDA C++ programming guide's own atomicAdd for doubles: its first read is a guess, no race."""
    source = """__device__ double add(double* address, double val) {
        unsigned long long* p = (unsigned long long*)address;
        unsigned long long old = *p, assumed;
        do {
            assumed = old;
            old = atomicCAS(p, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
        } while (assumed != old);
        return __longlong_as_double(old);
    }
    __device__ int add(int* address, int val) {  // a second call, in the turns that follow
        int guess = *address, old = atomicCAS(address, guess, guess + val);
        while (old != guess) { guess = old; old = atomicCAS(address, guess, guess + val); }
        return old;
    }
    extern "C" __global__ void k(double* sum, int* whole) { add(sum, 0.5); add(whole, 2); }"""
    total, whole = run(source, "k", (3,), (64,), (np.zeros(1), np.zeros(1, i32)))
    assert (total[0], whole[0]) == (96, 384)


def test_bfloat16_sums_of_words_and_of_a_warp(run):
    """What the backward kernels of layer norms do: reduce in a tile, add up in shared memory, add pairs of bfloat16."""
    source = """#include <cuda_bf16.h>
    #include <cooperative_groups/reduce.h>
    __device__ void add(__nv_bfloat16* at, __nv_bfloat16 value) {
        uintptr_t place = reinterpret_cast<uintptr_t>(at);
        auto zero = __ushort_as_bfloat16(0);
        atomicAdd(reinterpret_cast<__nv_bfloat162*>(place & ~uintptr_t(3)),
                  place & 3 ? __halves2bfloat162(zero, value) : __halves2bfloat162(value, zero));
    }
    template <typename T> __global__ void centred(T* out, const T* x, int n) {
        extern __shared__ float sums[];
        namespace cg = cooperative_groups;
        cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
        for (int i = threadIdx.x; i < n; i += blockDim.x) sums[i] = 0.0f;
        __syncthreads();
        float mean = cg::reduce(warp, (float)__ldcs(&x[warp.thread_rank()]), cg::plus<float>{}) / warp.size();
        for (int i = warp.thread_rank(); i < n; i += warp.size()) atomicAdd(&sums[i], (float)x[i] - mean);
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) add(&out[i], (T)sums[i]);
    }"""
    numbers = np.arange(32, dtype=f32)
    x, out = (numbers.view(np.uint32) >> 16).astype(np.uint16), np.zeros(32, np.uint16)
    run(source, "centred<__nv_bfloat16>", (1,), (64,), (out, x, i32(32)), shared_mem=128)
    got = (out.astype(np.uint32) << 16).view(f32)
    np.testing.assert_array_equal(got, 2 * (numbers - 15.5))
