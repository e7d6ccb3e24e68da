"""Models that have shapes and costs but no numbers, to simulate a thousand nodes on a laptop.

    model --meta_model--> the same layers by name, shape, parameters and cost, on `MetaArray`s

A strategy cannot tell the difference: it runs its own code, forward and backward pass by layer with their spans,
buckets, collectives, update. What a simulated network and card make of that is the time line of the real model.

There are two ways. `meta_copy` keeps the layers, so that strategies can shard their insides and what they save is
counted; `meta_model` makes closed boxes, which answer for thousands of ranks at once: for strategies that leave layers
alone.
"""

from __future__ import annotations

import copy
import functools

import numpy as np

from ..data import Batch
from ..nn.container import Sequential
from ..nn.layer import Layer, Param, move, walk
from ..nn.linear import Embedding
from ..shares import share
from ..sim import MetaArray


class MetaLayer(Layer):
    """Has the costs and output shapes of another layer, and computes nothing."""

    shared_by_ranks = True  # it has no data, and answers each question once for all ranks

    def __init__(self, layer: Layer, made: dict[int, Param]):
        self.layer = layer.layer if isinstance(layer, MetaLayer) else layer
        self.name, self.input_gradient = layer.name, layer.input_gradient
        self.params = [made.setdefault(id(p), _meta_param(p)) for p in layer.params]
        self.output_shape = functools.cache(layer.output_shape)  # an Inception module takes its time to answer
        self.flops, self.backward_flops, self.bytes_moved = layer.flops, layer.backward_flops, layer.bytes_moved

    def forward(self, x):
        return MetaArray(self.output_shape(x.shape), x.dtype), x.shape

    def backward(self, dy, saved):
        return MetaArray(saved, dy.dtype) if self.input_gradient else None

    def __repr__(self):
        return f"MetaLayer({self.layer!r})"


def _meta_param(p: Param) -> Param:
    """A parameter without data; its container will put the place in front of its name again."""
    name = p.name.partition(".")[2] or p.name
    return type(p)(MetaArray(p.data.shape, p.data.dtype), name, p.frozen, MetaArray(p.data.shape, p.data.dtype))


def meta_model(model: Sequential) -> Sequential:
    """Make a model of the same layers, parameters and costs that takes no memory and computes nothing."""
    made: dict[int, Param] = {}
    return Sequential(*(MetaLayer(layer, made) for layer in model.layers))


def meta_copy(model: Layer) -> Layer:
    """Copy a model without its numbers: layers of the same kinds, whose parameters are meta arrays."""
    without = {id(array): MetaArray(p.data.shape, p.data.dtype) for p in model.params for array in (p.data, p.grad)}
    return move(copy.deepcopy(model, without), lambda array: MetaArray(array.shape, array.dtype))


def input_dtype(model: Layer):
    """Return the dtype of a model's input: symbols are integers, all else has the precision of the parameters."""
    first = next(layer for layer in walk(model) if not layer.children)
    return np.dtype(np.int64) if isinstance(first, Embedding) else model.params[0].data.dtype


def meta_loss(output, labels, n):
    """Return 0 and a meta of the gradient: takes the place of a loss that reads numbers."""
    return 0.0, MetaArray(output.shape, output.dtype)


def meta_batch(n: int, sample: tuple[int, ...], rank: int, size: int, dtype="float32") -> Batch:
    """Shard a global batch of n samples over `size` ranks as evenly as possible, and return the part of one."""
    part = share(n, rank, size)
    mine = part.stop - part.start
    return Batch(MetaArray((mine, *sample), dtype), MetaArray(mine, np.int64), n)
