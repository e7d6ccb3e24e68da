"""Count operations, by arrays that refuse implicit conversion as CuPy's do."""

from __future__ import annotations

import math
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# -- strict ------------------------------------------------------------------------------------------------------------
# A mock device array, which behaves like CuPy's without a GPU.
#
# CuPy refuses to mix its arrays with NumPy's, and so does `MockDeviceArray`: any implicit copy between host and device
# raises a TypeError here too. Layers that run on strict arrays therefore run on a GPU. As every
# operation passes through one place, operations can be counted there: `count_operations`.


class MockDeviceArray(NDArrayOperatorsMixin):
    """A NumPy array without implicit conversion to or from NumPy.

    Examples
    --------
    >>> x = MockDeviceArray(np.ones(3))
    >>> float((x + x).sum())
    6.0
    >>> np.asarray(x)
    Traceback (most recent call last):
        ...
    TypeError: implicit conversion of a device array to NumPy; use .get()
    """

    def __init__(self, array: Any, chain: Any = None):
        self._array = array
        self._chain = [0] if chain is None else chain  # longest chain of operations so far; views share the list

    def get(self) -> Any:
        return self._array.copy()

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion of a device array to NumPy; use .get()")

    def __array_namespace__(self, **kwargs):
        return strict

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        if out is not None:
            kwargs["out"] = self._operand(out[0])
        plain = method == "__call__"
        function = _wrap(ufunc if plain else getattr(ufunc, method), ufunc.__name__ + f".{method}" * (not plain))
        return function(*map(self._operand, inputs), **kwargs)

    @property
    def data(self) -> Any:
        """Where the values lie, as `data.ptr`."""
        return types.SimpleNamespace(ptr=self._array.ctypes.data)

    def __getattr__(self, name):
        if name.startswith("__"):  # protocols by which NumPy would convert implicitly
            raise AttributeError(f"MockDeviceArray has no attribute {name!r}")
        value = getattr(self._array, name)
        if isinstance(value, np.ndarray):
            return type(self)(value, self._chain)
        if callable(value):
            return _wrap(value, name, owner=self)
        return value

    def __getitem__(self, index: Any) -> Any:
        part = self._array[_bare_index(index)]
        shares = isinstance(part, np.ndarray) and np.may_share_memory(part, self._array)
        return type(self)(np.asarray(part), self._chain if shares else list(self._chain))

    def __setitem__(self, index, value):
        self._array[_bare_index(index)] = _bare(value)
        _lengthen(self, [value], 0)

    def _operand(self, x):
        """Return what a ufunc computes with in place of x: here x itself."""
        return x

    def __len__(self) -> int:
        return len(self._array)

    def __float__(self):
        return float(self._array)

    def __int__(self):
        return int(self._array)

    def __index__(self):
        return self._array.__index__()

    def __bool__(self):
        return bool(self._array)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __repr__(self):
        return f"{type(self).__name__}({self._array!r})"


def _bare_index(index):
    """Unpack strict arrays in an index; NumPy's are refused."""
    return tuple(_bare(i) for i in index) if isinstance(index, tuple) else _bare(index)


def _unpacked(x):
    return x._array if isinstance(x, MockDeviceArray) else x


def _bare(x):
    """Return the NumPy array inside; refuse one that was never on the device."""
    if isinstance(x, MockDeviceArray):
        return x._array
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError(f"a NumPy array of shape {x.shape} was mixed with a device array; copy it over explicitly")
    if isinstance(x, (list, tuple)) and any(isinstance(v, (MockDeviceArray, np.ndarray)) for v in x):
        return type(x)(_bare(v) for v in x)
    return x


def _lengthen(out, inputs, steps):
    """The result's chain is one operation longer than the longest of its inputs'."""
    longest = 0
    for x in inputs:
        if isinstance(x, (list, tuple)):
            longest = max([longest, *(v._chain[0] for v in x if isinstance(v, MockDeviceArray))])
        elif isinstance(x, MockDeviceArray):
            longest = max(longest, x._chain[0])
    out._chain[0] = max(out._chain[0], longest + steps)


def _wrap(function, name, owner=None):
    """Wrap a NumPy function, or a method of `owner`, to take and return strict arrays."""

    def call(*args, **kwargs):
        unpack = _unpacked if name in ("asarray", "array") else _bare  # explicit copies from the host
        arrays = [unpack(a) for a in args]
        result = function(*arrays, **{k: _bare(v) for k, v in kwargs.items()})
        inputs = [*args, *([owner] if owner is not None else [])]
        steps = record(name, [_unpacked(a) for a in inputs], result, kwargs)
        target = kwargs.get("out")
        if target is not None:
            _lengthen(target, inputs, steps)
            return target
        return _pack(result, inputs, steps)

    for method in ("at", "reduce", "accumulate", "outer"):
        if hasattr(function, method) and isinstance(function, np.ufunc):
            setattr(call, method, _wrap(getattr(function, method), f"{name}.{method}"))
    return call


def _pack(result, inputs, steps):
    """Wrap arrays in a result; a view shares its chain with its base."""
    if isinstance(result, (tuple, list)):
        return type(result)(_pack(r, inputs, steps) for r in result)
    if isinstance(result, np.random.Generator):
        return _Namespace(result)
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    owners = [x for x in inputs if isinstance(x, MockDeviceArray)]
    views = [x for x in owners if np.may_share_memory(x._array, result)]
    parts = [v for x in inputs if isinstance(x, (list, tuple)) for v in x]
    kind = CountedArray if any(isinstance(x, CountedArray) for x in owners + parts) else MockDeviceArray
    packed = kind(result, views[0]._chain if views else None)
    _lengthen(packed, inputs, steps)
    return packed


