"""Data: images and text for training, split into batches that are sharded over ranks.

>>> data = load("digits")
>>> batches = Batches(data.x_train, data.y_train, 128, rank=0, size=4)
>>> x, y, n = next(batches.epoch(0))
>>> x.shape, y.shape, n
((32, 64), (32,), 128)
"""

from .batches import Batch, Batches, shard
from .dataset import Dataset
from .loader import Loader
from .loading import decode, encode, load, load_text, read_idx
from .sources import Cache, SlowStorage, available, write_shards

__all__ = [
    *("Batch", "Batches", "Cache", "Dataset", "Loader", "SlowStorage", "available", "decode", "encode", "load"),
    *("load_text", "read_idx", "shard", "write_shards"),
]
