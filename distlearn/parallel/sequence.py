"""Sequence parallelism: every rank has some positions of every sequence, which may then be too long for one rank.

Layers that treat every position separately need no communication. Attention does: it passes keys and values around.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, get_xp, rounded, single
from ..data.batches import Batch
from ..nn import GELU, Embedding, Identity, LayerNorm, Linear, ReLU, Residual, RMSNorm, Sequential, Sigmoid, Tanh
from ..nn.attention import MultiHeadAttention, finish, merge, partial
from ..nn.attention.dot_product import causal_mask, check_heads
from ..nn.attention.multi_head import rotate
from ..nn.attention.online import partial_backward
from ..nn.layer import Layer
from .data.data_parallel import DataParallel
from .sharding import gather_parts, take_part
from .strategy import check_whole

if TYPE_CHECKING:
    from ..comm.base import Communicator
    from ..nn.loss import Loss
    from ..optim.optimizer import Optimizer

# -- which positions of a sequence a rank has --------------------------------------------------------------------------
# Under a causal mask late positions have more to compute than early ones. So every rank has an early and a late piece,
# and equally much to do:
#
#     4 ranks:   0 1 2 3 3 2 1 0


def positions(length: int, rank: int, size: int) -> list[slice]:
    """Return the two pieces of a sequence that a rank has: of 16 positions, rank 1 of 4 has 2 to 4 and 12 to 14."""
    if length % (2 * size):
        raise ValueError(f"sequence parallelism: the length is {length}, expected a multiple of {2 * size}")
    n = length // (2 * size)
    return [slice(i * n, (i + 1) * n) for i in (rank, 2 * size - 1 - rank)]


def places(length: int, size: int) -> list[Any]:
    """Return the positions of all ranks, as arrays of indices."""
    return [np.r_[tuple(positions(length, rank, size))] for rank in range(size)]


# -- ring --------------------------------------------------------------------------------------------------------------
# Ring attention: queries stay, keys and values go around.
#
# step 0: rank r attends to its own keys
# step s: ... to those of rank r - s, which have come from the left, while they are passed on to the right
#
# The partial result of all blocks so far is merged with that of the next one (`nn.attention.merge`), so no rank
# ever holds more than two blocks of keys. Backward sends keys and values around again, with their gradients, to
# which every rank adds its part.

TAG = 71


class RingAttention(MultiHeadAttention):
    """`MultiHeadAttention` over ranks that each have some positions of every sequence."""

    spans_itself = True

    @classmethod
    def of(cls, layer: MultiHeadAttention, comm):
        made = copy.copy(layer)
        made.__class__ = cls
        made.comm, made.clock = comm, comm.clock
        return made

    def rotate(self, x, back=False):
        xp, pieces = get_xp(x), positions(x.shape[2] * self.comm.size, self.comm.rank, self.comm.size)
        parts = zip(xp.split(x, 2, axis=2), pieces, strict=True)
        return xp.concatenate([rotate(part, start=piece.start, back=back) for part, piece in parts], axis=2)

    def attend(self, q, k, v):
        check_heads(q, k, v, self.causal)
        xp, n = get_xp(q), q.shape[2]
        queries, seen = self._by_piece(q), {}
        for source, keys in self._around(xp.stack([k, v])):
            for i, hidden, cols in self._visible(n, source, xp, q.dtype):
                with self._span(queries[i], keys[0][:, :, cols], 4):
                    more = partial(queries[i], keys[0][:, :, cols], keys[1][:, :, cols], hidden)
                    seen[i] = merge(seen[i], more) if i in seen else more
        y, lse = [], []
        for i in range(len(queries)):
            out, sums = finish(seen[i])
            y.append(out)
            lse.append(sums)
        y = rounded(xp.concatenate(y, axis=2), q.dtype)
        return y, (q, k, v, y, lse)

    def attend_backward(self, dy, saved):
        q, k, v, y, lse = saved
        xp, n = get_xp(q), q.shape[2]
        queries, slopes, outs = map(self._by_piece, (q, dy, y))
        inner = [(single(a) * b).sum(axis=-1, keepdims=True) for a, b in zip(slopes, outs, strict=True)]
        dq = [xp.zeros_like(single(a)) for a in queries]
        grads = xp.zeros((2, *k.shape), k.dtype)
        for source, keys in self._around(xp.stack([k, v])):
            for i, hidden, cols in self._visible(n, source, xp, q.dtype):
                with self._span(queries[i], keys[0][:, :, cols], 10):
                    gq, gk, gv = partial_backward(
                        queries[i], keys[0][:, :, cols], keys[1][:, :, cols], hidden, lse[i], inner[i], slopes[i]
                    )
                    dq[i] += gq
                    grads[0][:, :, cols] += gk
                    grads[1][:, :, cols] += gv
            # gradients travel one step behind their keys, after this rank has added its part, and end where they began
            if self.comm.size > 1:
                sent, received = self._pass(grads)
                grads = received.wait()
                sent.wait()
        dq = rounded(xp.concatenate(dq, axis=2), q.dtype)
        return dq, xp.ascontiguousarray(grads[0]), xp.ascontiguousarray(grads[1])

    def _by_piece(self, x) -> list[Any]:
        """Cut a rank's positions into its pieces."""
        xp = get_xp(x)
        return list(map(xp.ascontiguousarray, xp.split(x, 2, axis=2)))

    def _visible(self, n: int, source: int, xp, dtype):
        """Yield (number of the queries' piece, mask, where the keys are) for every block that is to be computed."""
        size, m = self.comm.size, n // 2
        for i, rows in enumerate(positions(n * size, self.comm.rank, size)):
            for j, cols in enumerate(positions(n * size, source, size)):
                hidden = None
                if self.causal:
                    if cols.start >= rows.stop:  # all these keys come later
                        continue
                    if cols.stop > rows.start + 1:
                        hidden = causal_mask(xp, m, dtype, rows.start, cols.start)
                yield i, hidden, slice(j * m, (j + 1) * m)

    def _around(self, keys):
        """Yield every rank's keys and values, with its number, while they are passed on and the next ones arrive."""
        for step in range(self.comm.size):
            last = step == self.comm.size - 1
            sent, received = (None, None) if last else self._pass(keys)
            yield (self.comm.rank - step) % self.comm.size, keys
            if not last:
                keys = received.wait()
                sent.wait()

    def _pass(self, x):
        """Start sending an array to the right and receiving one of the same shape from the left."""
        out = get_xp(x).empty_like(x)
        right, left = (self.comm.rank + 1) % self.comm.size, (self.comm.rank - 1) % self.comm.size
        received = self.comm.irecv(out, left, tag=TAG)
        return self.comm.isend(x, right, tag=TAG), received

    def _span(self, q, k, per_score: int):
        """Open the span of one block; `per_score` times d operations a score."""
        scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        return self.clock.span("attention", flops=scores * (per_score * self.d + 5), nbytes=2 * (q.nbytes + k.nbytes))


