"""Containers: layers made of layers, one after another or side by side."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..backend import Array, get_xp
from .layer import Layer, describe, walk

if TYPE_CHECKING:
    from ..trace import Clock


class Container(Layer):
    """Base of the layers that contain layers: collects their parameters and prefixes each name with its position."""

    def __init__(self, layers: list[Layer]):
        self.layers = list(layers)
        for i, layer in enumerate(self.layers):
            if isinstance(layer, type) or not hasattr(layer, "forward"):
                kind = type(self).__name__
                raise TypeError(f"{kind}: layer {i} is {layer!r}, expected a Layer; those of a list: {kind}(*layers)")
            layer.name = layer.name or f"{i}.{type(layer).__name__}"
        self.params = []
        for p, name in _named_params(self):
            p.name = name
            self.params.append(p)

    @property
    def children(self) -> list[Layer]:
        return self.layers

    def parts(self, shape: tuple[int, ...]) -> list[tuple[Layer, tuple[int, ...]]]:
        return [(layer, shape) for layer in self.layers]

    def eval(self) -> Layer:
        layers = [layer.eval() for layer in self.layers]
        if all(a is b for a, b in zip(layers, self.layers, strict=True)):
            return self
        view = copy.copy(self)
        view.layers = layers
        for new, old in zip(layers, self.layers, strict=True):
            new.name = old.name
        return view

    def flops(self, shape: tuple[int, ...]) -> int:
        return sum(layer.flops(s) for layer, s in self.parts(shape))

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        return sum(layer.backward_flops(s) for layer, s in self.parts(shape))

    def bytes_moved(self, shape: tuple[int, ...], itemsize: int = 4) -> int:
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
    if _repeated(names) is not None:  # it may hold a container, which has added numbers
        names = [p.name for p in layer.params]
    if (twice := _repeated(names)) is not None:
        raise ValueError(f"layer {i}, {layer!r}, has two parameters named {twice!r}; put its layers into a Sequential")
    return zip(layer.params, names, strict=True)


def _repeated(names):
    return next((name for name, n in Counter(names).items() if n > 1), None)


def check_unique_names(params) -> None:
    """Raise unless parameter names are unique, as arrays are gathered, saved and loaded by name."""
    names = [p.name for p in params]
    if (twice := _repeated(names)) is not None:
        raise ValueError(
            f"{names.count(twice)} parameters of the model are named {twice!r}, expected unique names. "
            "A container names the parameters of its layers by their places; layers that were put into another "
            "container since have the names of that one: give it copies (copy.deepcopy)"
        )


def backward_of(layer: Layer, dy, saved, shape):
    """Run a layer's `backward`; return the checked gradient of its input, which has `shape`."""
    return input_gradient(layer, layer.backward(dy, saved), shape)


def input_gradient(layer: Layer, dx, shape):
    """Return the gradient that a layer's `backward` gave of its input; raise if it gave none, or of another shape."""
    if dx is None and gives_gradient(layer):
        raise TypeError(
            f"{describe(layer)}: backward returned None, expected the gradient of its input, of shape {tuple(shape)}: "
            "without it the layers before it learn nothing. End it with `return dx`; a layer that has no such gradient "
            "says input_gradient = False"
        )
    if dx is not None and getattr(dx, "shape", None) != tuple(shape):
        got = f"an array of shape {dx.shape}" if hasattr(dx, "shape") else repr(dx)
        raise ValueError(f"{describe(layer)}: backward returned {got}, expected the input's shape {tuple(shape)}")
    return dx


def gives_gradient(layer: Layer) -> bool:
    """Say whether `backward` returns a gradient of the input: not if the layer, or one inside it, says it has none."""
    return all(part.input_gradient for part in walk(layer))


