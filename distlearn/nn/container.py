"""Containers: layers made of layers."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from weakref import WeakKeyDictionary

from ..backend import can_launch, get_xp
from .activation import ReLU
from .conv import Conv2d
from .layer import Layer
from .linear import Linear
from .pool import MaxPool


class Container(Layer):
    """Base of the layers that hold layers: collects their parameters and gives each one its place as a prefix.

    Parameters
    ----------
    layers : list of Layer
    """

    def __init__(self, layers: list[Layer]):
        self.layers = list(layers)
        for i, layer in enumerate(self.layers):
            if not hasattr(layer, "forward"):
                raise TypeError(
                    f"{type(self).__name__}: layer {i} is {layer!r}, expected a Layer; layers are given one by one, "
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
    """Every parameter once, with its path from the container: a tied one is named after its first place."""
    named = {}
    for i, layer in enumerate(container.layers):
        inside = _named_params(layer) if isinstance(layer, Container) else _own_names(layer, i)
        for p, name in inside:
            named.setdefault(id(p), (p, f"{i}.{name}"))
    return list(named.values())


def _own_names(layer, i):
    """Parameters of a layer that is no container, by the names that it gave them."""
    names = [p.local_name for p in layer.params]
    if len(set(names)) < len(names):  # it may hold a container, which has numbered them
        names = [p.name for p in layer.params]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"layer {i}, {layer!r}, has several parameters named {twice!r}, expected a name of its own for each; "
            "layers inside a layer get one if they are put into a Sequential"
        )
    return zip(layer.params, names, strict=True)


def check_unique_names(model) -> None:
    """Raise unless every parameter has a name of its own: arrays are gathered, saved and loaded by name."""
    names = [p.name for p in model.params]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{names.count(twice)} parameters of the model are named {twice!r}, expected a name of its own for each. "
            "A container names the parameters of its layers after their places; layers that were put into another "
            "container since have the names of that one: give it copies (copy.deepcopy)"
        )


class Sequential(Container):
    """Layers one after another; what one gives, the next takes.

    Parameters
    ----------
    *layers : Layer
        Their parameters get the layer's position as a prefix ("2.W").

    Notes
    -----
    Layers run in the order given, except that a ReLU in front of a `MaxPool` runs behind it (see `in_running_order`).
    A convolution computes the `MaxPool` that follows it, too, and the ReLU behind that: its bias is added to, and its
    gradient summed over, the few values that are left. On a GPU a dense layer or convolution computes the ReLU that
    follows it in the pass over memory that adds its bias. Results and gradients are those of the layers one by one; a
    span of a layer that another has computed is empty.

    Examples
    --------
    >>> from distlearn.nn import Linear, ReLU
    >>> model = Sequential(Linear(4, 8, 0), ReLU(), Linear(8, 3, 1))
    >>> [p.name for p in model.params]
    ['0.W', '0.b', '2.W', '2.b']
    """

    def __init__(self, *layers: Layer):
        super().__init__(layers)

    def forward(self, x, clock=None):
        """Run all layers; with a `clock`, one span per layer. An empty batch passes by them, as its shape tells all."""
        if not len(x):
            dtype = next((p.data.dtype for p in self.params), x.dtype)  # of symbols come numbers
            return get_xp(x).empty(self.output_shape(x.shape), dtype), x.shape
        saved, taken, order = [], [], in_running_order(self.layers)
        for i, layer in enumerate(order):
            if taken:  # the layer before has computed this one as well
                s, like = taken.pop(0)
                with _span(clock, layer, "forward", *like):
                    pass
            else:
                like, options = (x.shape, x.dtype.itemsize), _takes(layer, order[i + 1 : i + 3])
                with _span(clock, layer, "forward", *like):
                    x, s = layer.forward(x, **options)
                if "pool" in options:
                    taken.append((_TAKEN, (layer.output_shape(like[0]), like[1])))
                if "relu" in options:
                    taken.append((x, (x.shape, like[1])))
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
        uses = _count_uses(self.layers) if on_grad is not None else {}
        if dy is not None and not len(dy):
            for layer in reversed(self.layers) if on_grad is not None else ():
                _report(layer, uses, on_grad)
            return get_xp(dy).empty(saved, dy.dtype)
        for layer, (s, like) in zip(reversed(in_running_order(self.layers)), reversed(saved), strict=True):
            with _span(clock, layer, "backward", *like):
                if s is _TAKEN:  # the convolution in front of it does both
                    continue
                if dy is not None:  # the layer behind wanted no gradient of its input: nothing further to learn from
                    dy = layer.backward(dy, s)
            if on_grad is not None:
                _report(layer, uses, on_grad)
        return dy

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


_TAKEN = "the convolution before has pooled"
"""What is saved for such a pooling."""


def _takes(layer, behind) -> dict:
    """Options of `layer.forward` with which it computes some of the (one or two) layers behind it as well.

    A convolution takes the maximum pooling behind it, and the ReLU behind that; on a GPU, dense layers and convolutions
    take a ReLU. So it is for exactly these classes, with the passes that they came with.
    """
    if "forward" in vars(layer):  # somebody's own, as `hollow` gives: of this layer alone
        return {}
    options = {}
    if type(layer) is Conv2d and behind and type(behind[0]) is MaxPool:
        options["pool"] = behind.pop(0)
    if not behind or type(behind[0]) is not ReLU or type(layer) not in (Linear, Conv2d) or layer.b is None:
        return options
    return options | {"relu": True} if options or can_launch(layer.b.data) else {}


def in_running_order(layers: list[Layer]) -> list[Layer]:
    r"""Return layers in the order in which they run: maximum pooling before a ReLU that stands in front of it.

    .. math:: \max_i \max(x_i, 0) = \max(\max_i x_i, 0)

    The two commute, bit for bit, and so do their gradients: a positive maximum is the same pixel either way, and any
    other has no gradient either way. Behind a pooling of 2 x 2, ReLU has a quarter of the values to work on.

    Parameters
    ----------
    layers : list of Layer
    """
    order = list(layers)
    for i in range(len(order) - 1):
        if type(order[i]) is ReLU and type(order[i + 1]) is MaxPool:
            order[i : i + 2] = order[i + 1], order[i]
    return order


def _count_uses(layers):
    """How many layers use each parameter."""
    uses = {}
    for layer in layers:
        for p in layer.params:
            uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def _report(layer, uses, on_grad):
    """Call `on_grad` for the parameters whose last use this layer was; `uses` counts those that are left."""
    for p in reversed(layer.params):
        uses[id(p)] -= 1
        if uses[id(p)] == 0:
            on_grad(p)


_costs: WeakKeyDictionary = WeakKeyDictionary()
"""What `cost` found, by layer: working it out for an Inception module takes longer than a small layer's pass."""


def cost(layer, direction, shape, itemsize) -> tuple[int, int]:
    """Return the operations and bytes of one pass ("forward" or "backward") of a layer, as its span tells them.

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
    """Open the span of one layer's pass ("forward" or "backward"), with what it computes and moves."""
    flops, nbytes = cost(layer, direction, shape, itemsize)
    return clock.span(f"{direction}[{layer.name}]", flops=flops, nbytes=nbytes)


def _span(clock, layer, direction, shape, itemsize):
    """A span for one layer's pass, or nothing without a clock or for a layer that writes its own."""
    if clock is None or layer.spans_itself:
        return nullcontext()
    return layer_span(clock, layer, direction, shape, itemsize)
