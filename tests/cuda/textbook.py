"""The textbook cases: kernels with one known property each, and what the emulator must say of it."""

from dataclasses import dataclass, field

import numpy as np

i32 = np.int32


def floats(n, seed=0):
    return np.random.default_rng(seed).random(n, dtype=np.float32)


@dataclass
class Case:
    """One kernel.

    `errors`, `warnings`: (kind, line, array) each; `sites`: {(array, access, line or None): {attribute: value}}.
    """

    title: str
    source: str
    grid: tuple
    block: tuple
    args: tuple
    errors: list = field(default_factory=list)
    warnings: list = field(default_factory=list)
    sites: dict = field(default_factory=dict)
    flops: int | None = None
    moved: int | None = None
    lanes: tuple | None = None  # bounds of the share of active lanes
    shared_mem: int = 0
    result: tuple | None = None  # (number of the argument, what it must hold afterwards)
    time_limit: float = 20.0

    @property
    def name(self):
        return self.source.split("(")[0].split()[-1]


def sectors(value, ideal=None):
    return {"sectors_per_request": value} | ({} if ideal is None else {"ideal_per_request": ideal})


def conflict(ways):
    return {"worst_conflict": ways, "wavefronts_per_request": ways}


A, B = floats((64, 64), 1), floats((64, 64), 2)
V = floats(4096)
F = np.float32

MATMUL = """extern "C" __global__ void matmul(const float* A, const float* B, float* C, int N) {
    int COL = blockIdx.x * blockDim.x + threadIdx.x, ROW = blockIdx.y * blockDim.y + threadIdx.y;
    float s = 0;
    for (int k = 0; k < N; k++)
        s += A[row * N + k] * B[k * N + col];
    C[row * N + col] = s;
}"""
TILED = """#define TILE 16
extern "C" __global__ void tiled(const float* A, const float* B, float* C, int N) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float s = 0;
    for (int t = 0; t < N / TILE; t++) {
        a[ty][tx] = A[row * N + t * TILE + tx];
        b[ty][tx] = B[(t * TILE + ty) * N + col];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            s += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    C[row * N + col] = s;
}"""
REDUCE = """extern "C" __global__ void reduce(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}"""
ADD = """extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}"""
TAIL = """extern "C" __global__ void tail(const float* x, float* out) {
    __shared__ volatile float s[64]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        s[t] += s[t + 16];
        s[t] += s[t + 8];
    }
    if (t == 0) out[0] = s[0];
}"""
TAIL_SYNC = """extern "C" __global__ void tail(const float* x, float* out) {
    __shared__ float s[64]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();
    if (t < 32)
        for (int d = 32; d; d >>= 1) {
            float v = s[t] + (t < d ? s[t + d] : 0);
            __syncwarp();
            s[t] = v;
            __syncwarp();
        }
    if (t == 0) out[0] = s[0];
}"""
UNINITIALISED = """extern "C" __global__ void reverse(const float* x, float* out, int n) {
    __shared__ float s[256]; int t = threadIdx.x;
    if (t < n) s[t] = x[t];
    __syncthreads();
    out[t] = s[255 - t];
}"""
HISTOGRAM_RACE = """extern "C" __global__ void histogram(const int* x, int* h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) h[x[i]] += 1;
}"""
DIVERGENT = """extern "C" __global__ void divergent(float* x) {
    __shared__ float s[64]; int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        __syncthreads();
        x[t] = s[31 - t];
    } else {
        x[t] = 0;
        __syncthreads();
    }
}"""
EARLY = """extern "C" __global__ void early(float* x, int n) {
    __shared__ float s[64]; int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    x[t] = s[n - 1 - t];
}"""
STUCK = """extern "C" __global__ void stuck(float* x) {
    int t = threadIdx.x; float v = x[t];
    if (t < 16)
        v += __shfl_down_sync(0xffffffff, v, 1);
    else
        __syncthreads();
    x[t] = v;
}"""
PARTIAL_WARP = """extern "C" __global__ void partial(float* x) {
    float v = x[threadIdx.x];
    v += __shfl_down_sync(0xffffffff, v, 16);
    x[threadIdx.x] = v;
}"""
FLOAT4 = """extern "C" __global__ void twice(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 v = reinterpret_cast<const float4*>(in)[i];
        v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;
        reinterpret_cast<float4*>(out)[i] = v;
    }
}"""
DYNAMIC = """extern "C" __global__ void dynamic(const float* in, float* out) {
    extern __shared__ float buf[];
    int t = threadIdx.x;
    buf[t] = in[t];
    __syncthreads();
    out[t] = buf[blockDim.x - 1 - t];
}"""
STATIC_INDEX = """extern "C" __global__ void row(float* x) {
    __shared__ float s[16][16]; int t = threadIdx.x;
    s[0][t] = 1;
    __syncthreads();
    x[t] = s[0][t];
}"""
DIVISION = """extern "C" __global__ void division(int* x, int n) {
    int t = threadIdx.x;
    x[t] = 100 / (n - t);
}"""
CONST = """extern "C" __global__ void fill(const float* x) {
    ((float*)x)[threadIdx.x] = 0;
}"""
BRANCHES = """extern "C" __global__ void branches(float* x) {
    int t = threadIdx.x; float v = x[t];
    if (t % 2) for (int i = 0; i < 100; i++) v = v * 0.5f + 1;
    else for (int i = 0; i < 100; i++) v = v * 0.5f - 1;
    x[t] = v;
}"""
SPIN = """extern "C" __global__ void spin(volatile int* flag) {
    if (blockIdx.x == 0) {
        while (flag[0] == 0) { }
    } else flag[0] = 1;
}"""
MISALIGNED = """extern "C" __global__ void shifted(const float* in, float* out) {
    float4 v = *reinterpret_cast<const float4*>(in + 1);
    out[threadIdx.x] = v.x;
}"""
BLOCK_LOCK = """extern "C" __global__ void lock(int* mutex, volatile int* sum) {
    while (atomicCAS(mutex, 0, 1) != 0) { }
    atomicAdd((int*)sum, 1);
    atomicExch(mutex, 0);
}"""


