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

from ..sharding import Partial, Replicate, Shard
from .array import LayoutError, MeshArray
from .mesh import Mesh

__all__ = ["LayoutError", "Mesh", "MeshArray", "Partial", "Replicate", "Shard"]
