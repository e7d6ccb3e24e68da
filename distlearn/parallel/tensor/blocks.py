"""Blocks of which every rank has whole layers: paths, branches, layers of a GRU stack."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from ...backend import get_xp
from ...bounds import check_positive
from ...nn import GRU, Conv2d, Linear, Parallel, Siamese
from ...nn.container import layer_span
from ...nn.layer import Param, check_shape, describe, walk
from ...shares import shares
from ..data.bucket import make_buckets
from .layers import AxisSharding, ColumnParallel, TensorLayer, unique_params

# -- paths -------------------------------------------------------------------------------------------------------------


class PathParallel(ColumnParallel):
    """Parallel block, such as Inception's, whose paths are sharded over ranks: each runs its own from the whole input.

    The costliest path is assigned first, each to the least loaded rank.
    """

    layout = "paths over ranks"

    def __init__(self, comm, block: Parallel):
        paths, shape = block.layers, nominal_shape(block)
        assigned = assign_by_cost([path.flops(shape) + path.backward_flops(shape) for path in paths], comm.size)
        ends = np.cumsum([0, *(path.output_shape(shape)[-1] for path in paths)])
        channels = [np.arange(a, b) for a, b in pairwise(ends)]
        sharding = AxisSharding([np.concatenate([channels[k] for k in own]) for own in assigned])
        super().__init__(comm, block.name, sharding)
        self.paths, self.local = assigned[comm.rank], copy.copy(block)
        self.local.layers = [paths[k] for k in self.paths]
        self.local.params = self.params = unique_params(self.local.layers)
        self.hold_alone(self.params)

    @property
    def children(self):
        return self.local.layers


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
    raise ValueError(f"{describe(block)}: cannot tell the shape of its input without a Conv2d or a Linear")


# -- branches of a Siamese network -------------------------------------------------------------------------------------


class SiameseParallel(TensorLayer):
    """Siamese network with a branch on each of two ranks: rank 0 sees the first image of every pair, rank 1 the second.

    Its body must treat every image separately: a `BatchNorm` or a `Dropout` would no longer see both branches.
    """

    layout = "a branch per rank, gradients summed"

    def __init__(self, comm, siamese: Siamese):
        super().__init__(comm, siamese.name)
        self.serial, self.local = siamese, copy.copy(siamese.layers[0])
        self.local.name = siamese.name
        self.params = [Param(p.data, p.name, p.frozen) for p in self.local.params]  # same data, separate gradients
        self.buckets = make_buckets(self.local.params)

    def forward(self, x):
        self.output_shape(x.shape)
        y, saved = super().forward(get_xp(x).ascontiguousarray(x[:, self.comm.rank]))
        return self._both(y), saved

    def backward(self, dy, saved):
        for bucket in self.buckets:
            bucket.clear()
        dx = super().backward(get_xp(dy).ascontiguousarray(dy[:, self.comm.rank]), saved)
        for bucket in self.buckets:
            bucket.flush()
            self.comm.all_reduce(bucket.flat)
        for mine, p in zip(self.local.params, self.params, strict=True):
            if not p.frozen:  # of this pass alone: gradients of several passes add up
                p.grad += mine.grad
        return dx if dx is None else self._both(dx)

    def _both(self, x):
        """Exchange the branches' results: (batch, ...) to (batch, 2, ...)."""
        xp = get_xp(x)
        return xp.ascontiguousarray(self.comm.all_gather(xp.ascontiguousarray(x)).swapaxes(0, 1))

    @property
    def children(self):
        return [self.local]

    def local_shape(self, shape):
        return shape[0], *shape[2:]

    def output_shape(self, shape):
        return self.serial.output_shape(shape)


# -- layers of a GRU stack ---------------------------------------------------------------------------------------------
# A layer per rank: while the upper layer works on one block of steps, the lower one is a block ahead.
#
# time -->        block 0   block 1   block 2   block 3
# rank 0, GRU 0   ####      ####      ####      ####
# rank 1, GRU 1             ####      ####      ####      ####
# rank 2, GRU 2                       ####      ####      ####      ####

FORWARD, BACKWARD = 70, 71
"""Tags of the messages between neighbours."""


