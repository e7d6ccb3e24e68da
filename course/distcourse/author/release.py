"""Generate the students' copies of labs with nbgrader, and verify that they are up to date.

Copies are made in a temporary folder first: a source that nbgrader rejects leaves the old copy in place.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from difflib import get_close_matches
from pathlib import Path

import nbformat

CONFIG = "nbgrader_config.py"


class NotALab(ValueError):
    """There is no such lab, or no course at all."""


def find_course(start=None) -> Path:
    """Return the course directory (the one with nbgrader_config.py) at, below or above `start`."""
    here = Path(start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        for candidate in (folder, folder / "course"):
            if (candidate / CONFIG).is_file():
                return candidate
    raise NotALab(f"no course here: neither {here} nor a folder above it holds course/{CONFIG} (use --course)")


def lab_names(course) -> list[str]:
    """Folder names of the labs that have a source, in order."""
    return sorted(p.parent.name for p in Path(course, "source").glob("*/*.ipynb"))


def source_notebooks(course, names=None) -> list[Path]:
    """Source notebooks of the labs named, or of all in order."""
    return [next(Path(course, "source", name).glob("*.ipynb")) for name in find_labs(course, names)]


def labs_dir(course) -> Path:
    """Folder of the students' copies."""
    return Path(os.path.abspath(Path(course, config_of(course).CourseDirectory.get("release_directory", "release"))))


def generate(course, names=None, *, force: bool = False) -> list[Path]:
    """Make the students' copies; return their folders."""
    course = Path(course).resolve()
    names, target = find_labs(course, names), labs_dir(course)
    worked_in = [] if force else [f"{name} ({why})" for name in names if (why := changed_by_hand(target / name))]
    if worked_in:
        raise FileExistsError(f"copies have been edited: {', '.join(worked_in)}; move them away, or use --force")
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            _assign(course, name, Path(temporary))
        for name in names:
            shutil.rmtree(target / name, ignore_errors=True)
            shutil.copytree(Path(temporary, name), target / name)
    return [target / name for name in names]


def compare_release(course, names=None) -> list[str]:
    """Generate the copies again elsewhere and return how those that are there differ."""
    course = Path(course).resolve()
    names, there = find_labs(course, names), labs_dir(course)
    with tempfile.TemporaryDirectory() as temporary:
        found = [diff for name in names for diff in _differences(there, _assign(course, name, Path(temporary)), name)]
    known = set(lab_names(course))
    if set(names) == known:
        extra = sorted(p.name for p in there.glob("lab*") if p.is_dir() and p.name not in known)
        found += [f"{name}: has no source; remove {there / name}" for name in extra]
    return found


def changed_by_hand(folder) -> str:
    """Say what in a student's copy was not made by nbgrader ("" if nothing): outputs, answers, predictions."""
    from nbgrader.utils import compute_checksum

    for path in sorted(Path(folder).glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            told = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code" and (cell.outputs or cell.execution_count):
                return f"{path.name} has been run"
            if "checksum" in told and told["checksum"] != compute_checksum(cell) and not told.get("locked"):
                return f"{path.name} has an answer in {told['grade_id']}"
            if "predict" in cell.metadata.get("tags", []) and "answer=..." not in cell.source:
                return f"{path.name} has a prediction"
    return ""


def find_labs(course, names=None) -> list[str]:
    """Return the labs that are meant by their names or the beginnings of those (`lab07`, `07`); all without names."""
    there, found = lab_names(course), []
    for name in names or there:
        begins = name.lower().rstrip("/").removeprefix("lab")
        meant = [lab for lab in there if begins and lab.removeprefix("lab").startswith(begins)]
        meant = [name] if name in there else meant
        if len(meant) != 1:
            close = meant or get_close_matches(name, there, 1, 0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(there) or '(none)'}"
            raise NotALab(f"no lab {name!r} in {Path(course, 'source')}: {hint}")
        found += meant
    return found


def config_of(course):
    """Return nbgrader's configuration of a course directory."""
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader(CONFIG, path=str(course)).load_config()
    config.CourseDirectory.root = str(Path(course).resolve())
    return config


def _assign(course, name, release) -> Path:
    """Run nbgrader's generate_assignment for one lab without a gradebook; return the folder that it made."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    config = config_of(course)
    config.CourseDirectory.release_directory = str(release)
    config.CourseDirectory.assignment_id = name
    config.SaveCells.enabled = False
    config.GenerateAssignment.no_database = True
    quiet = logging.getLogger("distlearn.nbgrader")
    quiet.setLevel(logging.ERROR)
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config, log=quiet), config=config, log=quiet)
    converter.force = True
    converter.start()
    return Path(release, name)


def files_of(folder) -> dict[str, Path]:
    """Return the files of a student's copy by their paths in it, without what an editor or Python leaves there."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    kept = [path for path in paths if not {".ipynb_checkpoints", "__pycache__"} & set(path.parts)]
    return {path.relative_to(folder).as_posix(): path for path in kept}


def _differences(there, made, name) -> list[str]:
    if not (there / name).is_dir():
        return [f"{name}: has not been generated"]
    ours, theirs = files_of(made), files_of(there / name)
    found = [f"{name}/{p}: is missing" for p in ours if p not in theirs]
    found += [f"{name}/{p}: is not generated from the source" for p in theirs if p not in ours]
    return found + [
        f"{name}/{p}: differs from what the source generates"
        for p in ours
        if p in theirs and ours[p].read_bytes() != theirs[p].read_bytes()
    ]
