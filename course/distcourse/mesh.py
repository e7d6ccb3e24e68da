"""Arrays that know their layout over ranks: the layout of a product, and the missing collective, by type.

>>> from distlearn.sim import SimWorld
>>> import numpy as np
>>> def program(comm):
...     mesh = Mesh(comm)
...     x = mesh.distribute(np.ones((2, 6)), Shard(1))  # every rank has some columns of x
...     W = mesh.distribute(np.ones((6, 3)), Shard(0))  # ... and the rows of W that go with them
...     y = x @ W
...     return y.placement, y.redistribute(Replicate()).whole()[0, 0]
>>> SimWorld(2).run(program)[0]
(Partial(), np.float64(6.0))

=========  =========  =========  ==========================================
x (n, k)   W (k, m)   x @ W      because
=========  =========  =========  ==========================================
Replicate  Replicate  Replicate  every rank computes the same
Shard(0)   Replicate  Shard(0)   rows of x give rows of the product
Replicate  Shard(1)   Shard(1)   columns of W give columns of the product
Shard(1)   Shard(0)   Partial    each rank has some of the terms of every sum
Partial    Replicate  Partial    the product is linear in x
Replicate  Partial    Partial    ... and in W
others                LayoutError
=========  =========  =========  ==========================================

A function that is not linear may be applied to shards, element by element, but never to a Partial: f(a) + f(b) is not
f(a + b). Only a Partial is ever summed over ranks: a gradient that has been reduced is Replicate, and a second
all-reduce is an error, not a factor of p.

The placements are those of PyTorch's DTensor and of JAX's sharding types (J. Austin et al., 2025, How to scale your
model, chapter 3).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distlearn.backend import get_xp
from distlearn.parallel.sharding import (
    Partial,
    Replicate,
    Shard,
    at,
    gather_parts,
    length,
    reduce_scatter_parts,
    take_part,
)
from distlearn.shares import share, shares


class LayoutError(ValueError):
    """An operation on arrays whose placements do not fit; the text names the collective that is missing."""


class Mesh:
    """The ranks over which arrays are laid out."""

    def __init__(self, comm):
        self.comm = comm

    def distribute(self, whole, placement) -> MeshArray:
        """Lay out an array that every rank has; nothing is sent. Of a `Partial` rank 0 keeps all, others get zeros."""
        return MeshArray(whole, self.comm, Replicate(), tuple(whole.shape)).redistribute(placement)


def _check_placement(placement, ndim: int) -> None:
    if not isinstance(placement, (Shard, Replicate, Partial)):
        raise LayoutError(f"the placement is {placement!r}, expected Shard(axis), Replicate() or Partial()")
    if isinstance(placement, Shard) and placement.axis not in range(ndim):
        raise LayoutError(f"the placement is {placement}, expected an axis from 0 to {ndim - 1}")


class MeshArray:
    """An array of which a rank has a part (`local`); its layout over the ranks is its `placement`."""

    __array_ufunc__ = None  # NumPy leaves `array + MeshArray` to this class

    def __init__(self, local, comm, placement, shape: tuple[int, ...]):
        self.local, self.comm, self.placement, self.shape = local, comm, placement, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"MeshArray({self.shape}, {self.placement!r})"

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.whole(), dtype)

    def whole(self):
        """Return the whole array, which this rank must have."""
        if not isinstance(self.placement, Replicate):
            raise LayoutError(
                f"{self} is used as if it were whole, but is {self.placement}: "
                f"redistribute it to Replicate() first ({_collective(self.placement, Replicate())}), or use .local"
            )
        return self.local

    # -- from one layout to another ------------------------------------------------------------------------------------
    def redistribute(self, placement) -> MeshArray:
        """Return the same array in another layout, by one collective or none; every rank must call."""
        _check_placement(placement, self.ndim)
        old, comm, x = self.placement, self.comm, self.local
        if old == placement:
            return self
        xp, name = get_xp(x), _collective(old, placement)
        if name == "all_gather":
            x = gather_parts(comm, x, old.axis, shares(self.shape[old.axis], comm.size))
        elif name == "all_reduce":
            x = comm.all_reduce(xp.array(x, copy=True, order="C"))
        elif name == "reduce_scatter":
            x = reduce_scatter_parts(comm, x, placement.axis, shares(self.shape[placement.axis], comm.size))
        elif name == "all_to_all":
            x = self._exchanged(old.axis, placement.axis)
        elif isinstance(old, Shard):  # to Partial: the parts of other ranks are zero here
            x = xp.zeros(self.shape, x.dtype)
            x[at(old.axis, share(self.shape[old.axis], comm.rank, comm.size))] = self.local
        elif isinstance(placement, Shard):
            x = take_part(x, placement.axis, share(self.shape[placement.axis], comm.rank, comm.size))
        else:  # Replicate to Partial
            x = x.copy() if comm.rank == 0 else xp.zeros_like(x)
        return MeshArray(x, comm, placement, self.shape)

    def _exchanged(self, old: int, new: int):
        """Send every rank its part along axis `new`; blocks are as large as the largest, as collectives move equals."""
        comm, x, xp = self.comm, self.local, get_xp(self.local)
        olds, news = (shares(self.shape[axis], comm.size) for axis in (old, new))
        block = list(self.shape)
        block[old], block[new] = length(olds[0]), length(news[0])
        blocks = xp.zeros((comm.size, *block), x.dtype)
        for rank, part in enumerate(news):
            piece = x[at(new, part)]
            blocks[rank][tuple(map(slice, piece.shape))] = piece
        mine = slice(length(news[comm.rank]))
        received = zip(olds, comm.all_to_all(blocks), strict=True)
        return xp.concatenate([got[at(old, slice(length(part)))][at(new, mine)] for part, got in received], old)

    def all_reduce(self) -> MeshArray:
        if isinstance(self.placement, Shard):
            raise LayoutError(
                f"all_reduce of {self}: ranks have different parts of it, which are not summands; "
                "redistribute(Replicate()) puts them together"
            )
        if isinstance(self.placement, Replicate):
            raise LayoutError(
                f"all_reduce of {self}: nothing is left to be summed; it would be multiplied by the number of ranks"
            )
        return self.redistribute(Replicate())

    # -- arithmetic ----------------------------------------------------------------------------------------------------
    def __matmul__(self, other: MeshArray) -> MeshArray:
        if not isinstance(other, MeshArray) or other.ndim != 2 or self.shape[-1:] != other.shape[:1]:
            raise LayoutError(f"{self} @ {other}: expected a MeshArray of shape ({self.shape[-1]}, m)")
        placement = _product(self, other)  # before the product, which may not fit
        return MeshArray(self.local @ other.local, self.comm, placement, (*self.shape[:-1], other.shape[1]))

    def __add__(self, other) -> MeshArray:
        """Add arrays of the same layout; a vector is added to every row."""
        return self._with(other, "+", operator.add)

    def __radd__(self, other) -> MeshArray:
        return self if np.isscalar(other) and other == 0 else self + other  # Python's sum() begins with 0

    def __mul__(self, other) -> MeshArray:
        """Multiply element by element; by a number, or by an array of the same layout that is not a Partial."""
        if np.isscalar(other):
            return MeshArray(self.local * other, self.comm, self.placement, self.shape)
        return self._with(other, "*", operator.mul)

    __rmul__ = __mul__

    def __pow__(self, exponent) -> MeshArray:
        def power(x):
            return x**exponent

        return self.apply(power)

    def _with(self, other, sign: str, f: Callable[..., Any]) -> MeshArray:
        if not isinstance(other, MeshArray):
            raise LayoutError(f"{self} {sign} {type(other).__name__}: expected a MeshArray; Mesh.distribute makes one")
        shift = self.ndim - other.ndim
        if self.shape[shift:] != other.shape:
            raise LayoutError(f"{self} {sign} {other}: the shapes {self.shape} and {other.shape} do not fit")
        a, b = self.placement, other.placement
        sums = isinstance(a, Partial) + isinstance(b, Partial)
        partial, full = (self, other) if isinstance(a, Partial) else (other, self)
        if sums == 2 and sign == "*":
            raise LayoutError(f"{self} * {other}: a product of sums is not a sum of products; all_reduce one")
        if sums == 1 and sign == "+":
            raise LayoutError(
                f"{self} {sign} {other}: {full} would be added once on each of the {self.comm.size} ranks; "
                f"redistribute {partial} to Replicate() first (all_reduce)"
            )
        beside = isinstance(a, Shard) and a.axis >= shift and not sums
        wanted = Shard(a.axis - shift) if beside else Replicate()
        given = a if isinstance(b, Partial) else b
        if sums < 2 and given != wanted:
            raise LayoutError(
                f"{self} {sign} {other}: the two are {a} and {b}; redistribute "
                f"the {'first' if given is a else 'second'} to {wanted} ({_missing(given, wanted)})"
            )
        return MeshArray(f(self.local, other.local), self.comm, b if isinstance(b, Partial) else a, self.shape)

    def apply(self, f: Callable[..., Any]) -> MeshArray:
        """Apply a function that treats every element by itself, and is not linear."""
        name = getattr(f, "__name__", repr(f))
        if isinstance(self.placement, Partial):
            raise LayoutError(
                f"{name} of {self}: {name} of a sum is not the sum of {name}; redistribute it to Replicate() "
                "(all_reduce) or to a Shard (reduce_scatter) first"
            )
        return MeshArray(f(self.local), self.comm, self.placement, self.shape)

    def sum(self, axis: int | None = None) -> MeshArray:
        """Sum over an axis, or over all: an array that is sharded along it becomes a Partial."""
        axes = range(self.ndim) if axis is None else (axis % self.ndim,)
        placement = self.placement
        if isinstance(placement, Shard):
            summed = placement.axis in axes
            placement = Partial() if summed else Shard(placement.axis - sum(a < placement.axis for a in axes))
        total = get_xp(self.local).asarray(self.local.sum(axis=None if axis is None else axis % self.ndim))
        shape = tuple(n for i, n in enumerate(self.shape) if i not in axes)
        return MeshArray(total, self.comm, placement, shape)

    @property
    def T(self) -> MeshArray:
        if self.ndim != 2:
            raise LayoutError(f"T of {self}: expected a matrix")
        placement = self.placement
        placement = Shard(1 - placement.axis) if isinstance(placement, Shard) else placement
        return MeshArray(self.local.T, self.comm, placement, self.shape[::-1])


def _product(x: MeshArray, w: MeshArray):
    a, b, last = x.placement, w.placement, x.ndim - 1
    if isinstance(a, Replicate) and b == Shard(1):
        return Shard(last)
    if isinstance(a, Replicate) and not isinstance(b, Shard):
        return b
    if isinstance(b, Replicate) and a != Shard(last):
        return a
    if a == Shard(last) and b == Shard(0):
        return Partial()
    first, second = Shard(last) if b == Shard(0) else Replicate(), Shard(0) if a == Shard(last) else Replicate()
    ways = [("first", a, first), ("second", b, second)]
    remedies = [f"the {which} to {new} ({_missing(old, new)})" for which, old, new in ways if old != new]
    raise LayoutError(f"{x} @ {w}: the ranks' parts do not belong together; redistribute {', or '.join(remedies)}")


def _missing(old, new) -> str:
    return _collective(old, new) or "no collective"


def _collective(old, new) -> str:
    """Return the collective that leads from one placement to another; "" where nothing is sent."""
    if isinstance(old, Shard):
        if isinstance(new, Shard):
            return "" if old == new else "all_to_all"
        return "all_gather" if isinstance(new, Replicate) else ""
    if isinstance(old, Partial):
        return {Shard: "reduce_scatter", Replicate: "all_reduce"}.get(type(new), "")
    return ""
