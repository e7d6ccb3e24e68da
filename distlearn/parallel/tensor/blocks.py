"""Blocks of which every rank has whole layers: paths, branches, layers of a GRU stack, experts."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np

from ...backend import get_xp, to_numpy
from ...nn import GRU, Conv2d, Linear, MixtureOfExperts, Parallel, Siamese
from ...nn.container import layer_span
from ...nn.experts import kept_counts, places_before, softmax_backward
from ...nn.layer import Param, check_positive, check_shape, describe, walk
from ...shares import shares
from ..data.bucket import make_buckets
from ..sharding import gather_parts
from .layers import AxisSharding, ColumnParallel, TensorLayer, unique_params

# -- paths -------------------------------------------------------------------------------------------------------------


class PathParallel(ColumnParallel):
    """Parallel block, such as Inception's, whose paths are sharded over ranks: each runs its own from the whole input.

    The costliest path is assigned first, each to the least loaded rank.
    """

    how = "paths over ranks"

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

    Its body must treat every image by itself: a `BatchNorm` or a `Dropout` would no longer see both branches.
    """

    how = "a branch per rank, gradients summed"

    def __init__(self, comm, siamese: Siamese):
        super().__init__(comm, siamese.name)
        self.serial, self.local = siamese, siamese.layers[0]
        self.params = [Param(p.data, p.name, p.frozen) for p in self.local.params]  # same data, separate gradients
        learned = [p for p in self.local.params if not p.frozen]
        self.buckets = make_buckets(learned)
        self._pairs = [(mine, p) for mine, p in zip(self.local.params, self.params, strict=True) if not p.frozen]

    def forward(self, x):
        self.output_shape(x.shape)
        with self.span("forward", x.shape, x.dtype.itemsize):
            y, saved = self.local.forward(get_xp(x).ascontiguousarray(x[:, self.comm.rank]))
        return self._both(y), (saved, (x.shape, x.dtype.itemsize))

    def backward(self, dy, saved):
        saved, like = saved
        for bucket in self.buckets:
            bucket.clear()
        with self.span("backward", *like):
            dx = self.local.backward(get_xp(dy).ascontiguousarray(dy[:, self.comm.rank]), saved)
        for bucket in self.buckets:
            bucket.settle()
            self.comm.all_reduce(bucket.flat)
        for mine, learned in self._pairs:  # of this pass alone: gradients of several passes add up
            learned.grad += mine.grad
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

    how = "layers over ranks, blocks of time as a wavefront"
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


# -- experts of a mixture ----------------------------------------------------------------------------------------------


