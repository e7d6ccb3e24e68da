"""Training with a model that is sharded over ranks: all of it, or what follows its convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...backend import Array
from ...nn import Dropout, Flatten, Linear, Sequential
from ...optim import Optimizer
from ...shares import shares
from ..data.bucket import GradientReducer
from ..sharding import gather_parts, reduce_scatter_parts
from ..strategy import (
    Serial,
    Strategy,
    check_whole,
    sub_optimizer,
    summed_norm,
    update,
)
from .layers import TensorSequential, shard_specs
from .rewrite import defer_input_all_reduce, parallelize

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.loss import Loss


class TensorParallel(Strategy):
    r"""Tensor parallelism: every rank sees the whole batch and holds a part of (nearly) every layer.

    The form and the messages of each layer are decided by `parallelize` and listed by `planning.account`: for an
    MLP one all-reduce of batch x width for every second layer, forward and backward. Nothing is sent for the
    parameters: a rank computes the whole gradient of its own part, and its optimizer holds the memory for that part
    only.

    Notes
    -----
    Per step: `account`'s bytes, plus one all-reduce of one number if gradients are clipped.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM: training multi-billion parameter language models using model parallelism,
    section 3.
    """

    def __init__(self, comm: Communicator, model: Sequential, loss: Loss, optimizer: Optimizer):
        super().__init__(comm, model, loss, optimizer)
        self.model = parallelize(model, comm)
        self.optimizer, self.specs = shard_optimizer("TensorParallel", optimizer, self.model, comm)
        self.hold_in_shards(model, self.model)

    def step(self, batch: Batch) -> float:
        """Take the serial step: what differs is inside the layers, which communicate."""
        check_whole(self, batch, self.comm)
        return Serial.step(self, batch)


def shard_optimizer(what: str, optimizer: Optimizer, model, comm) -> tuple[Optimizer, dict]:
    """Make an optimizer like another one for this rank's part of a parallelized model; return the shards, too."""
    specs = shard_specs(model)
    made = sub_optimizer(what, optimizer, model.params, comm.size, specs)

    def norm(params):
        mine = [p for p in params if comm.rank == 0 or p.name in specs]  # replicated parameters count once
        return summed_norm(mine, [comm], model.params[0].data if model.params else np.zeros(0))

    made.norm = norm
    return made, specs


# -- one weird trick: convolutions data-parallel, dense layers model-parallel ------------------------------------------
#
# rank r:  rows of part r --> convolutions --+                    +--> gradient of part r's rows --> convolutions
#                                            |                    |
#          all ranks:                   all-gather          reduce-scatter
#                                            |                    |
#                                            +--> whole batch --> dense layers, neurons over ranks --> loss
#
# Convolutions have few weights and many activations, dense layers many weights and few activations: so sum the
# gradients of the former, and send the activations of the latter.


class OneWeirdTrick(Strategy):
    r"""Data parallelism up to the first dense layer, tensor parallelism from there on.

    This is scheme (a) of the paper: all ranks send their convolutions' outputs to all others, and every rank computes
    its neurons for the whole batch. (Schemes (b) and (c) send them in p rounds, which takes less memory and lets the
    sending overlap.) Backward, each rank gets the sum over all neurons' ranks of the gradient of its own rows.

    Parameters
    ----------
    cap_bytes, overlap
        Of the sum of the convolutions' gradients, as in `DataParallel`.

    Notes
    -----
    Per step with N samples, d values at the boundary and s bytes a value: an all-gather and a reduce-scatter of
    p ceil(N / p) d s bytes each; what `parallelize` lists for the dense layers; and all-reduces of the convolutions'
    parameters. AlexNet has 2.3 of its 61 million parameters in convolutions and 9,216 values at the boundary, so up to
    batches of 2,000 or so this sends less than data parallelism. Layers before the boundary that look at the batch as
    a whole (`BatchNorm`) see a rank's rows.

    References
    ----------
    A. Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997, section 4.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        cap_bytes: float = 1 << 20,
        overlap: bool = True,
    ):
        super().__init__(comm, model, loss, optimizer)
        k = boundary(model)
        if k is None:
            kinds = [type(layer).__name__ for layer in model.layers]
            raise ValueError(
                f"OneWeirdTrick: expected layers to train before the first Linear, got {', '.join(kinds)}; "
                f"use {'TensorParallel' if 'Linear' in kinds else 'DataParallel'}"
            )
        features, dense = model.part(model.layers[:k]), model.part(model.layers[k:])
        tied = {id(p) for p in features.params} & {id(p) for p in dense.params}
        if tied:
            names = ", ".join(p.name for p in dense.params if id(p) in tied)
            raise ValueError(f"OneWeirdTrick: {names} is used both before and after the first dense layer")
        dense = parallelize(dense, comm)
        self.features, self.dense = features, dense
        self._partial = defer_input_all_reduce(dense.layers)  # the gradient at the boundary: one summand on each rank
        layouts = ["a part of the batch"] * len(features.layers) + dense.layouts
        self.model = TensorSequential(comm, [*features.layers, *dense.layers], layouts)
        self.optimizer, self.specs = shard_optimizer("OneWeirdTrick", optimizer, self.model, comm)
        self.reducer = GradientReducer(
            comm, features.params, like=features.params[0].data, cap_bytes=cap_bytes, overlap=overlap
        )
        self.hold_in_shards(model, self.model)

    def step(self, batch: Batch) -> float:
        check_whole(self, batch, self.comm)
        comm, reducer, features, dense = self.comm, self.reducer, self.features, self.dense
        self.optimizer.zero_grad()
        reducer.clear()
        parts = shares(len(batch.x), comm.size)
        here, saved = features.forward(batch.x[parts[comm.rank]], clock=self.clock)
        out, kept = dense.forward(gather_parts(comm, here, 0, parts))
        loss, dy = self.loss(out, batch.y, batch.n)
        reducer.sums[0] = loss if comm.rank == 0 else 0.0  # it is the same on every rank
        reducer.sums[1] = len(here)
        dy = dense.backward(dy, kept)
        dy = reduce_scatter_parts(comm, dy, 0, parts) if self._partial else dy[parts[comm.rank]].copy()
        features.backward(dy, saved, on_grad=reducer.on_grad, clock=self.clock)
        loss = reducer.finish(len(here), batch.n)
        update(self.optimizer, self.clock)
        return loss

    def predict(self, x: Array) -> Array:
        parts = shares(len(x), self.comm.size)
        here, _ = self.features.eval().forward(x[parts[self.comm.rank]])
        return self.dense.eval().forward(gather_parts(self.comm, here, 0, parts))[0]


def boundary(model: Sequential) -> int | None:
    """Return the index of the first dense layer, with `Flatten` and `Dropout` before it; None if none before learns."""
    layers = model.layers
    k = next((i for i, layer in enumerate(layers) if type(layer) is Linear), 0)
    while k and type(layers[k - 1]) in (Dropout, Flatten):
        k -= 1
    return k if any(not p.frozen for layer in layers[:k] for p in layer.params) else None
