"""Steps that the course adds to nbgrader's, named in course/nbgrader_config.py.

`ClearPredictions` empties the sample predictions when the students' copies are made. `RestoreCells` puts back what a
student deleted, and forgets copies of graded cells: nbgrader alone gives up on such notebooks. `SkipDemonstrations`
leaves out cells that cost grading much time and no points, and sees to it that nothing else is left out: a graded cell
that is skipped raises nothing, and what raises nothing earns full points.
"""

from __future__ import annotations

import ast

from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor

DEMONSTRATIONS = {"engines", "real-run", "slow"}
SKIP = "skip-execution"
"""The tag that nbclient obeys."""


class ClearPredictions(NbGraderPreprocessor):
    """Replace the `answer=` of every `lab.predict` call by `...`."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Handle one cell."""
        if cell.cell_type == "code" and "predict" in cell.metadata.get("tags", []):
            cell.source = without_answers(cell.source)
        return cell, resources


class RestoreCells(NbGraderPreprocessor):
    """Put deleted cells of exercises back, each behind the one that it followed; the step before `OverwriteCells`.

    A check comes back as it was, an answer empty: the student may have written the function elsewhere.
    """

    def preprocess(self, nb, resources):
        """Handle one notebook."""
        for cell in nb.cells:
            if cell.metadata.get("nbgrader") == {}:  # DeduplicateIds leaves this on copies, and OverwriteCells fails
                del cell.metadata["nbgrader"]
        told = resources["nbgrader"]
        with Gradebook(told["db_url"]) as book:
            notebook = book.find_notebook(told["notebook"], told["assignment"])
            points = {cell.name: cell.max_score for cell in notebook.grade_cells}
            answers = {cell.name for cell in notebook.solution_cells}
            place = 0
            for source in notebook.source_cells:
                found = [i for i, cell in enumerate(nb.cells) if _grade_id(cell) == source.name]
                if not found:
                    self.log.warning("Cell '%s' is missing: it is put back", source.name)
                    nb.cells.insert(place, _released(source, points.get(source.name), source.name in answers))
                place = (found[0] if found else place) + 1
        return nb, resources


def _grade_id(cell) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _released(source, points, solution):
    """The cell as nbgrader's gradebook knows it, but with an answer in code left empty."""
    make = new_code_cell if source.cell_type == "code" else new_markdown_cell
    text = "# this cell was deleted" if solution and source.cell_type == "code" else source.source
    told = {"schema_version": 3, "grade_id": source.name, "cell_type": source.cell_type, "checksum": source.checksum}
    told |= {"grade": points is not None, "solution": solution, "locked": bool(source.locked), "task": False}
    told |= {} if points is None else {"points": points}
    return make(text, metadata={"nbgrader": told})


class SkipDemonstrations(NbGraderPreprocessor):
    """Have cells tagged `engines`, `real-run` or `slow` skipped while grading, and no others."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Handle one cell."""
        tags = [tag for tag in cell.metadata.get("tags", []) if tag != SKIP]
        if "nbgrader" not in cell.metadata and DEMONSTRATIONS & set(tags):
            tags.append(SKIP)
        if tags or "tags" in cell.metadata:
            cell.metadata["tags"] = tags
        return cell, resources


def without_answers(source: str) -> str:
    """Replace the value of `answer=` in every call of a method `predict` by `...`.

    Examples
    --------
    >>> without_answers('lab.predict("n", "How many?", answer=3, unit="x")')
    'lab.predict("n", "How many?", answer=..., unit="x")'
    """
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode("utf-8")))
    text = source.encode("utf-8")  # ast counts columns in bytes
    spans = [
        (starts[k.value.lineno - 1] + k.value.col_offset, starts[k.value.end_lineno - 1] + k.value.end_col_offset)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "predict"
        for k in call.keywords
        if k.arg == "answer"
    ]
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + b"..." + text[end:]
    return text.decode("utf-8")
