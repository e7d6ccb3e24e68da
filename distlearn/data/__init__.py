"""Data: images and text for training, split into batches that are sharded over ranks.

>>> data = load("digits")
>>> batches = Batches(data.x_train, data.y_train, 128, rank=0, size=4)
>>> x, y, n = next(batches.epoch(0))
>>> x.shape, y.shape, n
((32, 64), (32,), 128)
"""

from .batches import Batch, Batches, shard
from .dataset import Dataset
from .loading import decode, encode, load, load_text, read_idx
from .sources import available

__all__ = ["Batch", "Batches", "Dataset", "available", "decode", "encode", "load", "load_text", "read_idx", "shard"]
