"""Ready-made networks, each by name: `build("lenet", seed=1)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from . import init
from .activation import ACTIVATIONS, GELU, ReLU
from .attention import MultiHeadAttention
from .container import Parallel, Residual, Sequential, Siamese
from .conv import Conv2d
from .dropout import Dropout
from .layer import Layer
from .linear import Embedding, Linear
from .norm import LocalResponseNorm, RMSNorm
from .pool import GlobalAvgPool, MaxPool
from .recurrent import GRU
from .shape import Flatten, Reshape

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# -- mlp ---------------------------------------------------------------------------------------------------------------
# Multi-layer perceptron: dense layers with activations.


def MLP(sizes: Sequence[int], activation: str = "relu", *, seed: int = 0, dtype: DTypeLike = "float32") -> Sequential:
    """Build a multi-layer perceptron: dense layers with an activation between them.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to output, such as (784, 256, 128, 10).
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
# Convolutional networks: two for images such as MNIST's, which a laptop trains in a minute, and those that made deep
# learning on images, each with a narrow variant for such images. In all of them `seed=None` leaves the weights zero,
# for counting: that takes no time.

MNIST = (28, 28, 1)  # Rows, columns and channels of MNIST's and Fashion-MNIST's images.


def _layers(seeds, dtype, *rows) -> list[Layer]:
    """Convolutions and dense layers, given by their arguments, each with a ReLU behind it; other layers as they are."""
    layers: list[Layer] = []
    for row in rows:
        if isinstance(row, Layer):
            layers.append(row)
            continue
        *sizes, options = row if isinstance(row[-1], dict) else (*row, {})
        first = not any(layer.params for layer in layers)
        kind = Conv2d if len(sizes) == 3 else Linear
        layers += [kind(*sizes, next(seeds), dtype=dtype, input_gradient=not first, **options), ReLU()]
    return layers


def _scores(d_in, n_classes, seeds, dtype) -> Linear:
    """The last layer: no ReLU follows it, so its weights have half the variance."""
    return Linear(d_in, n_classes, next(seeds), dtype=dtype, gain=1.0)


