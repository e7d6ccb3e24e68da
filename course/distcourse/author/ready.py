"""Refuse to grade where it cannot be done safely, or with tests that are no longer those of the source."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor

from .execute import ExecuteAll
from .sandbox import NoSandbox, require
from .source import Source
from .stage import source_of


class Refused(SystemExit):
    """Grading ends here, with a text that says what to do; nbgrader would go on after any other exception."""


class Ready(NbGraderPreprocessor):
    """Raise `Refused` before anything is run; the first step of autograding."""

    def preprocess(self, nb, resources):
        """Handle one notebook."""
        told = resources["nbgrader"]
        try:
            if not ExecuteAll(parent=self).unsafe:
                require()
            source = source_of(self.config, told["assignment"], told["notebook"])
            with Gradebook(told["db_url"]) as book:
                old = [] if source is None else outdated(source, book, told["assignment"], told["notebook"])
            if old:
                raise NoSandbox(OLD.format(lab=told["assignment"], names=", ".join(old)))
        except NoSandbox as error:
            course = CourseDirectory(config=self.config)
            place = course.format_path(course.autograded_directory, told["student"], told["assignment"])
            shutil.rmtree(Path(place), ignore_errors=True)  # or nbgrader would take it for graded
            raise Refused(str(error)) from None
        return nb, resources


OLD = """\
The gradebook does not have the tests of {lab} as its source has them: {names}.
Nothing was graded. Bring it up to date with
  nbgrader generate_assignment {lab} --force
and run `distlearn course grade {lab}`: it grades all again, so that all are judged by the same tests."""


def tests_of(source: Source) -> str:
    """Return a digest of what a lab grades: cells, points and checks."""
    graded = [(c.grade_id, c.points, c.source if c.is_check else "") for c in source.cells if c.points is not None]
    return hashlib.sha256(repr(graded).encode()).hexdigest()[:16]


def outdated(source: Source, book, assignment: str, notebook: str) -> list[str]:
    """Return the graded cells of a source that the gradebook does not have, or has otherwise."""
    try:
        known = book.find_notebook(notebook, assignment)
    except MissingEntry:
        return []  # nbgrader says so itself
    texts = {cell.name: cell.source for cell in known.source_cells}
    points = {cell.name: cell.max_score for cell in known.grade_cells}
    graded = {cell.grade_id: cell for cell in source.cells if cell.grader and cell.grader.get("grade")}
    found = sorted(graded.keys() ^ points.keys())
    for name, cell in graded.items():
        if name in points and (points[name] != cell.points or (cell.is_check and texts.get(name) != cell.source)):
            found.append(name)
    return found
