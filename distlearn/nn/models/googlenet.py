"""GoogLeNet: more accurate than AlexNet with a ninth of its parameters, as it does without large dense layers."""

from __future__ import annotations

from .. import init
from ..activation import ReLU
from ..container import Parallel, Sequential
from ..conv import Conv2d
from ..dropout import Dropout
from ..linear import Linear
from ..norm import LocalResponseNorm
from ..pool import GlobalAvgPool, MaxPool
from ..shape import Reshape
from .cnn import MNIST

TABLE = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Table 1 of the paper: channels of 1 x 1, 3 x 3 reduce, 3 x 3, 5 x 5 reduce, 5 x 5, pool projection."""


def Inception(c_in, c1, r3, c3, r5, c5, cp, seeds, *, dtype="float32") -> Parallel:
    """Build an Inception module: 1 x 1, 3 x 3 and 5 x 5 convolutions and a pooling, side by side.

    Parameters
    ----------
    c_in : int
        Channels of the input.
    c1, r3, c3, r5, c5, cp : int
        Channels of the 1 x 1 branch; of the bottleneck and the output of the 3 x 3 and the 5 x 5 branch; of the pooling
        branch's projection.
    seeds : iterator
        Seeds of the six convolutions, `init.seeds(seed)`.

    Examples
    --------
    >>> Inception(192, 64, 96, 128, 16, 32, 32, init.seeds(0)).output_shape((1, 28, 28, 192))
    (1, 28, 28, 256)
    """

    def conv(*args):
        return [Conv2d(*args, next(seeds), padding="same", dtype=dtype), ReLU()]

    return Parallel(
        Sequential(*conv(c_in, c1, 1)),
        Sequential(*conv(c_in, r3, 1), *conv(r3, c3, 3)),
        Sequential(*conv(c_in, r5, 1), *conv(r5, c5, 5)),
        Sequential(MaxPool(3, 1, padding=1), *conv(c_in, cp, 1)),
    )


def GoogLeNet(n_classes=1000, *, seed=0, dtype="float32") -> Sequential:
    """Build GoogLeNet for images of 224 x 224 x 3: 6,998,552 parameters (28 MB), 1.6 billion multiply-adds an image.

    Without the two auxiliary classifiers, which only help early training.

    Parameters
    ----------
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    C. Szegedy et al. (2015), Going deeper with convolutions, CVPR, table 1.
    """
    seeds = init.seeds(seed)
    layers = [
        Conv2d(3, 64, 7, next(seeds), stride=2, padding=3, dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(3, 2, ceil=True),
        LocalResponseNorm(5),
        Conv2d(64, 64, 1, next(seeds), dtype=dtype),
        ReLU(),
        Conv2d(64, 192, 3, next(seeds), padding=1, dtype=dtype),
        ReLU(),
        LocalResponseNorm(5),
        MaxPool(3, 2, ceil=True),
    ]
    c = 192
    for name, widths in TABLE.items():
        if name in ("4a", "5a"):
            layers.append(MaxPool(3, 2, ceil=True))
        module = Inception(c, *widths, seeds, dtype=dtype)
        module.name = f"inception {name}"
        layers.append(module)
        c = widths[0] + widths[2] + widths[4] + widths[5]
    head = Linear(c, n_classes, next(seeds), dtype=dtype, gain=1.0)
    return Sequential(*layers, GlobalAvgPool(), Dropout(0.4, [seed or 0, 1000]), head)


def NarrowGoogLeNet(n_classes=10, *, seed=0, dtype="float32") -> Sequential:
    """Build a stem and three Inception modules, narrow enough to train on 28 x 28 images on a laptop.

    Parameters are those of `GoogLeNet`.
    """
    seeds = init.seeds(seed)
    return Sequential(
        Reshape(*MNIST),
        Conv2d(1, 16, 3, next(seeds), padding=1, dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(3, 2, ceil=True),
        Inception(16, 8, 8, 16, 4, 8, 8, seeds, dtype=dtype),
        Inception(40, 16, 12, 24, 4, 8, 8, seeds, dtype=dtype),
        MaxPool(3, 2, ceil=True),
        Inception(56, 24, 16, 32, 8, 16, 16, seeds, dtype=dtype),
        GlobalAvgPool(),
        Dropout(0.2, [seed or 0, 1000]),
        Linear(88, n_classes, next(seeds), dtype=dtype, gain=1.0),
    )
