"""Containers: layers made of layers."""

from __future__ import annotations

from contextlib import nullcontext

from .base import Layer


class Sequential(Layer):
    """Layers one after another; what one gives, the next takes.

    Parameters
    ----------
    *layers : Layer
        Their parameters get the layer's position as a prefix ("2.W").

    Examples
    --------
    >>> model = Sequential(Linear(4, 8, 0), ReLU(), Linear(8, 3, 1))
    >>> [p.name for p in model.params]
    ['0.W', '0.b', '2.W', '2.b']
    """

    def __init__(self, *layers: Layer):
        self.layers = list(layers)
        self.params = []
        for i, layer in enumerate(self.layers):
            layer.name = layer.name or f"{i}.{type(layer).__name__}"
            for p in layer.params:
                if any(p is q for q in self.params):  # tied: the same Param in two layers is one parameter
                    continue
                p.name = f"{i}.{p.name}"
                self.params.append(p)

    def forward(self, x, clock=None):
        """Run all layers; with a `clock`, one span per layer."""
        saved = []
        for layer in self.layers:
            shape = x.shape
            with _span(clock, layer, "forward", layer.flops(shape)):
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
            `on_grad(param)` is called as soon as a parameter's gradient is complete, when its communication may start.
            Parameters come in reverse order; a tied one after its last use.
        clock : Clock, optional
            Gets one span per layer.
        """
        uses = _count_uses(self.layers)
        for layer, (s, shape) in zip(reversed(self.layers), reversed(saved), strict=True):
            with _span(clock, layer, "backward", layer.backward_flops(shape)):
                dy = layer.backward(dy, s)
            for p in reversed(layer.params):
                uses[id(p)] -= 1
                if on_grad is not None and uses[id(p)] == 0:
                    on_grad(p)
        return dy

    def output_shape(self, shape):
        for layer in self.layers:
            shape = layer.output_shape(shape)
        return shape

    def flops(self, shape):
        return self._sum_flops(shape, "flops")

    def backward_flops(self, shape):
        return self._sum_flops(shape, "backward_flops")

    def _sum_flops(self, shape, kind):
        total = 0
        for layer in self.layers:
            total += getattr(layer, kind)(shape)
            shape = layer.output_shape(shape)
        return total

    def __repr__(self):
        return f"Sequential({', '.join(map(repr, self.layers))})"


def _count_uses(layers):
    """How many layers use each parameter."""
    uses = {}
    for layer in layers:
        for p in layer.params:
            uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def _span(clock, layer, direction, flops):
    """A span for one layer's pass, or nothing without a clock."""
    if clock is None:
        return nullcontext()
    return clock.span(f"{direction}[{layer.name}]", flops=flops)
