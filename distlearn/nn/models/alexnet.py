"""AlexNet: the network that started deep learning on images, with most of its parameters in three dense layers."""

from __future__ import annotations

from .. import init
from ..activation import ReLU
from ..container import Sequential
from ..conv import Conv2d
from ..dropout import Dropout
from ..linear import Linear
from ..norm import LocalResponseNorm
from ..pool import MaxPool
from ..shape import Flatten, Reshape
from .cnn import MNIST


def AlexNet(n_classes=1000, *, seed=0, dtype="float32") -> Sequential:
    """Build AlexNet for images of 227 x 227 x 3: 60,965,224 parameters (244 MB), 58.6 million in three dense layers.

    The two towers of the paper, which ran on two GPUs, are the groups of convolutions 2, 4 and 5.

    Parameters
    ----------
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting: takes no time.

    References
    ----------
    A. Krizhevsky, I. Sutskever, G. E. Hinton (2012), ImageNet classification with deep convolutional neural networks,
    NIPS.
    """
    seeds = init.seeds(seed)
    features = _features(
        [
            (3, 96, 11, 4, 0, 1),
            (96, 256, 5, 1, 2, 2),
            (256, 384, 3, 1, 1, 1),
            (384, 384, 3, 1, 1, 2),
            (384, 256, 3, 1, 1, 2),
        ],
        seeds,
        dtype,
    )
    return Sequential(*features, *_classifier(256 * 6 * 6, (4096, 4096), n_classes, seeds, seed, dtype))


def NarrowAlexNet(n_classes=10, *, seed=0, dtype="float32") -> Sequential:
    """Build AlexNet's sequence of layers, narrow enough to train on 28 x 28 images on a laptop.

    Parameters are those of `AlexNet`.
    """
    seeds = init.seeds(seed)
    features = _features(
        [(1, 16, 5, 1, 2, 1), (16, 32, 5, 1, 2, 2), (32, 48, 3, 1, 1, 1), (48, 48, 3, 1, 1, 2), (48, 32, 3, 1, 1, 2)],
        seeds,
        dtype,
    )
    return Sequential(Reshape(*MNIST), *features, *_classifier(32 * 2 * 2, (128, 64), n_classes, seeds, seed, dtype))


def _features(table, seeds, dtype):
    """Five convolutions (c_in, c_out, size, stride, padding, groups); 1 and 2 are normalised, 1, 2 and 5 pooled."""
    layers = []
    for i, (c_in, c_out, size, stride, padding, groups) in enumerate(table, start=1):
        options = {"stride": stride, "padding": padding, "groups": groups, "dtype": dtype, "input_gradient": i > 1}
        layers += [Conv2d(c_in, c_out, size, next(seeds), **options), ReLU()]
        if i <= 2:
            layers.append(LocalResponseNorm(5))
        if i in (1, 2, 5):
            layers.append(MaxPool(3, 2))
    return layers


def _classifier(d_in, hidden, n_classes, seeds, seed, dtype):
    """Dense layers, each but the last with dropout before and ReLU behind."""
    layers = [Flatten()]
    for i, width in enumerate(hidden):
        layers += [Dropout(0.5, [seed or 0, 1000 + i]), Linear(d_in, width, next(seeds), dtype=dtype), ReLU()]
        d_in = width
    return [*layers, Linear(d_in, n_classes, next(seeds), dtype=dtype, gain=1.0)]
