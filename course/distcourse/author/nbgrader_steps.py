"""Steps that the course adds to nbgrader's, named in course/nbgrader_config.py.

`ClearPredictions` empties the sample predictions when the students' copies are made, `FoldCells` folds checks and
plotting code in them. `SkipDemonstrations` leaves out cells that cost grading much time and no points, and makes sure
that nothing else is left out: a graded cell that is skipped raises no error and would earn full points. `HideTests`
takes lines of hidden tests out of the outputs that students get to see. Larger steps have their own modules:
`restore`, `execute`.
"""

from __future__ import annotations

import ast
import re

from nbgrader.preprocessors import NbGraderPreprocessor

from .source import BEGIN_HIDDEN, END_HIDDEN, Cell

DEMONSTRATIONS = {"engines", "real-run", "slow"}
FOLDED = "folded"
SKIP = "skip-execution"
"""The tag that nbclient obeys."""


class ClearPredictions(NbGraderPreprocessor):
    """Replace the `answer=` of every `lab.predict` call with `...`."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Handle one cell."""
        if cell.cell_type == "code" and "predict" in cell.metadata.get("tags", []):
            cell.source = without_answers(cell.source)
        return cell, resources


class FoldCells(NbGraderPreprocessor):
    """Hide the source of checks and of cells tagged `folded`, until the reader clicks on it."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Handle one cell."""
        told = cell.metadata.get("nbgrader", {})
        is_check = told.get("grade") and not told.get("solution")
        if cell.cell_type == "code" and (is_check or FOLDED in cell.metadata.get("tags", [])):
            cell.metadata["jupyter"] = {"source_hidden": True}
        return cell, resources


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


class HideTests(NbGraderPreprocessor):
    """Take lines of hidden tests out of all outputs; the step before nbgrader's `ClearHiddenTests`.

    They get there in the traceback of a check that was stopped, and where an answer prints what called it.
    """

    def preprocess(self, nb, resources):
        """Handle one notebook."""
        cells = [Cell(i, cell) for i, cell in enumerate(nb.cells) if cell.cell_type == "code"]
        hidden = {line.strip() for c in cells for line in c.region(BEGIN_HIDDEN, END_HIDDEN).splitlines()}
        shown = {line.strip() for c in cells for line in c.without(BEGIN_HIDDEN, END_HIDDEN).splitlines()}
        secret = {line for line in hidden - shown if len(line) > 9}
        if secret:
            for cell in cells:
                for out in cell.node.outputs:
                    for holder, key in _texts(out):
                        holder[key] = _without(secret, holder[key])
        return nb, resources


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HIDDEN = "[a line of the hidden tests]"


def _texts(out):
    """Yield (container, key) of every text of an output."""
    if out.output_type == "stream":
        yield out, "text"
    elif out.output_type == "error":
        yield out, "evalue"
        yield from ((out.traceback, i) for i in range(len(out.traceback)))
    else:
        yield from ((out.data, kind) for kind, text in out.data.items() if isinstance(text, str) and "text" in kind)


def _without(secret, text: str) -> str:
    """Remove the lines that contain a secret one, whether coloured, quoted or joined."""
    plain = _COLOUR.sub("", text)
    if not any(line in plain for line in secret):
        return text
    for line in sorted(secret, key=len, reverse=True):
        plain = plain.replace(line, HIDDEN)
    return plain


def without_answers(source: str) -> str:
    """Replace the value of `answer=` in every call of a method `predict` with `...`."""
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
