"""AlexNet and GoogLeNet compared: weights, iterations, arithmetic, dense layers; our numbers and a lecture's."""

from __future__ import annotations

from typing import NamedTuple

from ...nn.conv import Conv2d
from ...nn.layer import Layer, walk
from ...nn.linear import Linear
from ...nn.models import model_named
from ...tables import Table

ITERATIONS = {"alexnet": (450_000, 256), "googlenet": (1_000_000, 32)}
"""Iterations of training on ImageNet and images in each, as in the lecture."""


class Facts(NamedTuple):
    """The quantities that decide how well a network's training scales over nodes."""

    weights_mb: float
    """Learned values in single precision [MB]: what every node sends in every iteration."""
    iterations: int
    batch: int
    exaflop: float
    """Operations of the whole training, forward and backward [1e18]."""
    dense_layers: int
    dense_weights: float
    """Millions."""

    @property
    def flop_per_byte(self) -> float:
        """Operations of an iteration for each byte of weights: the more, the better it scales."""
        return self.exaflop * 1e18 / self.iterations / (self.weights_mb * 1e6)


LECTURE = {
    "alexnet": Facts(250, 450_000, 256, 0.8, 3, 55),
    "googlenet": Facts(50, 1_000_000, 32, 1.1, 1, 1),
}
"""The numbers of the lecture's slide, rounded as given there."""


def facts(name: str) -> Facts:
    """Count what a network by name costs.

    Parameters
    ----------
    name : {"alexnet", "googlenet"}

    Returns
    -------
    facts : Facts

    Examples
    --------
    >>> found = facts("alexnet")
    >>> round(found.weights_mb), found.dense_layers, round(found.dense_weights)
    (244, 3, 59)
    """
    if name not in ITERATIONS:
        raise ValueError(f"facts: name is {name!r}, expected one of {', '.join(ITERATIONS)}")
    known, (iterations, batch) = model_named(name), ITERATIONS[name]
    model, shape = known.build(seed=None), (batch, *known.sample)
    work = iterations * (model.flops(shape) + model.backward_flops(shape))
    dense = [layer for layer in walk(model) if isinstance(layer, Linear)]
    weights = sum(p.nbytes for p in model.params)
    return Facts(weights / 1e6, iterations, batch, work / 1e18, len(dense), sum(d.W.size for d in dense) / 1e6)


def without_towers() -> float:
    """Exaflop of training an AlexNet whose convolutions see all channels, instead of the half on their own GPU."""
    known, (iterations, batch) = model_named("alexnet"), ITERATIONS["alexnet"]
    model, shape = known.build(seed=None), (batch, *known.sample)
    extra = sum(
        (layer.groups - 1) * (layer.flops(s) + layer.backward_flops(s))
        for layer, s in model.parts(shape)
        if isinstance(layer, Conv2d)
    )
    return iterations * (model.flops(shape) + model.backward_flops(shape) + extra) / 1e18


def auxiliary_mb() -> float:
    """Weights of GoogLeNet's two auxiliary classifiers, which published files of weights contain [MB].

    Each sees a map of 4 x 4 pixels: a convolution of 1 x 1 to 128 channels, dense layers of 1,024 and 1,000.

    References
    ----------
    C. Szegedy et al. (2015), Going deeper with convolutions, CVPR, section 5.
    """
    heads = [
        [Conv2d(channels, 128, 1, "zeros"), Linear(4 * 4 * 128, 1024, "zeros"), Linear(1024, 1000, "zeros")]
        for channels in (512, 528)  # behind Inception 4a and 4d
    ]
    return sum(_nbytes(layer) for head in heads for layer in head) / 1e6


def _nbytes(layer: Layer) -> int:
    return sum(p.nbytes for p in layer.params)


def two_networks() -> Table:
    """Compare AlexNet and GoogLeNet as built here with the numbers of the lecture, and say why they differ.

    Returns
    -------
    table : Table
    """
    ours = {name: facts(name) for name in LECTURE}
    rows = [
        ["weights [MB]", *_cells(ours, "weights_mb", "{:.0f}")],
        ["iterations", *_cells(ours, "iterations", "{:,}")],
        ["images in each", *_cells(ours, "batch", "{}")],
        ["training [exaflop]", *_cells(ours, "exaflop", "{:.2g}")],
        ["dense layers", *_cells(ours, "dense_layers", "{}")],
        ["dense weights [million]", *_cells(ours, "dense_weights", "{:.0f}")],
        ["flop per byte of weights", *_cells(ours, "flop_per_byte", "{:,.0f}")],
    ]
    header = ["", "AlexNet here", "lecture", "GoogLeNet here", "lecture"]
    return Table(header, rows, "; ".join(reasons(ours)))


def _cells(ours, field: str, form: str) -> list[str]:
    """Ours and the lecture's, for both networks."""
    return [form.format(getattr(f, field)) for name in ours for f in (ours[name], LECTURE[name])]


def reasons(ours: dict[str, Facts]) -> list[str]:
    """Explain, in numbers, what the lecture must have counted where it differs."""
    google = ours["googlenet"]
    images = LECTURE["googlenet"].exaflop / google.exaflop * google.batch
    return [
        f"AlexNet without its two towers takes {without_towers():.2g} exaflop",
        f"GoogLeNet with its two auxiliary classifiers has {google.weights_mb + auxiliary_mb():.0f} MB",
        f"{LECTURE['googlenet'].exaflop:g} exaflop are 1,000,000 iterations of {images:.0f} images: "
        f"four nodes of 32 are {4 * google.exaflop:.2g}",
    ]
