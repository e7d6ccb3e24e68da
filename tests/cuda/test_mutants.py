"""One mistake in a right kernel: the first finding says what it is, at the line where a student must look."""

import numpy as np
import pytest

from .corpus import fresh
from .corpus.launches import LAUNCHES

MUTANTS = [  # kernel; what is changed (from its name on), into what; kind, and a piece of the line of the first finding
    # (two pieces: clang reads ahead of the `if` what both of its arms read)
    ("saxpy", "if (i < n) y[i]", "y[i]", "out-of-bounds", "y[i] = a * x[i]"),
    ("saxpy", "i < n", "i <= n", "out-of-bounds", "if (i <= n) y[i]"),
    ("scale4", "i + 3 < n", "i < n", "out-of-bounds", "float4 v = *reinterpret_cast"),
    ("reduce_interleaved", "        __syncthreads();\n    }", "    }", "race", "if (tid % (2 * s) == 0)"),
    ("reduce_strided_index", "if (index < blockDim.x) ", "", "out-of-bounds", "        sdata[index] += sdata"),
    ("argmax_rows", "j < columns", "j <= columns", "out-of-bounds", "mine = better(mine, {row[j], j})"),
    ("mean_by_last_block", "        __threadfence();\n", "", "race-between-blocks", "all += partial[b]"),
    ("scan_by_warps", "warp_inclusive(i < n ? in[i] : 0)", "i < n ? warp_inclusive(in[i]) : 0", "missing-lanes",
     "int u = __shfl_up_sync"),
    ("scan_hillis_steele", "        __syncthreads();\n    }", "    }", "race",
     "temp[pout * blockDim.x + t] = t >= offset"),
    ("histogram_shared", "atomicAdd(&mine[data[i] % BINS], 1)", "mine[data[i] % BINS]++", "race",
     "mine[data[i] % BINS]++"),
    ("histogram_shared", "    __syncthreads();\n", "", "race", "atomicAdd(&mine[data[i] % BINS], 1)"),
    ("bitonic_sort", "            __syncthreads();\n", "", "race",
     ("if (shared[tid] > shared[other])", "if (other > tid) {")),
    ("matmul_guarded", "        __syncthreads();\n    }\n    if", "    }\n    if", "race", "sum += As[threadIdx.y][i]"),
    ("matmul_guarded", "row < M && k + threadIdx.x < K", "k + threadIdx.x < K", "out-of-bounds",
     "As[threadIdx.y][threadIdx.x] ="),
    ("sgemm_naive", "x < M && y < N", "x < M", "out-of-bounds", "tmp += A[x * K + i]"),
    ("sgemm_2d_vectorised<32, 32, 8, 4, 4>", "K + innerColA * 4])", "K + innerColA * 4 + 1])", "misaligned",
     "float4 t = FETCH_FLOAT4(A"),
    ("gemv_warp_per_row", "&x[j]", "&x[j + 4]", "out-of-bounds", "float4 a = "),
    ("transpose_padded", "(y + j) * height + x]", "(y + j) * width + x]", "out-of-bounds",
     "odata[(y + j) * width + x]"),
    ("transpose_padded", "    __syncthreads();\n", "", "race", "odata[(y + j) * height + x] ="),
    ("convolve_tile", "col_i < width", "col_i <= width", "out-of-bounds", "col_i <= width) tile[ty][tx] = image"),
    ("convolve_row", "    __syncthreads();\n", "", "race", "sum += c_filter[k + RADIUS]"),
    ("heat2d", "i < n - 1 && j < n - 1", "i < n && j < n", "out-of-bounds", "v[i * n + j] = u[i * n + j]"),
    ("flash_attention", "        __syncthreads();\n        for (int i = 0", "        for (int i = 0", "race",
     "sum += Qi[tx * d + x]"),
    ("batchnorm_channels", "(sum, true)", "(sum, false)", "race", "warp_val = lane_id < num_warps"),
    ("rmsnorm", "if (threadIdx.x == 0) shared_ss", "if (threadIdx.x == 999) shared_ss", "uninitialised",
     "o[i] = weight[i]"),
    ("embedding_backward", "atomicAdd(dwte + inp[idx / C] * C + idx % C, dout[idx])",
     "dwte[inp[idx / C] * C + idx % C] += dout[idx]",
     "race", "+= dout[idx]"),
    ("spmv_csr", "row < rows", "row <= rows", "out-of-bounds", "for (int jj = ptr[row]"),
    ("lu_diagonal", "        __syncthreads();\n        if", "        if", "race", "shadow[i + 1][threadIdx.x] -="),
]  # fmt: skip


def mutated(case, old, new):
    """Replace a piece of a kernel by another, the first after the kernel's name."""
    begin = case.source.index(f" {case.name.partition('<')[0]}(")
    at = case.source.index(old, begin)
    return case.source[:at] + new + case.source[at + len(old) :]


def line_of(source, begin, piece):
    """Number of the first line from a place on that holds a piece; of the whole text if there is none."""
    at = source.find(piece, begin)
    return source.count("\n", 0, at if at >= 0 else source.index(piece)) + 1


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m[0]}: {m[2].strip()[:30]}")
def test_mutant(mutant):
    name, old, new, kind, pieces = mutant
    case = next(c for c in LAUNCHES if c.name == name)
    source = mutated(case, old, new)
    grid, block, args, _ = case.make()
    report = case.kernel(source).check(grid, block, fresh(args), shared_mem=case.shared_mem)
    begin = source.index(f" {name.partition('<')[0]}(")
    wanted = [line_of(source, begin, piece) for piece in np.atleast_1d(pieces)]
    assert report.errors, "nothing was found"
    first = report.errors[0]
    assert first.kind == kind, str(report)
    assert first.line in wanted, str(report)
