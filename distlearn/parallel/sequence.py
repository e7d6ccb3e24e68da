"""Sequence parallelism: every rank has some positions of every sequence, which may then be too long for one rank.

Layers that treat every position by itself need no communication. Attention does: `ring` passes keys and values around,
`ulysses` exchanges positions for heads.
"""

from __future__ import annotations

import copy

from ..backend import get_xp
from ..nn import GELU, Embedding, Identity, LayerNorm, Linear, ReLU, Residual, RMSNorm, Sequential, Sigmoid, Tanh
from ..nn.attention import MultiHeadAttention, finish, merge, partial
from ..nn.attention.dot_product import causal_mask, check_heads, group_heads
from ..nn.attention.multi_head import rotate
from ..nn.attention.online import partial_backward
from ..nn.fused import unfuse
from ..nn.layer import Layer
from .data.bucket import GradientReducer
from .strategy import Replicated, check_whole, update

# -- order -------------------------------------------------------------------------------------------------------------
# Which positions of a sequence a rank has.
#
#     contiguous, 4 ranks:   0 0 1 1 2 2 3 3
#     zigzag, 4 ranks:       0 1 2 3 3 2 1 0
#
# Under a causal mask late positions have more to compute than early ones. In the contiguous order the first rank is
# soon done and waits for the last; in the zigzag order every rank has an early and a late piece, and equally much to
# do.

ORDERS = ("contiguous", "zigzag")


def positions(length: int, rank: int, size: int, order: str = "zigzag") -> list[slice]:
    """Return the pieces of a sequence that a rank has, in their order.

    Parameters
    ----------
    length : int
        A multiple of the ranks (zigzag: of twice the ranks): equal pieces keep all ranks equally busy.
    order : {"contiguous", "zigzag"}

    Examples
    --------
    >>> positions(16, 1, 4, "zigzag")
    [slice(2, 4, None), slice(12, 14, None)]
    """
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}, expected one of {', '.join(map(repr, ORDERS))}")
    n_pieces = size if order == "contiguous" else 2 * size
    if length % n_pieces:
        raise ValueError(
            f"sequence parallelism: the length is {length}, expected a multiple of {n_pieces} "
            f"({size} ranks in {order} order)"
        )
    n = length // n_pieces
    pieces = [rank] if order == "contiguous" else [rank, n_pieces - 1 - rank]
    return [slice(i * n, (i + 1) * n) for i in pieces]


def cut(x, rank: int, size: int, order: str = "zigzag"):
    """Return a rank's positions of sequences, (batch, length, ...), as a contiguous copy."""
    xp = get_xp(x)
    return xp.concatenate([x[:, piece] for piece in positions(x.shape[1], rank, size, order)], axis=1)


def put_together(parts, order: str):
    """Return whole sequences from all ranks' parts, stacked by rank: (size, batch, length / size, ...)."""
    size, batch, n = parts.shape[:3]
    whole = get_xp(parts).empty((batch, size * n, *parts.shape[3:]), parts.dtype)
    for rank in range(size):
        start = 0
        for piece in positions(size * n, rank, size, order):
            stop = start + piece.stop - piece.start
            whole[:, piece] = parts[rank][:, start:stop]
            start = stop
    return whole


# -- ring --------------------------------------------------------------------------------------------------------------
# Ring attention: queries stay, keys and values go around.
#
# step 0: rank r attends to its own keys step s: ... to those of rank r - s, which have come from the left, while they
# are passed on to the right
#
# What a rank has seen so far is merged with what it sees next (`nn.attention.merge`), so no rank ever holds more than
# two blocks of keys. Backward sends keys and values around again, with their gradients, to which every rank adds its
# part.

TAG = 71


