"""Exercises as their staff write them: cases, and the mistakes that a check names; the table of results made of them.

Beside the source notebook of a lab, `exercises.py` holds `EXERCISES`, a dict of `Exercise` by the name of the function.
The solution is the notebook's own cell. A mistake is a sentence and an edit of that cell's text:

    Exercise(
        cases=[{"counts": [6, 4, 2]}, {"counts": [6, 0, 3]}],
        draw=lambda rng: {"counts": rng.integers(0, 20, 5).tolist()},
        mistakes={"a mean of means: every part weighs the same": "count / n * gradient  ->  gradient / len(counts)"},
    )

`Solved.table` refuses a mistake that passes every case, and two sentences that no case can tell apart.
"""

from __future__ import annotations

import ast
import functools
import runpy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import isfunction
from inspect import signature as signature_of
from pathlib import Path

import numpy as np

from distlearn.sim import exploration

from .. import exercise as checks
from ..exercise import Mistake, Table, results_of, signature, wrong_in
from .source import BEGIN_SOLUTION, CASES, END_SOLUTION, Source
from .stage import defined_above

ARROW = "  ->  "


@dataclass
class Exercise:
    """One exercise.

    Attributes
    ----------
    cases : list of dict
        Arguments of the lab's `run_<name>(*answers, **case)`, which returns a dict of results: numbers, arrays, texts.
    draw : callable
        `draw(rng)` returns a case of a hidden test.
    mistakes : dict of str to str, or to list of str or tuple
        By the sentence that a student reads, what is wrong: a part of the solution's text and what it becomes, with
        two spaces, an arrow and two spaces between them; or the whole text of an answer. A tuple holds several edits
        that are made at once, a list several answers with the same sentence.
    answers : tuple of str
        What the cell defines, if that is not one function that is called as the exercise; then given functions that
        its check needs, too.
    inplace : bool
        Whether an answer may change its arguments.
    rtol : float, optional
        How far numbers may be off; by default 1e-9 in float64.
    without : tuple of str
        Packages that an answer must not use.
    at_most : tuple of str
        Results of which less is as right.
    may_pass : dict of str to str
        Changes that no case finds, each by a part of the line that `distlearn labs strength` prints for it, and why
        that is right.
    draws : int
        How many cases a hidden test has.
    """

    cases: list[dict]
    draw: Callable
    mistakes: dict[str, str | list]
    answers: tuple[str, ...] = ()
    inplace: bool = False
    rtol: float | None = None
    without: tuple[str, ...] = ("distcourse",)
    at_most: tuple[str, ...] = ()
    may_pass: dict[str, str] = field(default_factory=dict)
    draws: int = 5

    def wrong(self) -> Iterator[tuple[str, str | tuple]]:
        """Yield every known mistake as its sentence and an edit for `edited`."""
        for sentence, edits in self.mistakes.items():
            for edit in edits if isinstance(edits, list) else [edits]:
                yield sentence, edit

    def drawn(self, rng, n: int) -> list[dict]:
        """Draw cases; what is a number of NumPy becomes one of Python."""
        cases = [self.draw(rng) for _ in range(n)]
        return [{key: v.item() if isinstance(v, np.generic) else v for key, v in case.items()} for case in cases]


def rows(names: str, *cases) -> list[dict]:
    """Return cases by their values, in the order of the arguments' names, of which the last may be missing."""
    return [dict(zip(names.split(), values, strict=False)) for values in cases]


