"""Outputs that a source holds: what its compared cells print. nbval compares it with what they print now."""

from __future__ import annotations

from pathlib import Path

import nbformat

COMPARED = "nbval-check-output"
"""The tag of cells whose text is compared."""
SECONDS_PER_CELL = 240
"""No cell of a lab takes longer."""


def printed(outputs) -> str:
    """Return the text of some outputs: standard output, then results and displays; no figures, no warnings."""
    streams = [out.text for out in outputs if out.output_type == "stream" and out.name == "stdout"]
    shown = [out.data for out in outputs if out.output_type in ("execute_result", "display_data")]
    shown = [data.get("text/plain", "") for data in shown if not any(kind.startswith("image/") for kind in data)]
    lines = "\n".join(["".join(streams).rstrip("\n"), *shown]).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def keep_compared(cell) -> None:
    """Reduce the outputs of a notebook's cell to the text that is compared; to nothing if it is not tagged."""
    text = printed(cell.outputs) if COMPARED in cell.metadata.get("tags", []) else ""
    cell.outputs = [nbformat.v4.new_output("stream", text=text + "\n")] if text else []
    cell.execution_count = 1 if text else None  # nbval takes a cell without a count for one that never ran


def refresh(path) -> bool:
    """Run a source notebook and keep what its compared cells print; return whether that changed the file."""
    from nbclient import NotebookClient

    from .hygiene import tidy

    path = Path(path)
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources=resources).execute()
    nbformat.write(notebook, path)
    tidy(path)
    return path.read_text(encoding="utf-8") != before
