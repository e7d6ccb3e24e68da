"""Two steps that the course adds to nbgrader's, named in course/nbgrader_config.py.

`ClearPredictions` empties the sample predictions when the students' copies are made. `SkipDemonstrations` leaves out
cells that cost grading much time and no points, and sees to it that nothing else is left out: a graded cell that is
skipped raises nothing, and what raises nothing earns full points.
"""

from __future__ import annotations

import ast

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
