"""`distlearn course`: run a course, from the students' copies to the grades; thin over nbgrader."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from distlearn.cli.console import make_progress, print_table, say

from .labs import _course, _told

_lab = click.argument("lab")


@click.group()
def course():
    """Run a course: release, collect, grade, give back.

    Every command is a few lines over nbgrader, whose own commands work in the same folder.
    """


@course.command(short_help="Make a private copy of the course.")
@click.argument("folder", type=click.Path(path_type=Path))
@_course
def new(folder, course):
    """Make a private copy of the course in FOLDER, to change numbers and hidden tests in."""
    with _told():
        from ..author import find_course, generate

        here = find_course(course)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty")
        running = shutil.ignore_patterns(
            "submitted", "autograded", "feedback", "gradebook.db", "downloaded", "__pycache__"
        )
        shutil.copytree(here, folder / "course", ignore=running, dirs_exist_ok=True)
        generate(folder / "course")
        say(f"wrote {folder / 'course'} (yours) and {folder / 'labs'} (the students')")
        say(f"next: cd {folder / 'course'}, then `distlearn course release LAB` for each lab that you give out")


@course.command(short_help="Make the students' copy, and open the gradebook.")
@_lab
@_course
def release(lab, course):
    """Make the students' copy of LAB, and enter its exercises, tests and points in the gradebook."""
    with _told():
        from ..author.release import labs_dir

        say(f"making the students' copy of {lab}; this takes some seconds ...", err=True)
        here = _nbgrader(course, "generate_assignment", lab, "--force", "--create")
        say(f"wrote {labs_dir(here) / lab}, and entered its tests and points in {here / 'gradebook.db'}")


@course.command(short_help="Zip what students get.")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("labs", nargs=-1)
@_course
def bundle(target, labs, course):
    """Write TARGET, a zip of the students' copies (all, or LABS); refuses if it would hold a solution."""
    with _told():
        from ..author import find_course
        from ..author.export import bundle as write

        say(f"wrote {target}: {', '.join(write(find_course(course), target, labs))}")


@course.command(short_help="Sort what a learning platform hands over.")
@_lab
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@_course
def collect(lab, files, course):
    """Sort FILES (zip, tar.gz or notebooks from Canvas, Moodle or Blackboard) into submitted/<student>/LAB."""
    with _told():
        from ..author import find_course
        from ..author.collect import recognise
        from ..author.export import LATE
        from ..author.grade import submitted

        archive, old = find_course(course) / "downloaded" / lab / "archive", {}
        for path in find_course(course).glob(f"submitted/*/{lab}/*.ipynb"):
            old[path] = path.read_bytes(), path.stat().st_mtime_ns
        archive.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, archive)
        here = _nbgrader(course, "zip_collect", lab, "--force")
        for path, (text, time) in old.items():  # it writes all again; what is the same needs no new grade
            if path.exists() and path.read_bytes() == text:
                os.utime(path, ns=(time, time))
        for path in (archive.parent / "extracted").rglob("*.ipynb"):
            found = recognise(str(path))
            mark = here / "submitted" / found["student_id"] / lab / LATE if found else None
            if mark is not None and mark.parent.is_dir():
                mark.touch() if found.get("late") else mark.unlink(missing_ok=True)
        there = submitted(here, lab)
        say(f"{len(there)} students have handed in {lab}: {', '.join(there)}")


