"""Ways to train on many ranks: plain SPMD code on a communicator, each equal to serial training."""

from .base import Replicated, Serial, Strategy, params_on_root
from .bucket import Bucket, group_params, make_buckets
from .checkpoint import CheckpointStore, CheckpointWarning
from .checkpoint_file import Checkpoint, CheckpointError
from .codecs import FP16, Codec, Int8, OneBit, TopK
from .compress import CompressedAllReduce
from .data import DataParallel, micro_batches
from .easgd import EASGD
from .elastic import ElasticDataParallel, Recovery
from .hogwild import Hogwild
from .hybrid import Hybrid
from .interval import daly_interval, expected_time, system_mtbf, young_interval
from .interval_study import IntervalStudy, simulate_run, study_intervals
from .local_sgd import LocalSGD
from .naive import NaiveDataParallel
from .param_server import ParameterServer, asp, backup, bsp, softsync, ssp
from .pipeline import Pipeline
from .pipeline_async import PipeDream
from .planning import Layout, Plan, plan
from .replicas import Drift, ReplicaError, check_replicas
from .schedule import Action, Schedule, check_schedule, gpipe, interleaved, make_schedule, one_f_one_b, pipedream
from .stages import balance, layer_costs
from .tensor import TensorParallel, account, parallelize
from .weird_trick import OneWeirdTrick
from .zero import ZeRO
from .zero_memory import Memory, model_state_bytes

__all__ = [
    "EASGD",
    "FP16",
    "Action",
    "Bucket",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWarning",
    "Codec",
    "CompressedAllReduce",
    "DataParallel",
    "Drift",
    "ElasticDataParallel",
    "Hogwild",
    "Hybrid",
    "Int8",
    "IntervalStudy",
    "Layout",
    "LocalSGD",
    "Memory",
    "NaiveDataParallel",
    "OneBit",
    "OneWeirdTrick",
    "ParameterServer",
    "PipeDream",
    "Pipeline",
    "Plan",
    "Recovery",
    "ReplicaError",
    "Replicated",
    "Schedule",
    "Serial",
    "Strategy",
    "TensorParallel",
    "TopK",
    "ZeRO",
    "account",
    "asp",
    "backup",
    "balance",
    "bsp",
    "check_replicas",
    "check_schedule",
    "daly_interval",
    "expected_time",
    "gpipe",
    "group_params",
    "interleaved",
    "layer_costs",
    "make_buckets",
    "make_schedule",
    "micro_batches",
    "model_state_bytes",
    "one_f_one_b",
    "parallelize",
    "params_on_root",
    "pipedream",
    "plan",
    "simulate_run",
    "softsync",
    "ssp",
    "study_intervals",
    "system_mtbf",
    "young_interval",
]
