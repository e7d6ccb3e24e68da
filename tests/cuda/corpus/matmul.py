"""Launches of matmul.cu."""

from . import f32, floats, i32, launch, zeros

FILE = "matmul.cu"
M, N, K = 64, 96, 32
A, B, C = floats(M, K), floats(K, N, seed=1), floats(M, N, seed=2)
SIZES = (i32(M), i32(N), i32(K))
BLAS = (*SIZES, f32(2), A, B, f32(0.5), C.copy())
WANT = {7: 2 * A @ B + 0.5 * C}


@launch(FILE, atol=1e-4)
def sgemm_naive():
    return (5, 7), (16, 16), BLAS, WANT


@launch(FILE, "sgemm_coalesced<16>", atol=1e-4)
def sgemm_coalesced():
    return (4, 6), (256,), BLAS, WANT


@launch(FILE, "sgemm_shared<16>", atol=1e-4)
def sgemm_shared():
    return (4, 6), (256,), BLAS, WANT


@launch(FILE, atol=1e-4)
def matmul_guarded():
    a, b = floats(37, 21), floats(21, 45, seed=1)
    return (3, 3), (16, 16), (a, b, zeros(37, 45), i32(37), i32(45), i32(21)), {2: a @ b}


@launch(FILE, "sgemm_1d_tile<32, 32, 8, 4>", atol=1e-4)
def sgemm_1d_tile():
    return (3, 2), (256,), BLAS, WANT


@launch(FILE, "sgemm_2d_vectorised<32, 32, 8, 4, 4>", atol=1e-4)
def sgemm_2d_vectorised():
    return (3, 2), (64,), BLAS, WANT


@launch(FILE, "sgemm_warp_tile<64, 32, 8, 32, 16, 4, 4>", atol=1e-4)
def sgemm_warp_tile():
    return (3, 1), (128,), (*SIZES, A, B, zeros(M, N)), {5: A @ B}


@launch(FILE, atol=1e-4)
def gemv_warp_per_row():
    a, x = floats(10, 256), floats(256, seed=1)
    return (3,), (128,), (a, x, zeros(10), i32(10), i32(256)), {2: a @ x}
