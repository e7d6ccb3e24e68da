"""Ring attention: queries stay, keys and values go around.

step 0:  rank r attends to its own keys
step s:  ... to those of rank r - s, which have come from the left, while they are passed on to the right

What a rank has seen so far is merged with what it sees next (`nn.attention.merge`), so no rank ever holds more than two
blocks of keys. Backward sends keys and values around again, with their gradients, to which every rank adds its part.
"""

from __future__ import annotations

import copy

from ...backend import get_xp
from ...nn.attention import MultiHeadAttention, finish, merge, partial
from ...nn.attention.dot_product import causal_mask, check_heads, group_heads
from ...nn.attention.multi_head import rotate
from ...nn.attention.online import partial_backward
from .order import positions

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
