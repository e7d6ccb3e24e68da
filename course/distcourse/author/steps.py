"""Steps that the course adds to nbgrader's, named in course/nbgrader_config.py; larger ones: `execute`, `pages`.

nbgrader knows a cell by the name in its metadata, and loses an exercise whose cells were deleted, merged, reordered, or
stripped of metadata by another editor. What such a student has written is still there: `RestoreCells` puts it back.
"""

from __future__ import annotations

import ast
import codecs
import json
import shutil
from pathlib import Path

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbformat.v4.nbbase import random_cell_id
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor

from .execute import ExecuteAll
from .rules import DEMONSTRATIONS, FOLDED
from .sandbox import NoSandbox, require
from .source import Source, grade_id_of, is_check, packed, source_of

SKIP = "skip-execution"  # The tag that nbclient obeys.


class ClearPredictions(NbGraderPreprocessor):
    """Replace the `answer=` of every `lab.predict` call with `...`."""

    def preprocess_cell(self, cell, resources, cell_index):
        if cell.cell_type == "code" and "predict" in cell.metadata.get("tags", []):
            cell.source = without_answers(cell.source)
        return cell, resources


class FoldCells(NbGraderPreprocessor):
    """Hide the source of checks and of cells tagged `folded`, until the reader clicks on it."""

    def preprocess_cell(self, cell, resources, cell_index):
        if is_check(cell) or (cell.cell_type == "code" and FOLDED in cell.metadata.get("tags", [])):
            cell.metadata["jupyter"] = {"source_hidden": True}
        return cell, resources


class SkipDemonstrations(NbGraderPreprocessor):
    """Have cells tagged `engines`, `real-run` or `slow` skipped while grading, and no others."""

    def preprocess_cell(self, cell, resources, cell_index):
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != SKIP]
        if "nbgrader" not in cell.metadata and DEMONSTRATIONS & set(tags):
            tags.append(SKIP)
        if tags or "tags" in cell.metadata:
            cell.metadata["tags"] = tags
        return cell, resources


def without_answers(source: str) -> str:
    """Replace the value of `answer=` in every call of a method `predict` with `...`."""
    calls = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "predict"
    ]
    found = [ast.get_source_segment(source, k) for call in calls for k in call.keywords if k.arg == "answer"]
    for text in sorted(found, key=len, reverse=True):  # `answer=3` is also the beginning of `answer=30`
        source = source.replace(text, "answer=...")
    return source


class Refused(SystemExit):
    """Grading ends here, with a text that says what to do; nbgrader would go on after any other exception."""


class Ready(NbGraderPreprocessor):
    """Raise `Refused` before anything is run; the first step of autograding."""

    def preprocess(self, nb, resources):
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


class ReadSubmission(NotebookExporter):
    """Reads nbgrader's copy of a submission, also where an editor of Windows has begun it with a byte-order mark."""

    def from_filename(self, filename, resources=None, **options):
        path = Path(filename)
        path.write_bytes(path.read_bytes().removeprefix(codecs.BOM_UTF8))
        return super().from_filename(filename, resources, **options)


class MendMetadata(NbGraderPreprocessor):
    """Make the metadata of a submission readable for nbgrader; the first step."""

    def preprocess(self, nb, resources):
        # half of a pair of surrogates, which no file can hold
        nb = from_dict(json.loads(json.dumps(nb, ensure_ascii=False).encode("utf-8", "replace")))
        nb.metadata.pop("distlearn", None)
        nb.nbformat_minor = max(nb.nbformat_minor, 5)  # the first with ids
        seen = set()
        for cell in nb.cells:
            if not cell.get("id") or cell.id in seen:
                cell["id"] = random_cell_id()
            seen.add(cell.id)
            if not isinstance(cell.get("metadata"), dict):
                cell["metadata"] = NotebookNode()
            told = cell.metadata.get("nbgrader")
            if "nbgrader" in cell.metadata and not (isinstance(told, dict) and isinstance(told.get("grade_id"), str)):
                self.log.warning("A cell has metadata of nbgrader that cannot be read: %.80r", told)
                del cell.metadata["nbgrader"]
            if not isinstance(cell.metadata.get("tags", []), list):
                del cell.metadata["tags"]
            if cell.cell_type == "code":
                cell.setdefault("outputs", [])
                cell.setdefault("execution_count", None)
        self._keep_what_was_checked(nb)
        return nb, resources

    def _keep_what_was_checked(self, nb) -> None:
        """Of copies of an answer keep the last above its check, where it has one; nbgrader keeps the last of all."""
        names = [grade_id_of(cell) for cell in nb.cells]
        for name in {name for name in names if names.count(name) > 1 and f"check_{name}" in names}:
            copies = [at for at, found in enumerate(names) if found == name]
            check = len(names) - 1 - names[::-1].index(f"check_{name}")
            kept = max((at for at in copies if at < check), default=copies[-1])
            self.log.warning("Cell '%s' is there %d times: the last above its check counts", name, len(copies))
            for at in set(copies) - {kept}:
                del nb.cells[at].metadata["nbgrader"]


