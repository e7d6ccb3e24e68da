"""How each kernel of the `.cu` files beside is launched, and what it must compute."""

import numpy as np

from . import LAUNCHES, blocks, f32, floats, i32, launch, u32, zeros

__all__ = ["LAUNCHES"]

rng = np.random.default_rng(0)

# -- irregular.cu ------------------------------------------------------------------------------------------------------

NODES = 100
DEGREE = rng.integers(0, 5, NODES)
EDGES = rng.integers(0, NODES, DEGREE.sum()).astype(i32)
START = np.concatenate([[0], np.cumsum(DEGREE)]).astype(i32)


@launch("irregular.cu", warnings=["same-value"] * 2)
def bfs_visit():
    nodes = np.stack([START[:-1], DEGREE], 1).astype(i32)
    mask, visited = np.arange(NODES) % 3 == 0, np.arange(NODES) % 5 == 0
    cost = np.full(NODES, 7, i32)
    reached = np.zeros(NODES, bool)
    for node in np.flatnonzero(mask):
        reached[EDGES[START[node] : START[node + 1]]] = True
    reached &= ~visited
    visited[mask] = True  # else the cost of a node is read and written at once
    reached &= ~visited
    args = (nodes, EDGES, mask.copy(), np.zeros(NODES, bool), visited, cost.copy(), i32(NODES))
    return (2,), (64,), args, {2: 0 * mask, 3: reached, 5: np.where(reached, 8, 7)}


def csr(dtype):
    data, x = floats(EDGES.size).astype(dtype), floats(NODES, seed=1).astype(dtype)
    dense = np.zeros((NODES, NODES), dtype)
    np.add.at(dense, (np.repeat(np.arange(NODES), DEGREE), EDGES), data)
    return data, x, dense @ x


@launch("irregular.cu")
def spmv_csr():
    data, x, want = csr(float)
    return (2,), (64,), (i32(NODES), START, EDGES, data, x, np.ones(NODES)), {5: want + 1}


@launch("irregular.cu", "spmv_csr_vector<4>")
def spmv_csr_vector():
    data, x, want = csr(f32)
    return (7,), (64,), (i32(NODES), START, EDGES, data, x, zeros(NODES)), {5: want}


@launch("irregular.cu", atol=1e-4)
def lu_diagonal():
    a = floats(20, 20) + 8 * np.eye(20, dtype=f32)
    want = a.astype(float)
    for k in range(16):
        want[k + 1 : 16, k] /= want[k, k]
        want[k + 1 : 16, k + 1 : 16] -= np.outer(want[k + 1 : 16, k], want[k, k + 1 : 16])
    return (1,), (16,), (a.copy(), i32(20), i32(0)), {0: want}


@launch("irregular.cu")
def align():
    similarity = rng.integers(-5, 6, (16, 16)).astype(i32)
    score = np.zeros((17, 17), int)
    score[0], score[:, 0] = -3 * np.arange(17), -3 * np.arange(17)
    for i in range(16):
        for j in range(16):
            score[i + 1, j + 1] = max(score[i, j] + similarity[i, j], score[i + 1, j] - 3, score[i, j + 1] - 3)
    return (1,), (16,), (similarity, zeros(16, 16, dtype=i32), i32(16), i32(3)), {1: score[1:, 1:]}


@launch("irregular.cu", shared_mem=32 * 16, atol=1e-3, rtol=1e-3)
def nbody():
    bodies = np.abs(floats(50, 4))
    r = bodies[None, :, :3] - bodies[:, None, :3]
    want = (r * (bodies[:, 3] * ((r * r).sum(2) + 0.1) ** -1.5)[..., None]).sum(1)
    return (2,), (32,), (bodies, zeros(50, 3), i32(50), f32(0.1)), {1: want}


@launch("irregular.cu", constants={"ck": floats(16, 4, seed=3)}, atol=1e-3)
def mri_q():
    k, x, q = floats(16, 4, seed=3), floats(3, 64), floats(2, 64, seed=1)
    angle = 2 * np.pi * (k[:11, :3] @ x)
    want = [q[0] + k[:11, 3] @ np.cos(angle), q[1] + k[:11, 3] @ np.sin(angle)]
    return (2,), (32,), (i32(11), *x.copy(), *q.copy()), {4: want[0], 5: want[1]}


