"""The layers of a network that have weights, as the numbers that their cost depends on."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...nn.conv import Conv2d
from ...nn.layer import Layer
from ...nn.linear import Linear
from ...nn.models import model_named


class LayerShape(NamedTuple):
    """A convolution; a dense layer is one of 1 x 1 on an image of one pixel."""

    kind: str
    """"convolution" or "dense"."""
    kernel: int
    c_in: int
    c_out: int
    pixels: int
    """Of an output image."""
    groups: int


def layer_shapes(name: str) -> list[LayerShape]:
    """Return the convolutions and dense layers of a model by name, such as "alexnet"."""
    known = model_named(name)
    return list(_shapes(known.build(seed=None), (1, *known.sample)))


def _shapes(layer: Layer, shape):
    if isinstance(layer, Conv2d):
        pixels = math.prod(layer.output_shape(shape)[1:3])
        yield LayerShape("convolution", layer.geometry.size[0], layer.c_in, layer.c_out, pixels, layer.groups)
    elif isinstance(layer, Linear):
        yield LayerShape("dense", 1, *layer.W.data.shape, 1, 1)
    elif hasattr(layer, "parts"):
        for part, part_shape in layer.parts(shape):
            yield from _shapes(part, part_shape)
