"""Ready-made networks, each by name: `build("lenet", seed=1)`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from . import init
from .activation import ACTIVATIONS, GELU, ReLU
from .attention import MultiHeadAttention
from .container import Parallel, Residual, Sequential, Siamese
from .conv import Conv2d
from .dropout import Dropout
from .embedding import Embedding
from .layer import Layer
from .linear import Linear
from .norm import LocalResponseNorm, RMSNorm
from .pool import GlobalAvgPool, MaxPool
from .recurrent import GRU
from .shape import Flatten, Reshape

# -- mlp ---------------------------------------------------------------------------------------------------------------
# Multi-layer perceptron: dense layers with activations.


def MLP(sizes, activation: str = "relu", *, seed: int = 0, dtype="float32") -> Sequential:
    """Build a multi-layer perceptron: dense layers with an activation between them.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to output, such as (784, 256, 128, 10).
    activation : {"relu", "sigmoid", "tanh"}
    seed : int
        Weights depend on (seed, number of the dense layer) alone: not on ranks, device or precision.

    Examples
    --------
    >>> MLP((784, 32, 10))
    Sequential(Linear(784, 32), ReLU(), Linear(32, 10))
    """
    sizes = tuple(sizes)
    if len(sizes) < 2:
        raise ValueError(f"MLP: sizes is {sizes}, expected at least an input and an output width")
    if activation not in ACTIVATIONS:
        raise ValueError(f"MLP: activation is {activation!r}, expected one of {', '.join(map(repr, ACTIVATIONS))}")
    gain, seeds = init.HE if activation == "relu" else 1.0, init.seeds(seed)
    layers = []
    for i, (d_in, d_out) in enumerate(pairwise(sizes)):
        if i:
            layers.append(ACTIVATIONS[activation]())
        layers.append(Linear(d_in, d_out, next(seeds), dtype=dtype, gain=gain, input_gradient=i > 0))
    return Sequential(*layers)


# -- cnn ---------------------------------------------------------------------------------------------------------------
# Small convolutional networks for images such as MNIST's: what a laptop trains in a minute.

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


# -- alexnet -----------------------------------------------------------------------------------------------------------
# AlexNet: the network that started deep learning on images, with most of its parameters in three dense layers.


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


# -- googlenet ---------------------------------------------------------------------------------------------------------
# GoogLeNet: more accurate than AlexNet with a ninth of its parameters, as it does without large dense layers.

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


# -- squeezenet --------------------------------------------------------------------------------------------------------
# SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters.


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


# -- siamese -----------------------------------------------------------------------------------------------------------
# A Siamese network: learns which images are alike, instead of what they show.


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


# -- language ----------------------------------------------------------------------------------------------------------
# A language model: predicts the next symbol from all before it.


def GRULanguageModel(n_symbols=128, d_hidden=128, n_layers=2, *, seed=0, dtype="float32") -> Sequential:
    """Build an embedding, a stack of GRU layers and a dense layer that scores the next symbol at every position.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    d_hidden : int
        Size of the embedding and of every hidden state.
    n_layers : int
        GRU layers, one on top of the other: different ranks can hold the upper and the lower ones.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    A. Karpathy (2015), The unreasonable effectiveness of recurrent neural networks.

    Examples
    --------
    >>> GRULanguageModel(50).output_shape((32, 64))
    (32, 64, 50)
    """
    seeds = init.seeds(seed)
    stack = [GRU(d_hidden, d_hidden, next(seeds), dtype=dtype) for _ in range(n_layers)]
    return Sequential(
        Embedding(n_symbols, d_hidden, next(seeds), dtype=dtype),
        *stack,
        Linear(d_hidden, n_symbols, next(seeds), dtype=dtype, gain=1.0),
    )


# -- gpt ---------------------------------------------------------------------------------------------------------------
# A transformer that predicts the next symbol.


def GPT(
    n_symbols=128, width=64, heads=4, n_blocks=4, *, kv_heads=None, online=False, seed=0, dtype="float32"
) -> Sequential:
    """Build an embedding, pre-norm blocks of causal attention and two dense layers, and a dense layer of scores.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    width : int
        Of the vector at each position; the dense layers of a block are four times as wide.
    kv_heads : int, optional
        As for `MultiHeadAttention`.
    online : bool
        Attention in memory linear in the length.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    Notes
    -----
    About 12 n_blocks width^2 + 2 n_symbols width parameters. Positions are rotations of queries and keys, so any length
    can be computed; it has learned those that it was trained on.

    References
    ----------
    A. Radford et al. (2019), Language models are unsupervised multitask learners, section 2.3: pre-norm blocks.
    J. Su et al. (2021), RoFormer, arXiv:2104.09864: positions.

    Examples
    --------
    >>> GPT(50).output_shape((32, 64))
    (32, 64, 50)
    """
    seeds = init.seeds(seed)
    options = {"dtype": dtype}

    def block():
        attention = MultiHeadAttention(
            width, heads, [next(seeds) for _ in range(4)], kv_heads=kv_heads, online=online, **options
        )
        dense = Sequential(
            RMSNorm(width, **options),
            Linear(width, 4 * width, next(seeds), gain=1.0, **options),
            GELU(),
            Linear(4 * width, width, next(seeds), gain=1.0, **options),
        )
        return Residual(Sequential(RMSNorm(width, **options), attention)), Residual(dense)

    embedding = Embedding(n_symbols, width, next(seeds), **options)
    blocks = [layer for _ in range(n_blocks) for layer in block()]
    return Sequential(
        embedding, *blocks, RMSNorm(width, **options), Linear(width, n_symbols, next(seeds), gain=1.0, **options)
    )


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