# -- elementwise.cu ----------------------------------------------------------------------------------------------------
def bfloat16(x):
    """Round to bfloat16, as bits."""
    u = x.astype(f32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits):
    return (bits.astype(np.uint32) << 16).view(f32)


@launch("elementwise.cu")
def saxpy():
    x, y = floats(1000), floats(1000, seed=1)
    return blocks(1000, 256), (256,), (f32(2), x, y.copy(), i32(1000)), {2: 2 * x + y}


@launch("elementwise.cu")
def scale4():
    x = floats(1003)
    return blocks(1003, 4 * 64), (64,), (x, zeros(1003), f32(3), i32(1003)), {1: 3 * x}


@launch("elementwise.cu", "transform<double, Square<double>>")
def square():
    x = floats(1000).astype(float)
    return (2,), (256,), (x, np.zeros(1000), np.uint64(1000), np.zeros(1, "V1")[0]), {1: x * x}


@launch("elementwise.cu", "transform<float, Affine>")
def affine():
    x, f = floats(1000), np.array((2, 3), [("a", f32), ("b", f32)])[()]
    return (2,), (256,), (x, zeros(1000), np.uint64(1000), f), {1: 2 * x + 3}


@launch("elementwise.cu")
def gelu_forward():
    x = floats(1000)
    want = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return blocks(1000, 128), (128,), (zeros(1000), x, i32(1000)), {0: want}


@launch("elementwise.cu")
def swiglu():
    gate, up = floats(1000), floats(1000, seed=1)
    return blocks(1000, 128), (128,), (zeros(1000), gate, up, i32(1000)), {0: gate / (1 + np.exp(-gate)) * up}


@launch("elementwise.cu", "adamw<float>")
def adamw():
    w, g, m, v = floats(1000), floats(1000, seed=1), floats(1000, seed=2), floats(1000, seed=3) ** 2
    m1, v1 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    step = m1 / (1 - 0.9**3) / (np.sqrt(v1 / (1 - 0.99**3)) + 1e-8) + 0.1 * w
    args = (w.copy(), g, m.copy(), v.copy(), i32(1000), f32(0.01), f32(0.9), f32(0.99), f32(1e-8), f32(0.1), i32(3))
    return blocks(1000, 128), (128,), args, {0: w - 0.01 * step, 2: m1, 3: v1}


@launch("elementwise.cu", atol=2e-3, rtol=2e-3)
def half2_axpy():
    x, y = (floats(1000, seed=s).astype(np.float16) for s in (0, 1))
    a = np.array((2, 3), [("x", np.float16), ("y", np.float16)])[()]
    want = x.reshape(-1, 2).astype(f32) * (2, 3) + y.reshape(-1, 2)
    return blocks(500, 64), (64,), (a, x, y.copy(), i32(500)), {2: want.ravel()}


@launch("elementwise.cu")
def bfloat16_residual():
    a, b = bfloat16(floats(1000)), bfloat16(floats(1000, seed=1))
    want = bfloat16(from_bfloat16(a) + from_bfloat16(b))
    return blocks(500, 64), (64,), (a, b, zeros(1000, dtype=np.uint16), i32(1000)), {2: want}


# -- reduce.cu ---------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).integers(-50, 100, 1000).astype(i32)


def partial(per_block):
    padded = np.pad(X, (0, -X.size % per_block))
    return padded.reshape(-1, per_block).sum(1)


@launch("reduce.cu", shared_mem=512)
def reduce_interleaved():
    return (8,), (128,), (X, zeros(8, dtype=i32), u32(1000)), {1: partial(128)}


@launch("reduce.cu", shared_mem=512)
def reduce_strided_index():
    return (8,), (128,), (X, zeros(8, dtype=i32), u32(1000)), {1: partial(128)}


@launch("reduce.cu", "reduce_template<int, 128, false>")
def reduce_template():
    return (4,), (128,), (X, zeros(4, dtype=i32), u32(1000)), {1: partial(256)}


@launch("reduce.cu", atol=1e-3)
def dot():
    a, b = floats(1000), floats(1000, seed=1)
    return (3,), (128,), (a, b, zeros(1), i32(1000)), {2: a @ b}


