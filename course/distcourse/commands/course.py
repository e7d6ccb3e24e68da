"""`distlearn course`: run a course, from the students' copies to the grades; thin over nbgrader."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click

from distlearn.cli.console import make_progress, print_table, say

from .labs import with_course

_lab = click.argument("lab")
# What a private copy holds of the course, and of the tests beside it. Its commands run the package that is installed.
COPIED = ("AUTHORING.md", "GRADING.md", "LICENSE", "README.md", "accessibility.md", "images", "nbgrader_config.py",
          "notes", "project", "source", "staff", "syllabus.md")  # fmt: skip
TESTS = ("__init__.py", "conftest.py", "course")


@click.group()
def course():
    """Run a course: release, collect, grade, give back.

    Every command is a few lines over nbgrader, whose own commands work in the same folder.
    """


@course.command(short_help="Make a private copy of the course.")
@click.argument("folder", type=click.Path(path_type=Path))
@with_course
def new(folder, course):
    """Make a private copy of the course and its tests in FOLDER, to change numbers and hidden tests in."""
    from ..author import generate

    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty")
    kept = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    pairs = [(course / name, folder / "course" / name) for name in COPIED]
    pairs += [(course.parent / "tests" / name, folder / "tests" / name) for name in TESTS]
    for source, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, ignore=kept) if source.is_dir() else shutil.copy(source, target)
    generate(folder / "course")
    for name in ("README.md", "AGENTS.md"):  # the students' page, and the rule for their assistants
        shutil.copy(course.parent / "labs" / name, folder / "labs")
    say(f"wrote {folder / 'course'} (yours) and {folder / 'labs'} (the students')")
    say(f"next: cd {folder / 'course'}, then `distlearn course release LAB` for each lab that you give out")


@course.command(short_help="Make the students' copy, and open the gradebook.")
@_lab
@with_course
def release(lab, course):
    """Make the students' copy of LAB, and enter its exercises, tests and points in the gradebook."""
    from ..author.release import labs_dir

    say(f"making the students' copy of {lab}; this takes some seconds ...", err=True)
    _nbgrader(course, "generate_assignment", lab, "--force", "--create")
    say(f"wrote {labs_dir(course) / lab}, and entered its tests and points in {course / 'gradebook.db'}")


@course.command(short_help="Zip what students get.")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("labs", nargs=-1)
@click.option("--assistants", type=click.Choice(["tutor", "log"]), default="tutor", show_default=True)
@with_course
def bundle(target, labs, assistants, course):
    """Write TARGET, a zip of the students' copies (all, or LABS); refuses if it would hold a solution.

    With it goes AGENTS.md, which assistants read: they tutor, or may write code that is logged (course/staff).
    """
    from ..author.export import bundle as write

    say(f"wrote {target}: {', '.join(write(course, target, labs, assistants))}")


@course.command(short_help="Sort what a learning platform hands over.")
@_lab
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@with_course
def collect(lab, files, course):
    """Sort FILES (zip, tar.gz, notebooks, folders; from Canvas, Moodle or Blackboard) into submitted/<student>/LAB."""
    from ..author.collect import recognise
    from ..author.export import LATE
    from ..author.grade import submitted

    archive, old = course / "downloaded" / lab / "archive", {}
    for path in course.glob(f"submitted/*/{lab}/*.ipynb"):
        old[path] = path.read_bytes(), path.stat().st_mtime_ns
    archive.mkdir(parents=True, exist_ok=True)
    for file in files:
        if file.is_dir():  # of an archive that has been unpacked: platforms write names into those of folders
            shutil.copytree(file, archive / file.resolve().name, dirs_exist_ok=True)
        else:
            shutil.copy(file, archive)
    _nbgrader(course, "zip_collect", lab, "--force")
    for path, (text, time) in old.items():  # it writes all again; what is the same needs no new grade
        if path.exists() and path.read_bytes() == text:
            os.utime(path, ns=(time, time))
    for path in (archive.parent / "extracted").rglob("*.ipynb"):
        found = recognise(str(path))
        mark = course / "submitted" / found["student_id"] / lab / LATE if found else None
        if mark is not None and mark.parent.is_dir():
            mark.touch() if found.get("late") else mark.unlink(missing_ok=True)
    there = submitted(course, lab)
    say(f"{len(there)} students have handed in {lab}: {', '.join(there)}")