def SmallCNN(
    image: tuple[int, int, int] = MNIST,
    n_classes: int = 10,
    channels: Sequence[int] = (16, 32),
    *,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Sequential:
    """Build a small convolutional network: blocks of a 3 x 3 convolution, ReLU and 2 x 2 pooling, then one dense layer.

    Parameters
    ----------
    image : (int, int, int)
        Rows, columns and channels; samples may also be flat.
    channels : sequence of int
        One block for each.
    seed : int or None
        Weights depend on (seed, number of the layer) alone.
    """
    if len(image) != 3:
        raise ValueError(f"SmallCNN: image is {image!r}, expected rows, columns and channels, such as (28, 28, 1)")
    seeds, rows, (h, w, c_in) = init.seeds(seed), [Reshape(*image)], image
    for c in channels:
        rows += [(c_in, c, 3, {"padding": "same"}), MaxPool(2)]
        h, w, c_in = h // 2, w // 2, c
    layers = _layers(seeds, dtype, *rows)
    return Sequential(*layers, Flatten(), _scores(h * w * c_in, n_classes, seeds, dtype))


def LeNet(n_classes: int = 10, *, seed: int = 0, dtype: DTypeLike = "float32") -> Sequential:
    """Build LeNet-5 for 28 x 28 images in its modern form, with ReLU and maximum pooling: 61,706 parameters.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Gradient-based learning applied to document recognition,
    section II.B.
    """
    seeds = init.seeds(seed)
    features = (1, 6, 5, {"padding": 2}), MaxPool(2), (6, 16, 5), MaxPool(2)
    layers = _layers(seeds, dtype, Reshape(*MNIST), *features, Flatten(), (400, 120), (120, 84))
    return Sequential(*layers, _scores(84, n_classes, seeds, dtype))


def SiameseNet(d_out: int = 8, *, seed: int = 0, dtype: DTypeLike = "float32") -> Sequential:
    """Build a network that maps each image of a pair of 28 x 28 images to a point.

    A loss for it pulls points of similar pairs together, and pushes others apart; see the reference, equation 4.

    Parameters
    ----------
    d_out : int
        Dimensions of the point.

    References
    ----------
    R. Hadsell, S. Chopra, Y. LeCun (2006), Dimensionality reduction by learning an invariant mapping, CVPR.

    Examples
    --------
    >>> SiameseNet().output_shape((32, 2, 784))
    (32, 2, 8)
    """
    seeds = init.seeds(seed)
    features = (1, 8, 5), MaxPool(2), (8, 16, 3), MaxPool(2)
    tower = _layers(seeds, dtype, Reshape(*MNIST), *features, Flatten(), (400, 64))
    return Sequential(Siamese(Sequential(*tower, _scores(64, d_out, seeds, dtype))))


def AlexNet(n_classes: int = 1000, *, narrow: bool = False, seed: int = 0, dtype: DTypeLike = "float32") -> Sequential:
    """Build AlexNet for images of 227 x 227 x 3: 60,965,224 parameters (244 MB), 58.6 million in three dense layers.

    The two towers of the paper, which ran on two GPUs, are the groups of convolutions 2, 4 and 5. The `narrow` variant
    has the same sequence of layers for images of 28 x 28.

    References
    ----------
    A. Krizhevsky, I. Sutskever, G. E. Hinton (2012), ImageNet classification with deep convolutional neural networks,
    NIPS.
    """
    seeds, (c1, c2, c3, c5) = init.seeds(seed), (16, 32, 48, 32) if narrow else (96, 256, 384, 256)
    first = (1, c1, 5, {"padding": 2}) if narrow else (3, c1, 11, {"stride": 4})
    features = [
        *(first, LocalResponseNorm(5), MaxPool(3, 2)),
        *((c1, c2, 5, {"padding": 2, "groups": 2}), LocalResponseNorm(5), MaxPool(3, 2)),
        (c2, c3, 3, {"padding": 1}),
        (c3, c3, 3, {"padding": 1, "groups": 2}),
        *((c3, c5, 3, {"padding": 1, "groups": 2}), MaxPool(3, 2)),
    ]
    d_in, *hidden = (c5 * 2 * 2, 128, 64) if narrow else (c5 * 6 * 6, 4096, 4096)
    dense = []
    for i, width in enumerate(hidden):
        dense += [Dropout(0.5, [seed or 0, 1000 + i]), (d_in, width)]
        d_in = width
    layers = _layers(seeds, dtype, *[Reshape(*MNIST)] * narrow, *features, Flatten(), *dense)
    return Sequential(*layers, _scores(d_in, n_classes, seeds, dtype))


# Table 1 of the paper: channels of 1 x 1, 3 x 3 reduce, 3 x 3, 5 x 5 reduce, 5 x 5, pool projection.
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
NARROW = {"3a": (8, 8, 16, 4, 8, 8), "3b": (16, 12, 24, 4, 8, 8), "5a": (24, 16, 32, 8, 16, 16)}


def Inception(
    c_in: int, c1: int, r3: int, c3: int, r5: int, c5: int, cp: int, seeds: Any, *, dtype: DTypeLike = "float32"
) -> Parallel:
    """Build an Inception module: 1 x 1, 3 x 3 and 5 x 5 convolutions and a pooling, side by side.

    Parameters
    ----------
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


def GoogLeNet(
    n_classes: int = 1000, *, narrow: bool = False, seed: int = 0, dtype: DTypeLike = "float32"
) -> Sequential:
    """Build GoogLeNet for images of 224 x 224 x 3: 6,998,552 parameters (28 MB), 1.6 billion multiply-adds an image.

    A ninth of AlexNet's parameters, as it does without large dense layers. Without the two auxiliary classifiers, which
    only help early training. The `narrow` variant is a stem and three modules for images of 28 x 28.

    References
    ----------
    C. Szegedy et al. (2015), Going deeper with convolutions, CVPR, table 1.
    """
    seeds = init.seeds(seed)
    if narrow:
        stem = [Reshape(*MNIST), (1, 16, 3, {"padding": 1})]
    else:
        stem = [(3, 64, 7, {"stride": 2, "padding": 3}), MaxPool(3, 2, ceil=True), LocalResponseNorm(5)]
        stem += [(64, 64, 1), (64, 192, 3, {"padding": 1}), LocalResponseNorm(5)]
    layers = _layers(seeds, dtype, *stem, MaxPool(3, 2, ceil=True))
    c = 16 if narrow else 192
    for name, widths in (NARROW if narrow else TABLE).items():
        if name in ("4a", "5a"):
            layers.append(MaxPool(3, 2, ceil=True))
        module = Inception(c, *widths, seeds, dtype=dtype)
        module.name = f"inception {name}"
        layers.append(module)
        c = widths[0] + widths[2] + widths[4] + widths[5]
    drop = Dropout(0.2 if narrow else 0.4, [seed or 0, 1000])
    return Sequential(*layers, GlobalAvgPool(), drop, _scores(c, n_classes, seeds, dtype))


def Fire(c_in: int, squeeze: int, expand: int, seeds: Any, *, dtype: DTypeLike = "float32") -> Sequential:
    """Build a fire module: squeeze to few channels by 1 x 1, expand by 1 x 1 and 3 x 3 side by side.

    Parameters
    ----------
    squeeze, expand : int
        Channels between, and of either branch: the output has twice as many.
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


def SqueezeNet(
    n_classes: int = 1000, *, narrow: bool = False, seed: int = 0, dtype: DTypeLike = "float32"
) -> Sequential:
    """Build SqueezeNet 1.0 for images of 224 x 224 x 3: 1,248,424 parameters (5 MB), a fiftieth of AlexNet's.

    The `narrow` variant is a stem and four fire modules for images of 28 x 28.

    References
    ----------
    F. N. Iandola et al. (2016), SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, arXiv:1602.07360, table
    1.
    """
    seeds = init.seeds(seed)
    if narrow:
        layers = _layers(seeds, dtype, Reshape(*MNIST), (1, 16, 3, {"padding": 1}), MaxPool(2))
        fires = [(16, 4, 16), (32, 8, 16), "pool", (32, 8, 32), (64, 8, 32)]
    else:
        layers = _layers(seeds, dtype, (3, 96, 7, {"stride": 2}), MaxPool(3, 2, ceil=True))
        fires = [(96, 16, 64), (128, 16, 64), (128, 32, 128), "pool", (256, 32, 128), (256, 48, 192), (384, 48, 192)]
        fires += [(384, 64, 256), "pool", (512, 64, 256)]
    layers += [MaxPool(3, 2, ceil=True) if fire == "pool" else Fire(*fire, seeds, dtype=dtype) for fire in fires]
    classifier = Conv2d(2 * fires[-1][2], n_classes, 1, next(seeds), dtype=dtype)
    return Sequential(*layers, Dropout(0.5, [seed or 0, 1000]), classifier, GlobalAvgPool())


# -- language ----------------------------------------------------------------------------------------------------------
# A language model: predicts the next symbol from all before it.


def GRULanguageModel(
    n_symbols: int = 128, d_hidden: int = 128, n_layers: int = 2, *, seed: int = 0, dtype: DTypeLike = "float32"
) -> Sequential:
    """Build an embedding, a stack of GRU layers and a dense layer that scores the next symbol at every position.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    d_hidden : int
        Size of the embedding and of every hidden state.
    n_layers : int
        GRU layers, one on top of the other: different ranks can hold the upper and the lower ones.

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
        _scores(d_hidden, n_symbols, seeds, dtype),
    )


# -- gpt ---------------------------------------------------------------------------------------------------------------
# A transformer that predicts the next symbol.


def GPT(
    n_symbols: int = 128,
    width: int = 64,
    heads: int = 4,
    n_blocks: int = 4,
    *,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Sequential:
    """Build an embedding, pre-norm blocks of causal attention and two dense layers, and a dense layer of scores.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    width : int
        Of the vector at each position; the dense layers of a block are four times as wide.

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

    def norm():
        return RMSNorm(width, dtype=dtype)

    def linear(d_in, d_out):
        return Linear(d_in, d_out, next(seeds), gain=1.0, dtype=dtype)

    layers = [Embedding(n_symbols, width, next(seeds), dtype=dtype)]
    for _ in range(n_blocks):
        four = [next(seeds) for _ in range(4)]
        attention = Sequential(norm(), MultiHeadAttention(width, heads, four, dtype=dtype))
        dense = Sequential(norm(), linear(width, 4 * width), GELU(), linear(4 * width, width))
        layers += [Residual(attention), Residual(dense)]
    return Sequential(*layers, norm(), linear(width, n_symbols))


class Model(NamedTuple):
    """A function that builds a network, and the shape of one sample of its input."""

    build: Callable[..., Layer]
    sample: tuple[int, ...]  # Shape of a sample, without the batch.


# Networks by name. Those with 28 in their name are narrow variants for 28 x 28 images, which a laptop can train.
MODELS = {
    "mlp": Model(lambda sizes=(784, 256, 128, 10), **options: MLP(sizes, **options), (784,)),
    "lenet": Model(LeNet, (28, 28, 1)),
    "cnn": Model(SmallCNN, (28, 28, 1)),
    "alexnet": Model(AlexNet, (227, 227, 3)),
    "googlenet": Model(GoogLeNet, (224, 224, 3)),
    "squeezenet": Model(SqueezeNet, (224, 224, 3)),
    "siamese": Model(SiameseNet, (2, 28, 28, 1)),
    "gru": Model(GRULanguageModel, (64,)),
    "gpt": Model(GPT, (64,)),
}
for _name in ("alexnet", "googlenet", "squeezenet"):
    MODELS[f"{_name}28"] = Model(partial(MODELS[_name].build, n_classes=10, narrow=True), (28, 28, 1))


def build(name: str, **options: Any) -> Layer:
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
