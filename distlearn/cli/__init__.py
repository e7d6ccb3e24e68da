"""The `distlearn` command: doctor, train, kernel, and other packages' (labs, course).

Each subcommand lives in the module of its name and is imported when it is called, so that `distlearn --help` answers at
once and a broken dependency of one command cannot take the others down: `doctor` above all.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points

import click

from .. import __version__

# Subcommands and their one-line help, known without importing them.
COMMANDS = {
    "doctor": "Check this machine, and print fixes for its problems.",
    "train": "Train a network on images, on one rank or many.",
    "kernel": "Check CUDA C kernels without a card.",
}


class LazyGroup(click.Group):
    """A group of commands that imports each of them on use."""

    def list_commands(self, ctx):
        return [*COMMANDS, *_added()]

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return _added()[name].load() if name in _added() else None
        return getattr(importlib.import_module(f".{name}", __name__), name)

    def format_commands(self, ctx, formatter):
        """Write the table of commands without importing one of ours."""
        added = {name: point.load().get_short_help_str(80) for name, point in _added().items()}
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *added.items()])


def _added() -> dict:
    """Commands of other packages: entry points of the group "distlearn.commands"."""
    return {point.name: point for point in entry_points(group="distlearn.commands")}


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="distlearn", message="%(prog)s %(version)s")
def main():
    """Parallel and distributed deep learning, taught by building it.

    Start with `distlearn doctor`, then `distlearn train`.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # where a terminal lacks a character, no command ends for it


__all__ = ["COMMANDS", "main"]
