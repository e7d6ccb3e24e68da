"""A layer of a GRU stack per rank: while the upper layer works on one block of steps, the lower one is a block ahead.

time -->        block 0   block 1   block 2   block 3
rank 0, GRU 0   ####      ####      ####      ####
rank 1, GRU 1             ####      ####      ####      ####
rank 2, GRU 2                       ####      ####      ####      ####
"""

from __future__ import annotations

from itertools import pairwise

from ...backend import get_xp
from ...nn import GRU, Sequential
from ...nn.container import layer_span
from ...nn.layer import check_shape, describe
from ...shares import shares
from .layer import TensorLayer

FORWARD, BACKWARD = 70, 71
"""Tags of the messages between neighbours."""


class StackParallel(TensorLayer):
    r"""Stack of GRU layers, some of them on each rank, that work on blocks of the sequence as a wavefront.

    .. math:: h^{(l)}_t = \mathrm{GRU}_l\bigl(h^{(l-1)}_t, h^{(l)}_{t-1}\bigr)

    Layer l needs, for block t, the output of the layer below for block t and its own state after block t - 1. So once
    rank l has sent block t up, it continues with block t + 1 while rank l + 1 works on block t. Backward runs through
    time the other way, from the top layer's last block to the bottom layer's first.

    Parameters
    ----------
    layers : list of GRU
        All of the stack, bottom first; consecutive ones go to a rank.
    n_blocks : int, optional
        Number of blocks that the steps are cut into; 4 p by default.

    Notes
    -----
    Shapes: (batch, time, d_in) to (batch, time, d_hidden), the same on every rank. With m blocks and p ranks a pass
    takes (m + p - 1) / m times a rank's share of the work instead of p times: ranks are idle for (p - 1) / (m + p - 1)
    of it. Messages, at s bytes a value: each rank but the last sends m messages forward, batch time d s bytes in total
    for its outputs of width d; backward each but the first m with the gradients of these. The output is broadcast from
    the last rank, batch time d_hidden s bytes, and the input's gradient from the first, batch time d_in s bytes. A rank
    holds and saves what its own layers do.

    References
    ----------
    J. Appleyard, T. Kočiský, P. Blunsom (2016), Optimizing performance of recurrent neural networks on GPUs,
    arXiv:1604.01946, section 3.3 (layers of a stack on a diagonal).
    """

    how = "layers over ranks, blocks of time as a wavefront"

    def __init__(self, comm, layers: list[GRU], n_blocks: int | None = None):
        super().__init__(comm)
        if len(layers) < comm.size:
            raise ValueError(
                f"StackParallel: {len(layers)} layers cannot be assigned to {comm.size} ranks, expected one for each"
            )
        for below, above in pairwise(layers):
            if above.d_in != below.d_hidden or not above.input_gradient:
                raise ValueError(f"StackParallel: {describe(above)} cannot be stacked on {describe(below)}")
        n_blocks = 4 * comm.size if n_blocks is None else n_blocks
        if n_blocks < 1:
            raise ValueError(f"StackParallel: n_blocks is {n_blocks!r}, expected 1 or more")
        self.n_blocks, self.name = n_blocks, layers[0].name
        self.d_in, self.d_hidden = layers[0].d_in, layers[-1].d_hidden
        self.input_gradient = layers[0].input_gradient
        self.layers = layers[shares(len(layers), comm.size)[comm.rank]]
        self.params = [p for layer in self.layers for p in layer.params]
        self.hold_alone()
        self._first, self._last = comm.rank == 0, comm.rank == comm.size - 1

    @classmethod
    def of(cls, layers, comm, *, n_blocks: int | None = None) -> StackParallel:
        """Take this rank's layers of a serial stack: a Sequential or a list of GRU layers, bottom first."""
        return cls(comm, list(layers.layers if isinstance(layers, Sequential) else layers), n_blocks)

    def forward(self, x):
        xp, comm, blocks = get_xp(x), self.comm, self._blocks(x.shape)
        if self._first:
            inputs = [xp.ascontiguousarray(x[:, block]) for block in blocks]
        else:
            arriving = self._receive(x, blocks, self.layers[0].d_in, comm.rank - 1, FORWARD)
        states, saved, sent = [None] * len(self.layers), [], []
        y = xp.empty((*x.shape[:2], self.d_hidden), x.dtype)
        for t, block in enumerate(blocks):
            h = inputs[t] if self._first else arriving[t].wait()
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
        return self._to_all(y, comm.size - 1), (saved, x.shape)

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
        return None if dx is None else self._to_all(dx, 0)

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

    def _to_all(self, x, root):
        """Broadcast what one end of the stack has."""
        return self.comm.broadcast(x, root) if self.comm.size > 1 else x

    @property
    def children(self):
        return self.layers

    def output_shape(self, shape):
        check_shape(self, shape, "batch", "time", self.d_in)
        return (*shape[:2], self.d_hidden)

    def flops(self, shape):
        return sum(layer.flops((*shape[:2], layer.d_in)) for layer in self.layers)

    def __repr__(self):
        return f"StackParallel({', '.join(map(repr, self.layers))})"
