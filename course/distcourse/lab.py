"""`Lab`: what the first cell of every lab makes, and what its cells call."""

from __future__ import annotations

import os
import platform
import re
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from distlearn import backend
from distlearn.comm.base import ignore_report
from distlearn.comm.waiting import count_cores
from distlearn.world.progress import Bar

from . import exercise, show
from .check import CheckFailed
from .predict import KINDS, Prediction, PredictionMissing, grading
from .show import GOOD, NOTE, Card, Line

# Guesses by lab, for the life of the kernel: running the setup cell again does not unlock what was revealed.
_GUESSES: dict[str, dict[str, Prediction]] = {}


class NothingFailed(AssertionError):
    """A cell that was meant to fail did not."""


class Lab:
    """What one lab works with, made in its first cell: predictions, checks, deliberate failures and figures.

    It sets the style of figures, limits BLAS to one thread, prints one line about the machine, and warns where the
    engines that the lab starts at once ask for more cores than there are. It seeds nothing and writes no file.
    """

    def __init__(self, number: str, engines: int = 0):
        from threadpoolctl import threadpool_limits

        from distlearn.viz import use_style

        if not re.fullmatch(r"\d\d", str(number)):
            raise ValueError(f"Lab: number is {number!r}, expected two digits, such as '07'")
        self.number = number
        self._guesses = _GUESSES.setdefault(number, {})
        use_style()
        # For arrays as small as a lab's, a second thread takes as long and twice the processor time; on a busy machine,
        # where it waits for a core, several times as long.
        threadpool_limits(1, user_api="blas")
        cores = count_cores()
        print(_machine(number, cores))
        for advice in _crowding(engines, cores, os.environ.get("OMP_NUM_THREADS")):
            print(advice)

    def __repr__(self) -> str:
        return f"Lab({self.number!r})"

    @property
    def grading(self) -> bool:
        """Whether nbgrader runs the notebook."""
        return grading()

    # -- predictions --------------------------------------------------------------------------------------------------

    def predict(self, key, question, answer=..., *, kind=float, unit="", low=None, high=None, choices=None) -> None:
        """Ask for a guess (`...` while there is none) before the cell that shows the result.

        Parameters
        ----------
        kind : {float, str, bool, tuple}
        unit : str
            Follows the number, as in "3 times".
        low, high, choices : optional
            Any other guess raises `PredictionInvalid`.
        """
        if kind not in KINDS:
            raise ValueError(f"prediction {key!r}: kind is {kind!r}, expected float, str, bool or tuple")
        asked = {"kind": kind, "unit": unit, "low": low, "high": high, "choices": tuple(choices) if choices else None}
        known = self._guesses.get(key)
        if known is None or (known.question, known.choices, known.kind) != (question, asked["choices"], kind):
            known = self._guesses[key] = Prediction(key, question, **asked)
        show.display(known.answer(answer))

    def require(self, *keys: str) -> list:
        """Return these guesses; raise `PredictionMissing` if one is missing, except while nbgrader grades: None."""
        guesses = []
        for key in keys:
            known = self._guesses.get(key)
            guesses.append(None if known is None else known.guess)
            if grading() or guesses[-1] is not None:
                continue
            asked = f'"{known.question}"' if known else f"{key!r} (run the cell that asks for it)"
            raise PredictionMissing(f"first your guess, then the result: {asked}. Any guess will do.")
        return guesses

    def reveal(self, key: str, actual) -> None:
        """Show the prediction beside the result, and lock it."""
        self.require(key)
        known = self._guesses.get(key) or Prediction(key, key)
        show.display(known.reveal(actual.item() if isinstance(actual, np.generic) else actual))

    # -- checks and failures ----------------------------------------------------------------------------------------

    def check(self, name: str, *answers, hidden: bool = False) -> None:
        """Check answers against the table of their exercise, and show the result.

        Raises
        ------
        CheckFailed
            If a result is wrong.
        """
        if not answers:
            raise TypeError(f"lab.check({name!r}) has no answer, expected lab.check({name!r}, {name})")
        exercise.check(self.number, name, answers, hidden)

    def cases(self, name: str) -> list[tuple[dict, dict]]:
        """Return what the check of an exercise tries: for each case its arguments, and the results that are right."""
        table = exercise.find(name)
        return list(zip(table.cases, table.right, strict=True))

    @contextmanager
    def expect(self, error, match: str = ""):
        """Run a block that is meant to fail with `error` and `match` in its message; show that.

        Any other exception propagates; a block that runs to its end raises `NothingFailed`. What is yielded has the
        exception as `error`, None while there is none.
        """
        caught = SimpleNamespace(error=None)
        try:
            yield caught
        except error as e:
            if match not in str(e):
                raise
            caught.error = e
            text = e.title if isinstance(e, CheckFailed) else str(e)  # the check has already shown its table
            show.display(Card("It failed, as it should.", [Line(NOTE, type(e).__name__, text)], GOOD))
            return
        names = getattr(error, "__name__", None) or " or ".join(e.__name__ for e in error)
        raise NothingFailed(f"this cell is meant to fail with {names}, but it ran to its end")

    # -- progress -----------------------------------------------------------------------------------------------------

    def bar(self, label: str, unit: str = "run"):
        """Return a function that shows how far a long call is, as its `report=`; it is silent while nbgrader grades."""
        if self.grading:
            return ignore_report
        bar = Bar(label, unit)

        def report(step, total, **values):
            bar(step, total, **values)
            if step >= total:
                bar.close()

        return report

    # -- figures ------------------------------------------------------------------------------------------------------

    def show(self, figure, alt: str) -> None:
        """Show a figure with alternative text, one sentence on what it shows; the plotted numbers are folded below."""
        if not isinstance(alt, str) or not alt.strip():
            raise ValueError("lab.show: alt is empty, expected one sentence that says what the figure shows")
        import matplotlib.pyplot as plt

        from distlearn.viz.files import figure_of

        from .plotted import plotted_tables

        figure = figure_of(figure)
        show.display(show.Picture(figure, alt, tables=plotted_tables(figure)))
        plt.close(figure)  # or the notebook would show it again, without the alternative text

    def film(self, frames) -> None:
        """Show figures, each with its alternative text, one after the other with a slider."""
        import matplotlib.pyplot as plt

        show.display(show.Film([show.Picture(figure, alt, dpi=110) for figure, alt in frames]))
        for figure, _ in frames:
            plt.close(figure)

    def draw(self, trainer):
        """Show a sheet to draw a digit on; the trainer's network, for images of 8 x 8, answers layer by layer."""
        from .drawing import Drawing

        drawing = Drawing(trainer)
        if show.in_ipython():
            show.display(drawing)
        return drawing


def _machine(number: str, cores: int) -> str:
    from importlib.metadata import version

    device = "GPU" if backend.has_gpu() else "no GPU, all on the CPU"
    plural = "s" if cores != 1 else ""
    parts = [f"lab {number}", f"distlearn {version('distlearn')}", f"Python {platform.python_version()}"]
    return " · ".join([*parts, f"NumPy {np.__version__}", f"{cores} core{plural}", device])


def _crowding(engines: int, cores: int, omp: str | None) -> list[str]:
    said = []
    if engines > cores:
        said.append(
            f"Note: {engines} engines take turns on {cores} core{'s' if cores != 1 else ''}: "
            f"no measured speed-up can exceed {cores} here."
        )
    if engines and omp and omp.isdigit() and int(omp) > 1 and int(omp) * engines > cores:
        said.append(
            f"Note: OMP_NUM_THREADS={omp} times {engines} engines is {int(omp) * engines} threads on {cores} cores: "
            "they slow each other down. Start Jupyter with OMP_NUM_THREADS=1."
        )
    return said
