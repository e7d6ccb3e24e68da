"""Containers: layers made of layers."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import nullcontext
from weakref import WeakKeyDictionary

from ..backend import get_xp
from .layer import Layer


class Container(Layer):
    """Base of the layers that hold layers: collects their parameters and prefixes each one's name with its place.

    Parameters
    ----------
    layers : list of Layer
    """

    def __init__(self, layers: list[Layer]):
        self.layers = list(layers)
        for i, layer in enumerate(self.layers):
            if not hasattr(layer, "forward"):
                raise TypeError(
                    f"{type(self).__name__}: layer {i} is {layer!r}, expected a Layer; pass layers one by one, "
                    f"those of a list as {type(self).__name__}(*layers)"
                )
            layer.name = layer.name or f"{i}.{type(layer).__name__}"
        self.params = []
        for p, name in _named_params(self):
            p.name = name
            self.params.append(p)

    @property
    def children(self):
        return self.layers

    def parts(self, shape):
        return [(layer, shape) for layer in self.layers]

    def eval(self):
        layers = [layer.eval() for layer in self.layers]
        if all(a is b for a, b in zip(layers, self.layers, strict=True)):
            return self
        view = copy.copy(self)
        view.layers = layers
        for new, old in zip(layers, self.layers, strict=True):
            new.name = old.name
        return view

    def flops(self, shape):
        return sum(layer.flops(s) for layer, s in self.parts(shape))

    def backward_flops(self, shape):
        return sum(layer.backward_flops(s) for layer, s in self.parts(shape))

    def bytes_moved(self, shape, itemsize=4):
        return sum(layer.bytes_moved(s, itemsize) for layer, s in self.parts(shape))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(repr, self.layers))})"


def _named_params(container):
    """List every parameter once, with its path from the container: a tied one is named after its first position."""
    named = {}
    for i, layer in enumerate(container.layers):
        inside = _named_params(layer) if isinstance(layer, Container) else _own_names(layer, i)
        for p, name in inside:
            named.setdefault(id(p), (p, f"{i}.{name}"))
    return list(named.values())


def _own_names(layer, i):
    """Return the parameters of a layer that is not a container, by their local names."""
    names = [p.local_name for p in layer.params]
    if len(set(names)) < len(names):  # it may hold a container, which has added numbers
        names = [p.name for p in layer.params]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"layer {i}, {layer!r}, has several parameters named {twice!r}, expected unique names; "
            "put the layers inside it into a Sequential, which numbers them"
        )
    return zip(layer.params, names, strict=True)


def check_unique_names(model) -> None:
    """Raise unless parameter names are unique: arrays are gathered, saved and loaded by name."""
    names = [p.name for p in model.params]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{names.count(twice)} parameters of the model are named {twice!r}, expected unique names. "
            "A container names the parameters of its layers by their places; layers that were put into another "
            "container since have the names of that one: give it copies (copy.deepcopy)"
        )


class Sequential(Container):
    """Layers one after another; the output of one is the input of the next.

    Parameters
    ----------
    *layers : Layer
        Their parameters get the layer's position as a prefix ("2.W").

    Notes
    -----
    `nn.fuse` makes a faster model of one, which computes a convolution with what follows it in one pass.

    Examples
    --------
    >>> from distlearn.nn import Linear, ReLU
    >>> model = Sequential(Linear(4, 8, 0), ReLU(), Linear(8, 3, 1))
    >>> [p.name for p in model.params]
    ['0.W', '0.b', '2.W', '2.b']
    """

    clock = None  # that of the rank, for a model whose layers communicate

    def __init__(self, *layers: Layer):
        super().__init__(layers)

    def forward(self, x, clock=None):
        """Run all layers; with a `clock`, one span per layer. An empty batch skips them: its output shape is known."""
        clock = self.clock if clock is None else clock
        if not len(x):
            dtype = next((p.data.dtype for p in self.params), x.dtype)  # symbols are integers, outputs are not
            return get_xp(x).empty(self.output_shape(x.shape), dtype), x.shape
        saved = []
        for layer in self.layers:
            like = x.shape, x.dtype.itemsize
            with layer_span(None if layer.spans_itself else clock, layer, "forward", *like):
                x, s = layer.forward(x)
            saved.append((s, like))
        return x, saved

    def backward(self, dy, saved, on_grad=None, clock=None):
        """Run all layers backward.

        Parameters
        ----------
        dy : array
        saved : list
        on_grad : callable, optional
            `on_grad(param)` is called as soon as a parameter's gradient is complete: when overlapped communication of
            it may start. Parameters come in reverse order; a tied one after its last use.
        clock : Clock, optional
            Gets one span per layer.
        """
        clock = self.clock if clock is None else clock
        uses = Counter()
        for layer in self.layers if on_grad is not None else ():
            uses.update(map(id, layer.params))
        empty = dy is not None and not len(dy)
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            if not empty:
                s, like = saved[i]
                with layer_span(None if layer.spans_itself else clock, layer, "backward", *like):
                    if dy is not None:  # else the next layer returned no gradient: there is nothing to propagate
                        dy = layer.backward(dy, s)
            for p in reversed(layer.params) if on_grad is not None else ():
                uses[id(p)] -= 1
                if uses[id(p)] == 0:
                    on_grad(p)
        return get_xp(dy).empty(saved, dy.dtype) if empty else dy

    def parts(self, shape):
        parts = []
        for layer in self.layers:
            parts.append((layer, shape))
            shape = layer.output_shape(shape)
        return parts

    def output_shape(self, shape):
        for layer in self.layers:
            shape = layer.output_shape(shape)
        return shape


_costs: WeakKeyDictionary = WeakKeyDictionary()
"""Cache of `cost`, by layer: computing it for an Inception module takes longer than a small layer's pass."""


def cost(layer, direction, shape, itemsize) -> tuple[int, int]:
    """Return the operations and bytes of one pass ("forward" or "backward") of a layer, for its span.

    Backward moves twice what forward does, as `profile` counts it.
    """
    known = _costs.setdefault(layer, {})
    key = direction, shape, itemsize
    if key not in known:
        nbytes = layer.bytes_moved(shape, itemsize)
        known[key] = (
            (layer.flops(shape), nbytes) if direction == "forward" else (layer.backward_flops(shape), 2 * nbytes)
        )
    return known[key]


def layer_span(clock, layer, direction, shape, itemsize):
    """Open the span of one layer's pass ("forward" or "backward"), with what it computes and moves.

    Without a clock it is a null context.
    """
    if clock is None:
        return nullcontext()
    flops, nbytes = cost(layer, direction, shape, itemsize)
    return clock.span(f"{direction}[{layer.name}]", flops=flops, nbytes=nbytes)