@launch("reduce.cu")
def argmax_rows():
    x = floats(5, 300)
    return (5,), (128,), (x, zeros(5, dtype=i32), i32(300)), {1: x.argmax(1)}


@launch("reduce.cu", shared_mem=256)
def sum_by_any_group():
    x = X[:64]
    args = (x, zeros(1, dtype=i32), zeros(4, dtype=i32))
    return (1,), (64,), args, {1: x.sum(), 2: x.reshape(4, 16).sum(1)}


@launch("reduce.cu", atol=1e-4)
def mean_by_last_block():
    x = floats(1000)
    return (4,), (64,), (x, zeros(4), zeros(1), i32(1000)), {2: x.mean()}


@launch("reduce.cu")
def count_votes():
    groups = np.pad(X, (0, 24)).reshape(-1, 128)
    want = [(X > 0).sum(), (groups > 90).any(1).sum(), (X & 1).sum()]
    return (8,), (128,), (X, zeros(3, dtype=i32), i32(1000)), {1: want}


# -- scan.cu -----------------------------------------------------------------------------------------------------------
@launch("scan.cu", shared_mem=1024, atol=1e-4)
def scan_hillis_steele():
    x = floats(100)
    return (1,), (128,), (x, zeros(100), i32(100)), {1: np.cumsum(x)}


@launch("scan.cu")
def scan_by_warps():
    sums = [np.cumsum(X[i : i + 128]) for i in range(0, 1000, 128)]
    args = (X, zeros(1000, dtype=i32), zeros(8, dtype=i32), i32(1000))
    return (8,), (128,), args, {1: np.concatenate(sums), 2: [s[-1] for s in sums]}


@launch("scan.cu")
def scan_tile():
    x = X[:64].reshape(8, 8)
    want = np.cumsum(x, axis=1)
    args = (x.ravel(), zeros(64, dtype=i32), zeros(64, dtype=i32))
    return (1,), (64,), args, {1: want.ravel(), 2: (want - x).ravel()}


@launch("scan.cu")
def histogram_shared():
    data = (X % 251).astype(np.uint8)
    return (3,), (96,), (data, zeros(64, dtype=i32), i32(1000)), {1: np.bincount(data % 64, minlength=64)}


