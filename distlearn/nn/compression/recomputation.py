"""Recomputation: memory for time."""

from __future__ import annotations

from ..container import Container
from ..layer import Layer, walk


class Recompute(Container):
    """A layer that discards what it saved and recomputes it when backward needs it: less memory, more time.

    Cut a deep network into about sqrt(depth) such blocks, and activation memory falls from the depth to its square
    root, for one more forward pass.

    Notes
    -----
    Shapes: those of the body. Backward costs the body's forward in addition. Saves the input, and the state of random
    generators, so that `Dropout` drops the same values again.

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
    found = {id(part.rng): part.rng for part in walk(layer) if part.rng is not None}
    return list(found.values())


def _set_states(generators, states):
    for rng, state in zip(generators, states, strict=True):
        rng.bit_generator.state = state
