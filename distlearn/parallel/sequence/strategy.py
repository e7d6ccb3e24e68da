"""Training with sequences that are sharded over ranks."""

from __future__ import annotations

import copy

from ...backend import get_xp
from ...nn import GELU, Embedding, Identity, LayerNorm, Linear, ReLU, Residual, RMSNorm, Sequential, Sigmoid, Tanh
from ...nn.attention import MultiHeadAttention
from ...nn.fused import unfuse
from ...nn.layer import Layer
from ..data.bucket import GradientReducer
from ..strategy import Replicated, check_whole, update
from .order import cut, positions, put_together
from .ring import RingAttention
from .ulysses import UlyssesAttention

KINDS = {"ring": RingAttention, "ulysses": UlyssesAttention}
BY_POSITION = (Embedding, GELU, Identity, LayerNorm, Linear, RMSNorm, ReLU, Sigmoid, Tanh)
"""Layers that treat every position by itself."""


class SequenceParallel(Replicated):
    r"""Sequence (context) parallelism: every rank has the whole model and some positions of every sequence.

    Parameters
    ----------
    model : Sequential
        Whose layers treat every position by itself, but for `MultiHeadAttention`; rank 0's parameters are broadcast.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, a mean over the positions.
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
