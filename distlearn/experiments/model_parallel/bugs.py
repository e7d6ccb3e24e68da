"""Tensor-parallel training with three bugs of real frameworks, none of which raises an error.

================  ======================================================================================
"missing"         the input's gradient of column-parallel layers is not summed over ranks; of this kind:
                  the gradients of norm layers under sequence parallelism, NVIDIA/Megatron-LM issue 1446
"doubled"         ... is summed twice; tenstorrent/tt-metal pull request 31748
"norm"            every rank clips by the norm of its own parts; pytorch/torchtitan issue 596
================  ======================================================================================
"""

from __future__ import annotations

import numpy as np

from ...data import load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel.tensor import ColumnParallelLinear, TensorParallel, shard_specs
from ...train import fit

BUGS = ("none", "missing", "doubled", "norm")


class _Doubled(ColumnParallelLinear):
    """Sums the gradient of its input once more."""

    def backward(self, dy, saved):
        dx = super().backward(dy, saved)
        return dx if dx is None else self.comm.all_reduce(dx)


def train_with_bug(comm, bug: str = "none", *, seed: int = 0, epochs: int = 6, clip_norm: float = 0.5):
    """Train a small tensor-parallel network on the digits.

    Parameters
    ----------
    comm : Communicator
    bug : str
        One of `BUGS`.
    seed : int
        Of the weights and of the order of the samples.
    epochs : int
    clip_norm : float
        The norm to which gradients are clipped.

    Returns
    -------
    history : History
    apart : float
        How far this rank's copies of parameters that every rank has are from rank 0's: the largest difference.
    """
    if bug not in BUGS:
        raise ValueError(f"train_with_bug: bug is {bug!r}, expected one of {', '.join(map(repr, BUGS))}")
    data = load("digits", dtype="float64")
    model = MLP((64, 48, 48, 48, 10), seed=seed, dtype="float64")
    optimizer = Optimizer(model.params, SGD(), 0.3, clip_norm=clip_norm)
    strategy = TensorParallel(comm, model, SoftmaxCrossEntropy(), optimizer)
    for layer in strategy.model.layers:
        if isinstance(layer, ColumnParallelLinear) and bug == "missing":
            layer.sum_input_gradient = False
        if isinstance(layer, ColumnParallelLinear) and bug == "doubled":
            layer.__class__ = _Doubled
    if bug == "norm":
        strategy.optimizer.norm = lambda params: float(np.sqrt(sum((p.grad**2).sum() for p in params)))
    history = fit(strategy, data, epochs=epochs, batch_size=64, seed=seed)
    sharded = shard_specs(strategy.model)
    copies = [p.data for p in strategy.model.params if p.name not in sharded]
    apart = max(float(np.abs(mine - comm.all_gather(mine)[0]).max()) for mine in copies)
    return history, apart
