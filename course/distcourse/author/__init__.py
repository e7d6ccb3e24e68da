"""The author's and the instructor's tools: check a lab's structure, generate the students' copies, grade.

Nothing here is imported by a lab. The rules are those of course/AUTHORING.md; `distlearn labs` is the command line.
"""

from .release import changed_by_hand, compare_release, find_course, generate, lab_names, source_notebooks
from .rules import RULES, check_lab, tidy
from .source import Problem, Source

__all__ = [
    "RULES",
    "Problem",
    "Source",
    "changed_by_hand",
    "check_lab",
    "compare_release",
    "find_course",
    "generate",
    "lab_names",
    "source_notebooks",
    "tidy",
]
