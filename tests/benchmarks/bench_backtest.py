"""The planner against published clusters: skill on the sealed rows of every table, beside a constant's errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from distcourse.backtest import Published, Run, errors, published, skill

from . import quick, record


class Score(NamedTuple):
    """How well the rows of one part were predicted."""

    part: str
    rows: int
    skill: float
    error: float  # median of |log(predicted / measured)|
    constant: float  # the same of the constant
    ranks: float  # Spearman's correlation of predicted and measured


@dataclass(frozen=True)
class Backtest:
    """A table predicted: two constants fitted on its open rows.

    Attributes
    ----------
    fitted : dict of str to float
        Constants of `predict_step`.
    constant : float
        What is predicted for every row by one who knows only the open ones: their median [TFLOP/s].
    predicted : list of float
        By run [TFLOP/s].
    """

    table_of: Published
    fitted: dict[str, float]
    constant: float
    predicted: list[float]

    def scores(self) -> list[Score]:
        """Score every part of the sealed rows, and all of them."""
        from scipy.stats import spearmanr

        runs, found = self.table_of.runs, []
        measured = np.array([self.table_of.measured(run) for run in runs])
        predicted = np.array(self.predicted)
        sealed = [run.part for run in runs if run.part != "open"]
        for part in [*dict.fromkeys(sealed), "sealed"]:
            mine = np.array([run.part == part or (part == "sealed" and run.part != "open") for run in runs])
            p, m = predicted[mine], measured[mine]
            medians = (float(np.median(errors(x, m))) for x in (p, self.constant))
            ranks = float(spearmanr(p, m).statistic) if len(m) > 2 else math.nan
            found.append(Score(part, len(m), skill(p, m, self.constant), *medians, ranks))
        return found

    def worst(self) -> Run:
        """Return the sealed run that was predicted worst."""
        pairs = zip(self.table_of.runs, self.predicted, strict=True)
        sealed = (pair for pair in pairs if pair[0].part != "open")
        return max(sealed, key=lambda pair: errors(pair[1], self.table_of.measured(pair[0])))[0]


START = {"efficiency": (0.5, 0.8), "links": (1.0, 4.0), "memory": (1.0, 0.4)}
"""Where fitting the constants of `predict_step` begins, and how far its first steps go."""


def backtest(table: Published) -> Backtest:
    """Fit two constants on the open rows of a table, and predict all of them."""
    from scipy.optimize import minimize

    opened = [run for run in table.runs if run.part == "open"]
    measured = np.array([table.measured(run) for run in opened])

    def constants(logs):
        return dict(zip(table.fitted, np.exp(logs).tolist(), strict=True))

    def error(logs):
        return errors([table.predicted(run, **constants(logs)) for run in opened], measured).sum()

    (a, b), (c, d) = (np.log(START[name]) for name in table.fitted)
    simplex = [[a, c], [b, c], [a, d]]
    found = minimize(error, simplex[0], method="Nelder-Mead", options={"maxfev": 30, "initial_simplex": simplex})
    fitted = constants(found.x)
    predicted = [table.predicted(run, **fitted) for run in table.runs]
    return Backtest(table, fitted, float(np.median(measured)), predicted)


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
            medians = 100 * score.error, 100 * score.constant
            rows.append(record(what, "%", *medians, goal=goal, note=note))
    return rows
