"""A mesh: ranks in one or several dimensions, with a communicator along each."""

from __future__ import annotations

import math

import numpy as np

from ...shares import share
from ..sharding import Partial, Replicate, Shard
from .array import LayoutError, MeshArray


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