class RestoreCells(NbGraderPreprocessor):
    """Put cells of exercises back where they are missing; the step before `OverwriteCells`."""

    def preprocess(self, nb, resources):
        told = resources["nbgrader"]
        for cell in nb.cells:
            if cell.metadata.get("nbgrader") == {}:  # DeduplicateIds leaves this on copies, and OverwriteCells fails
                del cell.metadata["nbgrader"]
        with Gradebook(told["db_url"]) as book:
            notebook = book.find_notebook(told["notebook"], told["assignment"])
            points = {cell.name: cell.max_score for cell in notebook.grade_cells}
            answers = {cell.name for cell in notebook.solution_cells}
            given = {
                source.name: _released(source, points.get(source.name), source.name in answers)
                for source in notebook.source_cells
            }
        for cell in nb.cells:
            if grade_id_of(cell) not in ("", *given):
                self.log.warning("Cell '%s' does not belong to this lab: it earns nothing", grade_id_of(cell))
                del cell.metadata["nbgrader"]
        self._recognise(nb, given, source_of(self.config, told["assignment"], told["notebook"]))
        if not any(grade_id_of(cell) for cell in nb.cells):
            raise ValueError(f"this is no notebook of {told['assignment']}: it has none of its exercises")
        place = 0
        for name, cell in given.items():
            place = self._put_back(nb, name, cell, place) + 1
        return nb, resources

    def _recognise(self, nb, given, source) -> None:
        cells = source.cells if source else []
        ids = {c.id: c.grade_id for c in cells if c.grade_id}
        below = {packed(cells[c.index - 1].source): c.grade_id for c in cells[1:] if c.grade_id}
        texts = {packed(_public(cell)): name for name, cell in given.items() if is_check(cell)}
        missing = given.keys() - {grade_id_of(cell) for cell in nb.cells}
        for above, cell in zip([None, *nb.cells], nb.cells, strict=False):
            names = ids.get(cell.id), texts.get(packed(cell.source)), above and below.get(packed(above.source))
            for name in names:
                if name in missing and not grade_id_of(cell) and cell.cell_type == given[name].cell_type:
                    self.log.warning("Cell '%s' had lost its metadata and was recognised", name)
                    cell.metadata["nbgrader"] = given[name].metadata["nbgrader"]
                    missing.discard(name)

    def _put_back(self, nb, name, given, place) -> int:
        """Make one cell what it was, but for the student's answer; return where it is."""
        cell = next((c for c in nb.cells if grade_id_of(c) == name), None)
        if cell is None:
            self.log.warning("Cell '%s' is missing: put back", name)
            nb.cells.insert(place, given)
            return place
        at, told = nb.cells.index(cell), given.metadata["nbgrader"]
        cell.metadata["nbgrader"] = told
        if cell.cell_type != given.cell_type:
            cell = nb.cells[at] = _MAKE[given.cell_type](cell.source, id=cell.id, metadata={"nbgrader": told})
        if not is_check(given):
            return at
        written, cell.source = cell.source, given.source
        if packed(written) not in (packed(given.source), packed(_public(given))):
            self.log.warning("Check '%s' was edited: put back below what it was made", name)  # it may hold an answer
            nb.cells.insert(at, new_code_cell(written))
            at += 1
        answer = next((i for i, c in enumerate(nb.cells) if f"check_{grade_id_of(c)}" == name), -1)
        if at < answer:
            self.log.warning("Check '%s' is above its answer: moved below it", name)
            nb.cells.insert(answer, nb.cells.pop(at))
            return answer
        return at


_MAKE = {"code": new_code_cell, "markdown": new_markdown_cell}


def _public(check) -> str:
    """What students see of a check."""
    cell = new_code_cell(check.source)
    ClearHiddenTests()._remove_hidden_test_region(cell)
    return cell.source


def _released(source, points, solution):
    """The cell as nbgrader's gradebook knows it, but with an answer in code left empty."""
    text = "# this cell was deleted" if solution and source.cell_type == "code" else source.source
    told = {"schema_version": 3, "grade_id": source.name, "cell_type": source.cell_type, "checksum": source.checksum}
    told |= {"grade": points is not None, "solution": solution, "locked": bool(source.locked), "task": False}
    told |= {} if points is None else {"points": points}
    return _MAKE[source.cell_type](text, metadata={"nbgrader": told})
