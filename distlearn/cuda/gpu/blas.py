"""Matrix products by NVIDIA's cuBLAS, called directly: what CuPy does not do while a CUDA graph is captured.

CuPy rejects every call of cuBLAS on a capturing stream. cuBLAS itself allows them, if its workspace was set
beforehand, so that it need not allocate any (cuBLAS documentation, section "CUDA Graphs Support"). Hence ctypes: it is
CuPy's binding that rejects them, cuda.core and cuda.bindings have no cuBLAS, and for five calls nvmath-python would be
one more package.

cuBLAS stores matrices column by column. To it a matrix that is stored row by row is its own transpose, so
C = A B is computed as C^T = B^T A^T, and nothing is copied.
"""

from __future__ import annotations

import ctypes
import functools
from typing import NamedTuple

import numpy as np

WORKSPACE = 32 << 20
"""Bytes of work memory: what NVIDIA advises for Hopper, and more than any earlier card wants."""

GEMM = {"float32": ("cublasSgemm", ctypes.c_float), "float64": ("cublasDgemm", ctypes.c_double)}
AS_IT_IS, TRANSPOSED = 0, 1  # cublasOperation_t


@functools.cache
def library():
    """Return cuBLAS, where CuPy takes it from."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)


class Operand(NamedTuple):
    """A matrix, or a stack of them, to cuBLAS."""

    array: object
    how: int
    """AS_IT_IS or TRANSPOSED."""
    width: int
    """From one row (or column) to the next, in elements."""
    stack: int
    """From one matrix to the next; 0 for one that meets all of the others."""

    def place(self):
        """Return pointer, width and stride as arguments."""
        return ctypes.c_void_p(self.array.data.ptr), ctypes.c_int(max(1, self.width)), ctypes.c_longlong(self.stack)


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
        """Return the product of two matrices, or of stacks of them, as `cupy.matmul` does.

        Parameters
        ----------
        a : (m, k), (s, m, k) or (k,) array
        b : (k, n), (s, k, n) or (k,) array
            float32 or float64, like `a`.
        out : array, optional
            Where to write the product.

        Raises
        ------
        NotImplementedError
            For more axes and other dtypes.
        """
        if a.dtype != b.dtype or a.dtype.name not in GEMM or not {a.ndim, b.ndim} <= {1, 2, 3}:
            found = f"{a.dtype} {a.shape} @ {b.dtype} {b.shape}"
            raise NotImplementedError(f"a captured product needs matrices of float32 or float64, got {found}")
        left, right = a.reshape(1, -1) if a.ndim == 1 else a, b.reshape(-1, 1) if b.ndim == 1 else b
        stacks = {x.shape[0] for x in (left, right) if x.ndim == 3}
        if left.shape[-1] != right.shape[-2] or len(stacks) > 1:
            raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
        rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
        shape = (*stacks, *rows, *columns)
        c = out if out is not None and out.flags.c_contiguous else self._xp.empty(shape, a.dtype)
        if c.shape != shape or c.dtype != a.dtype:
            raise ValueError(f"matmul: out is {c.dtype} {c.shape}, expected {a.dtype} {shape}")
        if left.size and right.size:
            self._gemm(left, right, c, max(stacks, default=1))
        else:
            c[...] = 0
        if out is None or out is c:
            return c
        out[...] = c
        return out

    def _gemm(self, a, b, c, stack):
        name, number = GEMM[a.dtype.name]
        (m, k), n = a.shape[-2:], b.shape[-1]
        first, second = self._operand(b), self._operand(a)  # operands swapped: see the module's docstring
        self._call(
            f"{name}StridedBatched", self._handle, ctypes.c_int(first.how), ctypes.c_int(second.how),
            *map(ctypes.c_int, (n, m, k)), ctypes.byref(number(1)),
            *first.place(), *second.place(), ctypes.byref(number(0)),
            *Operand(c, AS_IT_IS, n, m * n).place(), ctypes.c_int(stack),
        )  # fmt: skip

    def _operand(self, x):
        """Describe matrices without copying; copy only if neither rows nor columns are contiguous."""
        item, (rows, columns) = x.itemsize, x.shape[-2:]
        by_row = 1 if columns == 1 else x.strides[-1] // item, columns if rows == 1 else x.strides[-2] // item
        by_column = 1 if rows == 1 else x.strides[-2] // item, rows if columns == 1 else x.strides[-1] // item
        stack = x.strides[0] // item if x.ndim == 3 else 0
        for how, (step, width), length in ((AS_IT_IS, by_row, columns), (TRANSPOSED, by_column, rows)):
            if step == 1 and width >= length and stack >= 0:
                return Operand(x, how, width, stack)
        return self._operand(self._xp.ascontiguousarray(x))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._cublas.cublasDestroy_v2(self._handle)