class StackParallel(TensorLayer):
    """Stack of GRU layers, some of them on each rank, that work on blocks of the sequence as a wavefront.

    Layer l needs, for block t, the output of the layer below for block t and its own state after block t - 1. So once
    rank l has sent block t up, it continues with block t + 1 while rank l + 1 works on block t. Backward runs through
    time the other way, from the top layer's last block to the bottom layer's first.

    Notes
    -----
    With m blocks (4 p by default) and p ranks, ranks are idle for (p - 1) / (m + p - 1) of a pass. A rank sends m
    messages to each neighbour that waits for it; the output is broadcast from the last rank, the gradient of the input
    from the first.

    References
    ----------
    J. Appleyard, T. Kočiský, P. Blunsom (2016), Optimizing performance of recurrent neural networks on GPUs,
    arXiv:1604.01946, section 3.3 (layers of a stack on a diagonal).
    """

    layout = "layers over ranks, blocks of time as a wavefront"
    input_gradient = True

    def __init__(self, comm, layers: list[GRU], n_blocks: int | None = None):
        super().__init__(comm, layers[0].name)
        if len(layers) < comm.size:
            raise ValueError(f"StackParallel: {len(layers)} layers for {comm.size} ranks, expected one for each")
        for below, above in pairwise(layers):
            if above.d_in != below.d_hidden or not above.input_gradient:
                raise ValueError(f"StackParallel: {describe(above)} cannot be stacked on {describe(below)}")
        self.n_blocks = 4 * comm.size if n_blocks is None else n_blocks
        check_positive("StackParallel", n_blocks=self.n_blocks)
        self.d_in, self.d_hidden = layers[0].d_in, layers[-1].d_hidden
        self.input_gradient = layers[0].input_gradient
        self.layers = layers[shares(len(layers), comm.size)[comm.rank]]
        self.params = unique_params(self.layers)
        self.hold_alone(self.params)
        self._first, self._last = comm.rank == 0, comm.rank == comm.size - 1

    def forward(self, x):
        xp, comm, blocks = get_xp(x), self.comm, self._blocks(x.shape)
        if not self._first:
            arriving = self._receive(x, blocks, self.layers[0].d_in, comm.rank - 1, FORWARD)
        states, saved, sent = [None] * len(self.layers), [], []
        y = xp.empty((*x.shape[:2], self.d_hidden), x.dtype)
        for t, block in enumerate(blocks):
            h = xp.ascontiguousarray(x[:, block]) if self._first else arriving[t].wait()
            kept = []
            for i, layer in enumerate(self.layers):
                like = h.shape, h.dtype.itemsize
                with layer_span(comm.clock, layer, "forward", *like):
                    h, s = layer.forward_from(h, states[i])
                states[i] = xp.ascontiguousarray(h[:, -1])
                kept.append((s, like))
            saved.append(kept)
            if self._last:
                y[:, block] = h
            else:
                sent.append(comm.isend(h, comm.rank + 1, FORWARD))
        for work in sent:
            work.wait()
        return comm.broadcast(y, comm.size - 1), (saved, x.shape)

    def backward(self, dy, saved):
        saved, shape = saved
        xp, comm, blocks = get_xp(dy), self.comm, self._blocks(shape)
        if not self._last:
            arriving = self._receive(dy, blocks, self.layers[-1].d_hidden, comm.rank + 1, BACKWARD)
        states, sent = [None] * len(self.layers), []
        dx = xp.empty(shape, dy.dtype) if self.input_gradient else None
        for t in reversed(range(len(blocks))):
            d = xp.array(dy[:, blocks[t]], order="C") if self._last else arriving[t].wait()
            for i in reversed(range(len(self.layers))):
                s, like = saved[t][i]
                with layer_span(comm.clock, self.layers[i], "backward", *like):
                    d, states[i] = self.layers[i].backward_from(d, s, states[i])
            if not self._first:
                sent.append(comm.isend(d, comm.rank - 1, BACKWARD))
            elif dx is not None:
                dx[:, blocks[t]] = d
        for work in sent:
            work.wait()
        return None if dx is None else comm.broadcast(dx, 0)

    def _blocks(self, shape) -> list[slice]:
        """Cut the steps into blocks; a short sequence has fewer."""
        check_shape(self, shape, "batch", "time", self.d_in)
        return shares(shape[1], min(self.n_blocks, shape[1]))

    def _receive(self, like, blocks, width, source, tag):
        """Start receiving all blocks from a neighbour, in the order in which it sends them."""
        order = range(len(blocks)) if tag == FORWARD else reversed(range(len(blocks)))
        lengths = [block.stop - block.start for block in blocks]
        buffers = [get_xp(like).empty((len(like), n, width), like.dtype) for n in lengths]
        return {t: self.comm.irecv(buffers[t], source, tag) for t in order}

    @property
    def children(self):
        return self.layers

    def output_shape(self, shape):
        check_shape(self, shape, "batch", "time", self.d_in)
        return (*shape[:2], self.d_hidden)

    def flops(self, shape):
        return sum(layer.flops((*shape[:2], layer.d_in)) for layer in self.layers)

    def backward_flops(self, shape):
        return 2 * self.flops(shape)
