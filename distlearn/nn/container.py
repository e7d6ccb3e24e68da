"""Containers: layers made of layers."""

from __future__ import annotations

import copy
from contextlib import nullcontext

from ..backend import get_xp
from .base import Layer, describe


class Container(Layer):
    """Base of the layers that hold layers: collects their parameters and gives each one its place as a prefix.

    Parameters
    ----------
    layers : list of Layer
    """

    def __init__(self, layers: list[Layer]):
        self.layers = list(layers)
        self.params = []
        for i, layer in enumerate(self.layers):
            layer.name = layer.name or f"{i}.{type(layer).__name__}"
            for p in layer.params:
                if any(p is q for q in self.params):  # tied: the same Param in two layers is one parameter
                    continue
                p.name = f"{i}.{p.name}"
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


class Sequential(Container):
    """Layers one after another; what one gives, the next takes.

    Parameters
    ----------
    *layers : Layer
        Their parameters get the layer's position as a prefix ("2.W").

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
        """Run all layers; with a `clock`, one span per layer."""
        saved = []
        for layer in self.layers:
            shape = x.shape
            with _span(clock, layer, "forward", shape):
                x, s = layer.forward(x)
            saved.append((s, shape))
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
        for layer, (s, shape) in zip(reversed(self.layers), reversed(saved), strict=True):
            with _span(clock, layer, "backward", shape):
                if dy is not None:  # the layer behind wanted no gradient of its input: nothing further to learn from
                    dy = layer.backward(dy, s)
            if on_grad is None:
                continue
            for p in reversed(layer.params):
                uses[id(p)] -= 1
                if uses[id(p)] == 0:
                    on_grad(p)
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


class Parallel(Container):
    """Branches side by side: each takes the same input, and their outputs are joined along the last axis.

    An Inception module is one; so are the two towers of the first AlexNet. Branches are independent, so they can run
    on different ranks.

    Parameters
    ----------
    *branches : Layer

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

    def forward(self, x):
        self.output_shape(x.shape)
        results = [branch.forward(x) for branch in self.layers]
        y = get_xp(x).concatenate([y for y, _ in results], axis=-1)
        return y, ([s for _, s in results], [y.shape[-1] for y, _ in results])

    def backward(self, dy, saved):
        xp, dx, start = get_xp(dy), None, 0
        for branch, s, width in zip(self.layers, *saved, strict=True):
            part = branch.backward(xp.ascontiguousarray(dy[..., start : start + width]), s)
            dx = part if dx is None else dx + part  # a new array: a branch may have given back one that is not its own
            start += width
        return dx

    def output_shape(self, shape):
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
        f; its output has the shape of its input, or of the shortcut's output.
    shortcut : Layer, optional
        Takes x's place in the sum where shapes differ: a 1 x 1 convolution.

    Notes
    -----
    Shapes: any to that of the body's output. One addition an element besides the body's flops. Saves what the two save.

    References
    ----------
    K. He, X. Zhang, S. Ren, J. Sun (2016), Deep residual learning for image recognition, CVPR, section 3.2.
    """

    def __init__(self, body: Layer, shortcut: Layer | None = None):
        super().__init__([body] if shortcut is None else [body, shortcut])

    def forward(self, x):
        self.output_shape(x.shape)
        results = [layer.forward(x) for layer in self.layers]
        y = results[0][0] + (results[1][0] if len(results) == 2 else x)
        return y, [s for _, s in results]

    def backward(self, dy, saved):
        dx = self.layers[0].backward(dy.copy(), saved[0])
        return dx + (self.layers[1].backward(dy, saved[1]) if len(saved) == 2 else dy)

    def output_shape(self, shape):
        shapes = [layer.output_shape(shape) for layer in self.layers] + [shape]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{describe(self)}: cannot add shapes {shapes[0]} (body) and {shapes[1]} (shortcut)")
        return shapes[0]


class Siamese(Container):
    """One network for both images of a pair: the weights are tied because there is only one of them.

    Parameters
    ----------
    body : Layer

    Notes
    -----
    Shapes: (batch, 2, ...) to (batch, 2, ...): the two images of a pair lie side by side, so a batch of pairs can be
    cut into micro-batches and shards as any other. The body sees them as one batch of 2 n images. Saves what the body
    saves.

    References
    ----------
    J. Bromley, I. Guyon, Y. LeCun, E. Säckinger, R. Shah (1993), Signature verification using a "siamese" time delay
    neural network, NIPS.
    """

    def __init__(self, body: Layer):
        super().__init__([body])

    def forward(self, x):
        self._check(x.shape)
        y, saved = self.layers[0].forward(x.reshape(-1, *x.shape[2:]))
        return y.reshape(len(x), 2, *y.shape[1:]), saved

    def backward(self, dy, saved):
        dx = self.layers[0].backward(dy.reshape(-1, *dy.shape[2:]), saved)
        return dx if dx is None else dx.reshape(len(dy), 2, *dx.shape[1:])

    def parts(self, shape):
        return [(self.layers[0], (2 * shape[0], *shape[2:]))]

    def output_shape(self, shape):
        self._check(shape)
        return (shape[0], 2, *self.layers[0].output_shape((2 * shape[0], *shape[2:]))[1:])

    def _check(self, shape):
        if len(shape) < 3 or shape[1] != 2:
            raise ValueError(f"{describe(self)}: expected pairs, of shape (batch, 2, ...), got {tuple(shape)}")


class Recompute(Container):
    """A layer that forgets what it saved and computes it again when backward needs it: memory for time.

    Cut a deep network into about sqrt(depth) such blocks, and activation memory falls from the depth to its square
    root, for one more forward pass.

    Parameters
    ----------
    body : Layer

    Notes
    -----
    Shapes: those of the body. Backward costs the body's forward in addition. Saves the input alone, and where random
    generators stood, so that `Dropout` drops the same values again.

    References
    ----------
    T. Chen, B. Xu, C. Zhang, C. Guestrin (2016), Training deep nets with sublinear memory cost, arXiv:1604.06174.
    """

    def __init__(self, body: Layer):
        super().__init__([body])

    def forward(self, x):
        states = [rng.bit_generator.state for rng in _generators(self)]
        return self.layers[0].forward(x)[0], (x, states)

    def backward(self, dy, saved):
        x, states = saved
        generators = _generators(self)
        now = [rng.bit_generator.state for rng in generators]
        _set_states(generators, states)
        _, kept = self.layers[0].forward(x)
        _set_states(generators, now)
        return self.layers[0].backward(dy, kept)

    def backward_flops(self, shape):
        return self.layers[0].backward_flops(shape) + self.layers[0].flops(shape)

    def output_shape(self, shape):
        return self.layers[0].output_shape(shape)


def _generators(layer):
    """Random generators of a layer and of all layers inside it, each once."""
    found = [layer.rng] if hasattr(layer, "rng") else []
    for child in layer.children:
        found += [rng for rng in _generators(child) if not any(rng is f for f in found)]
    return found


def _set_states(generators, states):
    for rng, state in zip(generators, states, strict=True):
        rng.bit_generator.state = state


def _count_uses(layers):
    """How many layers use each parameter."""
    uses = {}
    for layer in layers:
        for p in layer.params:
            uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def _span(clock, layer, direction, shape):
    """A span for one layer's pass, or nothing without a clock."""
    if clock is None:
        return nullcontext()
    flops = layer.flops(shape) if direction == "forward" else layer.backward_flops(shape)
    return clock.span(f"{direction}[{layer.name}]", flops=flops)
