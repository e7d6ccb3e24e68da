"""Ways to train on many ranks: plain SPMD code on a communicator, each equal to serial training."""

from .base import Serial, Strategy, params_on_root
from .bucket import Bucket, make_buckets
from .checkpoint import CheckpointStore, CheckpointWarning
from .checkpoint_file import Checkpoint, CheckpointError
from .codecs import FP16, Codec, Int8, OneBit, TopK
from .compress import CompressedAllReduce
from .data import DataParallel
from .elastic import ElasticDataParallel, Recovery
from .interval import (
    IntervalStudy,
    daly_interval,
    expected_time,
    simulate_run,
    study_intervals,
    system_mtbf,
    young_interval,
)
from .naive import NaiveDataParallel

__all__ = [
    "FP16",
    "Bucket",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "CheckpointWarning",
    "Codec",
    "CompressedAllReduce",
    "DataParallel",
    "ElasticDataParallel",
    "Int8",
    "IntervalStudy",
    "NaiveDataParallel",
    "OneBit",
    "Recovery",
    "Serial",
    "Strategy",
    "TopK",
    "daly_interval",
    "expected_time",
    "make_buckets",
    "params_on_root",
    "simulate_run",
    "study_intervals",
    "system_mtbf",
    "young_interval",
]