OUT = np.zeros(4096, F)
MATMUL_ARGS = (A, B, np.zeros((64, 64), F), i32(64))
ROWS = MATMUL.replace("COL", "col").replace("ROW", "row")
COLUMNS = MATMUL.replace("COL", "row").replace("ROW", "col")
NO_GUARD = ADD.replace("if (i < n) ", "")
NO_BARRIER = REDUCE.replace("s[t + k];\n        __syncthreads();", "s[t + k];")
FILL = """extern "C" __global__ void ones(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 1;
}"""
BINS = np.random.default_rng(3).integers(0, 16, 256).astype(i32)
SUMS = V[:1024].reshape(4, 256).sum(1)

CASES = [
    Case(
        "naive matmul, threads along rows", ROWS, (2, 8), (32, 8), MATMUL_ARGS,
        sites={("A", "read", 5): sectors(1, 1), ("B", "read", 5): sectors(4, 4), ("C", "write", 6): sectors(4, 4)},
        flops=2 * 64**3, moved=5 * 32 * 64**3 // 32 + 4 * 64 * 64, result=(2, A @ B),
    ),
    Case(
        "naive matmul, threads along columns", COLUMNS, (2, 8), (32, 8), MATMUL_ARGS,
        sites={("A", "read", 5): sectors(32, 4), ("B", "read", 5): sectors(1, 1), ("C", "write", 6): sectors(32, 4)},
        flops=2 * 64**3, moved=33 * 32 * 64**3 // 32 + 32 * 64 * 64, result=(2, A @ B),
    ),
    Case(
        "tiled matmul", TILED, (4, 4), (16, 16), MATMUL_ARGS,
        sites={
            ("A", "read", 8): sectors(4, 4), ("a", "read", 12): conflict(1), ("b", "read", 12): conflict(1),
            ("C", "write", 15): sectors(4, 4),
        },
        flops=2 * 64**3, moved=147456, result=(2, A @ B),
    ),
    Case(
        "float4", FLOAT4, (8,), (128,), (V, OUT, i32(4096)),
        sites={("in", "read", 4): sectors(16, 16) | {"size": 16}, ("out", "write", 6): sectors(16, 16) | {"size": 16}},
        flops=4096, result=(1, 2 * V),
    ),
    Case("guard with <=", FILL, (17,), (256,), (OUT, i32(4096)), [("out-of-bounds", 3, "out")]),
    Case(
        "guard missing", NO_GUARD, (5,), (256,), (V[:1000].copy(), V[:1000].copy(), OUT[:1000].copy(), i32(1000)),
        [("out-of-bounds", 3, "a")],
    ),
    Case("barrier missing in a reduction", NO_BARRIER, (4,), (256,), (V[:1024].copy(), OUT[:4].copy(), i32(1024)),
         [("race", 7, "s")]),
    Case("reduction", REDUCE, (4,), (256,), (V[:1024].copy(), OUT[:4].copy(), i32(1024)), result=(1, SUMS),
         flops=4 * 255),
    Case("warp-synchronous tail", TAIL, (1,), (64,), (V[:64].copy(), OUT[:1].copy()),
         [("race", 6, "s")]),
    Case("the same with __syncwarp", TAIL_SYNC, (1,), (64,), (V[:64].copy(), OUT[:1].copy())),
    Case("uninitialised shared memory", UNINITIALISED, (1,), (256,), (V[:256].copy(), OUT[:256].copy(), i32(200)),
         [("uninitialised", 5, "s")]),
    Case("histogram without atomics", HISTOGRAM_RACE, (4,), (64,), (BINS, np.zeros(16, i32), i32(256)),
         [("race", 3, "h"), ("race-between-blocks", 3, "h")]),
    Case("barriers in both arms of a branch", DIVERGENT, (1,), (64,), (V[:64].copy(),), [("divergent-barrier", 5, "")]),
    Case("return before a barrier", EARLY, (1,), (64,), (V[:64].copy(), i32(50)),
         warnings=[("exited-threads", 5, "")]),
    Case("shuffle that half a warp never reaches", STUCK, (1,), (32,), (V[:32].copy(),), [("missing-lanes", 4, "")]),
    Case("shuffle from lanes that do not exist", PARTIAL_WARP, (1,), (24,), (V[:24].copy(),),
         [("missing-lanes", 3, "")]),
    Case("dynamic shared memory", DYNAMIC, (1,), (128,), (V[:128].copy(), OUT[:128].copy()), shared_mem=512,
         result=(1, V[127::-1])),
    Case("too little dynamic shared memory", DYNAMIC, (1,), (128,), (V[:128].copy(), OUT[:128].copy()), shared_mem=256,
         errors=[("out-of-bounds", 4, "dynamic shared memory"), ("out-of-bounds", 6, "dynamic shared memory")]),
    Case("index beyond a row", STATIC_INDEX, (1,), (32,), (V[:32].copy(),), [("out-of-bounds", 3, "")]),
    Case("division by zero", DIVISION, (1,), (32,), (np.zeros(32, i32), i32(8)), [("division-by-zero", 3, "")]),
    Case("write through const", CONST, (1,), (32,), (V[:32].copy(),), [("write-through-const", 2, "x")]),
    Case("both arms of a branch", BRANCHES, (1,), (64,), (V[:64].copy(),), flops=64 * 200, lanes=(0.45, 0.56)),
    Case("blocks that wait for each other", SPIN, (2,), (32,), (np.zeros(4, i32),), [("infinite-loop", 3, "")],
         time_limit=0.3),
    Case("misaligned float4", MISALIGNED, (1,), (32,), (V[:64].copy(), OUT[:32].copy()), [("misaligned", 2, "in")]),
    Case("a lock between threads of a block", BLOCK_LOCK, (1,), (64,), (np.zeros(1, i32), np.zeros(1, i32)),
         result=(1, np.array([64]))),
]  # fmt: skip
