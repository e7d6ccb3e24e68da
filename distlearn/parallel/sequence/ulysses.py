"""Ulysses: exchange positions for heads, attend as on one rank, and exchange back."""

from __future__ import annotations

from ...backend import get_xp
from ...nn.attention import MultiHeadAttention
from .order import positions, put_together
from .ring import SequenceAttention


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
