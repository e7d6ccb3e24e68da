"""Models that have shapes and costs but no numbers: for simulating on a laptop what trains on a thousand nodes.

    model --phantom_model--> the same layers by name, shape, parameters and cost, on `Phantom` arrays

A strategy cannot tell the difference: it runs its own code, forward and backward pass by layer with their spans,
buckets, collectives, update. What a simulated network and card make of that is the time line of the real model.

There are two ways. `phantom_model` makes closed boxes, which answer for thousands of ranks at once: for strategies that
leave layers alone. `phantom_copy` keeps the kinds of layers, so that strategies can deal out their insides; `hollow`
then takes the arithmetic out of what they have made of them.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from ..nn.container import Sequential
from ..nn.layer import Layer, Param, move, walk
from ..shares import share
from ..sim import Phantom
from .data.codecs import Codec
from .tensor import TensorLayer


class PhantomLayer(Layer):
    """A layer that says what another one would cost and give, and computes nothing.

    Parameters
    ----------
    layer : Layer
        Any layer or container, or a `PhantomLayer`: the two then share what they have found out about shapes.
    made : dict
        Phantoms of parameters made so far, by the id of the real one, so that tied ones stay tied.
    """

    def __init__(self, layer: Layer, made: dict[int, Param]):
        self.layer, self._known = (layer.layer, layer._known) if isinstance(layer, PhantomLayer) else (layer, {})
        self.name = layer.name
        self.params = [made.setdefault(id(p), _phantom_param(p)) for p in layer.params]

    def forward(self, x):
        """Return a phantom of the output."""
        return Phantom(self.output_shape(x.shape), x.dtype), x.shape

    def backward(self, dy, saved):
        """Return a phantom of the input's gradient, None where the layer gives none."""
        return Phantom(saved, dy.dtype) if self.layer.input_gradient else None

    def _ask(self, question, *about):
        """Ask the layer, once for all ranks: an Inception module takes its time to answer."""
        key = question, *about
        if key not in self._known:
            self._known[key] = getattr(self.layer, question)(*about)
        return self._known[key]

    def output_shape(self, shape):
        return self._ask("output_shape", shape)

    def flops(self, shape):
        return self._ask("flops", shape)

    def backward_flops(self, shape):
        return self._ask("backward_flops", shape)

    def bytes_moved(self, shape, itemsize=4):
        return self._ask("bytes_moved", shape, itemsize)

    def __repr__(self):
        return f"PhantomLayer({self.layer!r})"


def _phantom_param(p: Param) -> Param:
    """A parameter without data; its container will put the place in front of its name again."""
    name = p.name.partition(".")[2] or p.name
    return Param(Phantom(p.data.shape, p.data.dtype), name, p.frozen, Phantom(p.data.shape, p.data.dtype))


def phantom_model(model: Sequential) -> Sequential:
    """Make a model of the same layers, parameters and costs that takes no memory and computes nothing.

    Parameters
    ----------
    model : Sequential
        Real or phantom: every rank makes its own of one that they share, as strategies lay gradients out anew.

    Returns
    -------
    phantom : Sequential
        Of `PhantomLayer`s; runs on `Phantom` inputs.

    Examples
    --------
    >>> from distlearn.nn import build
    >>> model = phantom_model(build("alexnet", seed=None))
    >>> y, saved = model.forward(Phantom((256, 227, 227, 3)))
    >>> y, sum(p.nbytes for p in model.params)
    (Phantom((256, 1000), float32), 243860896)
    """
    made: dict[int, Param] = {}
    return Sequential(*(PhantomLayer(layer, made) for layer in model.layers))


def phantom_copy(model: Sequential) -> Sequential:
    """Copy a model without its numbers: layers of the same kinds, whose parameters are phantoms.

    Parameters
    ----------
    model : Sequential

    Returns
    -------
    copy : Sequential
        Its layers compute as before, if they can do so without numbers: dense ones can. `hollow` helps the others.
    """
    without = {id(array): Phantom(p.data.shape, p.data.dtype) for p in model.params for array in (p.data, p.grad)}
    return move(copy.deepcopy(model, without), lambda array: Phantom(array.shape, array.dtype))


def hollow(model: Layer) -> None:
    """Let the layers of a model compute nothing, in place: their outputs are phantoms of the right shapes.

    Layers that communicate go on doing so; only what they compute in between is left out.

    Parameters
    ----------
    model : Layer
        Such as the `model` of a strategy, of which every rank has one of its own.
    """
    for layer in walk(model):
        for leaf in (layer, layer.local if isinstance(layer, TensorLayer) else None):
            if leaf is not None and not leaf.children and not isinstance(leaf, TensorLayer):
                leaf.forward, leaf.backward = forward, backward = _hollow_passes(leaf)
                leaf.forward_from = lambda x, state, forward=forward: forward(x)  # recurrent layers, block by block
                leaf.backward_from = lambda dy, saved, last, backward=backward: (backward(dy, saved), None)


def _hollow_passes(layer):
    """Make the two passes of a layer that computes nothing."""

    def forward(x):
        return Phantom(layer.output_shape(x.shape), x.dtype), x

    def backward(dy, saved):
        return Phantom(saved.shape, dy.dtype) if layer.input_gradient else None

    return forward, backward


def phantom_loss(output, labels, n):
    """Return 0 and a phantom of the gradient: takes the place of a loss that reads numbers."""
    return 0.0, Phantom(output.shape, output.dtype)


class PhantomCodec:
    """A codec for phantoms: what it sends has the size of what the real one sends.

    Parameters
    ----------
    codec : Codec
    """

    def __init__(self, codec: Codec):
        self.codec, self.sparse, self.error_feedback = codec, codec.sparse, False

    def __repr__(self) -> str:
        return f"PhantomCodec({self.codec!r})"

    def nbytes(self, n, dtype):
        """That of the real one."""
        return self.codec.nbytes(n, dtype)

    def encode(self, x, rng):
        """Return a phantom of the code."""
        return Phantom(self.nbytes(x.size, x.dtype), np.uint8)

    def decode(self, code, out):
        """Do nothing."""


class PhantomBatch(NamedTuple):
    """A rank's part of a global batch of n samples."""

    x: Phantom
    y: Phantom
    n: int


def phantom_batch(n: int, sample: tuple[int, ...], rank: int, size: int, dtype="float32") -> PhantomBatch:
    """Deal a global batch of n samples to `size` ranks as evenly as it goes, and return the part of one.

    Parameters
    ----------
    n : int
    sample : tuple of int
        Shape of a sample.
    rank, size : int
    dtype : dtype

    Examples
    --------
    >>> [len(phantom_batch(10, (784,), rank, 3).x) for rank in range(3)]
    [4, 3, 3]
    """
    part = share(n, rank, size)
    mine = part.stop - part.start
    return PhantomBatch(Phantom((mine, *sample), dtype), Phantom(mine, np.int64), n)
