"""Predictions: students guess before they see the result.

Being wrong after having guessed teaches more than being told. The first guess counts: once the result has been shown, a
later guess is kept as a revision beside it. Guesses live in the kernel's memory only and earn no points.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

import numpy as np

from .show import ASK, GOOD, NOTE, Card, Line

KINDS = {float: "a number", str: "a text", bool: "True or False", tuple: "a tuple such as (3, 4)"}


def grading() -> bool:
    """Return whether nbgrader runs this notebook; a missing guess is then no error."""
    return bool(os.environ.get("NBGRADER_EXECUTION"))


class PredictionMissing(Exception):
    """A result was asked for before it was predicted."""

    def _render_traceback_(self) -> list[str]:
        return [f"PredictionMissing: {self}"]


class PredictionInvalid(ValueError):
    """A prediction of the wrong kind, out of bounds, or not one of the choices."""

    def _render_traceback_(self) -> list[str]:
        return [f"PredictionInvalid: {self}"]


@dataclass
class Prediction:
    """One question and what was guessed."""

    key: str
    question: str
    kind: type = float
    unit: str = ""
    low: float | None = None  # bounds of sensible answers, not of the right one
    high: float | None = None
    choices: tuple | None = None
    guess: object = None  # the one that counts
    revisions: list = field(default_factory=list)  # made after the result was shown
    revealed: bool = False

    def answer(self, value) -> Card:
        """Record a guess (`...` for none yet) and return the card to show."""
        if value is ... or value is None:
            if self.guess is None:
                ask = f"Replace ... with your guess, {self.wanted()}, and run this cell again."
                return Card(self.question, [Line(ASK, "your guess", ask)], ASK)
            value = self.guess
        value = self.checked(value)
        if not self.revealed:
            self.guess = value
            foot = "It is locked once the result has been shown."
            return Card(self.question, [Line(NOTE, "your guess", self.shown(value))], NOTE, foot)
        if value != self.guess and value not in self.revisions:
            self.revisions.append(value)
        return Card(
            self.question, [Line(NOTE, "first guess", self.shown(self.guess) + " (it stays)"), *self._revised()]
        )

    def reveal(self, actual) -> Card:
        """Lock the guess and return the card that compares it with what happened."""
        if self.guess is None:
            return Card(self.question, [Line(NOTE, "it was", self.shown(actual))])
        self.revealed = True
        verdict, good = self.verdict(actual)
        lines = [Line(NOTE, "you predicted", self.shown(self.guess)), *self._revised()]
        lines += [Line(GOOD if good else NOTE, "it was", self.shown(actual), verdict)]
        return Card(self.question, lines, GOOD if good else NOTE)

    def _revised(self) -> list[Line]:
        return [Line(NOTE, "later", self.shown(value)) for value in self.revisions]

    def wanted(self) -> str:
        """What a guess looks like."""
        if self.choices:
            return "one of " + ", ".join(repr(c) for c in self.choices)
        unit = f" [{self.unit}]" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"{KINDS[self.kind]}{unit} from {self.low} to {self.high}"
        bound = f", at least {self.low}" if self.low is not None else ""
        return KINDS[self.kind] + unit + (f", at most {self.high}" if self.high is not None else bound)

    def checked(self, value):
        """Return the guess as its kind, or raise `PredictionInvalid`."""

        def refuse(why):
            raise PredictionInvalid(f"prediction {self.key!r}: {value!r} {why}; expected {self.wanted()}")

        if self.choices:
            return value if value in self.choices else refuse("is not one of the choices")
        if self.kind is not float:
            return value if isinstance(value, self.kind) else refuse(f"is not {KINDS[self.kind]}")
        try:
            number = math.nan if isinstance(value, (bool, str)) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            refuse("is not a number")
        if self.low is not None and number < self.low:
            refuse(f"is below {self.low}")
        if self.high is not None and number > self.high:
            refuse(f"is above {self.high}")
        return value

    def shown(self, value) -> str:
        """The value with its unit."""
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))
        form = "" if not number else ",.0f" if 1000 <= abs(value) < 1e9 else ".3g"
        return f"{format(value, form) if number else value} {self.unit}".strip()

    def verdict(self, actual) -> tuple[str, bool]:
        """How near the guess was, in words, and whether it was right (numbers: within 10 %)."""
        if self.choices or self.kind is not float:
            right = self.guess == actual
            return ("as you said" if right else "worth a second look: what did you assume?"), right
        guess, actual = float(self.guess), float(actual)
        if guess == actual:
            return "exactly", True
        side = "high" if abs(guess) > abs(actual) else "low"
        if not math.isfinite(actual) or actual == 0 or guess == 0 or (guess < 0) != (actual < 0):
            if self.unit == "%" and math.isfinite(actual) and guess * actual == 0:
                return _by_points(guess, actual, side), False
            return f"you were {self.shown(abs(guess - actual))} away", False
        miss = guess / actual - 1
        ratio = max(guess / actual, actual / guess)
        if abs(miss) < 0.005:
            return "almost exactly", True
        if ratio >= 2:
            return f"you were a factor of {_two_digits(ratio)} too {side}", False
        if self.unit == "%":
            return _by_points(guess, actual, side), abs(miss) <= 0.1
        return f"you were {abs(miss):.0%} too {side}".replace("%", " %"), abs(miss) <= 0.1


def _by_points(guess: float, actual: float, side: str) -> str:
    """Tell how far off a percentage is; a percentage of percentages would be misread."""
    points = _two_digits(abs(guess - actual))
    return f"you were {points} point{'s' * (points != '1')} too {side}"


def _two_digits(x: float) -> str:
    return f"{float(f'{x:.2g}'):,.15g}" if x < 1e9 else f"{x:.2g}"
