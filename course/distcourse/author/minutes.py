"""How long a lab takes: a rule that counts what is read and written. It is a model; no students were timed.

`course/AUTHORING.md` says where its numbers come from.
"""

from __future__ import annotations

import re

from .source import BEGIN_SOLUTION, END_SOLUTION, Cell, Problem, Source

WORDS, GIVEN = 130, 8
"""Words of text, and lines of given code, that are read in a minute."""
LINE, TRIES, TRY = 1.0, 2, 2.0
"""Minutes for a line that the student writes; failed attempts at an exercise, and minutes for each of them."""
PREDICTION, ANSWER, FIGURE, RUN = 1.0, 3.0, 0.5, 0.05
"""Minutes for a guess, an answer in words, a figure, and for a code cell to run."""
TOLERANCE, PAUSE = 0.15, 150
"""By how much the stated minutes may miss the rule's; a lab of more than `PAUSE` minutes names a place for a break."""


def estimate(lab: Source) -> dict[str, float]:
    """Return the minutes of each section, by its title.

    What stands above the first section counts to it, and the summary to the last.
    """
    timed = [s for s in lab.sections if s.title != "Summary"] or lab.sections[:1]
    minutes = {s.title: 0.0 for s in timed}
    for cell in lab.cells:
        section = next((s for s in reversed(timed) if s.cell.index <= cell.index), timed[0] if timed else None)
        if section:
            minutes[section.title] += _minutes(cell)
    return minutes


def _minutes(cell: Cell) -> float:
    """What one cell takes: hints count among the attempts, and checks and what is folded are not read."""
    if cell.is_answer:
        return ANSWER
    if not cell.is_code:
        text = re.sub(r"<[^>]+>", "", cell.source.partition("**References.**")[0])
        return 0.0 if "hints" in cell.tags else len(text.split()) / WORDS
    figures = len(cell.calls("lab.show", "lab.film"))
    minutes = RUN + FIGURE * figures + PREDICTION * len(cell.calls("lab.predict"))
    if cell.is_check or "folded" in cell.tags:
        return minutes
    written = _lines(cell.region(BEGIN_SOLUTION, END_SOLUTION))
    minutes += (_lines(cell.source) - written) / GIVEN + LINE * written
    return minutes + TRIES * TRY * cell.is_solution


def _lines(text: str) -> int:
    """Lines that are neither blank nor markers."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("### "))


def agree(lab: Source):
    """The stated minutes are the rule's; a long lab names a section to pause after."""
    stated, ruled = sum(s.minutes or 0 for s in lab.sections), sum(estimate(lab).values())
    if abs(stated - ruled) > TOLERANCE * ruled:
        parts = ", ".join(f"{title} {minutes:.0f}" for title, minutes in estimate(lab).items())
        yield Problem(None, f"{stated} minutes are stated, the rule of AUTHORING.md gives {ruled:.0f} ({parts})")
    time = re.search(r"^\*\*Time\.\*\*.*", lab.cells[0].source if lab.cells else "", re.MULTILINE)
    if stated > PAUSE and not (time and re.search(r"\bsections? \d", time[0])):
        yield Problem(lab.cells[0], f"{stated} minutes, and **Time.** names no section after which to take a break")
