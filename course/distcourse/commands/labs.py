"""`distlearn labs`: check their sources, run them for their outputs, make the students' copies."""

from __future__ import annotations

import functools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from distlearn.cli.console import plain_errors, say


def with_course(command):
    """Pass the course directory to a command, and turn errors that the user can fix into one line."""

    @click.option("--course", type=click.Path(path_type=Path), help="The course directory; found from here by default.")
    @functools.wraps(command)
    def run(course, **options):
        with plain_errors(OSError, ValueError, RuntimeError):
            try:
                from ..author.release import find_course, find_labs

                course = find_course(course)
                if "lab" in options:
                    (options["lab"],) = find_labs(course, [options["lab"]])
                return command(course=course, **options)
            except ImportError as error:
                install = f"{sys.executable} -m pip install 'distlearn[course]'"
                raise click.ClickException(f"{error}; all that the course needs: {install}") from error

    return run


@click.group()
def labs():
    """Check and generate the labs of the course."""


@labs.command(short_help="Make the students' copies.")
@click.argument("names", nargs=-1, metavar="[LAB]...")
@with_course
@click.option("--check", is_flag=True, help="Write nothing; exit with status 1 if a copy differs from its source.")
@click.option("--force", is_flag=True, help="Overwrite copies that have been edited.")
def generate(names, course, check, force):
    """Make the students' copies (of all labs, or of those named) from the sources.

    Where a lab has an exercises.py, its solutions and mistakes are run for the tables that checks read.
    """
    from ..author import compare_release
    from ..author import generate as make

    folders = _with_exercises(course, names)
    with ProcessPoolExecutor(min(len(folders), os.cpu_count() or 1) or 1) as pool:
        changed = list(pool.map(functools.partial(_compile, keep=not check), folders))
    differences = [
        f"{folder.name}: results.npz is not what its solutions and mistakes give"
        for folder, differs in zip(folders, changed, strict=True)
        if differs
    ]
    if not check:
        for folder in make(course, names, force=force):
            say(f"wrote {folder}")
        return
    differences += compare_release(course, names)
    for text in differences:
        say(text, err=True)
    if differences:
        raise click.ClickException("run `distlearn labs generate` and commit the result")
    say("the students' copies match the sources")


def _compile(folder: Path, keep: bool) -> bool:
    """Run a lab's solutions and mistakes; say whether its tables differ from those that are there, and keep them."""
    from ..author.exercise import compiled, differs
    from ..exercise import save

    tables = compiled(folder)
    changed = differs(tables, folder)
    if changed and keep:
        save(tables, folder)
    return changed


@labs.command(short_help="Find changes of solutions that no check finds.")
@click.argument("names", nargs=-1, metavar="[LAB]...")
@with_course
def strength(names, course):
    """Change solutions by rule, and try each change on the cases of its check; about half a minute a lab.

    Exit status 1 if a change passes every case, visible or drawn, and is not in `may_pass`.
    """
    from ..author.exercise import Solved
    from ..author.strength import survivors

    failed = False
    for folder in _with_exercises(course, names):
        began, solved = time.monotonic(), Solved(folder)
        passing = [f"{name}: {what}" for name in solved.exercises for what in survivors(solved, name)]
        known, failed = sum(len(list(one.wrong())) for one in solved.exercises.values()), failed or bool(passing)
        seconds = time.monotonic() - began
        say(f"{folder.name}: {known} known mistakes; {len(passing)} other changes pass every case ({seconds:.0f} s)")
        for text in passing:
            say(f"  {text}")
    if failed:
        raise SystemExit(1)


def _with_exercises(course, names):
    from ..author import source_notebooks
    from ..author.source import CASES

    return [path.parent for path in source_notebooks(course, names) if (path.parent / CASES).is_file()]


@labs.command(short_help="Check sources against the rules.")
@click.argument("notebooks", nargs=-1, metavar="[NOTEBOOK]...", type=click.Path(exists=True, path_type=Path))
@with_course
@click.option("--fix", is_flag=True, help="First remove what is not compared or needed, and format the file.")
def check(notebooks, course, fix):
    """Check source notebooks (all of them by default) against the rules of AUTHORING.md.

    Exit status 1 if there is a problem.
    """
    from ..author import Source, check_lab, source_notebooks, tidy

    failed = False
    for path in notebooks or source_notebooks(course):
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
@with_course
def outputs(names, course):
    """Run the solved labs (all, or those named) and keep what their cells tagged nbval-check-output print.

    Look at the difference before you commit it; `pytest --nbval-lax course/source` compares with it.
    """
    from ..author.release import source_notebooks
    from ..author.rules import refresh

    for path in source_notebooks(course, names):
        say(f"{path}: {'outputs changed' if refresh(path) else 'the same outputs'}")
