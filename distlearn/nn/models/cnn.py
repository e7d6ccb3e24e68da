"""Small convolutional networks for images such as MNIST's: what a laptop trains in a minute."""

from __future__ import annotations

from .. import init
from ..activation import ReLU
from ..container import Sequential
from ..conv import Conv2d
from ..linear import Linear
from ..pool import MaxPool
from ..shape import Flatten, Reshape

MNIST = (28, 28, 1)
"""Rows, columns and channels of MNIST's and Fashion-MNIST's images."""


def SmallCNN(image=MNIST, n_classes=10, channels=(16, 32), *, seed=0, dtype="float32") -> Sequential:
    """Build a small convolutional network: blocks of a 3 x 3 convolution, ReLU and 2 x 2 pooling, then one dense layer.

    Parameters
    ----------
    image : (int, int, int)
        Rows, columns and channels; samples may also come flat.
    channels : sequence of int
        One block for each.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.
    """
    seeds, layers, (h, w, c_in) = init.seeds(seed), [Reshape(*image)], image
    for c in channels:
        first = len(layers) == 1
        layers += [
            Conv2d(c_in, c, 3, next(seeds), padding="same", dtype=dtype, input_gradient=not first),
            ReLU(),
            MaxPool(2),
        ]
        h, w, c_in = h // 2, w // 2, c
    return Sequential(*layers, Flatten(), Linear(h * w * c_in, n_classes, next(seeds), dtype=dtype, gain=1.0))


def LeNet(n_classes=10, *, seed=0, dtype="float32") -> Sequential:
    """Build LeNet-5 for 28 x 28 images in its modern form, with ReLU and maximum pooling: 61,706 parameters.

    Parameters
    ----------
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Gradient-based learning applied to document recognition,
    section II.B.
    """
    seeds = init.seeds(seed)
    return Sequential(
        Reshape(*MNIST),
        Conv2d(1, 6, 5, next(seeds), padding=2, dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(2),
        Conv2d(6, 16, 5, next(seeds), dtype=dtype),
        ReLU(),
        MaxPool(2),
        Flatten(),
        Linear(400, 120, next(seeds), dtype=dtype),
        ReLU(),
        Linear(120, 84, next(seeds), dtype=dtype),
        ReLU(),
        Linear(84, n_classes, next(seeds), dtype=dtype, gain=1.0),
    )
