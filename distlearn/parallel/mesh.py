"""Arrays that know their layout on a mesh of ranks: what a product gives, and which collective is missing, by type.

>>> from distlearn.sim import SimWorld
>>> import numpy as np
>>> def program(comm):
...     mesh = Mesh(comm)
...     x = mesh.distribute(np.ones((2, 6)), Shard(1))  # every rank has some columns of x
...     W = mesh.distribute(np.ones((6, 3)), Shard(0))  # ... and the rows of W that go with them
...     y = x @ W
...     return y.placements, y.redistribute(Replicate()).whole()[0, 0]
>>> SimWorld(2).run(program)[0]
((Partial(),), np.float64(6.0))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..backend import get_xp, to_numpy
from ..shares import share, shares
from .sharding import Partial, Replicate, Shard

# -- mesh --------------------------------------------------------------------------------------------------------------
# A mesh: ranks in one or several dimensions, with a communicator along each.


class Mesh:
    """Ranks as a grid.

    Parameters
    ----------
    shape : tuple of int, optional
        Ranks along each dimension; by default one dimension of all of them. The last one counts fastest.

    Attributes
    ----------
    comms : list of Communicator
        Along each dimension, of the ranks that differ from this one in that coordinate alone.

    Notes
    -----
    One `split` for each dimension, if there are several.
    """

    def __init__(self, comm, shape: tuple[int, ...] | None = None):
        self.comm, self.shape = comm, (comm.size,) if shape is None else tuple(shape)
        if math.prod(self.shape) != comm.size:
            raise ValueError(f"Mesh: shape is {self.shape}, expected a product of {comm.size}, the number of ranks")
        self.comms = [comm]
        if len(self.shape) > 1:
            place = np.arange(comm.size).reshape(self.shape)
            here = np.argwhere(place == comm.rank)[0]
            self.comms = []
            for dim in range(len(self.shape)):
                line = place[tuple(slice(None) if i == dim else here[i] for i in range(len(self.shape)))]
                self.comms.append(comm.split(int(line[0]), comm.rank))

    def distribute(self, whole, *placements) -> MeshArray:
        """Make an array of which every rank has the whole; nothing is sent.

        Parameters
        ----------
        whole : array
            The same on every rank.
        *placements : Shard, Replicate or Partial
            One for each dimension of the mesh. `Partial`: rank 0 of the dimension keeps the values, others have zeros.
        """
        made = MeshArray(whole, self, tuple(Replicate() for _ in self.shape), tuple(whole.shape))
        return made.redistribute(*placements)

    def from_local(self, local, *placements) -> MeshArray:
        """Make an array of what this rank has of it; ranks must agree, which is not checked.

        Parameters
        ----------
        local : array
        *placements : Shard, Replicate or Partial
            One for each dimension. Along a sharded axis the lengths of the ranks add up to that of the whole, which are
            `shares` of it.
        """
        check_placements(self, placements, local.ndim)
        shape = list(local.shape)
        for comm, placement in zip(self.comms, placements, strict=True):
            if isinstance(placement, Shard):
                n = int(comm.all_reduce(np.array([float(shape[placement.axis])]))[0])
                mine = share(n, comm.rank, comm.size)
                if mine.stop - mine.start != shape[placement.axis]:
                    raise LayoutError(
                        f"from_local: rank {comm.rank} has {shape[placement.axis]} of {n} along axis {placement.axis}, "
                        f"expected {mine.stop - mine.start}"
                    )
                shape[placement.axis] = n
        return MeshArray(local, self, tuple(placements), tuple(shape))

    def __repr__(self) -> str:
        return f"Mesh{self.shape}"


def check_placements(mesh: Mesh, placements, ndim: int) -> None:
    """Raise unless there is a placement for each dimension, and no axis is sharded twice."""
    kinds = (Shard, Replicate, Partial)
    if len(placements) != len(mesh.shape) or not all(isinstance(p, kinds) for p in placements):
        raise LayoutError(
            f"{mesh}: placements are {placements}, expected {len(mesh.shape)} of Shard(axis), Replicate(), Partial()"
        )
    axes = [p.axis for p in placements if isinstance(p, Shard)]
    if not all(hasattr(axis, "__index__") and 0 <= axis < ndim for axis in axes) or len(set(axes)) < len(axes):
        raise LayoutError(f"{mesh}: placements are {placements}, expected different axes from 0 to {ndim - 1}")


# -- array -------------------------------------------------------------------------------------------------------------
# An array that is laid out on a mesh, and the rules of what may be computed with it.
#
# ============== ============== ============== =============================================================== x (n,
# k) W (k, m) x @ W because ============== ============== ==============
# =============================================================== Replicate Replicate Replicate every rank computes
# the same Shard(0) Replicate Shard(0) rows of x give rows of the product Replicate Shard(1) Shard(1) columns of W
# give columns of the product Shard(1) Shard(0) Partial each rank has some of the terms of every sum Partial Replicate
# Partial the product is linear in x Replicate Partial Partial ... and in W others LayoutError ==============
# ============== ============== ===============================================================
#
# A function that is not linear may be applied to shards, element by element, but never to a Partial: f(a) + f(b) is
# not f(a + b). Only a Partial is ever summed over ranks: a gradient that has been reduced is Replicate, and a second
# all-reduce is an error, not a factor of p.
#
# The placements are those of PyTorch's DTensor and of JAX's sharding types (J. Austin et al., 2025, How to scale your
# model, chapter 3).


class LayoutError(ValueError):
    """An operation on arrays whose placements do not fit; the text names the collective that is missing."""


class MeshArray:
    """What this rank has of an array, and how the array is laid out on the mesh.

    Made by `Mesh.distribute` and `Mesh.from_local`.
    """

    __array_ufunc__ = None  # NumPy leaves `array + MeshArray` to this class

    def __init__(self, local, mesh, placements: tuple, shape: tuple[int, ...]):
        self.local, self.mesh, self.placements, self.shape = local, mesh, placements, shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"MeshArray({self.shape}, {', '.join(map(repr, self.placements))})"

    def __array__(self, dtype=None, copy=None):
        """Return the whole; raise unless this rank has it."""
        return np.asarray(self.whole(), dtype)

    def whole(self):
        """Return the whole array, which this rank must have."""
        for dim, placement in enumerate(self.placements):
            if not isinstance(placement, Replicate):
                missing = "all_gather" if isinstance(placement, Shard) else "all_reduce"
                raise LayoutError(
                    f"{self} is used as if it were whole, but is {placement} over dimension {dim} of {self.mesh}: "
                    f"redistribute it to Replicate() first ({missing}), or use .local"
                )
        return self.local

    # -- from one layout to another ------------------------------------------------------------------------------------
    def collectives(self, *placements) -> list[tuple[int, str, int]]:
        """List what `redistribute` runs: (dimension of the mesh, collective, bytes of the array that it gets)."""
        found, nbytes = [], self.local.nbytes
        for dim, old, new in self._steps(placements):
            size, name = self.mesh.shape[dim], _collective(old, new)
            grown = nbytes * size if isinstance(old, Shard) else nbytes
            if name:
                found.append((dim, name, grown if name == "all_gather" else nbytes))
            nbytes = grown // size if isinstance(new, Shard) else grown
        return found

    def cost(self, network, *placements) -> float:
        """Return how long `redistribute` takes on a network [s]."""
        moves = self.collectives(*placements)
        return sum(network.collective(name, n, range(self.mesh.shape[dim])) for dim, name, n in moves)

    def redistribute(self, *placements) -> MeshArray:
        """Return the same array in another layout; every rank must call."""
        made = self
        for dim, _, new in self._steps(placements):
            made = made._move(dim, new)
        return made

    def _steps(self, placements) -> list[tuple]:
        """Return (dimension, from, to), in an order in which no axis is ever sharded twice."""
        check_placements(self.mesh, placements, self.ndim)
        now, steps = list(self.placements), []

        def move(dim, new):
            if now[dim] != new:
                steps.append((dim, now[dim], new))
                now[dim] = new

        for dim in sorted(range(len(now)), key=lambda d: isinstance(placements[d], Shard)):
            for other in range(len(now)):
                if other != dim and isinstance(placements[dim], Shard) and now[other] == placements[dim]:
                    move(other, Replicate())
            move(dim, placements[dim])
        return steps

    def _move(self, dim: int, new) -> MeshArray:
        """Change the layout over one dimension of the mesh."""
        old, comm, x = self.placements[dim], self.mesh.comms[dim], self.local
        xp, name = get_xp(x), _collective(old, new)
        if name == "all_gather":
            x = _gathered(comm, x, old.axis, self.shape[old.axis])
        elif name == "all_reduce":
            x = comm.all_reduce(xp.array(x, copy=True, order="C"))
        elif name == "reduce_scatter":
            x = _scattered(comm, x, new.axis)
        elif name == "all_to_all":
            x = _exchanged(comm, x, old.axis, new.axis, self.shape[old.axis])
        elif isinstance(old, Shard):  # to Partial
            wide = xp.zeros((*x.shape[: old.axis], self.shape[old.axis], *x.shape[old.axis + 1 :]), x.dtype)
            wide[_at(old.axis, share(self.shape[old.axis], comm.rank, comm.size))] = x
            x = wide
        elif isinstance(new, Shard):
            x = xp.array(x[_at(new.axis, share(x.shape[new.axis], comm.rank, comm.size))], copy=True, order="C")
        else:  # Replicate to Partial
            x = x.copy() if comm.rank == 0 else xp.zeros_like(x)
        placements = (*self.placements[:dim], new, *self.placements[dim + 1 :])
        return MeshArray(x, self.mesh, placements, self.shape)

    def all_reduce(self) -> MeshArray:
        """Sum a Partial over ranks, in every dimension in which it is one."""
        if not any(isinstance(p, Partial) for p in self.placements):
            cut = any(isinstance(p, Shard) for p in self.placements)
            why = (
                "ranks have different parts of it, which are not summands; redistribute(Replicate()) puts them together"
            )
            told = why if cut else "nothing is left to be summed; it would be multiplied by the number of ranks"
            raise LayoutError(f"all_reduce of {self}: {told}")
        return self.redistribute(*(Replicate() if isinstance(p, Partial) else p for p in self.placements))

    # -- what is computed ----------------------------------------------------------------------------------------------
    def __matmul__(self, other: MeshArray) -> MeshArray:
        """Multiply (..., k) by (k, m); nothing is sent."""
        if not isinstance(other, MeshArray) or other.ndim != 2 or self.shape[-1:] != other.shape[:1]:
            raise LayoutError(f"{self} @ {other}: expected a MeshArray of shape ({self.shape[-1]}, m)")
        last = self.ndim - 1
        both = zip(self.placements, other.placements, strict=True)
        placements = tuple(_product(self, other, dim, a, b, last) for dim, (a, b) in enumerate(both))
        return MeshArray(self.local @ other.local, self.mesh, placements, (*self.shape[:-1], other.shape[1]))

    def __add__(self, other) -> MeshArray:
        """Add arrays of the same layout; a vector is added to every row."""
        return self._with(other, "+", lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other) -> MeshArray:
        """Subtract, as `+`."""
        return self._with(other, "-", lambda a, b: a - b)

    def __mul__(self, other) -> MeshArray:
        """Multiply element by element; by a number, or by an array of the same layout that is not a Partial."""
        if np.isscalar(other):
            return MeshArray(self.local * other, self.mesh, self.placements, self.shape)
        return self._with(other, "*", lambda a, b: a * b)

    __rmul__ = __mul__

    def _with(self, other, sign: str, f: Callable) -> MeshArray:
        if not isinstance(other, MeshArray):
            raise LayoutError(f"{self} {sign} {type(other).__name__}: expected a MeshArray; Mesh.distribute makes one")
        if self.shape[self.ndim - other.ndim :] != other.shape:
            raise LayoutError(f"{self} {sign} {other}: the shapes {self.shape} and {other.shape} do not fit")
        shift = self.ndim - other.ndim
        for dim, (a, b) in enumerate(zip(self.placements, other.placements, strict=True)):
            sums = isinstance(a, Partial) + isinstance(b, Partial)
            partial, full = (self, other) if isinstance(a, Partial) else (other, self)
            if sums == 2 and sign == "*":
                raise LayoutError(f"{self} * {other}: a product of sums is not a sum of products; all_reduce one")
            if sums == 1 and sign != "*":
                raise LayoutError(
                    f"{self} {sign} {other}: {full} would be added once on each of the {self.mesh.shape[dim]} ranks; "
                    f"redistribute {partial} to Replicate() first (all_reduce)"
                )
            if sums == 2:
                continue
            beside = isinstance(a, Shard) and a.axis >= shift and not sums
            wanted = Shard(a.axis - shift) if beside else Replicate()
            given = a if isinstance(b, Partial) else b
            if given != wanted:
                raise LayoutError(
                    f"{self} {sign} {other}: over dimension {dim} of {self.mesh} the two are {a} and {b}; redistribute "
                    f"the {'first' if given is a else 'second'} to {wanted} ({_missing(given, wanted)})"
                )
        placements = tuple(
            b if isinstance(b, Partial) else a for a, b in zip(self.placements, other.placements, strict=True)
        )
        return MeshArray(f(self.local, other.local), self.mesh, placements, self.shape)

    def apply(self, f: Callable, *, axis: int | None = None, linear: bool = False) -> MeshArray:
        """Apply a function that keeps the shape."""
        name = getattr(f, "__name__", repr(f))
        for placement in self.placements:
            if isinstance(placement, Partial) and not linear:
                raise LayoutError(
                    f"{name} of {self}: {name} of a sum is not the sum of {name}; redistribute it to Replicate() "
                    "(all_reduce) or to a Shard (reduce_scatter) first"
                )
            if isinstance(placement, Shard) and axis is not None and placement.axis == axis % self.ndim:
                raise LayoutError(
                    f"{name} along axis {axis} of {self}: every rank has only a part of that axis; redistribute it to "
                    "Replicate() (all_gather) or to a Shard of another axis (all_to_all) first"
                )
        return MeshArray(f(self.local), self.mesh, self.placements, self.shape)

    def sum(self, axis: int | None = None) -> MeshArray:
        """Sum over an axis, or over all: what is sharded along it becomes a Partial."""
        axes = range(self.ndim) if axis is None else (axis % self.ndim,)
        placements = []
        for placement in self.placements:
            if not isinstance(placement, Shard):
                placements.append(placement)
            elif placement.axis in axes:
                placements.append(Partial())
            else:
                placements.append(Shard(placement.axis - sum(a < placement.axis for a in axes)))
        total = get_xp(self.local).asarray(self.local.sum(axis=None if axis is None else axis % self.ndim))
        shape = tuple(n for i, n in enumerate(self.shape) if i not in axes)
        return MeshArray(total, self.mesh, tuple(placements), shape)

    @property
    def T(self) -> MeshArray:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise LayoutError(f"T of {self}: expected a matrix")
        placements = tuple(Shard(1 - p.axis) if isinstance(p, Shard) else p for p in self.placements)
        return MeshArray(self.local.T, self.mesh, placements, self.shape[::-1])


def _product(x: MeshArray, w: MeshArray, dim: int, a, b, last: int):
    """Return the placement of a product over one dimension of the mesh."""
    if isinstance(a, Replicate) and isinstance(b, Shard) and b.axis == 1:
        return Shard(last)
    if isinstance(a, Replicate) and not isinstance(b, Shard):
        return b
    if isinstance(b, Replicate) and (isinstance(a, Partial) or (isinstance(a, Shard) and a.axis < last)):
        return a
    if isinstance(a, Shard) and a.axis == last and b == Shard(0):
        return Partial()
    ways = [("first", a, new) for new in _fitting_first(b, last)] + [
        ("second", b, new) for new in _fitting_second(a, last)
    ]
    remedies = [f"the {which} to {new} ({_missing(old, new)})" for which, old, new in ways if old != new]
    raise LayoutError(
        f"{x} @ {w}: over dimension {dim} of {x.mesh} the ranks' parts do not belong together; "
        f"redistribute {', or '.join(remedies)}"
    )


def _fitting_first(b, last: int) -> list:
    """Return to what the first factor may be redistributed, given the second one's placement."""
    return [Shard(last)] if b == Shard(0) else [Replicate()]


