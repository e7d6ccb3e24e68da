"""Restore the cells of a submission; course/nbgrader_config.py names these steps.

nbgrader knows a cell by the name in its metadata, and loses an exercise whose cells were deleted, merged, reordered, or
stripped of metadata by another editor. What such a student has written is still there.
"""

from __future__ import annotations

import json

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbformat.v4.nbbase import random_cell_id
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor

from .stage import grade_id_of, source_of


class MendMetadata(NbGraderPreprocessor):
    """Make the metadata of a submission readable for nbgrader; the first step."""

    def preprocess(self, nb, resources):
        """Handle one notebook."""
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
        return nb, resources


class RestoreCells(NbGraderPreprocessor):
    """Put cells of exercises back where they are missing; the step before `OverwriteCells`."""

    def preprocess(self, nb, resources):
        """Handle one notebook."""
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
        self._reset(nb, given)
        self._insert_missing(nb, given)
        self._order(nb)
        return nb, resources

    def _recognise(self, nb, given, source) -> None:
        """Give cells that lost their metadata their names back."""
        cells = source.cells if source else []
        ids = {c.id: c.grade_id for c in cells if c.grade_id}
        below = {_words(cells[c.index - 1].source): c.grade_id for c in cells[1:] if c.grade_id}
        texts = {_words(_public(cell)): name for name, cell in given.items() if _is_check(cell)}
        missing = given.keys() - {grade_id_of(cell) for cell in nb.cells}
        for above, cell in zip([None, *nb.cells], nb.cells, strict=False):
            names = ids.get(cell.id), texts.get(_words(cell.source)), above and below.get(_words(above.source))
            for name in names:
                if name in missing and not grade_id_of(cell) and cell.cell_type == given[name].cell_type:
                    self.log.warning("Cell '%s' had lost its metadata and was recognised", name)
                    cell.metadata["nbgrader"] = given[name].metadata["nbgrader"]
                    missing.discard(name)

    def _reset(self, nb, given) -> None:
        """Restore metadata and checks; move what a student wrote into a check to a cell above it."""
        for i, cell in reversed(list(enumerate(nb.cells))):
            name = grade_id_of(cell)
            if name not in given:
                continue
            told = given[name].metadata["nbgrader"]
            changed = [key for key in told if key != "checksum" and cell.metadata["nbgrader"].get(key) != told[key]]
            if changed:
                self.log.warning("Cell '%s' had a different %s: put back", name, ", ".join(changed))
            cell.metadata["nbgrader"] = told
            if cell.cell_type != given[name].cell_type:
                self.log.warning("Cell '%s' is %s: made %s again", name, cell.cell_type, given[name].cell_type)
                metadata = {"nbgrader": told}
                cell = nb.cells[i] = _MAKE[given[name].cell_type](cell.source, id=cell.id, metadata=metadata)
            if not _is_check(given[name]) or cell.source == given[name].source:
                continue
            own = _beside(cell.source, _public(given[name]))
            if own is None:
                self.log.warning("Check '%s' was edited: put back as it was", name)
            cell.source = given[name].source
            if own:
                self.log.warning("Check '%s' contains the student's code: moved into a cell above it", name)
                nb.cells.insert(i, new_code_cell(own))

    def _insert_missing(self, nb, given) -> None:
        place = 0
        for name, cell in given.items():
            found = [i for i, c in enumerate(nb.cells) if grade_id_of(c) == name]
            if not found:
                self.log.warning("Cell '%s' is missing: put back", name)
                nb.cells.insert(place, cell)
            place = (found[0] if found else place) + 1

    def _order(self, nb) -> None:
        """Move checks after their answers."""
        for check in [c for c in nb.cells if _is_check(c)]:
            answer = next((c for c in nb.cells if f"check_{grade_id_of(c)}" == grade_id_of(check)), None)
            if answer is not None and nb.cells.index(check) < nb.cells.index(answer):
                self.log.warning("Check '%s' is above its answer: moved below it", grade_id_of(check))
                nb.cells.remove(check)
                nb.cells.insert(nb.cells.index(answer) + 1, check)


_MAKE = {"code": new_code_cell, "markdown": new_markdown_cell}


def _is_check(cell) -> bool:
    told = cell.metadata.get("nbgrader", {})
    return cell.cell_type == "code" and bool(told.get("grade")) and not told.get("solution")


def _words(text: str) -> str:
    """Remove white space, which editors change at the ends of lines."""
    return "".join(text.split())


def _public(check) -> str:
    """What students see of a check."""
    cell = new_code_cell(check.source)
    ClearHiddenTests()._remove_hidden_test_region(cell)
    return cell.source


def _beside(text: str, public: str) -> str | None:
    """What an edited check contains besides the check; None if the check is not there."""
    lines, wanted = (
        [line.rstrip() for line in text.splitlines()],
        [line.rstrip() for line in public.strip().splitlines()],
    )
    for i in range(len(lines) - len(wanted) + 1):
        if lines[i : i + len(wanted)] == wanted:
            return "\n".join(lines[:i] + lines[i + len(wanted) :]).strip()
    return None


def _released(source, points, solution):
    """The cell as nbgrader's gradebook knows it, but with an answer in code left empty."""
    text = "# this cell was deleted" if solution and source.cell_type == "code" else source.source
    told = {"schema_version": 3, "grade_id": source.name, "cell_type": source.cell_type, "checksum": source.checksum}
    told |= {"grade": points is not None, "solution": solution, "locked": bool(source.locked), "task": False}
    told |= {} if points is None else {"points": points}
    return _MAKE[source.cell_type](text, metadata={"nbgrader": told})
