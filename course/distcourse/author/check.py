"""Check a lab's source against every rule."""

from __future__ import annotations

from . import exercises, hygiene, minutes, structure
from .source import Problem, Source

RULES = (
    structure.title,
    structure.setup,
    structure.sections,
    minutes.agree,
    structure.sizes,
    structure.predictions,
    exercises.ids,
    exercises.exercises,
    exercises.variables,
    exercises.prose,
    structure.failure,
    structure.real_run,
    structure.engines,
    structure.figures,
    structure.reflection,
    structure.last_words,
    hygiene.ids,
    hygiene.committed,
    hygiene.portable,
    hygiene.neighbours,
)
"""Every rule takes a `Source` and yields `Problem`s."""


def check_lab(path) -> list[Problem]:
    """Return the problems of a lab, in the order of the rules; an empty list if there are none.

    Parameters
    ----------
    path : path
        A source notebook, `course/source/labNN_topic/labNN.ipynb`.
    """
    lab = path if isinstance(path, Source) else Source(path)
    return [problem for rule in RULES for problem in rule(lab)]
