"""A Siamese network: learns which images are alike, instead of what they show."""

from __future__ import annotations

from .. import init
from ..activation import ReLU
from ..container import Sequential, Siamese
from ..conv import Conv2d
from ..linear import Linear
from ..pool import MaxPool
from ..shape import Flatten, Reshape
from .cnn import MNIST


def SiameseNet(d_out=8, *, seed=0, dtype="float32") -> Sequential:
    """Build a network that maps each image of a pair of 28 x 28 images to a point; train it with `ContrastiveLoss`.

    Parameters
    ----------
    d_out : int
        Dimensions of the point.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    R. Hadsell, S. Chopra, Y. LeCun (2006), Dimensionality reduction by learning an invariant mapping, CVPR.

    Examples
    --------
    >>> SiameseNet().output_shape((32, 2, 784))
    (32, 2, 8)
    """
    seeds = init.seeds(seed)
    tower = Sequential(
        Reshape(*MNIST),
        Conv2d(1, 8, 5, next(seeds), dtype=dtype, input_gradient=False),
        ReLU(),
        MaxPool(2),
        Conv2d(8, 16, 3, next(seeds), dtype=dtype),
        ReLU(),
        MaxPool(2),
        Flatten(),
        Linear(400, 64, next(seeds), dtype=dtype),
        ReLU(),
        Linear(64, d_out, next(seeds), dtype=dtype, gain=1.0),
    )
    return Sequential(Siamese(tower))
