"""Run the labs for the book: the student's notebooks, their exercises solved, nothing predicted, no hidden test.

`python run_labs.py FOLDER` keeps each notebook with its outputs in FOLDER, with a digest of the lab and of both
packages: a lab is run again where one of them has changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from distcourse.author.rules import SECONDS_PER_CELL
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
LABS = sorted(ROOT.glob("labs/*/*.ipynb"))
SUFFIXES = {".py", ".cu", ".h", ".cpp", ".json", ".js"}
# Predictions are not asked for and bars not drawn, as while nbgrader grades; arrays are small.
SETTINGS = {"NBGRADER_EXECUTION": "book", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": "", "MPLBACKEND": None}


def solved(path: Path) -> nbformat.NotebookNode:
    """Return the student's copy of a lab with the solutions of its source."""
    lab = nbformat.read(path, as_version=4)
    source = nbformat.read(ROOT / "course/source" / path.parent.name / path.name, as_version=4)
    solutions = {c.id: c.source for c in source.cells if c.metadata.get("nbgrader", {}).get("solution")}
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell.source = solutions.get(cell.id, cell.source)
    return lab


def digest(*notebooks: Path) -> str:
    """Return a digest of notebooks and of both packages."""
    packages = [p for name in ("distlearn", "course/distcourse") for p in (ROOT / name).rglob("*")]
    files = [*notebooks, *sorted(p for p in packages if p.suffix in SUFFIXES)]
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in files)).hexdigest()


def run(path: Path, kept: Path) -> str:
    """Run one lab, unless its outputs are there; return what was done."""
    lab, now = solved(path), digest(path, ROOT / "course/source" / path.parent.name / path.name)
    if kept.exists() and nbformat.read(kept, as_version=4).metadata.get("digest") == now:
        return f"{path.stem}: unchanged"
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(path.parent, home, ignore=shutil.ignore_patterns("*.ipynb"), dirs_exist_ok=True)
        places = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "IPYTHONDIR": home}
        env = {k: v for k, v in (os.environ | SETTINGS | places).items() if v is not None}
        client = NotebookClient(lab, timeout=4 * SECONDS_PER_CELL, resources={"metadata": {"path": home}})
        client.execute(env=env, stderr=subprocess.DEVNULL)
    lab.metadata = {**lab.metadata, "digest": now}
    kept.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(lab, kept.with_suffix(".part"))
    kept.with_suffix(".part").replace(kept)  # a book that is made meanwhile reads all of it or the old one
    return f"{path.stem}: run"


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(run, path, Path(sys.argv[1], path.name)) for path in LABS]
        for job in jobs:
            print(job.result(), flush=True)
