"""`fuse`: a model that computes the same numbers in fewer passes over memory.

    Conv2d, ReLU, MaxPool   ->   convolve, take the maxima, then add the bias to what is left and clip it at zero

Maximum pooling commutes with adding a constant and with ReLU, bit for bit: max(max(x_i, 0)) = max(max(x_i), 0), and
rounding keeps an order, so max(x_i) + b = max(x_i + b). Their gradients commute as well: a positive maximum is the same
pixel either way, and any other has no gradient either way. Behind a pooling of 2 x 2 a quarter of the values is left.
"""

from __future__ import annotations

import copy

from ..activation import ReLU
from ..container import Container, Sequential
from ..conv import Conv2d
from ..layer import Layer, walk
from ..linear import Linear
from ..pool import MaxPool
from .layers import Fused, FusedConv2d, FusedLinear, FusedPool

# Layers that become one; the longest pattern wins. Subclasses are not fused: they may do anything.
PATTERNS = {
    (Conv2d, ReLU, MaxPool): FusedConv2d,
    (Conv2d, MaxPool, ReLU): FusedConv2d,
    (Conv2d, MaxPool): FusedConv2d,
    (Conv2d, ReLU): FusedConv2d,
    (Conv2d,): FusedConv2d,
    (Linear, ReLU): FusedLinear,
    (ReLU, MaxPool): FusedPool,
}


def fuse(model: Layer) -> Layer:
    """Return a model that computes the same as `model`, faster: some of its layers run in one pass.

    Parameters
    ----------
    model : Layer
        It is unchanged. A convolution that was given another algorithm than im2col keeps it.

    Returns
    -------
    fused : Layer
        With the same layers and parameters (the same `Param`s, names and order), so that it may be trained, cut, saved
        and loaded in the model's place; `Sequential.passes` has what runs. A breakpoint in the `forward` of a layer
        that has become part of another does not fire. A NaN or infinity in an image may reach more of its outputs than
        in `model`, and never fewer.

    Examples
    --------
    >>> from distlearn.nn import build
    >>> [type(layer).__name__ for layer in fuse(build("lenet")).passes()]
    ['Reshape', 'FusedConv2d', 'FusedConv2d', 'Flatten', 'FusedLinear', 'FusedLinear', 'Linear']
    """
    if not isinstance(model, Layer):
        raise TypeError(f"fuse: expected a model, got {type(model).__name__}")
    if not isinstance(model, Container):
        return _fuse_row([model])[0]
    view = copy.copy(model)  # a copy: a new container would rename layers and parameters
    view.layers = [fuse(layer) if isinstance(layer, Container) else layer for layer in model.layers]
    if isinstance(model, Sequential):
        view.together = _fuse_row
    return view


def is_fused(model: Layer) -> bool:
    """Say whether some layers of a model run in one pass."""
    rows = [part.passes() for part in walk(model) if isinstance(part, Sequential)]
    return any(isinstance(layer, Fused) for row in rows for layer in row)


def _fuse_row(layers):
    fused, i = [], 0
    while i < len(layers):
        n = next((n for n in (3, 2, 1) if tuple(map(type, layers[i : i + n])) in PATTERNS), 0)
        row = layers[i : i + (n or 1)]
        fused.append(PATTERNS[tuple(map(type, row))](row) if n else row[0])
        i += len(row)
    return fused
