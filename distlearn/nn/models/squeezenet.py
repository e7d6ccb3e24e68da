"""SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters."""

from __future__ import annotations

from .. import init
from ..activation import ReLU
from ..container import Parallel, Sequential
from ..conv import Conv2d
from ..dropout import Dropout
from ..pool import GlobalAvgPool, MaxPool
from ..shape import Reshape
from .cnn import MNIST


def Fire(c_in, squeeze, expand, seeds, *, dtype="float32") -> Sequential:
    """Build a fire module: squeeze to few channels by 1 x 1, expand by 1 x 1 and 3 x 3 side by side.

    Parameters
    ----------
    c_in : int
        Channels of the input.
    squeeze : int
        Channels between.
    expand : int
        Channels of either branch: the output has twice as many.
    seeds : iterator
        Seeds of the three convolutions, `init.seeds(seed)`.

    Examples
    --------
    >>> Fire(96, 16, 64, init.seeds(0)).output_shape((1, 54, 54, 96))
    (1, 54, 54, 128)
    """
    return Sequential(
        Conv2d(c_in, squeeze, 1, next(seeds), dtype=dtype),
        ReLU(),
        Parallel(
            Conv2d(squeeze, expand, 1, next(seeds), dtype=dtype),
            Conv2d(squeeze, expand, 3, next(seeds), padding=1, dtype=dtype),
        ),
        ReLU(),
    )


def SqueezeNet(n_classes=1000, *, seed=0, dtype="float32") -> Sequential:
    """Build SqueezeNet 1.0 for images of 224 x 224 x 3: 1,248,424 parameters (5 MB).

    Parameters
    ----------
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    F. N. Iandola et al. (2016), SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, arXiv:1602.07360, table
    1.
    """
    seeds = init.seeds(seed)
    fires = [(96, 16, 64), (128, 16, 64), (128, 32, 128), "pool"]
    fires += [(256, 32, 128), (256, 48, 192), (384, 48, 192), (384, 64, 256), "pool", (512, 64, 256)]
    stem = [
        Conv2d(3, 96, 7, next(seeds), stride=2, dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(3, 2, ceil=True),
    ]
    return _network(stem, fires, 512, n_classes, seeds, seed, dtype)


def NarrowSqueezeNet(n_classes=10, *, seed=0, dtype="float32") -> Sequential:
    """Build a stem and four fire modules, narrow enough to train on 28 x 28 images on a laptop.

    Parameters are those of `SqueezeNet`.
    """
    seeds = init.seeds(seed)
    stem = [
        Reshape(*MNIST),
        Conv2d(1, 16, 3, next(seeds), padding=1, dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(2),
    ]
    fires = [(16, 4, 16), (32, 8, 16), "pool", (32, 8, 32), (64, 8, 32)]
    return _network(stem, fires, 64, n_classes, seeds, seed, dtype)


def _network(stem, fires, c, n_classes, seeds, seed, dtype):
    """Join stem, fire modules with poolings between, and a classifier that is a 1 x 1 convolution and a mean."""
    modules = [MaxPool(3, 2, ceil=True) if f == "pool" else Fire(*f, seeds, dtype=dtype) for f in fires]
    classifier = Conv2d(c, n_classes, 1, next(seeds), dtype=dtype)
    return Sequential(*stem, *modules, Dropout(0.5, [seed or 0, 1000]), classifier, GlobalAvgPool())
