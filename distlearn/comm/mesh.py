"""A mesh of ranks with named axes: data-parallel replicas, pipeline stages, tensor-parallel parts of a layer."""

from __future__ import annotations

import math

import numpy as np


class Mesh:
    """Ranks laid out as a grid with named axes; every axis gives this rank a communicator along it.

    The last axis changes fastest: with `mesh(comm, dp=2, pp=2, tp=2)` ranks 0 and 1 are neighbours along tp, so the
    axis that communicates most should be the last: its ranks then share a node.

    Attributes
    ----------
    comm : Communicator
        Of all ranks.
    axes : dict of str to int
        Lengths, in order.
    coordinates : dict of str to int
        Position of this rank along each axis.
    """

    def __init__(self, comm, axes: dict[str, int]):
        self.comm, self.axes = comm, axes
        self.coordinates = self.where(comm.rank)
        self._along = {}
        for axis in axes:
            others = tuple(c for name, c in self.coordinates.items() if name != axis)
            self._along[axis] = comm.split(others, key=self.coordinates[axis])

    def __repr__(self) -> str:
        place = ", ".join(f"{name} {self.coordinates[name]} of {n}" for name, n in self.axes.items())
        return f"Mesh(rank {self.comm.rank}: {place})"

    def __getattr__(self, axis: str):
        along = self.__dict__.get("_along", {})
        if axis not in along:
            raise AttributeError(f"this mesh has no axis {axis!r}, it has {', '.join(along)}")
        return along[axis]

    def __getitem__(self, axis: str):
        if axis not in self._along:
            raise KeyError(f"this mesh has no axis {axis!r}, it has {', '.join(self._along)}")
        return self._along[axis]

    def where(self, rank: int) -> dict[str, int]:
        found = {}
        for name, n in reversed(self.axes.items()):
            rank, found[name] = divmod(rank, n)
        return dict(reversed(found.items()))


def mesh(comm, /, **axes: int) -> Mesh:
    """Arrange the ranks of `comm` along named axes, such as dp (data), pp (pipeline) and tp (tensor parallel).

    Every rank must call it; it makes one `split` per axis.

    Parameters
    ----------
    **axes : int
        Lengths; their product is the number of ranks. One of them may be -1, and is inferred.

    Returns
    -------
    mesh : Mesh
        `mesh.dp` is the communicator of the ranks that differ from this one in dp alone.

    Examples
    --------
    >>> from distlearn.sim import SimWorld
    >>> def place(comm):
    ...     m = mesh(comm, dp=2, pp=-1)
    ...     return m.coordinates["dp"], m.coordinates["pp"], m.dp.size, m.pp.size
    >>> SimWorld(6).run(place)
    [(0, 0, 2, 3), (0, 1, 2, 3), (0, 2, 2, 3), (1, 0, 2, 3), (1, 1, 2, 3), (1, 2, 2, 3)]
    """
    call = f"mesh({', '.join(f'{name}={n!r}' for name, n in axes.items())})"
    if not axes:
        raise ValueError(f"rank {comm.rank}: mesh needs an axis, such as mesh(comm, dp={comm.size})")
    taken = [name for name in axes if hasattr(Mesh, name) or name in ("comm", "axes", "coordinates")]
    if taken:
        raise ValueError(f"rank {comm.rank}: {call}: an axis cannot be called {taken[0]!r}")
    for name, n in axes.items():
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or (n < 1 and n != -1):
            raise ValueError(f"rank {comm.rank}: {call}: {name}={n!r}, expected a length, 1 or more, or -1")
    axes = {name: int(n) for name, n in axes.items()}
    free = [name for name, n in axes.items() if n == -1]
    if len(free) > 1:
        raise ValueError(f"rank {comm.rank}: {call}: only one axis can be -1")
    product = math.prod(n for n in axes.values() if n != -1)
    if free and comm.size % product == 0:
        axes = axes | {free[0]: comm.size // product}
    elif free or product != comm.size:
        needs = f"a multiple of {product}" if free else f"{product}"
        raise ValueError(f"rank {comm.rank}: {call} needs {needs} ranks, but the communicator has {comm.size}")
    return Mesh(comm, axes)