@course.command(short_help="Grade submissions, several at once.")
@_lab
@click.option("--student", "students", multiple=True, help="Only this one; may be repeated.")
@click.option("--jobs", type=click.IntRange(1), help="Submissions at once; one for each core by default.")
@click.option("--force", is_flag=True, help="Grade again what has been graded.")
@click.option("--unsafe", is_flag=True, help="Run submissions without a sandbox, with your rights (see GRADING.md).")
@with_course
def grade(lab, students, jobs, force, unsafe, course):
    """Grade what was handed in for LAB and has not been graded; interrupted grading resumes where it stopped."""
    from ..author.grade import grade as run
    from ..author.grade import remaining, submitted
    from ..author.sandbox import require

    for name in ("SIGTERM", "SIGHUP"):  # of `timeout`, of a service or a terminal that ends: stop as after Ctrl-C
        if signal.getsignal(number := getattr(signal, name, signal.SIGINT)) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    if not unsafe:
        require()
    there = submitted(course, lab)
    unknown = sorted(set(students) - set(there))
    if unknown or not there:
        raise ValueError(f"no submission of {lab} by {', '.join(unknown) or 'anyone'} in {course / 'submitted'}")
    todo = list(students) or (there if force else remaining(course, lab))
    progress, failed, looks = make_progress(lab, "submission"), [], []
    n, stopped = 0, False
    with contextlib.closing(run(course, lab, todo, at_once=jobs, unsafe=unsafe)) as grades:
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
@with_course
def feedback(lab, course):
    """Write feedback/<student>/LAB/*.html."""
    _nbgrader(course, "generate_feedback", lab, "--force")
    pages = list((course / "feedback").glob(f"*/{lab}/*.html"))
    say(f"wrote {len(pages)} pages: {course / 'feedback'}/<student>/{lab}/*.html")


@course.command(short_help="Write the grades of one lab.")
@_lab
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--for", "form", type=click.Choice(["csv", "canvas", "moodle"]), default="csv", show_default=True)
@with_course
def grades(lab, target, form, course):
    """Write the points of LAB to TARGET, by exercise, or in the columns that Canvas or Moodle import."""
    from ..author.export import write_grades
    from ..author.grade import open_api

    n = write_grades(open_api(course), lab, target, form)
    say(f"wrote {target}: {n} students")


@course.command(short_help="Show what the class got wrong.")
@_lab
@with_course
def mistakes(lab, course):
    """Show which mistakes the checks of LAB named, and how often; then the submissions that are worth a look."""
    from ..author.export import looks
    from ..author.export import mistakes as find

    print_table(f"Mistakes in {lab}", ["check", "it said", "students>"], find(course, lab))
    seen = looks(course, lab)
    if seen:
        print_table("Graded, but worth a look", ["student", "what"], seen)


@course.command(short_help="Make an exam paper and its key.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--labs", default="", help="Their numbers, such as 01,07; all by default.")
@click.option("--minutes", type=click.IntRange(1), default=60, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Draws questions and numbers: one for each group.")
@with_course
def exam(target, labs, minutes, seed, course):
    """Write TARGET, an exam paper in Markdown, and its key beside it (exam.md, exam_key.md)."""
    from ..author.staff import exam as write

    found = write(course, target, tuple(filter(None, labs.split(","))), minutes, seed)
    say(f"wrote {target} and its key: {found[0]} minutes, {found[1]} points")
    if found[2]:
        say("all questions on these labs are in it: another seed draws other numbers, and no other questions")


@course.command(short_help="Write the staff's page of each lab.")
@click.argument("folder", type=click.Path(path_type=Path))
@with_course
def staff(folder, course):
    """Write a page for each lab to FOLDER: minutes, what students believe, what to discuss, how to grade."""
    from ..author.staff import pages

    say(f"wrote {len(pages(course, folder))} pages to {folder}")


@course.command(short_help="Write answers for a plagiarism checker.")
@_lab
@click.argument("folder", type=click.Path(path_type=Path))
@with_course
def jplag(lab, folder, course):
    """Write the code of all answers to LAB as JPlag wants it: FOLDER/submissions/STUDENT/*.py, FOLDER/base/*.py."""
    from ..author.staff import answers

    there, unread = answers(course, lab, folder)
    for line in unread:
        say(f"not read: {line}", err=True)
    say(f"wrote the answers of {len(there)} students; next, on this machine alone:")
    say(f"java -jar jplag.jar -l python3 -bc {folder / 'base'} {folder / 'submissions'}")


def _nbgrader(course, *words: str) -> None:
    """Run a command of nbgrader in the course directory, and show its warnings."""
    command = [sys.executable, "-m", "nbgrader", *words, "--log-level=WARN"]
    done = subprocess.run(command, cwd=course, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    for line in done.stderr.splitlines():
        if "Directory not found. Creating" not in line:  # one for each student
            say(line, err=True)
    if done.returncode:
        raise RuntimeError(f"nbgrader {words[0]} failed (exit status {done.returncode}); its messages are above")
