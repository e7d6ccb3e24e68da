"""Training with a model that lies on several ranks."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp
from ...optim import Optimizer
from ...optim.clipping import global_norm
from ..strategy import Serial, refuse_masters, share_params
from .layer import gather_params, places_of
from .rewrite import parallelize
from .state import DealtState


class TensorParallel(DealtState, Serial):
    r"""Tensor parallelism: every rank sees the whole batch and holds a part of (nearly) every layer.

    What each layer does and sends is decided by `parallelize` and listed by `account(strategy.model, input_shape)`: for
    an MLP one all-reduce of batch x width for every second layer, forward and backward. Nothing is sent for the
    parameters: a rank finds the whole gradient of its own part, and its optimizer holds the memory for that part alone.

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The serial model, the same on every rank; rank 0's parameters are broadcast, so that they are equal beyond
        doubt. It gives its layers away: do not train it any more.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`; every rank computes it, from the same outputs.
    optimizer : Optimizer
        Says which rule, learning rate and clipping; it is made anew for this rank's parameters.

    Notes
    -----
    Per step: `account`'s bytes, plus one all-reduce of one number if gradients are clipped. Saves time where layers are
    wide and the network is fast; saves memory, 1 / p of the parameters, gradients and optimizer state of dealt layers.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM: training multi-billion parameter language models using model parallelism,
    section 3.
    """

    def __init__(self, comm, model, loss, optimizer: Optimizer):
        share_params(comm, model)
        self.comm, self.names = comm, [p.name for p in model.params]
        model = parallelize(model, comm)
        super().__init__(model, loss, part_optimizer(optimizer, model, comm), comm.clock)

    def step(self, batch) -> float:
        """Train on a batch, which every rank has as a whole; return its loss."""
        check_whole(self, batch)
        return super().step(batch)

    def gather_params(self):
        """Return the parameters in their serial shapes on rank 0, None elsewhere."""
        return gather_params(self.model, self.comm, self.names)


def check_whole(strategy, batch) -> None:
    """Raise unless a rank was given the whole batch: parts, as data parallelism deals them, would be mixed up."""
    if batch.y.size < batch.n:  # more labels than samples are those of sequences
        raise ValueError(
            f"rank {strategy.comm.rank}: {type(strategy).__name__} got {len(batch.x)} of a batch of {batch.n} samples, "
            "expected all of them on every rank (Batches with rank=0, size=1)"
        )


class PartOptimizer(Optimizer):
    """Optimizer of the parameters that one rank has of a model; gradients are clipped by the length of all of them.

    Parameters
    ----------
    params : iterable of Param
    rule : Rule
    lr : float or callable
    clip_norm : float, optional
    total : callable
        `total(params) -> float`: the length of the gradients of all ranks.
    """

    def __init__(self, params, rule, lr, *, clip_norm=None, total=global_norm):
        super().__init__(params, rule, lr, clip_norm=clip_norm)
        self.limit, self.clip_norm, self.total = clip_norm, None, total

    def step(self):
        """Clip, then update every parameter."""
        if self.limit is not None:
            norm = self.total(self.params)
            if norm > self.limit:
                for p in self.params:
                    p.grad *= self.limit / norm
        super().step()


def summed_length(params, comms, like) -> float:
    """Return the length of the gradients of several ranks as one vector.

    Parameters
    ----------
    params : list of Param
        Those that this rank counts: each parameter is counted by one rank.
    comms : list of Communicator
        Over which the squares are summed, one after another.
    like : array
        Where the numbers shall live while they travel.
    """
    squared = get_xp(like).array([global_norm(params) ** 2], dtype=np.float64)
    for comm in comms:
        comm.all_reduce(squared)
    return float(squared[0]) ** 0.5


def part_optimizer(optimizer: Optimizer, model, comm) -> PartOptimizer:
    """Make an optimizer like another one for the parameters that this rank has of a parallelized model.

    Parameters
    ----------
    optimizer : Optimizer
        Not used yet: its memory is for parameters of other shapes.
    model : Layer
    comm : Communicator
        Over which the model lies.
    """
    refuse_masters("a model that lies on several ranks", optimizer)
    if optimizer.steps:
        raise ValueError(
            f"the optimizer has taken {optimizer.steps} steps for the serial model; make the strategy before the first"
        )
    places = places_of(model)
    cut = [name for name, place in places.items() if place.axis is not None]
    if getattr(optimizer.rule, "whole", False) and cut and comm.size > 1:
        raise ValueError(
            f"rank {comm.rank}: {type(optimizer.rule).__name__} needs every parameter as a whole, "
            f"but {cut[0]} is dealt to {comm.size} ranks; use a rule that works element by element"
        )

    def total(params):
        """Length of the gradients of all ranks; what is on every rank counts once."""
        mine = [p for p in params if comm.rank == 0 or p.name in places]
        return summed_length(mine, [comm], params[0].data)

    return PartOptimizer(model.params, optimizer.rule, optimizer.lr, clip_norm=optimizer.clip_norm, total=total)
