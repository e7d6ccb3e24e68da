"""The planner against published clusters: skill on the sealed rows of every table, beside a constant's errors."""

from __future__ import annotations

from distcourse.backtest import backtest, published

from . import quick, record


def records():
    """A record for each part of each table; the peer's number is the median error of the best constant."""
    tables = list(published().values())
    rows = []
    for table in tables[:3] if quick() else tables:
        found = backtest(table)
        fitted = ", ".join(f"{name} {value:.2f}" for name, value in found.fitted.items())
        opened = sum(run.part == "open" for run in table.runs)
        for score in found.scores():
            note = f"skill {score.skill:.2f}, rank correlation {score.ranks:.2f}"
            if score.part == "sealed":
                note += f"; {fitted} from {opened} open rows; worst: {found.worst()}"
            what = f"{table.name}: {score.part}, {score.rows} rows, median error"
            goal = "ratio <= 1" if score.part == "sealed" else ""
            errors = 100 * score.error, 100 * score.constant
            rows.append(record(what, "%", *errors, goal=goal, note=note))
    return rows
