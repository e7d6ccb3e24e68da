"""Ways to train on many ranks: plain SPMD code on a communicator, each equal to serial training."""

from .base import Serial, Strategy
from .bucket import Bucket, make_buckets
from .data import DataParallel

__all__ = ["Bucket", "DataParallel", "Serial", "Strategy", "make_buckets"]
