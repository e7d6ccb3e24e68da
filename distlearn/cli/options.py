"""What options of several commands have in common: numbers in a list, rates, kinds of ranks."""

from __future__ import annotations

import click

WORLDS = ("local", "sim", "mpi", "engines")
"""Kinds of ranks."""


def parse_numbers(ctx, param, value):
    """Parse "256,128": whole numbers, 1 or more; an empty text is none of them."""
    try:
        numbers = tuple(int(word) for word in value.split(",")) if value else ()
    except ValueError:
        numbers = (0,)
    if any(n < 1 for n in numbers):
        raise click.BadParameter(f"{value!r}, expected whole numbers from 1 on, such as 256,128", ctx, param)
    return numbers


def parse_sizes(ctx, param, value):
    """Parse "1,2,4": rising numbers of ranks."""
    numbers = parse_numbers(ctx, param, value)
    if list(numbers) != sorted(set(numbers)):
        raise click.BadParameter(f"{value!r}, expected rising numbers of ranks, such as 1,2,4", ctx, param)
    return numbers


def require_positive(ctx, param, value):
    """Refuse a rate that is not above 0."""
    if value is not None and not value > 0:
        raise click.BadParameter(f"{value:g}, expected a number above 0", ctx, param)
    return value
