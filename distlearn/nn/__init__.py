"""Layers, losses and models; they know nothing of ranks and communication."""

from .activation import ACTIVATIONS, ReLU, Sigmoid, Softmax, Tanh
from .base import Layer, Param, move, nbytes, parameter_count, walk
from .container import Parallel, Recompute, Residual, Sequential, Siamese
from .conv import ALGORITHMS, Conv2d, Cost, choose_algorithm, conv_cost, printed_conv_cost
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .loss import LOSSES, ContrastiveLoss, MeanSquaredError, SoftmaxCrossEntropy
from .models import MLP
from .norm import BatchNorm, LayerNorm, LocalResponseNorm
from .pool import AvgPool, GlobalAvgPool, MaxPool
from .recurrent import GRU, RNN
from .shape import Flatten, Identity, Reshape
from .strict import StrictArray, count_operations

__all__ = [
    "ACTIVATIONS",
    "ALGORITHMS",
    "GRU",
    "LOSSES",
    "MLP",
    "RNN",
    "AvgPool",
    "BatchNorm",
    "ContrastiveLoss",
    "Conv2d",
    "Cost",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "Layer",
    "LayerNorm",
    "Linear",
    "LocalResponseNorm",
    "MaxPool",
    "MeanSquaredError",
    "Parallel",
    "Param",
    "ReLU",
    "Recompute",
    "Reshape",
    "Residual",
    "Sequential",
    "Siamese",
    "Sigmoid",
    "Softmax",
    "SoftmaxCrossEntropy",
    "StrictArray",
    "Tanh",
    "choose_algorithm",
    "conv_cost",
    "count_operations",
    "move",
    "nbytes",
    "parameter_count",
    "printed_conv_cost",
    "walk",
]
