"""Tensor parallelism: the neurons, filters, paths, branches or layers of one model on several ranks.

- `layer`: what all layers here have in common, and which values of an axis each rank holds (`AxisSharding`)
- layers: `column_parallel` (neurons, filters, groups), `row_parallel` and what else works on sharded activations,
  `paths` (of a block such as Inception's), `experts` (of a mixture), `siamese`, `stack` (of GRUs)
- from a serial model to these: `rewrite` (`parallelize`)
- norms, sums and dropout between them on 1 / p of the positions: `positions`
- training: `strategy` (`TensorParallel`), `one_weird_trick`
"""

from .column_parallel import ColumnParallelLinear, FilterParallelConv2d, GroupParallelConv2d
from .experts import ExpertParallel
from .layer import AxisSharding, TensorLayer, TensorSequential, gather_params, shard_specs
from .paths import PathParallel
from .positions import CutPositions, GatherPositions, cut_positions, partial_params
from .rewrite import parallelize
from .row_parallel import Gather, RowParallelLinear, ShardDropout, ShardNorm
from .siamese import SiameseParallel
from .stack import StackParallel
from .strategy import TensorParallel, sub_optimizer

__all__ = sorted(name for name, value in globals().items() if callable(value))  # what is imported above
