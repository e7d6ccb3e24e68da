"""Options that only some strategies or models look at: given for another one, they would change nothing, unnoticed."""

from __future__ import annotations

import click

_BUCKETS = ("data", "elastic", "hybrid", "one_weird_trick")
APPLIES = {
    "pp": ("strategy", ("hybrid",)),
    "tp": ("strategy", ("hybrid",)),
    "schedule": ("strategy", ("pipeline", "hybrid")),
    "n_microbatches": ("strategy", ("pipeline", "hybrid")),
    "accumulate": ("strategy", ("data",)),
    "average_every": ("strategy", ("local_sgd",)),
    "overlap": ("strategy", (*_BUCKETS, "zero1", "zero2")),
    "bucket_kib": ("strategy", (*_BUCKETS, "zero1", "zero2", "zero3")),
    "hidden": ("model", ("mlp",)),
    "activation": ("model", ("mlp",)),
}
"""By option: which other option decides, and the values with which it is looked at."""


def is_given(ctx: click.Context, name: str) -> bool:
    """Say whether an option stands on the command line; a preset's or a default does not."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_applies(ctx: click.Context) -> None:
    """Raise if the command line (not a preset) gives an option that the chosen strategy or model does not look at."""
    for name, (decides, values) in APPLIES.items():
        chosen = ctx.params[decides]
        if is_given(ctx, name) and chosen not in values:
            option = next(p for p in ctx.command.params if p.name == name).opts[0]
            raise click.UsageError(f"{option} does nothing with --{decides} {chosen}, but with {', '.join(values)}")
    if ctx.params["strategy"] == "hybrid" and ctx.params["schedule"] == "pipedream":
        raise click.UsageError("--schedule pipedream updates after every micro-batch; use it with --strategy pipeline")
