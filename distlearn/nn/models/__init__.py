"""Ready-made networks, each by name: `build("lenet", seed=1)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..layer import Layer
from .alexnet import AlexNet, NarrowAlexNet
from .cnn import LeNet, SmallCNN
from .googlenet import GoogLeNet, Inception, NarrowGoogLeNet
from .gpt import GPT
from .language import GRULanguageModel
from .mlp import MLP
from .siamese import SiameseNet
from .squeezenet import Fire, NarrowSqueezeNet, SqueezeNet


class Model(NamedTuple):
    """How to build a network, and what one sample of its input looks like."""

    build: Callable[..., Layer]
    sample: tuple[int, ...]
    """Shape of a sample, without the batch."""


def _mlp(sizes=(784, 256, 128, 10), **options):
    return MLP(sizes, **options)


MODELS = {
    "mlp": Model(_mlp, (784,)),
    "lenet": Model(LeNet, (28, 28, 1)),
    "cnn": Model(SmallCNN, (28, 28, 1)),
    "alexnet": Model(AlexNet, (227, 227, 3)),
    "googlenet": Model(GoogLeNet, (224, 224, 3)),
    "squeezenet": Model(SqueezeNet, (224, 224, 3)),
    "alexnet28": Model(NarrowAlexNet, (28, 28, 1)),
    "googlenet28": Model(NarrowGoogLeNet, (28, 28, 1)),
    "squeezenet28": Model(NarrowSqueezeNet, (28, 28, 1)),
    "siamese": Model(SiameseNet, (2, 28, 28, 1)),
    "gru": Model(GRULanguageModel, (64,)),
    "gpt": Model(GPT, (64,)),
}
"""Networks by name. Those with 28 in their name are narrow variants for 28 x 28 images, which a laptop can train."""


def build(name: str, **options) -> Layer:
    """Build a network by name.

    Parameters
    ----------
    name : str
        A key of `MODELS`.
    **options
        For the builder; all take `seed` and `dtype`, and `seed=None` leaves the weights zero, for counting.

    Examples
    --------
    >>> from distlearn.nn import parameter_count
    >>> parameter_count(build("alexnet", seed=None))
    60965224
    """
    return model_named(name).build(**options)


def model_named(name: str) -> Model:
    """Look up a network; raise with the known names if there is none."""
    if name not in MODELS:
        raise ValueError(f"model is {name!r}, expected one of {', '.join(map(repr, MODELS))}")
    return MODELS[name]


__all__ = [
    "GPT",
    "MLP",
    "MODELS",
    "AlexNet",
    "Fire",
    "GRULanguageModel",
    "GoogLeNet",
    "Inception",
    "LeNet",
    "Model",
    "NarrowAlexNet",
    "NarrowGoogLeNet",
    "NarrowSqueezeNet",
    "SiameseNet",
    "SmallCNN",
    "SqueezeNet",
    "build",
    "model_named",
]
