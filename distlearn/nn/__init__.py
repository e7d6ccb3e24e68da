"""Layers, losses and models; they know nothing of ranks and communication."""

from .activation import ACTIVATIONS, ReLU, Sigmoid, Tanh
from .base import Layer, Param, nbytes, parameter_count
from .container import Sequential
from .linear import Linear
from .loss import SoftmaxCrossEntropy
from .models import MLP

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Layer",
    "Linear",
    "Param",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "SoftmaxCrossEntropy",
    "Tanh",
    "nbytes",
    "parameter_count",
]
