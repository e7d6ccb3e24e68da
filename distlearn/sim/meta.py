"""Arrays that have a size but no data: for simulating what real arrays of that size would cost.

1,024 ranks with a gradient of 244 MB each would need 250 GB; a `MetaArray` of it needs a few bytes, and its messages
take the same virtual time and count the same bytes.

Layers run on meta arrays as they do on NumPy's, with the same views and the same copies. So the memory of a training
step can be counted without having it: `Block` says what comes and goes (`distlearn.parallel.memory`).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Block:
    """The memory of a meta array and of its views: it is freed when the last of them goes."""

    __slots__ = ("ledger", "nbytes", "owner", "rank")

    watched = None  # a ledger with `take(block)` and `free(block)`, while somebody counts

    def __init__(self, nbytes: int):
        self.nbytes, self.ledger, self.owner = nbytes, Block.watched, None
        if self.ledger is not None:
            self.ledger.take(self)

    def __del__(self):
        if self.ledger is not None:
            self.ledger.free(self)


class _Outline:
    """What NumPy makes an array of, of any shape, in the same few bytes: `as_strided`, in a tenth of its time."""

    __slots__ = ("__array_interface__",)

    memory = np.zeros(16, np.uint8)  # read by nobody

    data = memory.ctypes.data, True  # where it is, and that nobody may write

    def __init__(self, shape, strides, dtype):
        about = {"typestr": dtype.str, "data": self.data, "version": 3}
        self.__array_interface__ = {"shape": shape, "strides": strides, **about}


class MetaArray(NDArrayOperatorsMixin):
    """An array without data: it has a shape and a dtype, can be cut, copied, reduced and sent, and holds nothing.

    The simulator's communicator, every collective and every layer take it where they take an array. It follows NumPy's
    protocols: arithmetic on it gives a `MetaArray` of the right shape and dtype; whatever would need its values raises
    TypeError.

    Examples
    --------
    >>> gradient = MetaArray(61_100_840)
    >>> gradient.nbytes, gradient[:1000], gradient + np.float32(1)
    (244403360, MetaArray((1000,), float32), MetaArray((61100840,), float32))
    """

    __slots__ = ("_strides", "block", "dtype", "nbytes", "ndim", "shape", "size")

    base = None  # it shares no values with another array: it has none
    device = "meta"

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike = np.float32):
        self.shape = shape = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else (int(shape),)
        if min(shape, default=0) < 0:
            raise ValueError(f"MetaArray: shape is {shape}, expected lengths of 0 or more")
        self.dtype = np.dtype(dtype)
        self.size, self.ndim = math.prod(shape), len(shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._strides = None  # rows in C order
        # a scalar takes no memory of an array; one of no elements takes a byte, as NumPy allocates it
        self.block = Block(max(self.nbytes, 1) if shape else 0)

    @classmethod
    def _view(cls, shape, dtype, block, strides=None) -> MetaArray:
        """Make an array in the memory of another one."""
        made = cls.__new__(cls)
        made.shape, made.dtype, made.block, made._strides = shape, dtype, block, strides
        made.size, made.ndim = math.prod(shape), len(shape)
        made.nbytes = made.size * dtype.itemsize
        return made

    def _same_memory(self, outline) -> MetaArray:
        """Make the view that NumPy made of the outline."""
        strides = None if outline.flags.c_contiguous else outline.strides
        return self._view(outline.shape, self.dtype, self.block, strides)

    def _outline(self):
        """An array of the same shape and strides, of which nothing may be read: it has no memory of that size."""
        return np.asarray(_Outline(self.shape, self.strides, self.dtype))

    @property
    def strides(self) -> tuple[int, ...]:
        if self._strides is None:
            lengths = itertools.accumulate(self.shape[:0:-1], operator.mul, initial=self.dtype.itemsize)
            return tuple(lengths)[: self.ndim][::-1]
        return self._strides

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def flags(self) -> Any:
        return SimpleNamespace(c_contiguous=self._strides is None, writeable=True)

    def __repr__(self) -> str:
        return f"MetaArray({self.shape}, {self.dtype})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a MetaArray without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[MetaArray]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> MetaArray:
        keys = key if isinstance(key, tuple) else (key,)
        if self._strides is None and key.__class__ is slice and key.step in (None, 1) and self.shape:  # nearly always
            return self._view((len(range(*key.indices(self.shape[0]))), *self.shape[1:]), self.dtype, self.block)
        if any(isinstance(k, (list, np.ndarray, MetaArray)) for k in keys):  # by arrays: a copy
            return MetaArray(_picked(self.shape, keys), self.dtype)
        if not any(k is ... for k in keys):
            keys = (*keys, ...)  # or NumPy would read a single element
        return self._same_memory(self._outline()[keys])

    def __setitem__(self, key, value) -> None:
        shape = getattr(value, "shape", ())
        if key is not ... or shape not in ((), self.shape):  # else nothing can be wrong
            np.broadcast_to(_without_memory(shape), self[key].shape)  # raises if the shapes do not fit

    # -- views, and copies where NumPy copies --------------------------------------------------------------------------
    @property
    def T(self) -> MetaArray:
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> MetaArray:
        return self._same_memory(self._outline().swapaxes(first, second))

    def transpose(self, *axes: Any) -> MetaArray:
        return self._same_memory(self._outline().transpose(*axes))

    def reshape(self, *shape: Any) -> MetaArray:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(self.size // max(rest, 1) if n == -1 else n for n in wanted)
        if math.prod(wanted) != self.size:
            raise ValueError(f"cannot reshape {self!r} into shape {shape}")
        if self._strides is None:
            return self._view(wanted, self.dtype, self.block)
        try:
            return self._same_memory(np.reshape(self._outline(), wanted, copy=False))
        except ValueError:  # only a copy has that shape
            return MetaArray(wanted, self.dtype)

    def ravel(self) -> MetaArray:
        return self.reshape(-1)

    def copy(self, order: str = "C") -> MetaArray:
        return MetaArray(self.shape, self.dtype)

    conj = copy

    def astype(self, dtype: DTypeLike, copy: bool = True) -> MetaArray:
        return self if not copy and self.dtype == dtype else MetaArray(self.shape, dtype)

    # -- unknown numbers: code that reports or checks one continues --------------------------------------------
    def _single(self, value):
        if self.size != 1:
            raise TypeError(f"{self!r} is not a single number")
        return value

    def __float__(self) -> float:
        return self._single(math.nan)

    def __int__(self) -> int:
        return self._single(0)

    def __bool__(self) -> bool:
        return self._single(True)

    def _reduced(self, dtype, axis=None, keepdims=False) -> MetaArray:
        axes = range(self.ndim) if axis is None else [a % self.ndim for a in np.atleast_1d(axis)]
        kept = [1 if i in axes else n for i, n in enumerate(self.shape) if keepdims or i not in axes]
        return MetaArray(tuple(kept), dtype)

    def sum(
        self, axis: Any = None, dtype: DTypeLike | None = None, out: Any = None, keepdims: bool = False
    ) -> MetaArray:
        kind = dtype or (np.int64 if self.dtype.kind in "bi" else self.dtype)
        return self._reduced(kind, axis, keepdims) if out is None else out

    def max(self, axis: Any = None, keepdims: bool = False) -> MetaArray:
        return self._reduced(self.dtype, axis, keepdims)

    min = mean = max

    def all(self, axis: Any = None) -> MetaArray:
        return self._reduced(bool, axis)

    any = all

    # -- NumPy's protocols ---------------------------------------------------------------------------------------------
    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            f"{self!r} has a size but no data: layers are planned on such arrays; compute by functions of get_xp(x)"
        )

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if method == "at":
            return None
        if method != "__call__" or ufunc.nout != 1:
            return NotImplemented
        if ufunc is np.matmul:
            return _Module.matmul(*inputs, out=None if out is None else out[0])
        shapes = {getattr(x, "shape", ()) for x in inputs} - {()}
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        if out is not None:
            if out[0].shape != shape:
                raise ValueError(f"{ufunc.__name__}: the result has shape {shape}, expected {out[0].shape}")
            return out[0]
        return MetaArray(shape, ufunc.resolve_dtypes((*(_kind(x) for x in inputs), None))[-1])

    def __array_function__(self, function, types, args, kwargs):
        name = function.__name__
        if function in (np.shape, np.size, np.ndim):
            return getattr(self, name)
        made = vars(_Module).get(name) or vars(MetaArray).get(name)
        return NotImplemented if made is None else getattr(made, "__func__", made)(*args, **kwargs)

    def __array_namespace__(self, api_version=None):
        return meta


class _Module:
    """What `get_xp` gives for meta arrays: functions that make arrays; all others are NumPy's."""

    __name__ = "distlearn.sim.meta"
    WORK_BYTES = 1 << 68  # nothing is worked on in parts: that would take time, and there is no memory to save

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def empty(shape, dtype=np.float64):
        return MetaArray(shape, dtype)

    zeros = ones = empty

    @staticmethod
    def full(shape, value, dtype=None):
        return MetaArray(shape, dtype or np.result_type(value))

    @staticmethod
    def arange(n):
        return MetaArray(n, np.int64)

    @staticmethod
    def empty_like(x, dtype=None, shape=None):
        return MetaArray(x.shape if shape is None else shape, dtype or x.dtype)

    zeros_like = ones_like = empty_like

    @staticmethod
    def array(x, dtype=None, copy=True, order="C"):
        return x.copy() if isinstance(x, MetaArray) else np.array(x, dtype)  # a few numbers are still numbers

    @staticmethod
    def asarray(x, dtype=None):
        if isinstance(x, np.ndarray):  # a table that the library keeps
            return x
        return x if isinstance(x, MetaArray) else _Module.array(x, dtype)

    @staticmethod
    def ascontiguousarray(x):
        return x if x.flags.c_contiguous else x.copy()

    @staticmethod
    def matmul(a, b, out=None):
        """The shape of a product of matrices; nothing is multiplied."""
        if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
        if out is not None:
            return out
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return MetaArray((*stack, *a.shape[-2:-1], *b.shape[-1:][: b.ndim - 1]), np.result_type(a.dtype, b.dtype))

    @staticmethod
    def concatenate(arrays, axis=0):
        shape = list(arrays[0].shape)
        shape[axis] = sum(x.shape[axis] for x in arrays)
        return MetaArray(shape, np.result_type(*(x.dtype for x in arrays)))

    @staticmethod
    def stack(arrays, axis=0):
        shape = list(arrays[0].shape)
        shape.insert(axis, len(arrays))
        return MetaArray(shape, np.result_type(*(x.dtype for x in arrays)))

    @staticmethod
    def split(x, sections, axis=0):
        each, before = x.shape[axis] // sections, (slice(None),) * axis
        return [x[(*before, slice(i * each, (i + 1) * each))] for i in range(sections)]

    @staticmethod
    def tile(x, times):
        return MetaArray(np.tile(_without_memory(x.shape), times).shape, x.dtype)

    @staticmethod
    def where(condition, a, b):
        kinds = (x.dtype if hasattr(x, "dtype") else x for x in (a, b))
        return MetaArray(np.broadcast_shapes(*map(np.shape, (condition, a, b))), np.result_type(*kinds))

    lib = SimpleNamespace(
        stride_tricks=SimpleNamespace(
            as_strided=lambda x, shape, strides: x._same_memory(as_strided(x._outline(), shape, strides))
        )
    )
    fft = SimpleNamespace(
        rfft2=lambda x, size, axes: _spectrum(x, (size[0], size[1] // 2 + 1), axes, "c"),
        irfft2=lambda x, size, axes: _spectrum(x, size, axes, "f"),
    )
    random = SimpleNamespace(
        default_rng=lambda seed: SimpleNamespace(random=lambda shape, dtype: MetaArray(shape, dtype))
    )


meta = _Module()


def _spectrum(x, size, axes, kind) -> MetaArray:
    """The outline of a transform, whose numbers have the precision of x."""
    shape = list(x.shape)
    for axis, n in zip(axes, size, strict=True):
        shape[axis] = n
    return MetaArray(shape, f"c{2 * x.itemsize}" if kind == "c" else f"f{x.itemsize // 2}")


def _picked(shape, keys) -> tuple[int, ...]:
    """The shape of what arrays pick: NumPy would walk through all of it."""
    if any(getattr(k, "dtype", None) == np.bool_ for k in keys):  # of a mask without data nobody knows what it picks
        known = (np.zeros(k.shape, bool) if isinstance(k, MetaArray) else k for k in keys)
        return _without_memory(shape)[tuple(known)].shape
    i = next((i for i, k in enumerate(keys) if k is ...), len(keys))
    rest = len(shape) - sum(k is not None and k is not ... for k in keys)
    keys = (*keys[:i], *[slice(None)] * rest, *keys[i + 1 :])
    axes = iter(shape)
    sizes = [1 if k is None else next(axes) for k in keys]
    picked = [i for i, k in enumerate(keys) if not isinstance(k, slice | None)]
    lengths = [len(range(n)[k or slice(None)]) for k, n in zip(keys, sizes, strict=True) if isinstance(k, slice | None)]
    # the shape that all have together stands where they stood, if they are neighbours, and else in front
    start = picked[0] if picked[-1] - picked[0] < len(picked) else 0
    block = np.broadcast_shapes(*(np.shape(keys[i]) for i in picked))
    return *lengths[:start], *block, *lengths[start:]


def _without_memory(shape):
    """A NumPy array of a shape whose elements have no bytes."""
    return np.broadcast_to(np.empty((), "V0"), shape)


def _kind(x):
    """The dtype of an array, the type of a plain number: NumPy treats those as weak."""
    return x.dtype if hasattr(x, "dtype") else type(x)
