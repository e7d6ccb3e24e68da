"""Tensor parallelism: the neurons, filters, paths, branches or layers of one model on several ranks.

- how an axis is dealt: `cut`; what every layer here has in common: `layer`
- layers: `units` (neurons, filters), `groups`, `rows`, `local` (what works on a part), `paths`, `twins`, `stack`
- from a serial model to these: `rewrite` (`parallelize`), `chain`, `ties`, `sequence`; what it costs: `account`
- training: `strategy`
"""

from .account import Account, account
from .cut import Cut
from .groups import GroupConv2d
from .layer import TensorLayer, Traffic, gather_params, shard_specs
from .local import Gather, ShardDropout, ShardNorm
from .paths import PathParallel
from .rewrite import parallelize
from .rows import RowLinear
from .sequence import TensorSequential
from .stack import StackParallel
from .strategy import TensorParallel, check_whole, sub_optimizer
from .twins import SiameseParallel
from .units import ColumnLinear, FilterConv2d

__all__ = [
    "Account",
    "ColumnLinear",
    "Cut",
    "FilterConv2d",
    "Gather",
    "GroupConv2d",
    "PathParallel",
    "RowLinear",
    "ShardDropout",
    "ShardNorm",
    "SiameseParallel",
    "StackParallel",
    "TensorLayer",
    "TensorParallel",
    "TensorSequential",
    "Traffic",
    "account",
    "check_whole",
    "gather_params",
    "parallelize",
    "shard_specs",
    "sub_optimizer",
]
