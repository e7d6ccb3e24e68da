"""Expert parallelism: every rank has some of the experts, and rows travel to theirs and back."""

from __future__ import annotations

import copy

import numpy as np

from ...backend import get_xp, to_numpy
from ...nn.container import layer_span
from ...nn.experts import MixtureOfExperts, kept_counts, places_before, softmax_backward
from ...nn.layer import describe
from ...shares import shares
from ..sharding import ShardSpec
from .layer import TensorLayer, gather_rows


class ExpertParallel(TensorLayer):
    r"""`MixtureOfExperts` whose experts are on different ranks.

    ::

        rank r: its rows ─► gate ─► all_to_all ─► its experts, rows of all ranks ─► all_to_all ─► weighted sum

    Every rank has the whole input, takes its share of the rows, and gathers the outputs at the end, so that the layer
    fits between other tensor-parallel ones. Which rows find a place is decided by the serial layer's rule: ranks
    exchange how many of their rows chose each expert.

    Parameters
    ----------
    layer : MixtureOfExperts
        The serial one, with at least one expert for every rank.

    Notes
    -----
    Shapes: (batch, ..., width) to the same, on every rank. With n rows, E experts, s bytes a value, and at most m rows
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
        super().__init__(comm)
        if len(layer.experts) < comm.size:
            raise ValueError(
                f"ExpertParallel: {describe(layer)}: {len(layer.experts)} experts cannot be assigned to {comm.size} "
                "ranks, expected one for each"
            )
        self.serial, self.gate, self.name, self.width = layer, layer.gate, layer.name, layer.width
        self.homes = shares(len(layer.experts), comm.size)
        self.experts = layer.experts[self.homes[comm.rank]]
        own = [p for expert in self.experts for p in expert.params]
        self.specs = {p.name: ShardSpec(tuple(p.data.shape)) for p in own}
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
        arrived = self._to_experts(mine, queues, sizes)
        results, saved = self._each(arrived, lambda i, h: self.experts[i].forward(h), "forward")
        outs = self._from_experts(results, sizes, mine)
        y = xp.zeros_like(mine)
        for e, here in enumerate(queues):
            y[here] += routes.weights[here, e, None] * outs[e]
        return self._to_all(y, parts).reshape(x.shape), (mine, routes.weights, queues, outs, sizes, parts, saved)

    def backward(self, dy, saved):
        mine, weights, queues, outs, sizes, parts, kept = saved
        xp, shape = get_xp(dy), dy.shape
        dy = dy.reshape(-1, self.width)[parts[self.comm.rank]]
        dp, scaled = xp.zeros_like(weights), []
        for e, (here, out) in enumerate(zip(queues, outs, strict=True)):
            dp[here, e] = (dy[here] * out).sum(axis=1)
            scaled.append(weights[here, e, None] * dy[here])
        arrived = self._to_experts(mine, queues, sizes, scaled)
        results, _ = self._each(arrived, lambda i, d: (self.experts[i].backward(d, kept[i]), None), "backward")
        dx = xp.zeros_like(mine)
        for here, back in zip(queues, self._from_experts(results, sizes, mine), strict=True):
            dx[here] += back
        ds = softmax_backward(dp, weights)
        dx += ds @ self.gate.W.data.T
        self._add_gate(mine, ds)
        return self._to_all(dx, parts).reshape(shape)

    def _add_gate(self, rows, ds) -> None:
        """Sum the gradient of the gate, which every rank has, over the ranks' rows."""
        xp = get_xp(rows)
        grad = self.comm.all_reduce(xp.concatenate([rows.T @ ds, ds.sum(axis=0)[None]]))
        self.gate.W.add(grad[:-1])
        self.gate.b.add(grad[-1])

    def _each(self, arrived, call, direction) -> tuple[list, list]:
        """Run this rank's experts on the rows that came for them; one without rows is not called."""
        results, saved = [], []
        for i, rows in enumerate(arrived):
            if not len(rows):
                results.append(rows)
                saved.append(None)
                continue
            with layer_span(self.comm.clock, self.experts[i], direction, rows.shape, rows.dtype.itemsize):
                out, s = call(i, rows)
            results.append(out)
            saved.append(s)
        return results, saved

    def _blocks(self, like, sizes):
        """Return an empty block for every rank: experts of the widest rank, and rows of the longest queue."""
        widest = self.homes[0].stop - self.homes[0].start
        return get_xp(like).zeros((self.comm.size, widest, int(sizes.max(initial=0)), self.width), like.dtype)

    def _to_experts(self, rows, queues, sizes, values=None) -> list:
        """Send rows (or values, a list by expert) to the ranks of their experts: what came for each of this rank's."""
        xp, blocks = get_xp(rows), self._blocks(rows, sizes)
        for rank, home in enumerate(self.homes):
            for i, e in enumerate(range(home.start, home.stop)):
                blocks[rank, i, : len(queues[e])] = rows[queues[e]] if values is None else values[e]
        got = self._exchange(blocks)
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
        got, mine = self._exchange(blocks), sizes[self.comm.rank]
        return [
            got[rank, i, : mine[e]].copy()
            for rank, home in enumerate(self.homes)
            for i, e in enumerate(range(home.start, home.stop))
        ]

    def _exchange(self, blocks):
        return self.comm.all_to_all(blocks) if self.comm.size > 1 else blocks

    def _to_all(self, rows, parts):
        """Gather the rows of all ranks."""
        return gather_rows(self.comm, rows, parts)

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
