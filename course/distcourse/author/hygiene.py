"""Rules on the file itself: ids, outputs, no absolute paths, format; and `tidy`, which undoes what saving adds."""

from __future__ import annotations

import copy
import re
import sys
from collections import Counter

import nbformat

from .outputs import COMPARED, keep_compared
from .source import KINDS, Problem, Source

TAGS = {
    "predict",
    "failure",
    "engines",
    "real-run",
    "slow",
    "hints",
    "folded",
    COMPARED,
    "raises-exception",
}
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
METADATA = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
ABSOLUTE = re.compile(
    r"(?<![\w./])/(home|Users|root|tmp|work|mnt|media|opt|usr|var|etc|data)/|\b[A-Za-z]:\\\\?\w|file://"
)
SHADOWED = set(sys.stdlib_module_names) | {
    "comm",
    "mpi",
    "numpy",
    "matplotlib",
    "distlearn",
    "distcourse",
    "IPython",
    "ipyparallel",
}


def ids(lab: Source):
    """Every cell has its own id (nbgrader would draw random ones)."""
    count = Counter(c.id for c in lab.cells)
    for cell in lab.cells:
        if not cell.id or f'"id": "{cell.id}"' not in lab.text:
            yield Problem(cell, "has no id")
        elif count[cell.id] > 1:
            yield Problem(cell, f"id {cell.id!r} is used {count[cell.id]} times")


def committed(lab: Source):
    """Outputs of compared cells and no others, no metadata of one machine, in nbformat's own format."""
    for cell in lab.code:
        kept = copy.deepcopy(cell.node)
        keep_compared(kept)
        if COMPARED in cell.tags and not kept.outputs:
            yield Problem(cell, f"is tagged {COMPARED} and holds no printed output (distlearn labs outputs writes it)")
        elif kept != cell.node:
            yield Problem(cell, "has outputs or an execution count that are not compared (distlearn labs check --fix)")
    for cell in lab.cells:
        strange = sorted(set(cell.node.metadata) - {"tags", "nbgrader"})
        if strange:
            yield Problem(cell, f"metadata {', '.join(strange)} (distlearn labs check --fix removes it)")
        for tag in sorted(set(cell.tags) - TAGS):
            yield Problem(cell, f"unknown tag {tag!r}, expected one of {', '.join(sorted(TAGS))}")
    if lab.kind not in KINDS:
        yield Problem(None, f"its metadata says kind {lab.kind!r}, expected one of {', '.join(KINDS)}")
    elif lab.notebook.metadata != _metadata(lab):
        yield Problem(None, "the notebook's metadata is not just the kernel python3 (distlearn labs check --fix)")
    if (lab.notebook.nbformat, lab.notebook.nbformat_minor) != (4, 5):
        yield Problem(None, "expected notebook format 4.5 (distlearn labs check --fix)")
    elif lab.text != _written(lab.notebook):
        yield Problem(None, "is not formatted as nbformat writes it (distlearn labs check --fix)")


def portable(lab: Source):
    """No absolute paths, no NBVAL_ comments, no broken links to notebooks."""
    for cell in lab.cells:
        found = ABSOLUTE.search(cell.source)
        if found:
            yield Problem(cell, f"absolute path: {cell.source[found.start() : found.start() + 40].splitlines()[0]!r}")
        if "NBVAL_" in cell.source:
            yield Problem(
                cell, "NBVAL_ comment: use the tag nbval-check-output, a comment survives into the student's copy"
            )
        if cell.is_code and re.search(r"open\([^)]*['\"][rwa]t?['\"]\)", cell.source):
            yield Problem(cell, 'open(...) without encoding="utf-8"')
        if cell.is_code:
            continue
        for link in re.findall(r"\]\(([^)#:]+\.ipynb)", cell.source):
            if not (lab.path.parent / link).exists():
                yield Problem(cell, f"link to {link}, which does not exist")


def neighbours(lab: Source):
    """No file beside the notebook shadows a module."""
    for path in sorted(lab.path.parent.iterdir()):
        if path.stem in SHADOWED and (path.suffix == ".py" or path.is_dir()):
            yield Problem(None, f"{path.name} beside the notebook shadows the module {path.stem}")


def tidy(path) -> bool:
    """Remove what JupyterLab adds on saving, except compared text; format the file; return whether that changed it."""
    lab = Source(path)
    notebook = lab.notebook
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(_metadata(lab))
    for cell in notebook.cells:
        cell.setdefault("id", nbformat.v4.new_code_cell().id)
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in ("tags", "nbgrader") and v})
        if cell.cell_type == "code":
            keep_compared(cell)
        cell.pop("attachments", None)
    text = _written(notebook)
    if text != lab.text:
        lab.path.write_text(text, encoding="utf-8")
    return text != lab.text


def _metadata(lab: Source) -> dict:
    return METADATA if lab.kind == "full" else METADATA | {"distlearn": {"kind": lab.kind}}


def _written(notebook) -> str:
    return nbformat.v4.writes(notebook).rstrip("\n") + "\n"