def filtered(block):
    """Blocks and warps run in order, and lanes keep theirs: so what is kept stays in order here."""
    kept = X[X > 0]
    want = np.zeros(1000, i32)
    want[: kept.size] = kept
    return (-(-1000 // block),), (block,), (X, zeros(1000, dtype=i32), zeros(1, dtype=i32), i32(1000)), {2: [kept.size]}


@launch("scan.cu", may_warn=("uninitialised-local",))  # clang does: only the leader sets `base` before the shuffle
def filter_positive():
    return filtered(64)


@launch("scan.cu")
def filter_by_coalesced_group():
    return filtered(128)


@launch("scan.cu", shared_mem=1024)
def bitonic_sort():
    return (1,), (256,), (X[:256].copy(),), {0: np.sort(X[:256])}


# -- matmul.cu ---------------------------------------------------------------------------------------------------------

M, N, K = 64, 96, 32
A, B, C = floats(M, K), floats(K, N, seed=1), floats(M, N, seed=2)
SIZES = (i32(M), i32(N), i32(K))
BLAS = (*SIZES, f32(2), A, B, f32(0.5), C.copy())
WANT = {7: 2 * A @ B + 0.5 * C}

for kernel, *shape in (
    ("sgemm_naive", (5, 7), (16, 16)),
    ("sgemm_coalesced<16>", (4, 6), (256,)),
    ("sgemm_shared<16>", (4, 6), (256,)),
    ("sgemm_1d_tile<32, 32, 8, 4>", (3, 2), (256,)),
    ("sgemm_2d_vectorised<32, 32, 8, 4, 4>", (3, 2), (64,)),
):
    launch("matmul.cu", kernel, atol=1e-4)(lambda shape=shape: (*shape, BLAS, WANT))


@launch("matmul.cu", atol=1e-4)
def matmul_guarded():
    a, b = floats(37, 21), floats(21, 45, seed=1)
    return (3, 3), (16, 16), (a, b, zeros(37, 45), i32(37), i32(45), i32(21)), {2: a @ b}


@launch("matmul.cu", "sgemm_warp_tile<64, 32, 8, 32, 16, 4, 4>", atol=1e-4)
def sgemm_warp_tile():
    return (3, 1), (128,), (*SIZES, A, B, zeros(M, N)), {5: A @ B}


@launch("matmul.cu", atol=1e-4)
def gemv_warp_per_row():
    a, x = floats(10, 256), floats(256, seed=1)
    return (3,), (128,), (a, x, zeros(10), i32(10), i32(256)), {2: a @ x}


# -- stencil.cu --------------------------------------------------------------------------------------------------------
@launch("stencil.cu", constants={"c_filter": floats(7, seed=5)})
def convolve_row():
    x = floats(300)
    return (3,), (128,), (x, zeros(300), i32(300)), {1: np.convolve(x, floats(7, seed=5)[::-1], "same")}


@launch("stencil.cu", constants={"c_mask": floats(5, 5, seed=6)}, atol=1e-4)
def convolve_tile():
    x, mask = floats(30, 40), floats(5, 5, seed=6)
    padded = np.pad(x, 2)
    want = sum(mask[i, j] * padded[i : i + 30, j : j + 40] for i in range(5) for j in range(5))
    return (4, 3), (16, 16), (x, zeros(30, 40), i32(30), i32(40)), {1: want}


@launch("stencil.cu")
def heat2d():
    u = floats(30, 30).astype(float)
    v = u.copy()
    v[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return (4, 4), (8, 8), (u, u.copy(), i32(30), np.float64(0.1)), {1: v}


@launch("stencil.cu")
def transpose_padded():
    x = floats(50, 70)
    return (3, 2), (32, 8), (zeros(70, 50), x, i32(70), i32(50)), {0: x.T}


@launch("stencil.cu", atol=1e-4)
def bilinear():
    x = floats(5, 6)
    rows = np.array([np.interp(np.linspace(0, 5, 16), np.arange(6), r) for r in x])
    want = np.array([np.interp(np.linspace(0, 4, 13), np.arange(5), c) for c in rows.T]).T
    return (2, 2), (8, 8), (x, zeros(13, 16), i32(6), i32(5), i32(16), i32(13)), {1: want}


# -- nn.cu -------------------------------------------------------------------------------------------------------------
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@launch("nn.cu", options=("-DTESTING",))
def residual_forward():
    a, b = floats(512), floats(512, seed=1)
    return (2,), (64,), (zeros(512), a, b), {0: a + b}


@launch("nn.cu", "residual_forward", options=("-DENABLE_BF16",))
def residual_forward_bfloat16():
    a, b = bfloat16(floats(512)), bfloat16(floats(512, seed=1))
    return (1,), (64,), (zeros(512, dtype=np.uint16), a, b), {0: bfloat16(from_bfloat16(a) + from_bfloat16(b))}


@launch("nn.cu")
def softmax_online():
    x = floats(7, 100)
    return (4,), (64,), (zeros(7, 100), x, i32(7), i32(100)), {0: softmax(x)}


@launch("nn.cu")
def rmsnorm():
    x, w = floats(300), floats(300, seed=1)
    return (1,), (128,), (zeros(300), x, w, i32(300)), {0: w * x / np.sqrt((x * x).mean() + 1e-5)}


@launch("nn.cu", atol=1e-4)
def embedding_backward():
    tokens, d = rng.integers(0, 5, 40).astype(i32), floats(40, 8)
    want = zeros(5, 8)
    np.add.at(want, tokens, d)
    return (5,), (64,), (zeros(5, 8), d, tokens, i32(40), i32(8)), {0: want}


@launch("nn.cu", shared_mem=4 * (3 * 16 * 8 + 16 * 16), atol=1e-4)
def flash_attention():
    q, k, v = (floats(1, 2, 32, 8, seed=s) for s in range(3))
    want = softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(f32(8))) @ v
    ints = map(i32, (32, 8, 2, 2, 16, 16))
    args = (q, k, v, *ints, f32(8**-0.5), zeros(64), np.full(64, -np.inf, f32), zeros(1, 2, 32, 8))
    return (1, 2), (16,), args, {12: want}


@launch("nn.cu", atol=1e-4)
def batchnorm_channels():
    x, g, b = floats(4, 3, 20), floats(3, seed=1), floats(3, seed=2)
    mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    want = g[:, None] * (x - mean) / np.sqrt(var + 1e-5) + b[:, None]
    return (3,), (64,), (x, zeros(4, 3, 20), g, b, i32(4), i32(3), i32(20)), {1: want}


# -- language.cu -------------------------------------------------------------------------------------------------------
@launch("language.cu")
def fft_step():
    x = (floats(32) + 1j * floats(32, seed=1)).astype(np.complex64).reshape(4, 2, 4)
    odd = x[:, 1] * np.exp(-1j * np.pi * np.arange(4) / 4)
    want = np.stack([x[:, 0] + odd, x[:, 0] - odd], 1)
    return (1,), (16,), (x.ravel(), zeros(32, dtype=np.complex64), i32(32), i32(4)), {1: want.ravel()}


@launch("language.cu")
def bits():
    x = rng.integers(1, 2**31, 32).astype(u32)
    text = [f"{v:032b}" for v in x]
    want = [
        t.count("1") + 100 * t.index("1") + 10000 * (32 - t.rindex("1")) + 1000000 * int(t[:27:-1], 2) for t in text
    ]
    return (1,), (32,), (x, zeros(32, dtype=i32)), {1: want}


@launch("language.cu")
def pack_nibbles():
    x = rng.integers(0, 256, (32, 8)).astype(np.uint8)
    want = ((x & 15).astype(np.uint64) << (4 * np.arange(8, dtype=np.uint64))).sum(1)
    return (1,), (32,), (x, zeros(32, dtype=u32), np.int8(0)), {1: want.astype(u32)}


@launch("language.cu")
def recursion():
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    return (1,), (12,), (zeros(12, dtype=i32),), {0: np.array(fibonacci) * np.tile([2, 3, 5, 7], 3) + 7}


@launch("language.cu")
def vectors_of_own():
    a, b = floats(40, 3), floats(40, 3, seed=1)
    return (2,), (32,), (a, b, zeros(40), zeros(40, 3), i32(40)), {2: (a * b).sum(1), 3: a + 2 * b}


# -- nvcc.cu -----------------------------------------------------------------------------------------------------------

SETTINGS = np.array([(2, 3)], [("scale", f32), ("shift", i32)])


@launch("nvcc.cu")
def standard_names():
    x = rng.integers(0, 100, 32).astype(i32)
    low, high = np.minimum(x, np.roll(x, -1)), np.maximum(x, np.roll(x, -1))
    want = np.maximum(low, 10) + np.minimum(high, 50) + 1 + (high - low) // 2
    return (1,), (32,), (x, zeros(32, dtype=i32), zeros(32)), {1: want, 2: np.full(32, 1.5)}


@launch("nvcc.cu")
def overloads():
    n = np.arange(8, dtype=i32)
    doubles = n**2 + np.minimum(n, 2.5) + np.maximum(n, 1) + 2.0**n + n + 2 + 1 + 8
    unsigned = np.minimum(n, 5) + np.maximum(n, 3) + 3 * n + np.minimum(n, 4) + np.maximum(n, 2)
    return (1,), (8,), (n, np.zeros(8), zeros(8, dtype=u32)), {1: doubles, 2: unsigned}


@launch("nvcc.cu", constants={"settings": SETTINGS})
def lambdas():
    x = floats(40)
    return (1,), (32,), (x.copy(), i32(40), f32(0.5), True), {0: x * x + 4}


@launch("nvcc.cu")
def mandelbrot():
    y, x = np.mgrid[:12, :20]
    c = -2 + 3 * x / 20 + 1j * (-1 + 2 * y / 12)
    z, n = np.zeros_like(c), np.zeros(c.shape, i32)
    for _ in range(30):
        inside = z.real**2 + z.imag**2 <= 4
        z, n = np.where(inside, z * z + c, z), n + inside
    return (3, 2), (8, 8), (zeros(12, 20, dtype=i32), i32(20), i32(12), i32(30)), {0: n}


@launch("nvcc.cu")
def phase():
    z = (floats(32) + 1j * floats(32, seed=1)).astype(np.complex64)
    return (1,), (32,), (z, zeros(32), np.zeros_like(z)), {1: np.angle(z), 2: z.conj() / np.abs(z)}