@course.command(short_help="Grade submissions, several at once.")
@_lab
@click.option("--student", "students", multiple=True, help="Only this one; may be repeated.")
@click.option("--jobs", type=click.IntRange(1), help="Submissions at once; one for each core by default.")
@click.option("--force", is_flag=True, help="Grade again what has been graded.")
@click.option("--unsafe", is_flag=True, help="Run submissions without a sandbox, with your rights (see GRADING.md).")
@_course
def grade(lab, students, jobs, force, unsafe, course):
    """Grade what was handed in for LAB and has not been graded; interrupted grading resumes where it stopped."""
    with _told():
        from ..author import find_course
        from ..author.grade import grade as run
        from ..author.grade import remaining, submitted
        from ..author.sandbox import require

        here = find_course(course)
        if not unsafe:
            require()
        there = submitted(here, lab)
        unknown = sorted(set(students) - set(there))
        if unknown or not there:
            raise ValueError(f"no submission of {lab} by {', '.join(unknown) or 'anyone'} in {here / 'submitted'}")
        todo = list(students) or (there if force else remaining(here, lab))
        progress, failed, looks = make_progress(lab, "submission"), [], []
        n, stopped = 0, False
        with contextlib.closing(run(here, lab, todo, at_once=jobs, unsafe=unsafe)) as grades:
            try:
                for n, one in enumerate(grades, 1):
                    progress(n, len(todo))
                    failed += [one] if one.error else []
                    looks += [f"{one.student}: {line}" for line in one.looks]
            except KeyboardInterrupt:
                stopped = True
            finally:
                progress.close()
        before = "" if students else f", {len(there) - len(todo)} were graded before"
        say(f"graded {n - len(failed)} of {len(there)} submissions{before}")
        if stopped:
            say("stopped; these grades are kept, and the same command goes on with the others", err=True)
        if looks:
            say("Graded, but worth a look:")
            for line in looks:
                say(f"  {line}")
        for one in failed:
            say(f"not graded: {one.student}: {one.error}", err=True)
    if stopped:
        raise SystemExit(130)
    if failed:
        raise SystemExit(1)


@course.command(short_help="Write the feedback pages.")
@_lab
@_course
def feedback(lab, course):
    """Write feedback/<student>/LAB/*.html."""
    with _told():
        here = _nbgrader(course, "generate_feedback", lab, "--force")
        pages = list((here / "feedback").glob(f"*/{lab}/*.html"))
        say(f"wrote {len(pages)} pages: {here / 'feedback'}/<student>/{lab}/*.html")


@course.command(short_help="Write the grades of one lab.")
@_lab
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--for", "form", type=click.Choice(["csv", "canvas", "moodle"]), default="csv", show_default=True)
@_course
def grades(lab, target, form, course):
    """Write the points of LAB to TARGET, by exercise, or in the columns that Canvas or Moodle import."""
    with _told():
        from ..author import find_course
        from ..author.export import write_grades
        from ..author.grade import open_api

        n = write_grades(open_api(find_course(course)), lab, target, form)
        say(f"wrote {target}: {n} students")


@course.command(short_help="Show what the class got wrong.")
@_lab
@_course
def mistakes(lab, course):
    """Show which mistakes the checks of LAB named, and how often; then the submissions that are worth a look."""
    with _told():
        from ..author import find_course
        from ..author.export import looks
        from ..author.export import mistakes as find

        here = find_course(course)
        print_table(f"Mistakes in {lab}", ["check", "it said", "students>"], find(here, lab))
        seen = looks(here, lab)
        if seen:
            print_table("Graded, but worth a look", ["student", "what"], seen)


NOISE = (
    "Directory not found. Creating",
    "Config option `display_data_priority`",
    "Removing existing assignment",
    "Clearing existing files",
)
"""What nbgrader warns of though nothing is wrong."""


def _nbgrader(course, *words: str) -> Path:
    """Run a command of nbgrader in the course directory, show its warnings, and return the directory."""
    from ..author import find_course

    here = find_course(course)
    command = [sys.executable, "-m", "nbgrader", *words]
    with subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        told = False
        for line in process.stderr:  # a line without a level goes on where the one above ended
            if line.startswith("["):
                told = "| INFO]" not in line and not any(noise in line for noise in NOISE)
            if told:
                say(line.rstrip(), err=True)
    if process.returncode:
        raise RuntimeError(f"nbgrader {words[0]} failed (exit status {process.returncode}); its messages are above")
    return here
