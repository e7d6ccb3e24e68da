"""Models and graphics cards by name."""

from __future__ import annotations

from ...nn.container import Sequential
from ...nn.fused import unfuse
from ...nn.layer import Layer
from ...nn.models import model_named
from ...sim import Roofline


def model_and_sample(model, sample=None):
    """Return a model, built without numbers if it is a name, and the shape of a sample of its input."""
    if isinstance(model, str):
        known = model_named(model)
        return known.build(seed=None), known.sample if sample is None else tuple(sample)
    if not isinstance(model, Layer):
        raise TypeError(f"the model is {model!r}, expected a model or the name of one")
    if not isinstance(model, Sequential) or not model.params:
        raise TypeError(f"the model is {model!r}, expected a Sequential of layers that learn")
    if sample is None:
        raise ValueError(f"the shape of a sample is None, expected that of the input of this {type(model).__name__}")
    return unfuse(model), tuple(sample)


def name_of(model) -> str:
    """Name of a model, for titles."""
    return model if isinstance(model, str) else type(model).__name__


def compute_of(compute):
    """Return a compute model: the roofline, if it is a card or the name of one."""
    return compute if hasattr(compute, "seconds") else Roofline.of(compute)
