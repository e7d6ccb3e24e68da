"""What a rank must hold: parameters, gradients, the optimizer's state, activations in flight."""

from __future__ import annotations

import math

from ...nn import Flatten, Identity, ReLU, Reshape, Sigmoid, Tanh
from ...nn.costs.memory import Memory
from ...optim.optimizer import state_arrays
from ..tensor import Gather

KEEP_NOTHING = (Flatten, Reshape, Identity, Gather, ReLU, Sigmoid, Tanh)
"""Layers that save nothing, or their output, which is what the next layer saves."""


def activation_bytes(model, shape: tuple[int, ...], itemsize: int = 4) -> int:
    """Estimate what a model's layers save for backward: the input of each.

    Parameters
    ----------
    model : Layer
    shape : tuple of int
        Of its input.
    itemsize : int

    Notes
    -----
    Exact for dense layers. Work buffers that convolution and normalisation also save are left out; pooling,
    which saves a fraction of its input, counts in full.
    """
    inside = model.parts(shape)
    if not inside:
        return 0 if isinstance(model, KEEP_NOTHING) else itemsize * math.prod(shape)
    return sum(activation_bytes(layer, s, itemsize) for layer, s in inside)


def rank_memory(params, rule, activations: int) -> Memory:
    """Add up what a rank with these parameters holds at the peak of a step.

    Parameters
    ----------
    params : list of Param
    rule : Rule
        Of the optimizer.
    activations : int
        Bytes, of all micro-batches in flight.
    """
    own = list({id(p): p for p in params}.values())
    held = sum(array.nbytes for p in own if not p.frozen for array in state_arrays(rule.init(p.data)))
    learned = sum(p.nbytes for p in own if not p.frozen)
    return Memory(sum(p.nbytes for p in own), learned, held, activations)