class Sequential(Container):
    """Layers one after another; the output of one is the input of the next.

    Parameters
    ----------
    *layers : Layer
        Their parameters get the layer's position as a prefix ("2.W").

    Notes
    -----
    `nn.fuse` makes a faster model of one, with the same layers, of which some consecutive ones run in one pass.

    Examples
    --------
    >>> from distlearn.nn import Linear, ReLU
    >>> model = Sequential(Linear(4, 8, 0), ReLU(), Linear(8, 3, 1))
    >>> [p.name for p in model.params]
    ['0.W', '0.b', '2.W', '2.b']
    """

    clock = None  # that of the rank, for a model whose layers communicate
    splits = True
    together = None  # a function that fuses consecutive layers (`nn.fuse`)
    _fused = None, None

    def __init__(self, *layers: Layer):
        super().__init__(layers)

    def fused_layers(self) -> list[Layer]:
        """Return the layers that run: the model's own, unless `nn.fuse` made it."""
        if self.together is None:
            return self.layers
        if self._fused[0] != self.layers:
            self._fused = list(self.layers), self.together(self.layers)
        return self._fused[1]

    def part(self, layers: list[Layer]) -> Sequential:
        """Return some layers as a model of their own; layers and parameters keep the names they have."""
        made = copy.copy(self)  # not a new Sequential, which would number the layers again
        made.layers = layers
        mine = {id(p) for layer in layers for p in layer.params}
        made.params = [p for p in self.params if id(p) in mine]
        return made

    def forward(self, x: Array, clock: Clock | None = None) -> tuple[Array, Any]:
        """Run all layers; with a `clock`, one span per layer. An empty batch skips them: its output shape is known."""
        clock = self.clock if clock is None else clock
        if not len(x):
            dtype = next((p.data.dtype for p in self.params), x.dtype)  # symbols are integers, outputs are not
            return get_xp(x).empty(self.output_shape(x.shape), dtype), x.shape
        saved = []
        for layer in self.layers if self.together is None else self.fused_layers():
            like = x.shape, x.dtype.itemsize
            with layer_span(None if layer.spans_itself else clock, layer, "forward", *like):
                x, s = layer.forward(x)
            saved.append((s, like))
        return x, saved

    def backward(
        self,
        dy: Array,
        saved: Any,
        later: list[Any] | None = None,
        *,
        on_grad: Callable[..., Any] | None = None,
        clock: Clock | None = None,
    ) -> Array | None:
        """Run all layers backward.

        Parameters
        ----------
        later : list, optional
            Gets ``(function, *arguments)`` that add the gradients of parameters that can wait (see `Layer.splits`).
        on_grad : callable, optional
            `on_grad(param)` is called as soon as a parameter's gradient is complete: when overlapped communication of
            it may start. Parameters come in reverse order; a tied one after its last use.
        clock : Clock, optional
            Gets one span per layer.
        """
        clock, name = self.clock if clock is None else clock, "backward" if later is None else "backward_input"
        uses, layers = Counter(), self.layers if self.together is None else self.fused_layers()
        for layer in layers if on_grad is not None else ():
            uses.update(map(id, layer.params))
        empty = dy is not None and not len(dy)
        for i in reversed(range(len(layers))):
            layer = layers[i]
            if not empty:
                s, like = saved.pop()  # freed when the layer is done
                mine, rest = None if layer.spans_itself else clock, []
                with layer_span(mine, layer, name, *like):
                    if dy is not None:  # else the next layer returned no gradient: there is nothing to propagate
                        dy = layer.backward(dy, s) if later is None or not layer.splits else layer.backward(dy, s, rest)
                        if layer.input_gradient if dy is None else getattr(dy, "shape", None) != like[0]:
                            dy = input_gradient(layer, dy, like[0])
                if rest:
                    later.append((_call_all, rest, mine, layer, like))
            for p in reversed(layer.params) if on_grad is not None else ():
                uses[id(p)] -= 1
                if uses[id(p)] == 0:
                    on_grad(p)
        return get_xp(dy).empty(saved, dy.dtype) if empty else dy

    def parts(self, shape: tuple[int, ...]) -> list[tuple[Layer, tuple[int, ...]]]:
        parts = []
        for layer in self.layers:
            parts.append((layer, shape))
            shape = layer.output_shape(shape)
        return parts

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for layer in self.layers:
            shape = layer.output_shape(shape)
        return shape


# Cache of `cost`, by layer: computing it for an Inception module takes longer than a small layer's pass.
_costs: WeakKeyDictionary = WeakKeyDictionary()


def cost(layer, direction, shape, itemsize) -> tuple[int, int]:
    """Return the operations and bytes of one pass of a layer, for its span.

    Passes are "forward", "backward", and its halves "backward_input" and "backward_weights". Backward moves twice what
    forward does, as `profile` counts it; each half as much as forward.
    """
    known = _costs.setdefault(layer, {})
    key = direction, shape, itemsize
    if key not in known:
        nbytes, later = layer.bytes_moved(shape, itemsize), _weight_flops(layer, shape)
        known[key] = {
            "forward": (layer.flops(shape), nbytes),
            "backward": (layer.backward_flops(shape), 2 * nbytes),
            "backward_input": (layer.backward_flops(shape) - later, nbytes),
            "backward_weights": (later, nbytes),
        }[direction]
    return known[key]


def _weight_flops(layer, shape) -> int:
    """Operations of a backward pass that can wait."""
    if isinstance(layer, Sequential) and layer.splits:
        return sum(_weight_flops(part, inner) for part, inner in layer.parts(shape))
    return layer.flops(shape) if layer.splits else 0


def _call_all(functions, clock, layer, like):
    with layer_span(clock, layer, "backward_weights", *like):
        for add, *about in functions:
            add(*about)


def layer_span(clock, layer, direction, shape, itemsize):
    """Open the span of one layer's pass ("forward" or "backward"), with its operations and bytes."""
    # Without a clock it is a null context.
    if clock is None:
        return nullcontext()
    flops, nbytes = cost(layer, direction, shape, itemsize)
    return clock.span(f"{direction}[{layer.name}]", flops=flops, nbytes=nbytes)


