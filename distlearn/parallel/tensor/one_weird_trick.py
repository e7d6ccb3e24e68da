"""One weird trick: convolutions data-parallel, dense layers model-parallel.

    rank r:  rows of part r --> convolutions --+                    +--> gradient of part r's rows --> convolutions
                                               |                    |
             all ranks:                   all-gather          reduce-scatter
                                               |                    |
                                               +--> whole batch --> dense layers, neurons over ranks --> loss

Convolutions have few weights and many activations, dense layers many weights and few activations: so sum the gradients
of the former, and send the activations of the latter.
"""

from __future__ import annotations

from typing import NamedTuple

from ...nn import Dropout, Flatten, Linear, Sequential, unfuse
from ...shares import shares
from ..data.bucket import GradientReducer
from ..pipeline.stages import cut
from ..strategy import Strategy, check_whole, update
from . import TensorSequential, parallelize, shard_specs, sub_optimizer
from .layer import gather_rows, reduce_scatter_rows
from .rewrite import defer_input_all_reduce
from .strategy import sharded_state


class OneWeirdTrick(Strategy):
    r"""Data parallelism up to the first dense layer, tensor parallelism from there on.

    This is scheme (a) of the paper: all ranks send their convolutions' outputs to all others, and every rank computes
    its neurons for the whole batch. (Schemes (b) and (c) send them in p rounds, which takes less memory and lets the
    sending overlap.) Backward, each rank gets the sum over all neurons' ranks of the gradient of its own rows.

    Parameters
    ----------
    model : Sequential
        The serial model, the same on every rank; rank 0's parameters are broadcast. Its layers are reused: do not train
        it afterwards. Dropout right before the first dense layer belongs to that, so that it drops what it drops in
        serial training.
    cap_bytes, overlap
        Of the sum of the convolutions' gradients, as in `DataParallel`.

    Notes
    -----
    Every rank gets the whole batch and takes its rows of it (`rank` 0 of `size` 1 for code that shards the data). Per
    step with N samples, d values at the boundary and s bytes a value: an all-gather and a reduce-scatter of p ceil(N /
    p) d s bytes each; what `parallelize` lists for the dense layers, about N times their widths; and all-reduces of the
    convolutions' parameters. AlexNet has 2.3 of its 61 million parameters in
    convolutions and 9,216 values at the boundary, so up to batches of 2,000 or so this sends less than data
    parallelism. Layers before the boundary that look at the batch as a whole (`BatchNorm`) see a rank's rows.

    References
    ----------
    A. Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997, section 4.
    """

    def __init__(self, comm, model: Sequential, loss, optimizer, *, cap_bytes: float = 1 << 20, overlap: bool = True):
        super().__init__(comm, model, loss, optimizer)
        self.split = SplitModel.of(unfuse(model), comm)
        features, dense, _ = self.split
        hows = [PART] * len(features.layers) + dense.hows
        self.model = TensorSequential(comm, [*features.layers, *dense.layers], hows)
        self.optimizer = sub_optimizer("OneWeirdTrick", optimizer, self.model, comm)
        self.reducer = GradientReducer(comm, features.params, cap_bytes=cap_bytes, overlap=overlap)

    def step(self, batch) -> float:
        """Train on a batch, which every rank has as a whole; return its loss."""
        check_whole(self, batch, self.comm)
        comm, reducer, (features, dense, partial) = self.comm, self.reducer, self.split
        self.optimizer.zero_grad()
        reducer.clear()
        parts = shares(len(batch.x), comm.size)
        here, saved = features.forward(batch.x[parts[comm.rank]], clock=self.clock)
        out, kept = dense.forward(gather_rows(comm, here, parts))
        loss, dy = self.loss(out, batch.y, batch.n)
        reducer.sums[0] += loss if comm.rank == 0 else 0.0  # the loss is the same on every rank
        reducer.sums[1] += len(here)
        dy = dense.backward(dy, kept)
        dy = reduce_scatter_rows(comm, dy, parts) if partial else dy[parts[comm.rank]].copy()
        features.backward(dy, saved, on_grad=reducer.on_grad, clock=self.clock)
        loss = reducer.finish(batch.n)
        update(self.optimizer, self.clock)
        return loss

    def predict(self, x):
        """Run the model forward; every rank must call, with the same samples."""
        parts = shares(len(x), self.comm.size)
        here, _ = self.split.features.eval().forward(x[parts[self.comm.rank]])
        return self.split.dense.eval().forward(gather_rows(self.comm, here, parts))[0]

    def state_dict(self):
        return sharded_state(self, shard_specs(self.model), self.comm.rank == 0)


PART = "a part of the batch"


class SplitModel(NamedTuple):
    """A model in two: data-parallel up to the boundary, tensor-parallel from there on."""

    features: Sequential
    dense: TensorSequential
    partial: bool
    """Whether the gradient at the boundary is partial: one summand on each rank."""

    @classmethod
    def of(cls, model: Sequential, comm) -> SplitModel:
        """Split a serial model at its `boundary`."""
        k = boundary(model)
        if k is None:
            kinds = [type(layer).__name__ for layer in model.layers]
            raise ValueError(
                f"OneWeirdTrick: expected layers to train before the first Linear, got {', '.join(kinds)}; "
                f"use {'TensorParallel' if 'Linear' in kinds else 'DataParallel'}"
            )
        features, dense = cut(model, slice(0, k)), cut(model, slice(k, None))
        tied = {id(p) for p in features.params} & {id(p) for p in dense.params}
        if tied:
            names = ", ".join(p.name for p in dense.params if id(p) in tied)
            raise ValueError(f"OneWeirdTrick: {names} is used both before and after the first dense layer")
        dense = parallelize(dense, comm)
        return cls(features, dense, defer_input_all_reduce(dense.layers))


def boundary(model: Sequential) -> int | None:
    """Return the index of the first dense layer, or of the `Flatten` and `Dropout` right before it.

    None if no layer before it learns: then there is no trick.
    """
    layers = model.layers
    k = next((i for i, layer in enumerate(layers) if type(layer) is Linear), 0)
    while k and type(layers[k - 1]) in (Dropout, Flatten):
        k -= 1
    return k if any(not p.frozen for layer in layers[:k] for p in layer.params) else None
