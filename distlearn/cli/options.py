"""Options of the commands: those of a training run are made from `Settings`, whole experiments are presets."""

from __future__ import annotations

from typing import NamedTuple

import click

from ..train.settings import SETTINGS, Setting
from .console import parse_numbers

WORLDS = ("local", "sim", "engines")  # Kinds of ranks.


# -- values
def parse_sizes(ctx, param, value):
    """Parse "1,2,4": increasing numbers of ranks."""
    numbers = parse_numbers(ctx, param, value)
    if value == "" or list(numbers) != sorted(set(numbers)):
        raise click.BadParameter(f"{value!r}, expected increasing numbers of ranks, such as 1,2,4", ctx, param)
    return numbers


# -- options of a training run
def setting_options(command):
    """Give a command an option for every setting, in the order of `Settings`."""
    for name, setting in reversed(SETTINGS.items()):
        command = _option(name, setting)(command)
    return command


def option_of(name: str) -> str:
    """Return the option that a setting has on the command line."""
    return f"--{name.replace('_', '-')}"


def _option(name: str, setting: Setting):
    flag = option_of(name)
    only = f"{', '.join(setting.needs[1])}: " if setting.needs and len(setting.needs[1]) < 6 else ""
    options = {"default": setting.default, "show_default": setting.default is not None, "help": only + setting.help}
    if setting.kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", **options)
    if setting.choices:
        return click.option(flag, type=click.Choice(setting.choices), **options)
    if setting.kind is tuple:
        options["default"] = ",".join(map(str, setting.default))
        return click.option(flag, callback=parse_numbers, metavar="N,N,...", **options)
    return click.option(flag, type=setting.kind, callback=_checked(setting), **options)


def _checked(setting: Setting):
    def check(ctx, param, value):
        value = int(value) if isinstance(value, str) and value.isdecimal() else value  # --device 1
        expected = setting.expected(value)
        if expected is not None:
            raise click.BadParameter(f"{value!r}, expected {expected}", ctx, param)
        return value

    return check


def is_given(ctx: click.Context, name: str) -> bool:
    """Say whether an option was given on the command line, not by a preset or as a default."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_needs(ctx: click.Context) -> None:
    """Raise if the command line (not a preset) gives an option that would have no effect."""
    for name, setting in SETTINGS.items():
        if setting.needs is None or not is_given(ctx, name):
            continue
        other, values = setting.needs
        if ctx.params[other] not in values:
            chosen = "is not given" if ctx.params[other] is None else f"is {ctx.params[other]}"
            raise click.UsageError(
                f"{option_of(name)} has no effect when {option_of(other)} {chosen}, only with {', '.join(values)}"
            )
    if ctx.params["strategy"] == "hybrid" and ctx.params["schedule"] == "pipedream":
        raise click.UsageError("--schedule pipedream updates after every micro-batch; use it with --strategy pipeline")


# -- presets
class Preset(NamedTuple):
    """Options of `distlearn train`, by the name of the parameter, and a note for the reader of the results."""

    options: dict
    note: str


_FASHION = {
    "data": "fashion-mnist",
    "hidden": "128,64",
    "activation": "sigmoid",
    "optimizer": "sgd",
    "lr": 0.01,
    "epochs": 60,
    "world": "engines",
    "sizes": "1,2,4",
}

# The first two are two readings of one experiment: Fashion-MNIST, two hidden layers, sigmoid, learning rate 0.01, 60
# iterations, sequential against data-parallel on 2 and 4 ranks. "Iteration" may mean either; the widths 128 and 64 are
# ours.
PRESETS = {
    "fashion-sigmoid": Preset(
        {**_FASHION, "batch_size": 32, "evaluate_every": 10},
        "More ranks are faster from about 16,000 images a step on (--preset fashion-sigmoid-full): 32 are too few. "
        "60 iterations here are 60 passes over the training images in mini-batches of 32. Read as 60 gradients of the "
        "whole training set (--preset fashion-sigmoid-full), they hardly change the network: at this learning "
        "rate a network of sigmoids needs thousands of steps.",
    ),
    "fashion-sigmoid-full": Preset(
        {**_FASHION, "batch_size": 10**9, "evaluate_every": 10},
        "More ranks are faster from about 16,000 images a step on: two engines on two cores were 6 times slower than "
        "one with 1,440 images, and 1.09 times faster with 18,000. "
        "60 iterations here are 60 gradients of the whole training set, the reading that parallelises best; for "
        "accuracy see --preset fashion-sigmoid.",
    ),
    "large-batch": Preset(
        {"data": "mnist", "lr": 0.01, "batch_size": 4096, "reference_batch": 128, "warmup_epochs": 3.0, "epochs": 20},
        "A batch of 4,096 with the learning rate of one of 128, times 32, reached in 3 epochs. Leave the scaling out "
        "(--lr 0.01 --reference-batch 4096) to see what a large batch loses without it.",
    ),
}


def set_preset(ctx, param, value):
    """Use the preset's options as defaults."""
    if value is not None:
        ctx.default_map = {**(ctx.default_map or {}), **PRESETS[value].options}
    return value


def note_of(ctx: click.Context) -> str:
    """Return the note of the chosen preset, and which of its options the command line has changed."""
    name = ctx.params["preset"]
    if name is None:
        return ""
    names = {*PRESETS[name].options, *SETTINGS}  # a setting that the preset leaves at its default counts, too
    changed = ", ".join(p.opts[0] for p in ctx.command.params if p.name in names and is_given(ctx, p.name))
    changed = f" (--preset {name} as it stands; here {changed} differed)" if changed else ""
    return PRESETS[name].note + changed
