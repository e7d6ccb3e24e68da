from typing import Any
from distlearn.nn.models import AlexNet as AlexNet
from distlearn.nn.norm import BatchNorm as BatchNorm
from distlearn.nn.formats import BlockFormat as BlockFormat
from distlearn.nn.conv.layer import Conv2d as Conv2d
from distlearn.nn.conv.cost import Cost as Cost
from distlearn.nn.dropout import Dropout as Dropout
from distlearn.nn.linear import Embedding as Embedding
from distlearn.nn.models import Fire as Fire
from distlearn.nn.shape import Flatten as Flatten
from distlearn.nn.formats import Format as Format
from distlearn.nn.activation import GELU as GELU
from distlearn.nn.models import GPT as GPT
from distlearn.nn.recurrent import GRU as GRU
from distlearn.nn.models import GRULanguageModel as GRULanguageModel
from distlearn.nn.pool import GlobalAvgPool as GlobalAvgPool
from distlearn.nn.models import GoogLeNet as GoogLeNet
from distlearn.nn.shape import Identity as Identity
from distlearn.nn.models import Inception as Inception
from distlearn.nn.layer import Layer as Layer
from distlearn.nn.norm import LayerNorm as LayerNorm
from distlearn.nn.models import LeNet as LeNet
from distlearn.nn.linear import Linear as Linear
from distlearn.nn.norm import LocalResponseNorm as LocalResponseNorm
from distlearn.nn.formats import LowPrecisionLinear as LowPrecisionLinear
from distlearn.nn.models import MLP as MLP
from distlearn.nn.models import Model as Model
from distlearn.nn.pool import MaxPool as MaxPool
from distlearn.nn.metrics import MeanOf as MeanOf
from distlearn.nn.loss import MeanSquaredError as MeanSquaredError
from distlearn.nn.metrics import Metric as Metric
from distlearn.nn.costs.count import MockDeviceArray as MockDeviceArray
from distlearn.nn.attention.multi_head import MultiHeadAttention as MultiHeadAttention
from distlearn.nn.container import Parallel as Parallel
from distlearn.nn.layer import Param as Param
from distlearn.nn.recompute import Planned as Planned
from distlearn.nn.costs.profile import Profile as Profile
from distlearn.nn.norm import RMSNorm as RMSNorm
from distlearn.nn.recurrent import RNN as RNN
from distlearn.nn.activation import ReLU as ReLU
from distlearn.nn.recompute import Recompute as Recompute
from distlearn.nn.shape import Reshape as Reshape
from distlearn.nn.container import Residual as Residual
from distlearn.nn.container import Sequential as Sequential
from distlearn.nn.container import Siamese as Siamese
from distlearn.nn.models import SiameseNet as SiameseNet
from distlearn.nn.activation import Sigmoid as Sigmoid
from distlearn.nn.models import SmallCNN as SmallCNN
from distlearn.nn.activation import Softmax as Softmax
from distlearn.nn.loss import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from distlearn.nn.models import SqueezeNet as SqueezeNet
from distlearn.nn.layer import Statistic as Statistic
from distlearn.nn.activation import Tanh as Tanh
from distlearn.nn.recompute import best_plan as best_plan
from distlearn.nn.models import build as build
from distlearn.nn.fused.layers import choose_algorithm as choose_algorithm
from distlearn.nn.conv.cost import conv_cost as conv_cost
from distlearn.nn.costs.count import count_operations as count_operations
from distlearn.nn.fused.layers import fuse as fuse
from distlearn.nn.ops import keep_memory as keep_memory
from distlearn.nn.torch_state import load_torch_state as load_torch_state
from distlearn.nn.metrics import make_metric as make_metric
from distlearn.nn.layer import move as move
from distlearn.nn.layer import nbytes as nbytes
from distlearn.nn.layer import parameter_count as parameter_count
from distlearn.nn.recompute import plan_cost as plan_cost
from distlearn.nn.conv.cost import printed_conv_cost as printed_conv_cost
from distlearn.nn.costs.profile import profile_sweep as profile_sweep
from distlearn.nn.costs.profile import skinny_products as skinny_products
from distlearn.nn.torch_state import to_torch_state as to_torch_state
from distlearn.nn.layer import walk as walk
ACTIVATIONS: dict[str, Any]
ALGORITHMS: dict[str, Any]
E2M1: Format
E4M3: Format
METRICS: dict[str, Any]
MODELS: dict[str, Model]
MXFP4: BlockFormat
MXFP8: BlockFormat
NVFP4: BlockFormat
