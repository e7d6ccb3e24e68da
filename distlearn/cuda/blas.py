"""Matrix products by NVIDIA's cuBLAS, called directly: what CuPy does not do while a CUDA graph is captured.

CuPy refuses every call of cuBLAS on a stream that captures. cuBLAS itself allows them, if its work memory was set
beforehand, so that it need not ask for any (cuBLAS documentation, section "CUDA Graphs Support").

cuBLAS stores matrices column by column. To it a matrix that is stored row by row is its own transpose, so
C = A B is asked for as C^T = B^T A^T, and nothing is copied.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

WORKSPACE = 32 << 20
"""Bytes of work memory: what NVIDIA advises for Hopper, and more than any earlier card wants."""

GEMM = {"float32": ("cublasSgemm_v2", ctypes.c_float), "float64": ("cublasDgemm_v2", ctypes.c_double)}
AS_IT_IS, TRANSPOSED = 0, 1  # cublasOperation_t


@functools.cache
def library():
    """Return cuBLAS, where CuPy takes it from."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


class Blas:
    """Multiplies matrices on one stream, also while it is captured.

    Parameters
    ----------
    xp : module
        CuPy.
    stream : cupy.cuda.Stream
    cublas : object, optional
        The library's functions.
    """

    def __init__(self, xp, stream, cublas=None):
        self._xp, self._cublas = xp, cublas or library()
        self._workspace = xp.empty(WORKSPACE, np.uint8)
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))
        workspace = ctypes.c_void_p(self._workspace.data.ptr)
        self._call("cublasSetWorkspace_v2", self._handle, workspace, ctypes.c_size_t(WORKSPACE))

    def _call(self, name, *args):
        status = getattr(self._cublas, name)(*args)
        if status:
            raise RuntimeError(f"{name} failed with cuBLAS status {status}")

    def matmul(self, a, b, out=None):
        """Return the product of two matrices (or of a vector and a matrix), as `cupy.matmul` does.

        Parameters
        ----------
        a : (m, k) or (k,) array
        b : (k, n) or (k,) array
            float32 or float64, like `a`.
        out : (m, n) array, optional
            Gets the product.

        Raises
        ------
        NotImplementedError
            For stacks of matrices and other dtypes.
        """
        if a.dtype != b.dtype or a.dtype.name not in GEMM or not {a.ndim, b.ndim} <= {1, 2}:
            found = f"{a.dtype} {a.shape} @ {b.dtype} {b.shape}"
            raise NotImplementedError(f"a captured product takes matrices of float32 or float64, got {found}")
        rows, columns = a.reshape(1, -1) if a.ndim == 1 else a, b.reshape(-1, 1) if b.ndim == 1 else b
        if rows.shape[1] != columns.shape[0]:
            raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
        shape = (*a.shape[:-1], *b.shape[1:])
        c = out if out is not None and out.flags.c_contiguous else self._xp.empty(shape, a.dtype)
        if c.shape != shape or c.dtype != a.dtype:
            raise ValueError(f"matmul: out is {c.dtype} {c.shape}, expected {a.dtype} {shape}")
        if c.size:
            self._gemm(rows, columns, c)
        if out is None or out is c:
            return c
        out[...] = c
        return out

    def _gemm(self, a, b, c):
        name, number = GEMM[a.dtype.name]
        (a, how_a, width_a), (b, how_b, width_b) = self._operand(a), self._operand(b)
        one, zero = ctypes.byref(number(1)), ctypes.byref(number(0))
        sizes = map(ctypes.c_int, (b.shape[1], a.shape[0], a.shape[1]))
        left, right, result = (ctypes.c_void_p(x.data.ptr) for x in (b, a, c))
        widths = [ctypes.c_int(max(1, w)) for w in (width_b, width_a, b.shape[1])]
        self._call(
            name, self._handle, ctypes.c_int(how_b), ctypes.c_int(how_a), *sizes,
            one, left, widths[0], right, widths[1], zero, result, widths[2],
        )  # fmt: skip

    def _operand(self, x):
        """Return a matrix without gaps, whether cuBLAS has to transpose it, and the length of its rows in memory."""
        if x.flags.c_contiguous:
            return x, AS_IT_IS, x.shape[1]
        if x.T.flags.c_contiguous:
            return x, TRANSPOSED, x.shape[0]
        return self._xp.ascontiguousarray(x), AS_IT_IS, x.shape[1]

    def __del__(self):
        if getattr(self, "_handle", None):
            self._cublas.cublasDestroy_v2(self._handle)
