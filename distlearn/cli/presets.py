"""Whole experiments by name: `distlearn train --preset NAME`. Options on the command line go before the preset's."""

from __future__ import annotations

from typing import NamedTuple

import click

from .applies import is_given


class Preset(NamedTuple):
    """Options of `distlearn train`, by the name of the parameter, and what a reader must know about them."""

    options: dict
    note: str


_FASHION = {
    "data": "fashion-mnist",
    "hidden": "128,64",
    "activation": "sigmoid",
    "optimizer": "sgd",
    "lr": 0.01,
    "epochs": 60,
    "world": "mpi",
    "sizes": "1,2,4",
}

PRESETS = {
    "fashion-sigmoid": Preset(
        {**_FASHION, "batch_size": 32, "evaluate_every": 10},
        "60 iterations here are 60 passes over the training images in mini-batches of 32. Read as 60 gradients of the "
        "whole training set (--preset fashion-sigmoid-full), they leave the network where it began: at this learning "
        "rate a network of sigmoids needs thousands of steps.",
    ),
    "fashion-sigmoid-full": Preset(
        {**_FASHION, "batch_size": 10**9, "evaluate_every": 10},
        "60 iterations here are 60 gradients of the whole training set: the reading that parallelises best, because a "
        "rank computes long between two messages. The network has hardly learned anything after so few steps; for "
        "accuracy see --preset fashion-sigmoid.",
    ),
    "large-batch": Preset(
        {
            "data": "mnist",
            "lr": 0.01,
            "batch_size": 4096,
            "reference_batch": 128,
            "warmup_epochs": 3.0,
            "epochs": 20,
        },
        "A batch of 4,096 with the learning rate of one of 128, times 32, reached in 3 epochs. Leave the scaling out "
        "(--lr 0.01 --reference-batch 4096) to see what a large batch loses without it.",
    ),
}
"""The first two are two readings of one experiment: Fashion-MNIST, two hidden layers, sigmoid, learning rate 0.01, 60
iterations, sequential against data-parallel on 2 and 4 ranks. "Iteration" may mean either; the widths 128 and 64 are
ours."""


def note_of(ctx: click.Context) -> str:
    """Return what the chosen preset says about itself, and which of its options the command line has changed."""
    name = ctx.params["preset"]
    if name is None:
        return ""
    given = [option for option in PRESETS[name].options if is_given(ctx, option)]
    changed = ", ".join(p.opts[0] for p in ctx.command.params if p.name in given)
    changed = f" (--preset {name} as it stands; here {changed} differed)" if changed else ""
    return PRESETS[name].note + changed