class SequenceAttention(MultiHeadAttention):
    """Base of attention whose ranks have parts of the positions; made from a serial layer by `of`."""

    spans_itself = True

    @classmethod
    def of(cls, layer: MultiHeadAttention, comm, order: str):
        """Make one that shares the parameters of a serial layer."""
        made = copy.copy(layer)
        made.__class__ = cls
        made.comm, made.clock, made.order = comm, comm.clock, order
        return made

    def _pieces(self, n: int, rank: int) -> list[slice]:
        """Return the positions of a rank, of which each rank has n."""
        return positions(n * self.comm.size, rank, self.comm.size, self.order)

    def rotate(self, x, back=False):
        """Rotate by the position in the whole sequence."""
        parts, start = [], 0
        for piece in self._pieces(x.shape[2], self.comm.rank):
            n = piece.stop - piece.start
            parts.append(rotate(x[:, :, start : start + n], start=piece.start, back=back))
            start += n
        return get_xp(x).concatenate(parts, axis=2)


class RingAttention(SequenceAttention):
    r"""`MultiHeadAttention` over ranks that each have some positions of every sequence."""

    def attend(self, q, k, v):
        check_heads(q, k, v, self.causal)
        xp, n = get_xp(q), q.shape[2]
        queries, seen = self._by_piece(q, k), {}
        keys = xp.stack([k, v])
        for step in range(self.comm.size):
            source = (self.comm.rank - step) % self.comm.size
            passing, arriving = self._pass(keys, step < self.comm.size - 1)
            for i, hidden, cols in self._visible(n, source, xp, q.dtype):
                with self._span(queries[i], keys[0][:, :, cols], 4):
                    more = partial(queries[i], keys[0][:, :, cols], keys[1][:, :, cols], hidden)
                    seen[i] = merge(seen[i], more) if i in seen else more
            keys = self._passed(passing, arriving)
        y, lse = [], []
        for i in range(len(queries)):
            out, sums = finish(seen[i])
            y.append(out.reshape(len(q), self.heads, -1, self.d))
            lse.append(sums)
        y = xp.concatenate(y, axis=2)
        return y, (q, k, v, y, lse)

    def attend_backward(self, dy, saved):
        q, k, v, y, lse = saved
        xp, n, size = get_xp(q), q.shape[2], self.comm.size
        queries, slopes, outs = (self._by_piece(a, k) for a in (q, dy, y))
        inner = [(a * b).sum(axis=-1, keepdims=True) for a, b in zip(slopes, outs, strict=True)]
        dq = [xp.zeros_like(a) for a in queries]
        keys, grads = xp.stack([k, v]), xp.zeros((2, *k.shape), k.dtype)
        for step in range(size):
            source = (self.comm.rank - step) % size
            passing, arriving = self._pass(keys, step < size - 1)
            for i, hidden, cols in self._visible(n, source, xp, q.dtype):
                with self._span(queries[i], keys[0][:, :, cols], 10):
                    gq, gk, gv = partial_backward(
                        queries[i], keys[0][:, :, cols], keys[1][:, :, cols], hidden, lse[i], inner[i], slopes[i]
                    )
                    dq[i] += gq
                    grads[0][:, :, cols] += gk
                    grads[1][:, :, cols] += gv
            # gradients follow their keys, one step behind what has been added to them, and end where they began
            if size > 1:
                grads = self._passed(*self._pass(grads, True))
            keys = self._passed(passing, arriving)
        dq = xp.concatenate([a.reshape(len(q), self.heads, -1, self.d) for a in dq], axis=2)
        return dq, xp.ascontiguousarray(grads[0]), xp.ascontiguousarray(grads[1])

    def _by_piece(self, x, k) -> list:
        """Cut a rank's positions into its pieces, heads that share keys below each other."""
        found, start = [], 0
        for piece in self._pieces(x.shape[2], self.comm.rank):
            n = piece.stop - piece.start
            found.append(get_xp(x).ascontiguousarray(group_heads(x[:, :, start : start + n], k)))
            start += n
        return found

    def _visible(self, n: int, source: int, xp, dtype):
        """Yield (number of the queries' piece, mask, where the keys are) for every block that is to be computed."""
        for i, rows in enumerate(self._pieces(n, self.comm.rank)):
            start = 0
            for cols in self._pieces(n, source):
                m = cols.stop - cols.start
                place, start = slice(start, start + m), start + m
                hidden = None
                if self.causal:
                    if cols.start >= rows.stop:  # all these keys come later
                        continue
                    if cols.stop > rows.start + 1:
                        hidden = causal_mask(xp, rows.stop - rows.start, dtype, rows.start, cols.start, m)
                yield i, hidden, place

    def _pass(self, x, goes: bool):
        """Start sending an array to the right and receiving one of the same shape from the left."""
        if not goes:
            return None, None
        out = get_xp(x).empty_like(x)
        right, left = (self.comm.rank + 1) % self.comm.size, (self.comm.rank - 1) % self.comm.size
        received = self.comm.irecv(out, left, tag=TAG)
        return self.comm.isend(x, right, tag=TAG), received

    def _passed(self, sent, received):
        """Wait for both; return what has come, or None if nothing was to come."""
        if sent is None:
            return None
        array = received.wait()
        sent.wait()
        return array

    def _span(self, q, k, per_score: int):
        """Open the span of one block; `per_score` times d operations a score."""
        scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        return self.clock.span("attention", flops=scores * (per_score * self.d + 5), nbytes=2 * (q.nbytes + k.nbytes))