# -- strategy ----------------------------------------------------------------------------------------------------------
# Training with sequences that are sharded over ranks.

BY_POSITION = (Embedding, GELU, Identity, LayerNorm, Linear, RMSNorm, ReLU, Sigmoid, Tanh)
"""Layers that treat every position separately."""


class SequenceParallel(DataParallel):
    """Sequence (context) parallelism: every rank has the whole model and some positions of every sequence.

    Parameters
    ----------
    model : Sequential
        All layers but `MultiHeadAttention` treat every position separately.
    loss : callable
        A mean over the positions.

    Notes
    -----
    Per step the messages of the attention layers (`RingAttention`), and the gradients'
    all-reduces as in `DataParallel`. Activations take 1 / p of the serial run's memory.

    References
    ----------
    S. Li et al. (2023), Sequence parallelism: long sequence training from system perspective, ACL, section 3.
    H. Liu, M. Zaharia, P. Abbeel (2023), Ring attention, arXiv:2310.01889.
    """

    def __init__(self, comm: Communicator, model: Sequential, loss: Loss, optimizer: Optimizer):
        super().__init__(comm, model, loss, optimizer)
        self.rank, self.size = 0, 1  # of the data: all ranks work on the same sequences
        self.model = shard_positions(model, comm)

    def step(self, batch: Batch) -> float:
        check_whole(self, batch, self.comm)
        if batch.x.ndim < 2 or batch.x.shape[:2] != batch.y.shape[:2]:
            shapes = f"inputs {batch.x.shape}, labels {batch.y.shape}"
            raise ValueError(f"SequenceParallel: {shapes}, expected (batch, length, ...) with a label for each")
        mine = places(batch.x.shape[1], self.comm.size)[self.comm.rank]
        x, labels = take_part(batch.x, 1, mine), take_part(batch.y, 1, mine)
        # the loss is a mean over this rank's positions, 1 / p of all
        return super().step(Batch(x, labels, batch.n * self.comm.size))

    def predict(self, x: Array) -> Array:
        """Return the model's output for whole sequences, on every rank; every rank must call."""
        parts = places(x.shape[1], self.comm.size)
        mine = self.model.eval().forward(take_part(x, 1, parts[self.comm.rank]))[0]
        return gather_parts(self.comm, mine, 1, parts)


def shard_positions(model: Layer, comm) -> Layer:
    """Return a model whose attention layers communicate, with the parameters of the given one."""
    if isinstance(model, MultiHeadAttention):
        return RingAttention.of(model, comm)
    if not model.children:
        if not isinstance(model, BY_POSITION):
            known = ", ".join(layer.__name__ for layer in BY_POSITION)
            raise TypeError(
                f"SequenceParallel: a rank has some positions alone: expected attention, {known}; got {model!r}"
            )
        return model
    if not isinstance(model, (Sequential, Residual)):
        raise TypeError(f"SequenceParallel: {type(model).__name__} in the model, expected Sequential or Residual")
    view = copy.copy(model)
    view.layers = [shard_positions(layer, comm) for layer in model.layers]
    view.spans_itself, view.clock = True, comm.clock
    return view
