"""`distlearn labs`: list the labs, check their sources, run them for their outputs, make the students' copies."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import click

from distlearn.cli.console import plain_errors, print_table, say

_course = click.option(
    "--course", type=click.Path(path_type=Path), help="The course directory; found from here by default."
)


@click.group()
def labs():
    """Check, generate and list the labs of the course."""


@labs.command("list", short_help="Show the labs and their sizes.")
@_course
def list_labs(course):
    """Show every lab with its size, points and minutes."""
    with _told():
        from ..author import Source, find_course, source_notebooks

        rows = []
        for path in source_notebooks(find_course(course)):
            lab = Source(path)
            rows.append(
                (path.parent.name, _title(lab), len(lab.cells), len(lab.exercises), _points(lab), _minutes(lab))
            )
        print_table("Labs", ["lab", "title", "cells>", "exercises>", "points>", "minutes>"], rows)


@labs.command(short_help="Make the students' copies.")
@click.argument("names", nargs=-1, metavar="[LAB]...")
@_course
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 if a copy differs from its source.")
@click.option("--force", is_flag=True, help="Overwrite copies that have been edited.")
def generate(names, course, check, force):
    """Make the students' copies (of all labs, or of those named) from the sources."""
    with _told():
        from ..author import compare_release, find_course
        from ..author import generate as make

        course = find_course(course)
        if not check:
            for folder in make(course, names, force=force):
                say(f"wrote {folder}")
            return
        differences = compare_release(course, names)
        for text in differences:
            say(text, err=True)
        if all("has no source" in text for text in differences) and differences:
            raise click.ClickException("remove what has no source and commit the result")
        if differences:
            raise click.ClickException("run `distlearn labs generate` and commit the result")
        say("the students' copies match the sources")


@labs.command(short_help="Check sources against the rules.")
@click.argument("notebooks", nargs=-1, metavar="[NOTEBOOK]...", type=click.Path(exists=True, path_type=Path))
@_course
@click.option("--fix", is_flag=True, help="First remove what is not compared or needed, and format the file.")
def check(notebooks, course, fix):
    """Check source notebooks (all of them by default) against the rules of AUTHORING.md.

    Exit status 1 if there is a problem.
    """
    with _told():
        from ..author import Source, check_lab, find_course, source_notebooks, tidy

        failed = False
        for path in notebooks or source_notebooks(find_course(course)):
            if fix and tidy(path):
                say(f"{path}: mended")
            lab = Source(path)
            problems = check_lab(lab)
            failed = failed or bool(problems)
            say(f"{path}: {lab.summary()}: {'no problem' if not problems else f'{len(problems)} problems'}")
            for problem in problems:
                say(f"  {problem}")
    if failed:
        raise SystemExit(1)


@labs.command(short_help="Run sources and keep what is compared.")
@click.argument("names", nargs=-1, metavar="[LAB]...")
@_course
def outputs(names, course):
    """Run the solved labs (all, or those named) and keep what their cells tagged nbval-check-output print.

    Look at the difference before you commit it; `pytest --nbval-lax course/source` compares with it.
    """
    with _told():
        from ..author import find_course
        from ..author.release import source_notebooks
        from ..author.rules import refresh

        for path in source_notebooks(find_course(course), names):
            say(f"{path}: {'outputs changed' if refresh(path) else 'the same outputs'}")


@contextmanager
def _told():
    """Turn errors that the user can fix into one line; say what to install if nbgrader is missing."""
    with plain_errors(OSError, ValueError, RuntimeError):
        try:
            yield
        except ImportError as error:
            install = f'{sys.executable} -m pip install "distlearn[course]"'
            raise click.ClickException(
                f"{error}: the labs are made with nbgrader; install it with\n  {install}"
            ) from error


def _title(lab) -> str:
    return lab.cells[0].source.partition("\n")[0].partition(": ")[2]


def _points(lab) -> str:
    return f"{sum(c.points or 0 for c in lab.cells):g}"


def _minutes(lab) -> int:
    return sum(s.minutes or 0 for s in lab.sections)
