"""Paths of a block on different ranks: those of an Inception module are independent."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from ...nn import Conv2d, Linear, Parallel
from ...nn.layer import describe, walk
from .column_parallel import ColumnParallel
from .layer import AxisSharding


class PathParallel(ColumnParallel):
    r"""Parallel block whose paths are sharded over ranks: each runs its own from the whole input."""

    how = "paths over ranks"

    @classmethod
    def of(cls, block: Parallel, comm, *, shape=None, gather_output: bool = False) -> PathParallel:
        """Take this rank's paths of a serial block."""
        paths = block.layers
        if len(paths) < comm.size:
            raise ValueError(
                f"{describe(block)}: {len(paths)} paths cannot be assigned to {comm.size} ranks, "
                "expected at least one for each"
            )
        shape = nominal_shape(block) if shape is None else shape
        assigned = assign_by_cost([path.flops(shape) + path.backward_flops(shape) for path in paths], comm.size)
        ends = np.cumsum([0, *(path.output_shape(shape)[-1] for path in paths)])
        channels = [np.arange(a, b) for a, b in pairwise(ends)]
        layer = cls(comm, AxisSharding([np.concatenate([channels[k] for k in own]) for own in assigned]), gather_output)
        layer.paths = assigned[comm.rank]
        layer.local, layer.name = copy.copy(block), block.name
        layer.local.layers = [paths[k] for k in layer.paths]
        layer.local.params = layer.params = _params_of(layer.local.layers)
        layer.hold_alone()
        return layer

    @property
    def children(self):
        return self.local.layers

    def parts(self, shape):
        return self.local.parts(shape)

    def eval(self):
        view = copy.copy(self)
        view.local = self.local.eval()
        return view

    def __repr__(self):
        return f"PathParallel(paths {', '.join(map(str, self.paths))})"


def assign_by_cost(costs, size: int) -> list[list[int]]:
    """Assign jobs to ranks: the costliest first, each to the least loaded rank; each rank keeps their order."""
    loads, assigned = [(0, 0, rank) for rank in range(size)], [[] for _ in range(size)]
    for job in sorted(range(len(costs)), key=lambda k: (-costs[k], k)):
        load, count, rank = min(loads)
        loads[rank] = (load + costs[job], count + 1, rank)
        assigned[rank].append(job)
    return [sorted(own) for own in assigned]


def nominal_shape(block) -> tuple[int, ...]:
    """Return the shape of one input that a block takes; images are 28 x 28 and have the channels that it needs."""
    for layer in walk(block):
        if isinstance(layer, Conv2d):
            return (1, 28, 28, layer.c_in)
        if isinstance(layer, Linear):
            return (1, layer.d_in)
    raise ValueError(f"{describe(block)}: cannot tell the shape of its input, pass shape=")


def _params_of(layers) -> list:
    """Return the parameters of some layers, each once, in order."""
    found = {id(p): p for layer in layers for p in layer.params}
    return list(found.values())