class Solved:
    """The exercises of a lab with their solutions, read from the folder of its source."""

    def __init__(self, folder):
        source = Source(next(Path(folder).glob("*.ipynb")))
        self.number = source.number
        self.exercises: dict[str, Exercise] = runpy.run_path(str(Path(folder, CASES)))["EXERCISES"]
        self.texts = {cell.grade_id: without_markers(cell.source) for cell in source.exercises}
        imports = [n for c in source.code if c.tree for n in c.tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
        graded = [cell for cell in source.code if cell.is_solution or cell.is_check]
        helpers = (line for cell in graded for line in defined_above(source, cell))
        self._setup = "\n".join([ast.unparse(ast.Module(imports, [])), *dict.fromkeys(helpers)])
        unknown = sorted(self.exercises.keys() - self.texts.keys())
        if unknown:
            raise ValueError(f"{folder}: {CASES} has {', '.join(unknown)}, and the notebook has no such answer")

    def answers(self, name: str, text: str | None = None) -> tuple:
        """Return what a solution defines, or another text of its cell; the solutions above it are there, too."""
        space = {"__name__": "__main__"}
        exec(self._setup, space)
        for known, solution in self.texts.items():
            exec(compile(text if known == name and text is not None else solution, "<answer>", "exec"), space)
            if known == name:
                return tuple(space[answer] for answer in self.exercises[name].answers or (name,))
        raise KeyError(name)

    def results(self, name: str, answers: tuple, cases) -> list[dict]:
        """Return the results of answers in each case."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of mistakes, such as the mean of nothing
            return results_of(checks.runner(self.number, name), answers, cases, self.exercises[name].inplace)

    def right(self, name: str, cases) -> Table:
        """Return a table without mistakes."""
        exercise = self.exercises[name]
        right = self.results(name, self.answers(name), cases)
        for case, results in zip(cases, right, strict=True):
            if checks.RAISED in results:
                raise ValueError(f"{name}: the solution raises {results[checks.RAISED]!r} with {checks.words(case)}")
        return Table(
            cases, right, [], exercise.inplace, list(exercise.at_most), exercise.rtol, list(exercise.without), []
        )

    def mistaken(self, name: str) -> Iterator[tuple[str, object, list[dict]]]:
        """Yield each mistake's sentence, its edit, and what it gives in the visible cases."""
        exercise = self.exercises[name]
        for sentence, edit in exercise.wrong():
            try:
                answers = self.answers(name, edited(self.texts[name], edit))
            except SyntaxError as error:
                raise ValueError(f"{name}: the mistake {sentence!r} is no Python: {error}") from None
            yield sentence, edit, self.results(name, answers, exercise.cases)

    def table(self, name: str) -> Table:
        """Return what is right in the visible cases, and what each mistake gives."""
        exercise = self.exercises[name]
        table = self.right(name, exercise.cases)
        for case, one, other in zip(table.cases, table.right, self.right(name, table.cases).right, strict=True):
            if wrong_in(one, other):
                raise ValueError(f"{name}: the solution's results differ from call to call with {checks.words(case)}")
        for sentence, edit, tried in self.mistaken(name):
            rows = []
            for got, want in zip(tried, table.right, strict=True):
                missing = dict.fromkeys(wrong_in(got, want, table.at_most, table.rtol), checks.MISSING)
                rows.append(missing | {n: signature(got[n]) for n in missing if n in got})
            if not any(rows):
                raise ValueError(f"{name}: no case finds the mistake {sentence!r}, {edit!r}")
            for other in table.mistakes:
                if other.wrong == rows and other.sentence != sentence:
                    raise ValueError(f"{name}: no case tells {sentence!r} from {other.sentence!r}")
            if Mistake(sentence, rows) not in table.mistakes:
                table.mistakes.append(Mistake(sentence, rows))
        return table._replace(probes=list(self._probes(name, table)))

    def _probes(self, name: str, table: Table) -> Iterator[tuple]:
        """Yield for each argument the first case in which doubling it changes a result, and by which factors."""
        answers = self.answers(name)
        called = [(i, "", a) for i, a in enumerate(answers) if isfunction(a)]
        classes = [(i, vars(a)) for i, a in enumerate(answers) if isinstance(a, type)]
        called += [(i, k, f) for i, own in classes for k, f in own.items() if isfunction(f) and k[0] != "_"]
        for *which, function in called:
            for argument in enumerate(signature_of(function).parameters):
                for i, (case, right) in enumerate(zip(table.cases, table.right, strict=True)):
                    (got,) = self.results(name, checks.doubled(answers, *which, *argument), [case])
                    factors = {n: checks.factor(right[n], got.get(n)) for n in right}
                    factors = {n: k for n, k in factors.items() if k is not None}
                    if not all(map(checks.is_one, factors.values())):
                        yield i, *which, *argument, factors
                        break


def without_markers(text: str) -> str:
    """Take the solution markers out, keep the solution."""
    return "\n".join(line for line in text.splitlines() if BEGIN_SOLUTION not in line and END_SOLUTION not in line)


def edited(text: str, edit) -> str:
    """Return a solution's text with a mistake in it."""
    if isinstance(edit, tuple):
        return functools.reduce(edited, edit, text)
    old, arrow, new = edit.partition(ARROW)
    if not arrow:
        return edit
    if text.count(old) != 1:
        raise ValueError(f"{old!r} occurs {text.count(old)} times in the solution, expected once")
    return text.replace(old, new)


@functools.cache
def _solved(folder) -> Solved:
    return Solved(folder)


def drawn(name: str) -> Table:
    """Return the table of a hidden test: cases drawn anew, with the solution's results."""
    if not Path(checks.FOLDER, CASES).is_file():
        raise FileNotFoundError(f"hidden tests need {CASES}, which the course's staff have")
    solved, rng = _solved(checks.FOLDER.resolve()), np.random.default_rng()
    exercise = solved.exercises[name]
    return solved.right(name, exercise.drawn(rng, exercise.draws))


def compiled(folder) -> dict[str, Table]:
    """Return the tables of the lab in a folder, made anew."""
    solved = Solved(folder)
    return {name: solved.table(name) for name in solved.exercises}


def differs(tables: dict[str, Table], folder) -> bool:
    """Return whether the tables beside a lab's source are not these, up to rounding."""
    try:
        kept = checks.load(folder)
    except (FileNotFoundError, ValueError):
        return True
    return kept.keys() != tables.keys() or any(not same(kept[name], table) for name, table in tables.items())


def same(kept: Table, made: Table) -> bool:
    """Return whether two tables of an exercise are the same, up to rounding."""
    told = [([checks.words(case) for case in t.cases], *t[2:]) for t in (kept, made)]
    pairs = zip(kept.right, made.right, strict=False)
    return exploration.same(*told, 1e-5, 1e-5) and not any(wrong_in(a, b) or wrong_in(b, a) for a, b in pairs)
