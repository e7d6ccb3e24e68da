"""Convolution: the layer, and four ways to compute it."""

from .cost import Cost, conv_cost, printed_conv_cost
from .layer import ALGORITHMS, Conv2d

__all__ = ["ALGORITHMS", "Conv2d", "Cost", "conv_cost", "printed_conv_cost"]