def _fitting_second(a, last: int) -> list:
    """Return to what the second factor may be redistributed, given the first one's placement."""
    return [Shard(0)] if a == Shard(last) else [Replicate()]


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


# -- moves along one axis: blocks are padded to the longest share, as collectives move equal blocks


def _at(axis: int, where) -> tuple:
    return (slice(None),) * axis + (where,)


def _padded(x, axis: int, n: int):
    """Bring an axis to the front, with zeros at its end up to length n."""
    xp = get_xp(x)
    rows = xp.zeros((n, *x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
    rows[: x.shape[axis]] = xp.moveaxis(x, axis, 0)
    return rows


def _gathered(comm, x, axis: int, n: int):
    blocks = comm.all_gather(_padded(x, axis, -(-n // comm.size)))
    parts = [block[: part.stop - part.start] for block, part in zip(blocks, shares(n, comm.size), strict=True)]
    xp = get_xp(x)
    return xp.ascontiguousarray(xp.moveaxis(xp.concatenate(parts), 0, axis))


def _scattered(comm, x, axis: int):
    xp, n = get_xp(x), x.shape[axis]
    widest = -(-n // comm.size)
    blocks = xp.stack([_padded(x[_at(axis, part)], axis, widest) for part in shares(n, comm.size)])
    mine = comm.reduce_scatter(blocks.reshape(-1)).reshape(blocks.shape[1:])
    part = share(n, comm.rank, comm.size)
    return xp.ascontiguousarray(xp.moveaxis(mine[: part.stop - part.start], 0, axis))


def _exchanged(comm, x, old: int, new: int, n_old: int):
    xp, n_new = get_xp(x), x.shape[new]
    widest_old, widest_new = -(-n_old // comm.size), -(-n_new // comm.size)
    full = xp.zeros((*x.shape[:old], widest_old, *x.shape[old + 1 :]), x.dtype)
    full[_at(old, slice(0, x.shape[old]))] = x
    rows = xp.stack([_padded(full[_at(new, part)], new, widest_new) for part in shares(n_new, comm.size)])
    mine, parts = share(n_new, comm.rank, comm.size), []
    for block, part in zip(comm.all_to_all(rows), shares(n_old, comm.size), strict=True):
        whole = xp.moveaxis(block[: mine.stop - mine.start], 0, new)
        parts.append(whole[_at(old, slice(0, part.stop - part.start))])
    return xp.ascontiguousarray(xp.concatenate(parts, axis=old))


def to_whole(array: MeshArray):
    """Return the whole array as a NumPy array on every rank, whatever its layout; every rank must call."""
    return to_numpy(array.redistribute(*(Replicate() for _ in array.placements)).local)
