"""Layers, losses and models; they are independent of ranks and communication.

A layer's `forward` returns its output and what `backward` will need; the layer itself keeps no state of a pass.
`model.forward` trains, `model.eval().forward` predicts. Images are (batch, height, width, channels), sequences
(batch, time, values).

- what a layer is: `layer` (Param, Layer), `ops` (array operations that several share), `init`
- layers: `linear`, `conv`, `pool`, `norm`, `activation`, `dropout`, `recurrent`, `attention`, `shape`
- containers of layers: `container` (Sequential, Parallel, Residual, Siamese), `recompute` (what runs again)
- whole networks: `models` (`build(name)`), `loss`, `metrics`
- several layers in one pass, opted into: `fused` (`fuse`)
- what they cost: `costs` (`count`, `profile`)
- fewer bytes: `formats` (4 and 8 bits in blocks)
"""

from .activation import ACTIVATIONS, GELU, ReLU, Sigmoid, Softmax, Tanh
from .attention import MultiHeadAttention
from .container import Parallel, Residual, Sequential, Siamese
from .conv import ALGORITHMS, Conv2d, Cost, conv_cost, printed_conv_cost
from .costs.count import MockDeviceArray, count_operations
from .costs.profile import Profile, profile_sweep, skinny_products
from .dropout import Dropout
from .formats import E2M1, E4M3, MXFP4, MXFP8, NVFP4, BlockFormat, Format, LowPrecisionLinear
from .fused import choose_algorithm, fuse
from .layer import Layer, Param, Statistic, move, nbytes, parameter_count, walk
from .linear import Embedding, Linear
from .loss import MeanSquaredError, SoftmaxCrossEntropy
from .metrics import METRICS, MeanOf, Metric, make_metric
from .models import (
    GPT,
    MLP,
    MODELS,
    AlexNet,
    Fire,
    GoogLeNet,
    GRULanguageModel,
    Inception,
    LeNet,
    SiameseNet,
    SmallCNN,
    SqueezeNet,
    build,
)
from .norm import BatchNorm, LayerNorm, LocalResponseNorm, RMSNorm
from .ops import keep_memory
from .pool import GlobalAvgPool, MaxPool
from .recompute import Planned, Recompute, best_plan, plan_cost
from .recurrent import GRU, RNN
from .shape import Flatten, Identity, Reshape
from .torch_state import load_torch_state, to_torch_state

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
