"""How far a student is, from the notebooks as they were saved: nothing else is kept, nothing leaves the machine.

labs/labNN_topic/labNN.ipynb --> Progress --> `distlearn progress`, and labs/START.md, which `distlearn start` opens
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .author.rules import LEAD_IN
from .author.source import Source

START = "START.md"


class Progress(NamedTuple):
    """A lab, and what of it is done."""

    lab: str
    points: float  # of the checks that passed when they were last run
    all_points: float
    guesses: int
    all_guesses: int
    minutes: float  # of each section, the share of its code cells that have been run
    all_minutes: int
    missing: str = ""  # what is said where there is no notebook of the lab's name

    @property
    def cells(self) -> list[str]:
        """Points, predictions and minutes in words."""
        if self.missing:
            return [""] * 3
        pairs = [self[i : i + 2] for i in (1, 3, 5)]
        return [f"{done:.0f} of {total:g}" if done else f"{total:g}" for done, total in pairs]

    @property
    def bar(self) -> str:
        if self.missing:
            return self.missing
        done = round(10 * self.points / self.all_points) if self.all_points else 0
        return "■" * done + "□" * (10 - done)


def find_labs(start=None) -> Path:
    """Return the folder of the labs at, above or below `start`."""
    here = Path(start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        for candidate in (folder, folder / "labs"):
            if any(candidate.glob("lab[0-9][0-9]_*/lab*.ipynb")) and candidate.name != "source":
                return candidate
    raise FileNotFoundError(f"no labs here: neither {here} nor a folder above it holds labs/lab00_welcome")


@lru_cache(maxsize=64)
def read(notebook, changed: int) -> Progress:
    """Read one notebook; not again while it has not changed, or every save would read all."""
    lab = Source(notebook)
    checks = [cell for cell in lab.cells if cell.is_check]
    asked = [call for cell in lab.code for call in cell.calls("lab.predict")]
    guesses = [k.value for call in asked for k in call.keywords if k.arg == "answer"]
    guessed = sum(getattr(guess, "value", None) is not ... for guess in guesses)
    minutes, ends = 0.0, [*(s.cell.index for s in lab.sections[1:]), len(lab.cells)]
    for section, end in zip(lab.sections, ends, strict=True):
        code = [cell for cell in lab.cells[section.cell.index : end] if cell.is_code]
        minutes += (section.minutes or 0) * sum(map(_ran, code)) / max(1, len(code))
    points, passed = (sum(cell.points for cell in cells) for cells in (checks, filter(_ran, checks)))
    # as released: a check that was deleted leaves the exercise and its points
    points = max(points, sum(int(lead["points"]) for cell in lab.cells for lead in LEAD_IN.finditer(cell.source)))
    return Progress(Path(notebook).parent.name, passed, points, guessed, len(asked), minutes, lab.minutes)


def _ran(cell) -> bool:
    return bool(cell.node.execution_count) and all(out.output_type != "error" for out in cell.node.outputs)


def read_all(labs) -> list[Progress]:
    """Read every lab of a folder; one that cannot be read now is left out."""
    found = []
    for folder in sorted(filter(Path.is_dir, Path(labs).glob("lab[0-9][0-9]_*"))):
        path = folder / f"{folder.name[:5]}.ipynb"
        if not path.exists():
            others = ", ".join(sorted(other.name for other in folder.glob("*.ipynb")))
            told = f"not found: {others}?" if others else f"not found: {path.name}"
            found.append(Progress(folder.name, 0, 0, 0, 0, 0, 0, told))
            continue
        try:
            found.append(read(path, path.stat().st_mtime_ns))
        except (OSError, ValueError):  # half written
            continue
    return found


def write_page(labs) -> Path:
    """Write the landing page: README.md of the labs, with what is done in its table."""
    labs = Path(labs)
    done = {progress.lab: progress for progress in read_all(labs)}
    readme = (labs / "README.md").read_text(encoding="utf-8")

    def row(match):
        progress = done.get(match["lab"])
        said = [progress.bar, *progress.cells] if progress else [""] * 4
        return f"{match['link']} | {' | '.join(said)} |"

    head = "| lab | the question it answers | done | points of checks | predictions | minutes |\n" + "| --- " * 6 + "|"
    page = re.sub(r"^\| lab \|.*\n\| ---.*$", head, readme, count=1, flags=re.MULTILINE)
    page = re.sub(r"^(?P<link>\| \[[^|]*\]\((?P<lab>lab\w+)/[^|]*\| [^|]*) \|.*\|$", row, page, flags=re.MULTILINE)
    page = page.replace("# The labs", "# Your labs", 1)
    (labs / START).write_text(page, encoding="utf-8")
    return labs / START


def after_save(model, os_path, contents_manager, **_) -> None:
    """Write the landing page again after JupyterLab has saved a lab."""
    labs = Path(os_path).parent.parent
    if model["type"] == "notebook" and (labs / START).exists():
        write_page(labs)
