"""Tensor parallelism: the neurons, filters, paths, branches or layers of one model on several ranks.

- `layers`: layers of which every rank holds a part; `blocks`: blocks of which every rank has whole layers
- `rewrite`: from a serial model to these (`parallelize`)
- `strategy`: training, of the whole model (`TensorParallel`) or of its dense layers (`OneWeirdTrick`)
"""

from .blocks import PathParallel, SiameseParallel, StackParallel
from .layers import (
    AxisSharding,
    ColumnParallelLinear,
    FilterParallelConv2d,
    Gather,
    GroupParallelConv2d,
    HeadParallelAttention,
    RowParallelLinear,
    ShardDropout,
    TensorLayer,
    TensorSequential,
    shard_specs,
)
from .rewrite import parallelize
from .strategy import OneWeirdTrick, TensorParallel, boundary, shard_optimizer

__all__ = sorted(name for name, value in globals().items() if callable(value))  # what is imported above
