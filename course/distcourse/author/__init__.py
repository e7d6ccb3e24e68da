"""The author's and the instructor's tools: check a lab's structure, generate the students' copies, grade.

Nothing here is imported by a lab. The rules are those of course/AUTHORING.md; `distlearn labs` is the command line.
"""

import sys

from distlearn import need

sys.modules.setdefault("rfc3987_syntax", None)  # or jsonschema compiles a grammar of URIs in every process: 1.4 s
need("nbformat", "labs")

from .release import changed_by_hand, compare_release, find_course, generate, lab_names, source_notebooks  # noqa: E402
from .rules import RULES, check_lab, tidy  # noqa: E402
from .source import Problem, Source  # noqa: E402

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
