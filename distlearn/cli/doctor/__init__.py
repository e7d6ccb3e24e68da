"""`distlearn doctor`: what this machine has, what a lab needs, and the commands that fix the difference."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import click

from . import machine, tools
from .check import Check, Diagnosis

__all__ = ["Check", "Diagnosis", "diagnose", "doctor"]


def checks(quick: bool = False) -> dict[str, Callable[[], Check | list[Check]]]:
    """Return the checks in order: those that others depend on come first."""
    from . import cluster

    table = {
        "Python": machine.python,
        "packages": machine.packages,
        "BLAS": machine.blas,
        "threads": machine.threads,
        "memory": machine.memory,
        "disk": machine.disk,
        "MPI": tools.mpi,
        "clusters": cluster.leftovers,
        "engines": cluster.engines,
        "C++ compiler": tools.compiler,
        "GPU": tools.gpu,
        "Jupyter": tools.jupyter,
        "data": tools.data,
    }
    if quick:
        del table["engines"]
    return table


def examine(name: str, check: Callable[[], Check | list[Check]]) -> list[Check]:
    """Run one check; if the check itself fails, report that and let the others continue."""
    try:
        found = check()
    except Exception as error:
        what = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(name, what, "warning", tools.pip("check") + "   # and report it if that finds nothing")]
    return found if isinstance(found, list) else [found]


def diagnose(quick: bool = False, report: Callable[[str], None] | None = None) -> Diagnosis:
    """Check everything that a lab needs.

    Parameters
    ----------
    quick : bool
        Skip what takes seconds: starting engines.
    report : callable, optional
        Called with the name of every check before it begins.

    Returns
    -------
    diagnosis : list of Check
        Its `ok` says whether a lab can run; a notebook displays it as a table.
    """
    diagnosis = Diagnosis()
    for name, check in checks(quick).items():
        if report is not None:
            report(name)
        diagnosis += examine(name, check)
    return diagnosis


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--quick", is_flag=True, help="Do not start engines (saves some seconds).")
@click.option("--sweep", is_flag=True, help="First end engines whose owner has exited.")
def doctor(as_json, quick, sweep):
    """Check this machine, and print the commands that fix what is wrong.

    Exit status 0 when a lab can run (warnings do not count), 1 when it cannot.
    """
    from ..console import status

    if sweep:
        from ...world import reaper

        click.echo(f"ended {len(reaper.sweep())} cluster(s) whose owner had exited", err=True)
    with status("looking at ...", shown=not as_json) as update:
        diagnosis = diagnose(quick, report=lambda name: update(f"looking at: {name}"))
    if as_json:
        click.echo(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        diagnosis.print()
    sys.exit(0 if diagnosis.ok else 1)
