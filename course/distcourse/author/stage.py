"""Give each check the lab's own setup and helpers, whatever became of them in a submission.

A student may delete the setup cell, try things out in a demonstration, or write code that ends the kernel. None of it
is what the check tests.
"""

from __future__ import annotations

import ast
import builtins

from .rules import MADE, SETUP
from .source import BEGIN_SOLUTION, BIND, DEFINE, END_SOLUTION, Cell, Source, Text

_NAMES = (ast.Name, ast.Tuple, ast.List, ast.Starred)


def definitions(text: str) -> str:
    """Keep of a cell's code its imports, functions, classes and constants; "" if it is not Python."""
    cell = Cell(0, Text(text))
    return "\n".join(ast.unparse(node) for node in (cell.tree.body if cell.tree else []) if _harmless(node))


def skeleton(source: Source | None, grade_id: str) -> str:
    """Return an exercise as it is released: the source's cell, with `raise NotImplementedError()` for the solution."""
    cell = next((c for c in source.exercises if c.grade_id == grade_id), None) if source else None
    lines, inside = [], False
    for line in cell.source.splitlines() if cell else ():
        if BEGIN_SOLUTION in line:
            lines.append(line.partition("#")[0] + "raise NotImplementedError()")
        inside = (inside or BEGIN_SOLUTION in line) and END_SOLUTION not in line
        if not inside and END_SOLUTION not in line:
            lines.append(line)
    return "\n".join(lines)


def before_check(source: Source | None, number: str, grade_id: str) -> str:
    """Return the code to run before a check: setup, and the source's definitions of the names that it uses."""
    own = source.code[0].source.split("\n") if source else []  # which modules of distcourse the lab uses
    lines = [SETUP, *(line for line in own if line.startswith("from distcourse import"))]
    lines.append(MADE.format(number=number) + ")")
    check = next((c for c in source.code if c.grade_id == grade_id), None) if source else None
    if check is None:
        return "\n".join(lines)
    return "\n".join([*lines, *defined_above(source, check)])


def defined_above(source: Source, user: Cell) -> list[str]:
    """Return the source's definitions of the names that a cell uses, but for those of exercises."""
    above = [c for c in source.code[1 : source.code.index(user)] if not c.is_solution]
    mine = set().union(*(c.binds for c in source.exercises))
    needed, kept = user.uses - user.binds - mine, []
    for part in reversed([part for c in above for part in c.parts]):  # a definition needs only what is above it
        if part.binds & needed:
            needed = (needed - part.binds) | (part.uses - part.binds - mine)
            kept.append(part.source)
    return kept[::-1]


def names_of_answers(source: Source | None, check, helpers: str) -> set[str]:
    """Return the names that a check takes from the submission: those that its exercises define."""
    cell, before = Cell(0, check), Cell(0, Text(helpers))
    used = (cell.uses - cell.binds) | before.uses
    if source is None:
        return used - before.binds - set(dir(builtins))
    return used & set().union(*(c.binds for c in source.exercises)) - before.binds


def _harmless(node) -> bool:
    """Whether running the statement again can do no harm: it binds names, changes no object, and calls nothing."""
    if isinstance(node, DEFINE):
        return True
    inside = list(ast.walk(node)) if isinstance(node, BIND) else []
    changed = any(isinstance(getattr(n, "ctx", None), ast.Store) and not isinstance(n, _NAMES) for n in inside)
    return bool(inside) and not changed and not any(isinstance(n, (ast.Call, ast.Await)) for n in inside)
