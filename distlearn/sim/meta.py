"""Arrays that have a size but no data: for simulating what real arrays of that size would cost.

1,024 ranks with a gradient of 244 MB each would need 250 GB; a `MetaArray` of it needs a few bytes, and its messages
take the same virtual time and count the same bytes.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class MetaArray(NDArrayOperatorsMixin):
    """An array without data: it has a shape and a dtype, can be cut, copied, reduced and sent, and holds nothing.

    The simulator's communicator and every collective take it where they take an array. It follows NumPy's protocols:
    arithmetic on it gives a `MetaArray` of the right shape and dtype; whatever would need its values raises TypeError.

    Examples
    --------
    >>> gradient = MetaArray(61_100_840)
    >>> gradient.nbytes, gradient[:1000], gradient + np.float32(1)
    (244403360, MetaArray((1000,), float32), MetaArray((61100840,), float32))
    """

    __slots__ = ("dtype", "nbytes", "ndim", "shape", "size")

    flags = SimpleNamespace(c_contiguous=True, writeable=True)
    base = None  # a part of it shares no memory with it: there is none

    def __init__(self, shape, dtype=np.float32):
        self.shape = shape = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
        if min(shape, default=0) < 0:
            raise ValueError(f"MetaArray: shape is {shape}, expected lengths of 0 or more")
        self.dtype = np.dtype(dtype)
        self.size, self.ndim = math.prod(shape), len(shape)
        self.nbytes = self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"MetaArray({self.shape}, {self.dtype})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a MetaArray without axes")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key) -> MetaArray:
        if isinstance(key, slice) and self.shape:
            return MetaArray((len(range(*key.indices(self.shape[0]))), *self.shape[1:]), self.dtype)
        return MetaArray(self._stand_in()[key].shape, self.dtype)

    def __setitem__(self, key, value) -> None:
        if key is ... and getattr(value, "shape", ()) in ((), self.shape):
            return  # nearly always
        np.broadcast_to(_stand_in(value), self[key].shape)  # raises if the shapes do not match

    @property
    def T(self) -> MetaArray:
        return MetaArray(self.shape[::-1], self.dtype)

    def swapaxes(self, first: int, second: int) -> MetaArray:
        shape = list(self.shape)
        shape[first], shape[second] = shape[second], shape[first]
        return MetaArray(shape, self.dtype)

    def reshape(self, *shape) -> MetaArray:
        return (
            self if shape == (-1,) and self.ndim == 1 else MetaArray(self._stand_in().reshape(*shape).shape, self.dtype)
        )

    def ravel(self) -> MetaArray:
        return self.reshape(-1)

    def copy(self) -> MetaArray:
        return self

    def astype(self, dtype, copy=True) -> MetaArray:
        return MetaArray(self.shape, dtype)

    def fill(self, value) -> None:
        """Do nothing: there is nothing to fill."""

    def _stand_in(self):
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def __float__(self) -> float:
        """Return NaN in place of the unknown value, so that code which reports a number, such as a loss, runs."""
        if self.size != 1:
            raise TypeError(f"{self!r} is not a single number")
        return math.nan

    # -- NumPy's protocols ---------------------------------------------------------------------------------------------
    def __array__(self, dtype=None, copy=None):
        raise TypeError(f"{self!r} has a size but no data: it can be sent and reduced, not read")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method != "__call__" or ufunc.nout != 1:
            return NotImplemented
        if ufunc is np.matmul:
            return _Module.matmul(*inputs, out=None if out is None else out[0])
        if out is not None:  # in place, as in the collectives: no new shape to compute
            return out[0]
        shape = np.broadcast_shapes(*(x.shape if hasattr(x, "shape") else np.shape(x) for x in inputs))
        return MetaArray(shape, ufunc.resolve_dtypes((*(_kind(x) for x in inputs), None))[-1])

    def __array_function__(self, function, types, args, kwargs):
        if function in (np.empty_like, np.zeros_like, np.ones_like, np.copy):
            return MetaArray(args[0].shape, kwargs.get("dtype") or args[0].dtype)
        if function in (np.stack, np.concatenate):
            made = function([_stand_in(x) for x in args[0]], *args[1:], **kwargs)
            return MetaArray(made.shape, made.dtype)
        if function in (np.shape, np.size, np.ndim):
            return function(self._stand_in(), *args[1:], **kwargs)
        return NotImplemented

    def __array_namespace__(self, api_version=None):
        return _Module


class _Module:
    """What `get_xp` gives for MetaArrays: as much of an array module as communication needs."""

    __name__ = "distlearn.sim.meta"
    sqrt = np.sqrt

    @staticmethod
    def empty(shape, dtype=np.float32):
        return MetaArray(shape, dtype)

    zeros = ones = empty

    @staticmethod
    def array(x, dtype=None, copy=True, order="C"):
        return x if isinstance(x, MetaArray) else np.array(x, dtype)  # a few numbers are still numbers

    ascontiguousarray = asarray = array

    @staticmethod
    def matmul(a, b, out=None):
        """The shape of a product of matrices; nothing is multiplied."""
        if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
        shape = (*a.shape[:-1], *b.shape[:-2], *b.shape[-1:][: b.ndim - 1])
        return MetaArray(shape, np.result_type(a.dtype, b.dtype)) if out is None else out

    @staticmethod
    def empty_like(x):
        return MetaArray(x.shape, x.dtype)

    zeros_like = empty_like

    @staticmethod
    def concatenate(arrays, axis=0):
        lengths, rest = [x.shape[axis] for x in arrays], list(arrays[0].shape)
        rest[axis] = sum(lengths)
        return MetaArray(rest, arrays[0].dtype)

    @staticmethod
    def stack(arrays):
        return MetaArray((len(arrays), *arrays[0].shape), arrays[0].dtype)


def _stand_in(x):
    """A NumPy array of the shape of `x`, if that is a MetaArray; else `x`."""
    return x._stand_in() if isinstance(x, MetaArray) else x


def _kind(x):
    """The dtype of an array, the type of a plain number: NumPy treats those as weak."""
    return x.dtype if hasattr(x, "dtype") else type(x)
