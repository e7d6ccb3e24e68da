"""Layers with branches: parallel branches, shortcuts, Siamese networks."""

from __future__ import annotations

from ..backend import get_xp
from .container import Container
from .layer import Layer, describe


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
            dx = part if dx is None else dx + part  # a new array: branches may return one of another layer
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
        Applied to x where shapes differ: a 1 x 1 convolution.

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
