"""The board as one static page and as CSV."""

from __future__ import annotations

import contextlib
import csv
import io
from importlib import resources
from pathlib import Path

from .board import LIBRARY, Standing, standings, time_of
from .reading import Refused
from .rounds import TRACKS

COLUMNS = ["track", "place", "team", "cost", "unit", "floor", "public", "submissions", "time", "state", "remarks"]


def remarks(line: Standing) -> str:
    reason = line.reason.partition("\n")[0]  # what follows are lines of a team's source: `check` shows it to the team
    return "; ".join(filter(None, [reason, *line.notes, "late" if line.late else ""]))


def as_csv(boards: dict[str, list[Standing]]) -> str:
    """Return the board as CSV; a cell that a spreadsheet would take for a formula begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, lines in boards.items():
        for s in lines:
            numbers = [s.cost, TRACKS[name].unit, s.floor, s.public, s.count]
            row = [name, s.place, s.team, *numbers, s.time, s.state, remarks(s)]
            cells = ["" if cell is None else str(cell) for cell in row]
            writer.writerow([f"'{c}" if c[:1] in ("=", "+", "-", "@", "\t", "\r") else c for c in cells])
    return out.getvalue()


def as_html(boards: dict[str, list[Standing]], terms: dict) -> str:
    """Return the board as one page, which loads nothing."""
    from jinja2 import Environment, StrictUndefined

    text = (resources.files("distcourse.project") / "board.html.j2").read_text(encoding="utf-8")
    options = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    template = Environment(**options).from_string(text)
    latest = max((s.time for lines in boards.values() for s in lines if _is_time(s.time)), default="")
    return template.render(boards=boards, tracks=TRACKS, remarks=remarks, library=LIBRARY,
                           terms=terms, latest=latest)  # fmt: skip


def _is_time(text: str) -> bool:
    with contextlib.suppress(Refused):
        return bool(time_of(text))
    return False


def write_board(entries, terms: dict, folder: Path, disqualified=None) -> None:
    """Write board.html and board.csv."""
    boards = standings(entries, disqualified)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "board.html").write_text(as_html(boards, terms), encoding="utf-8")
    (folder / "board.csv").write_text(as_csv(boards), encoding="utf-8")
