"""Multi-layer perceptron: dense layers with activations."""

from __future__ import annotations

from itertools import pairwise

from .. import init
from ..activation import ACTIVATIONS
from ..container import Sequential
from ..linear import Linear


def MLP(sizes, activation: str = "relu", *, seed: int = 0, dtype="float32") -> Sequential:
    """Build a multi-layer perceptron: dense layers with an activation between them.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to output, such as (784, 256, 128, 10).
    activation : {"relu", "sigmoid", "tanh"}
    seed : int
        Weights depend on (seed, number of the dense layer) alone: not on ranks, device or precision.

    Examples
    --------
    >>> MLP((784, 32, 10))
    Sequential(Linear(784, 32), ReLU(), Linear(32, 10))
    """
    sizes = tuple(sizes)
    if len(sizes) < 2:
        raise ValueError(f"MLP: sizes is {sizes}, expected at least an input and an output width")
    if activation not in ACTIVATIONS:
        raise ValueError(f"MLP: activation is {activation!r}, expected one of {', '.join(map(repr, ACTIVATIONS))}")
    gain, seeds = init.HE if activation == "relu" else 1.0, init.seeds(seed)
    layers = []
    for i, (d_in, d_out) in enumerate(pairwise(sizes)):
        if i:
            layers.append(ACTIVATIONS[activation]())
        layers.append(Linear(d_in, d_out, next(seeds), dtype=dtype, gain=gain, input_gradient=i > 0))
    return Sequential(*layers)