class _Namespace:
    """NumPy's functions, for strict arrays."""

    __name__ = "strict"

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            return _Namespace(value)
        if isinstance(value, type) or not callable(value):
            return value
        return _wrap(value, name)


strict = _Namespace(np)  # The array module of strict arrays: what `get_xp` returns for them.


class CountedArray(MockDeviceArray):
    """A strict array that NumPy's own functions accept: so the operations of code written with `np.` can be counted."""

    # NumPy arrays may be mixed in; the result is counted. Copying one into a NumPy array raises a TypeError, as nothing
    # could be counted from there on.

    def _operand(self, x):
        return _counted(x)

    def __array_function__(self, function, types, args, kwargs):
        _refuse_uncounted(function.__name__)
        kwargs = {key: _counted(value) for key, value in kwargs.items()}
        return _wrap(function, function.__name__)(*map(_counted, args), **kwargs)

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "count_operations: a counted array was copied into a NumPy array, where nothing is counted; make the "
            "target by np.zeros_like(x, shape=...), or put the parts together by np.stack or np.concatenate"
        )

    def __getattr__(self, name):
        _refuse_uncounted(name)
        return super().__getattr__(name)

    def __getitem__(self, index):
        return super().__getitem__(_counted(index))

    def __setitem__(self, index, value):
        super().__setitem__(_counted(index), _counted(value))


_UNCOUNTED = {"einsum", "tensordot", "dot", "inner", "outer", "vdot", "kron", "convolve", "correlate"}


def _refuse_uncounted(name):
    if name in _UNCOUNTED:
        raise TypeError(f"count_operations: what {name} computes is not counted; write products with @")


def _counted(x):
    if isinstance(x, np.ndarray) and x.ndim:
        return CountedArray(x)
    return type(x)(map(_counted, x)) if type(x) in (list, tuple) else x


# -- count -------------------------------------------------------------------------------------------------------------
# Counting operations: the number that a computation performs, and the length of its longest chain.
#
# Strict arrays report every operation here, and store the length of the chain that produced them.

_counters: list[Counter] = []

_STAY = (
    "reshape transpose swapaxes ravel broadcast_to expand_dims squeeze view split sliding_window_view moveaxis flip "
    "as_strided empty empty_like asarray array default_rng may_share_memory"
)
_MOVE = (
    "astype copy zeros ones full zeros_like ones_like full_like ascontiguousarray concatenate stack tile repeat copyto "
    "arange eye take pad roll real conj searchsorted packbits unpackbits"
)
_VIEWS = set(_STAY.split())  # Functions that start nothing on a device: the values stay where they are.
_MOVES = _VIEWS | set(_MOVE.split())  # Functions that move values without computing.


def record(name, inputs, result, options):
    """Count an operation's work, given its keyword arguments, and that it was started ("calls"); return its depth."""
    if name not in _VIEWS:
        for counter in _counters:
            counter["calls"] += 1
    if name in _MOVES:
        return 0
    size = getattr(result, "size", 1)
    if name == "matmul":
        inner = inputs[0].shape[-1]
        kind, work, depth = "multiply_adds", size * inner, 1 + math.ceil(math.log2(max(1, inner)))
        if result.dtype.kind == "c":
            work, depth = 4 * work, depth + 1
    elif name in ("fft2", "ifft2", "rfft2", "irfft2"):
        x, axes = inputs[0], options.get("axes", (-2, -1))
        sizes = inputs[1] if len(inputs) > 1 else options.get("s")
        if sizes is None:  # of the side that is not a half spectrum
            sizes = [(result if name == "irfft2" else x).shape[a] for a in axes]
        points = math.prod(sizes)
        kind, depth = "transforms", 2 * sum(math.ceil(math.log2(n)) for n in sizes)
        work = points * math.log2(points) * (x.size // math.prod(x.shape[a] for a in axes))
    elif name in ("sum", "mean", "max", "min"):
        kind, work = "others", getattr(inputs[0], "size", getattr(inputs[-1], "size", 1))
        depth = math.ceil(math.log2(max(1, work // max(1, size))))
    else:
        kind, work, depth = "others", size, 1
    for counter in _counters:
        counter[kind] += work
    return depth


class Counted(NamedTuple):
    """Operations of a computation."""

    multiply_adds: int  # In matrix products; a complex one counts as 4.
    transforms: float  # Sum of N log2 N over all Fourier transforms of N points.
    others: int  # Results of element-wise operations and terms of sums.
    depth: int  # Operations on the longest chain, with sums of products added up as trees.


@contextmanager
def counting():
    """Context manager: count the operations on strict arrays; yields a Counter."""
    counter: Counter = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


def count_operations(function: Callable[..., Any], *arrays: Any) -> Counted:
    """Run a function on copies of NumPy arrays that count its operations.

    Parameters
    ----------
    function : callable
        Takes arrays, returns an array or a tuple whose first element is one. It computes with operators, NumPy's
        functions, or those of `get_xp(x)`.

    Examples
    --------
    >>> count_operations(lambda a, b: a @ b + 1, np.ones((2, 4)), np.ones((4, 3)))
    Counted(multiply_adds=24, transforms=0, others=6, depth=4)

    A layer's weights must be strict arrays, too:

    >>> from distlearn.nn import Linear, MockDeviceArray, move
    >>> count_operations(move(Linear(4, 3), MockDeviceArray).forward, np.ones((2, 4), "float32"))
    Counted(multiply_adds=24, transforms=0, others=6, depth=4)
    """
    with counting() as counter:
        result = function(*(CountedArray(np.array(a)) for a in arrays))
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, MockDeviceArray):
        raise TypeError(f"count_operations: the function returned {type(first).__name__}, expected a counted array")
    return Counted(counter["multiply_adds"], counter["transforms"], counter["others"], first._chain[0])