class ExpertParallel(TensorLayer):
    r"""`MixtureOfExperts` whose experts are on different ranks.

    ::

        rank r: its rows ─► gate ─► all_to_all ─► its experts, rows of all ranks ─► all_to_all ─► weighted sum

    Every rank has the whole input, takes its share of the rows, and gathers the outputs at the end, so that the layer
    fits between other tensor-parallel ones. Which rows find a place is decided by the serial layer's rule: ranks
    exchange how many of their rows chose each expert.

    Notes
    -----
    With n rows, E experts, s bytes a value, and at most m rows
    that one rank sends to one expert (n k / (p E) if they are spread evenly, room(n) at most): forward one all-gather
    of p k E integers, two all-to-alls of p ceil(E / p) m width s bytes, and one all-gather of n width s bytes;
    backward two such all-to-alls, one all-reduce of the gate's gradient and one all-gather of n width s bytes. A rank
    holds its own experts; the gate is on every rank.

    References
    ----------
    D. Lepikhin et al. (2021), GShard, ICLR, section 3. W. Fedus, B. Zoph, N. Shazeer (2022), Switch transformers,
    JMLR 23, section 5.
    """

    how = "experts over ranks, rows sent to theirs"

    def __init__(self, comm, layer: MixtureOfExperts):
        super().__init__(comm, layer.name)
        self.serial, self.gate, self.width = layer, layer.gate, layer.width
        self.homes = shares(len(layer.experts), comm.size)
        self.experts = layer.experts[self.homes[comm.rank]]
        own = unique_params(self.experts)
        self.hold_alone(own)
        self.params = [*self.gate.params, *own]

    def forward(self, x):
        xp, comm = get_xp(x), self.comm
        rows = x.reshape(-1, self.width)
        parts = shares(len(rows), comm.size)
        mine = xp.ascontiguousarray(rows[parts[comm.rank]])
        routes = self.serial.route(mine @ self.gate.W.data + self.gate.b.data)
        counts = comm.all_gather(np.ascontiguousarray(to_numpy(routes.counts), dtype=np.int64))
        capacity = self.serial.room(len(rows))
        kept = routes.kept(capacity, places_before(counts)[comm.rank])
        sizes = kept_counts(counts, capacity)
        queues = [xp.flatnonzero(((routes.chosen == e) & kept).any(axis=1)) for e in range(sizes.shape[1])]
        arrived = self._to_experts([mine[here] for here in queues], sizes)
        results, saved = self._each(arrived, lambda i, h: self.experts[i].forward(h), "forward")
        outs = self._from_experts(results, sizes, mine)
        y = xp.zeros_like(mine)
        for e, here in enumerate(queues):
            y[here] += routes.weights[here, e, None] * outs[e]
        saved = mine, routes.weights, queues, outs, sizes, parts, saved
        return gather_parts(comm, y, 0, parts).reshape(x.shape), saved

    def backward(self, dy, saved):
        mine, weights, queues, outs, sizes, parts, kept = saved
        xp, shape = get_xp(dy), dy.shape
        dy = dy.reshape(-1, self.width)[parts[self.comm.rank]]
        dp, scaled = xp.zeros_like(weights), []
        for e, (here, out) in enumerate(zip(queues, outs, strict=True)):
            dp[here, e] = (dy[here] * out).sum(axis=1)
            scaled.append(weights[here, e, None] * dy[here])
        arrived = self._to_experts(scaled, sizes)
        results, _ = self._each(arrived, lambda i, d: (self.experts[i].backward(d, kept[i]), None), "backward")
        dx = xp.zeros_like(mine)
        for here, back in zip(queues, self._from_experts(results, sizes, mine), strict=True):
            dx[here] += back
        ds = softmax_backward(dp, weights)
        dx += ds @ self.gate.W.data.T
        grad = self.comm.all_reduce(xp.concatenate([mine.T @ ds, ds.sum(axis=0)[None]]))  # every rank has the gate
        self.gate.W.add(grad[:-1])
        self.gate.b.add(grad[-1])
        return gather_parts(self.comm, dx, 0, parts).reshape(shape)

    def _each(self, arrived, call, direction) -> tuple[list, list]:
        """Run this rank's experts on the rows that came for them; one without rows is not called."""
        results, saved = [], []
        for i, rows in enumerate(arrived):
            out, s = rows, None
            if len(rows):
                with layer_span(self.comm.clock, self.experts[i], direction, rows.shape, rows.dtype.itemsize):
                    out, s = call(i, rows)
            results.append(out)
            saved.append(s)
        return results, saved

    def _blocks(self, like, sizes):
        """Return an empty block for every rank: experts of the widest rank, and rows of the longest queue."""
        widest = self.homes[0].stop - self.homes[0].start
        return get_xp(like).zeros((self.comm.size, widest, int(sizes.max(initial=0)), self.width), like.dtype)

    def _to_experts(self, rows, sizes) -> list:
        """Send rows, a list by expert, to the ranks of their experts; return what came for each of this rank's."""
        xp, blocks = get_xp(rows[0]), self._blocks(rows[0], sizes)
        for rank, home in enumerate(self.homes):
            for i, e in enumerate(range(home.start, home.stop)):
                blocks[rank, i, : len(rows[e])] = rows[e]
        got = self.comm.all_to_all(blocks)
        own = range(len(sizes[0]))[self.homes[self.comm.rank]]
        return [xp.concatenate([got[r, i, : sizes[r, e]] for r in range(self.comm.size)]) for i, e in enumerate(own)]

    def _from_experts(self, results, sizes, like) -> list:
        """Send the experts' results back to where the rows came from: those of this rank's rows, by expert."""
        blocks = self._blocks(like, sizes)
        own = range(len(sizes[0]))[self.homes[self.comm.rank]]
        for i, e in enumerate(own):
            ends = np.cumsum(sizes[:, e])
            for r, end in enumerate(ends):
                blocks[r, i, : sizes[r, e]] = results[i][end - sizes[r, e] : end]
        got, mine = self.comm.all_to_all(blocks), sizes[self.comm.rank]
        return [
            got[rank, i, : mine[e]].copy()
            for rank, home in enumerate(self.homes)
            for i, e in enumerate(range(home.start, home.stop))
        ]

    def eval(self):
        view = copy.copy(self)
        view.experts = [expert.eval() for expert in self.experts]
        return view

    @property
    def children(self):
        return [self.gate, *self.experts]

    def output_shape(self, shape):
        return self.serial.output_shape(shape)

    def flops(self, shape):
        return self.serial.flops(shape) // self.comm.size

    def backward_flops(self, shape):
        return self.serial.backward_flops(shape) // self.comm.size

    def __repr__(self):
        return f"ExpertParallel({len(self.experts)} of {len(self.serial.experts)} experts, k={self.serial.k})"
