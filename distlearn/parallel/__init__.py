"""Ways to train on many ranks: SPMD code on a communicator, equal to serial training where nothing else is said."""

from .asynchronous.param_server import ParameterServer, asp, backup, bsp, softsync, ssp
from .asynchronous.param_server.training import QuorumDiLoCo
from .checkpoint.state import named_arrays, part_of_rank
from .checkpoint.store import Checkpoint, CheckpointError, CheckpointStore, CheckpointWarning, young_interval
from .data.bucket import Bucket, group_params, make_buckets
from .data.compression import FP16, Codec, CompressedAllReduce, Int8, OneBit, TopK
from .data.data_parallel import DataParallel, NaiveDataParallel, micro_batches
from .data.local_sgd import LocalSGD
from .data.replicas import ReplicaError, check_replicas
from .hybrid import Hybrid
from .memory import MemoryRecord, record_memory
from .pipeline.pipedream import PipeDream
from .pipeline.schedule import (
    Action,
    Schedule,
    check_schedule,
    gpipe,
    interleaved,
    make_schedule,
    one_f_one_b,
    pipedream,
)
from .pipeline.stages import balance, layer_costs
from .pipeline.strategy import Pipeline
from .planning import Layout, Plan, account, plan, simulate_layout
from .sequence import SequenceParallel
from .strategy import Replicated, Serial, Strategy
from .tensor import OneWeirdTrick, TensorParallel, parallelize
from .zero import ZeRO

__all__ = sorted(name for name, value in globals().items() if callable(value))  # what is imported above