class Parallel(Container):
    """Branches side by side: each takes the same input, and their outputs are joined along the last axis.

    An Inception module is one; so are the two towers of the first AlexNet. Branches are independent, so they can run
    on different ranks.

    Notes
    -----
    Shapes: (batch, ..., c) to (batch, ..., c_1 + c_2 + ...); the branches' outputs agree in all axes but the last.
    Saves what the branches save.

    References
    ----------
    C. Szegedy et al. (2015), Going deeper with convolutions, CVPR, figure 2.

    Examples
    --------
    >>> from distlearn.nn import Linear
    >>> Parallel(Linear(4, 3), Linear(4, 2)).output_shape((8, 4))
    (8, 5)
    """

    def __init__(self, *branches: Layer):
        if not branches:
            raise ValueError("Parallel: no branches, expected at least one")
        super().__init__(branches)

    def forward(self, x: Array) -> tuple[Array, Any]:
        self.output_shape(x.shape)
        results = [branch.forward(x) for branch in self.layers]
        y = get_xp(x).concatenate([y for y, _ in results], axis=-1)
        return y, ([s for _, s in results], [y.shape[-1] for y, _ in results], x.shape)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        *saved, shape = saved
        xp, dx, start = get_xp(dy), None, 0
        for branch, s, width in zip(self.layers, *saved, strict=True):
            part = backward_of(branch, xp.ascontiguousarray(dy[..., start : start + width]), s, shape)
            if part is not None:
                dx = part if dx is None else dx + part  # a new array: branches may return one of another layer
            start += width
        return dx

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        shapes = [branch.output_shape(shape) for branch in self.layers]
        if len({s[:-1] for s in shapes}) > 1:
            raise ValueError(f"{describe(self)}: the branches' outputs differ in more than the last axis: {shapes}")
        return (*shapes[0][:-1], sum(s[-1] for s in shapes))


class Residual(Container):
    r"""A layer that learns the difference from its input.

    .. math:: y = x + f(x), \qquad dx = dy + f'(x)^\top dy

    Parameters
    ----------
    body : Layer
        f; its output has the shape of its input.

    Notes
    -----
    Shapes: any to the same. One addition an element besides the body's flops. Saves what the body saves.

    References
    ----------
    K. He, X. Zhang, S. Ren, J. Sun (2016), Deep residual learning for image recognition, CVPR, section 3.2.
    """

    def __init__(self, body: Layer):
        super().__init__([body])

    def forward(self, x: Array) -> tuple[Array, Any]:
        self.output_shape(x.shape)
        y, saved = self.layers[0].forward(x)
        return x + y, saved

    def backward(self, dy: Array, saved: Any) -> Array | None:
        dx = backward_of(self.layers[0], dy.copy(), saved, dy.shape)
        return dx if dx is None else dx + dy

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        found = self.layers[0].output_shape(shape)
        if found != shape:
            raise ValueError(f"{describe(self)}: cannot add shapes {found} (of the body) and {shape} (of its input)")
        return shape


class Siamese(Container):
    """One network for both images of a pair: the weights are tied because there is only one of them.

    Notes
    -----
    Shapes: (batch, 2, ...) to (batch, 2, ...): the two images of a pair are adjacent, so a batch of pairs can be
    cut into micro-batches and shards as any other. The body sees them as one batch of 2 n images. Saves what the body
    saves.

    References
    ----------
    J. Bromley, I. Guyon, Y. LeCun, E. Säckinger, R. Shah (1993), Signature verification using a "siamese" time delay
    neural network, NIPS.
    """

    def __init__(self, body: Layer):
        super().__init__([body])

    def forward(self, x: Array) -> tuple[Array, Any]:
        self._check(x.shape)
        pairs = x.reshape(-1, *x.shape[2:])
        y, saved = self.layers[0].forward(pairs)
        return y.reshape(len(x), 2, *y.shape[1:]), (saved, pairs.shape)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        saved, shape = saved
        dx = backward_of(self.layers[0], dy.reshape(-1, *dy.shape[2:]), saved, shape)
        return dx if dx is None else dx.reshape(len(dy), 2, *dx.shape[1:])

    def parts(self, shape: tuple[int, ...]) -> list[tuple[Layer, tuple[int, ...]]]:
        return [(self.layers[0], (2 * shape[0], *shape[2:]))]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        self._check(shape)
        return (shape[0], 2, *self.layers[0].output_shape((2 * shape[0], *shape[2:]))[1:])

    def _check(self, shape):
        if len(shape) < 3 or shape[1] != 2:
            raise ValueError(f"{describe(self)}: expected pairs, of shape (batch, 2, ...), got {tuple(shape)}")