# -- ulysses -----------------------------------------------------------------------------------------------------------
# Ulysses: exchange positions for heads, attend as on one rank, and exchange back.


class UlyssesAttention(SequenceAttention):
    r"""`MultiHeadAttention` over ranks: during attention each has all positions of some heads.

    positions of all heads --> all-to-all --> all positions of some heads --> attention --> all-to-all --> back
    """

    @classmethod
    def of(cls, layer: MultiHeadAttention, comm, order: str):
        """Make one; raise if the ranks do not divide the heads."""
        if layer.kv_heads % comm.size:
            raise ValueError(
                f"UlyssesAttention: {layer!r} on {comm.size} ranks, expected the ranks to divide its "
                f"{layer.kv_heads} heads of keys and values; use RingAttention"
            )
        return super().of(layer, comm, order)

    def attend(self, q, k, v):
        whole = [self._to_heads(a) for a in (q, k, v)]
        flops = q.shape[0] * (self.heads // self.comm.size) * whole[0].shape[2] ** 2 * (4 * self.d + 5)
        with self.clock.span("attention", flops=flops, nbytes=2 * sum(a.nbytes for a in whole)):
            y, saved = MultiHeadAttention.attend(self, *whole)
        return self._to_positions(y), saved

    def attend_backward(self, dy, saved):
        dy = self._to_heads(dy)
        flops = dy.shape[0] * dy.shape[1] * dy.shape[2] ** 2 * (8 * self.d + 4)
        with self.clock.span("attention", flops=flops, nbytes=4 * dy.nbytes):
            grads = MultiHeadAttention.attend_backward(self, dy, saved)
        return tuple(self._to_positions(g) for g in grads)

    def _to_heads(self, x):
        """Exchange (batch, heads, length / p, d) for (batch, heads / p, length, d), in the order of positions."""
        batch, heads, n, d = x.shape
        size = self.comm.size
        rows = x.reshape(batch, size, heads // size, n, d).swapaxes(0, 1)
        parts = self.comm.all_to_all(get_xp(x).ascontiguousarray(rows))  # by rank: its positions of my heads
        whole = put_together(parts.swapaxes(2, 3), self.order)  # (batch, length, heads / p, d)
        return get_xp(x).ascontiguousarray(whole.swapaxes(1, 2))

    def _to_positions(self, y):
        """Exchange back."""
        xp, size, (batch, heads, length, d) = get_xp(y), self.comm.size, y.shape
        rows = xp.stack(
            [
                xp.concatenate([y[:, :, piece] for piece in positions(length, rank, size, self.order)], axis=2)
                for rank in range(size)
            ]
        )
        parts = self.comm.all_to_all(rows)  # by rank: my positions of its heads
        return xp.ascontiguousarray(parts.swapaxes(0, 1)).reshape(batch, size * heads, length // size, d)


# -- strategy ----------------------------------------------------------------------------------------------------------
# Training with sequences that are sharded over ranks.

KINDS = {"ring": RingAttention, "ulysses": UlyssesAttention}
BY_POSITION = (Embedding, GELU, Identity, LayerNorm, Linear, RMSNorm, ReLU, Sigmoid, Tanh)
"""Layers that treat every position by itself."""


class SequenceParallel(Replicated):
    r"""Sequence (context) parallelism: every rank has the whole model and some positions of every sequence.

    Parameters
    ----------
    model : Sequential
        Whose layers treat every position by itself, but for `MultiHeadAttention`; rank 0's parameters are broadcast.
    attention : {"ring", "ulysses"}
    order : {"contiguous", "zigzag"}
        Which positions a rank has; zigzag balances causal attention.
    cap_bytes : float
        Size of a gradient bucket [bytes].
    overlap : bool
        Communicate gradients while backward goes on.

    Notes
    -----
    Per step what the attention layers send (`RingAttention`, `UlyssesAttention`), and the gradients' all-reduces as in
    `DataParallel`. Activations take 1 / p of the serial run's memory.

    References
    ----------
    S. Li et al. (2023), Sequence parallelism: long sequence training from system perspective, ACL, section 3.
    H. Liu, M. Zaharia, P. Abbeel (2023), Ring attention, arXiv:2310.01889.
    """

    def __init__(
        self,
        comm,
        model,
        loss,
        optimizer,
        *,
        attention: str = "ring",
        order: str = "zigzag",
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
    ):
        if attention not in KINDS:
            raise ValueError(f"SequenceParallel: attention is {attention!r}, expected 'ring' or 'ulysses'")
        positions(2 * comm.size, 0, comm.size, order)  # raises for an unknown order
        super().__init__(comm, model, loss, optimizer)
        self.order, self.rank, self.size = order, 0, 1  # all ranks work on the same samples
        self.model = shard_positions(unfuse(model), comm, KINDS[attention], order)
        self.reducer = GradientReducer(comm, self.model.params, cap_bytes=cap_bytes, overlap=overlap)

    def step(self, batch) -> float:
        """Train on a batch, which every rank has as a whole; return its loss."""
        check_whole(self, batch, self.comm)
        if batch.x.ndim < 2 or batch.x.shape[:2] != batch.y.shape[:2]:
            raise ValueError(
                f"SequenceParallel: inputs of shape {batch.x.shape} with labels of shape {batch.y.shape}, expected "
                "(batch, length, ...) with a label for every position"
            )
        comm = self.comm
        self.reducer.clear()
        x, labels = (cut(a, comm.rank, comm.size, self.order) for a in (batch.x, batch.y))
        out, saved = self.model.forward(x, clock=self.clock)
        loss, dy = self.loss(out, labels, batch.n)
        dy /= comm.size  # the loss is a mean over this rank's positions, 1 / p of all
        self.reducer.sums[0] += loss / comm.size
        self.reducer.sums[1] += len(batch.x) / comm.size
        self.model.backward(dy, saved, on_grad=self.reducer.on_grad, clock=self.clock)
        loss = self.reducer.finish(batch.n)
        update(self.optimizer, self.clock)
        return loss

    def predict(self, x):
        """Return the model's output for whole sequences, on every rank; every rank must call."""
        mine = self.model.eval().forward(cut(x, self.comm.rank, self.comm.size, self.order))[0]
        return put_together(self.comm.all_gather(get_xp(mine).ascontiguousarray(mine)), self.order)

    def total(self, values):
        """Return `values`: every rank has evaluated the same samples."""
        return values


def shard_positions(model: Layer, comm, kind, order: str) -> Layer:
    """Return a model whose attention layers communicate, with the parameters of the given one."""
    if isinstance(model, MultiHeadAttention):
        return kind.of(model, comm, order)
    if not model.children:
        if not isinstance(model, BY_POSITION):
            raise TypeError(f"SequenceParallel: {model!r} may mix positions, and a rank has only some of them")
        return model
    if not isinstance(model, (Sequential, Residual)):
        raise TypeError(f"SequenceParallel: {type(model).__name__} in the model, expected Sequential or Residual")
    view = copy.copy(model)
    view.layers = [shard_positions(layer, comm, kind, order) for layer in model.layers]
    view.spans_itself, view.clock = True, comm.clock
    return view
