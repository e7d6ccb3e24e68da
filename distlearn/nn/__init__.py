"""Layers, losses and models; they know nothing of ranks and communication.

A layer's `forward` returns its output and what `backward` will need; nothing of a pass stays on the layer.
`model.forward` trains, `model.eval().forward` predicts. Images are (batch, height, width, channels), sequences
(batch, time, values).

- what a layer is: `base` (Param, Layer), `ops` (array operations that several share), `init`, `allocator`
- layers: `linear`, `conv`, `pool`, `norm`, `response`, `activation`, `dropout`, `embedding`, `recurrent`,
  `gru`, `shape`
- layers of layers: `container` (Sequential), `branch` (Parallel, Residual, Siamese), `recompute`
- whole networks: `models` (`build(name)`), `loss`, `metrics`
- what they cost: `summary` and `memory_report` count, `profile`, `sweep` and `skinny` measure,
  `conv_cost` and `count_operations` are exact
- smaller networks: `compress` (weight sharing), `quantize` (8-bit integers)
- arrays that behave like a GPU's without one: `strict`
"""

from .activation import ACTIVATIONS, ReLU, Sigmoid, Softmax, Tanh
from .allocator import keep_memory
from .base import Layer, Param, move, nbytes, parameter_count, walk
from .branch import Parallel, Residual, Siamese
from .compress import Clustered, Compressed, cluster, share_weights
from .container import Sequential
from .conv import ALGORITHMS, Conv2d, Cost, choose_algorithm, conv_cost, printed_conv_cost
from .count import count_operations
from .dropout import Dropout
from .embedding import Embedding
from .gru import GRU
from .linear import Linear
from .loss import LOSSES, ContrastiveLoss, MeanSquaredError, SoftmaxCrossEntropy
from .memory import Memory, memory_report
from .metrics import METRICS, MeanLoss, Metric, make_metric
from .models import (
    MLP,
    MODELS,
    AlexNet,
    Fire,
    GoogLeNet,
    GRULanguageModel,
    Inception,
    LeNet,
    NarrowAlexNet,
    NarrowGoogLeNet,
    NarrowSqueezeNet,
    SiameseNet,
    SmallCNN,
    SqueezeNet,
    build,
)
from .norm import BatchNorm, LayerNorm
from .pool import AvgPool, GlobalAvgPool, MaxPool
from .profile import Profile, profile
from .quantize import quantize
from .recompute import Recompute
from .recurrent import RNN
from .response import LocalResponseNorm
from .shape import Flatten, Identity, Reshape
from .skinny import skinny_products
from .strict import StrictArray
from .summary import Summary, summary
from .sweep import profile_sweep

keep_memory()

__all__ = [
    "ACTIVATIONS",
    "ALGORITHMS",
    "GRU",
    "LOSSES",
    "METRICS",
    "MLP",
    "MODELS",
    "RNN",
    "AlexNet",
    "AvgPool",
    "BatchNorm",
    "Clustered",
    "Compressed",
    "ContrastiveLoss",
    "Conv2d",
    "Cost",
    "Dropout",
    "Embedding",
    "Fire",
    "Flatten",
    "GRULanguageModel",
    "GlobalAvgPool",
    "GoogLeNet",
    "Identity",
    "Inception",
    "Layer",
    "LayerNorm",
    "LeNet",
    "Linear",
    "LocalResponseNorm",
    "MaxPool",
    "MeanLoss",
    "MeanSquaredError",
    "Memory",
    "Metric",
    "NarrowAlexNet",
    "NarrowGoogLeNet",
    "NarrowSqueezeNet",
    "Parallel",
    "Param",
    "Profile",
    "ReLU",
    "Recompute",
    "Reshape",
    "Residual",
    "Sequential",
    "Siamese",
    "SiameseNet",
    "Sigmoid",
    "SmallCNN",
    "Softmax",
    "SoftmaxCrossEntropy",
    "SqueezeNet",
    "StrictArray",
    "Summary",
    "Tanh",
    "build",
    "choose_algorithm",
    "cluster",
    "conv_cost",
    "count_operations",
    "keep_memory",
    "make_metric",
    "memory_report",
    "move",
    "nbytes",
    "parameter_count",
    "printed_conv_cost",
    "profile",
    "profile_sweep",
    "quantize",
    "share_weights",
    "skinny_products",
    "summary",
    "walk",
]
