"""Give each check the lab's own setup and helpers, whatever became of them in a submission.

A student may delete the setup cell, try things out in a demonstration, or write code that ends the kernel. None of it
is what the check tests. So grading runs the source's own lines again before each check (`before_check`), and keeps
of a cell that cannot be run whatever can (`definitions`).
"""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

from .source import BEGIN_SOLUTION, END_SOLUTION, Cell, Source
from .structure import SETUP

DEFINE = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BIND = (*DEFINE, ast.Assign, ast.AnnAssign)

ODD = re.compile(
    r"_getframe|currentframe|inspect\.(?:stack|trace|getsource)|f_(?:back|locals|globals|code)\b|\bgc\.get_|\blinecache\b"
    r"|\bIn\[|\bhistory_manager\b|_transformers\b|__(?:eq|ne|array|array_ufunc|array_function|code|closure)__"
    r"|\b(?:system|popen|syscall|_exit|execv\w*)\s*\(|distlearn\.lab\b|\bdl\.lab\b|\b__import__\b|\bimportlib\b|NBGRADER|\bgradebook\b|\bnbgrader\b"
)
"""Words that answers rarely need but tricks on a check do: reasons to look, not to deduct points."""


def definitions(text: str) -> str:
    """Keep of a cell's code its imports, functions, classes and constants; "" if it is not Python.

    Examples
    --------
    >>> definitions("import os; n = f()")
    'import os'
    """
    cell = Cell(0, _Text(text))
    return "\n".join(_text(cell, node) for node in (cell.tree.body if cell.tree else []) if _harmless(node))


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
    """Return the code to run before a check: setup, and the source's definitions of the names that it uses.

    Parameters
    ----------
    source : Source or None
        The lab's source; with None the setup alone.
    number : str
        Number of the lab, "07".
    grade_id : str
        Name of the check.
    """
    lines = [SETUP.format(number=number) + ")"]
    check = next((c for c in source.code if c.grade_id == grade_id), None) if source else None
    if check is None:
        return lines[0]
    above = [c for c in source.code[1 : source.code.index(check)] if not c.is_solution]
    mine = set().union(*(c.binds for c in source.exercises))
    statements = [(node, c) for c in above for node in (c.tree.body if c.tree else []) if isinstance(node, BIND)]
    needed, kept = check.uses - check.binds - mine, []
    for node, cell in reversed(statements):  # a definition needs only what is above it
        part = Cell(0, _Text(_text(cell, node)))
        if part.binds & needed:
            needed = (needed - part.binds) | (part.uses - part.binds - mine)
            kept.append(part.source)
    return "\n".join([*lines, *reversed(kept)])


def names_of_answers(source: Source | None, check, helpers: str) -> set[str]:
    """Return the names that a check takes from the submission: those that its exercises define.

    Parameters
    ----------
    source : Source or None
        The lab's source; with None every name that the check does not define itself.
    check : cell
    helpers : str
        What `before_check` returns.
    """
    cell, before = Cell(0, check), Cell(0, _Text(helpers))
    used = (cell.uses - cell.binds) | before.uses
    if source is None:
        return used - before.binds - set(dir(builtins))
    return used & set().union(*(c.binds for c in source.exercises)) - before.binds


def users_of(names, cells) -> set[str]:
    """Return names, and those of a notebook's definitions that use them, directly or not.

    Parameters
    ----------
    names : set of str
    cells : iterable of cell
    """
    found, code = set(names), [Cell(0, c) for c in cells if c.cell_type == "code"]
    while more := set().union(*(c.binds for c in code if c.uses & found)) - found:
        found |= more
    return found


def odd_words(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, words) for student code that inspects or changes what grades it."""
    given, found = "\n".join(c.source for c in source.code) if source else "", []
    for cell in cells:
        if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("locked"):
            words = dict.fromkeys(m[0] for m in ODD.finditer(cell.source) if m[0] not in given)
            if words:
                found.append((name_of(cell), ", ".join(words)))
    return found


def library_calls(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, names) for answers that use something of the library that was not given to them.

    Found under whatever name it was imported or assigned to, and in functions of the student's that the answer uses.
    """
    if source is None:
        return []
    given = {
        c.grade_id: _library_names(Cell(0, _Text(c.without(BEGIN_SOLUTION, END_SOLUTION))), {})
        for c in source.exercises
    }
    known = {c.source for c in source.code}
    code = [Cell(0, c) for c in cells if c.cell_type == "code" and not c.metadata.get("nbgrader", {}).get("locked")]
    aliases = dict(pair for c in code for pair in _library_aliases(c))
    helpers, found = [c for c in code if c.grade_id not in given and c.source not in known], []
    for answer in (c for c in code if c.grade_id in given):
        used = [answer]
        for cell in used:
            used += [h for h in helpers if h.binds & cell.uses and h not in used]
        names = set().union(*(_library_names(c, aliases) for c in used)) - given[answer.grade_id]
        if names:
            found.append((name_of(answer.node), ", ".join(sorted(names))))
    return found


def _library_aliases(cell: Cell):
    """Yield (name, what of the library it stands for) for imports and assignments."""
    for node in ast.walk(cell.tree) if cell.tree else ():
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split(".")[0] == "distlearn" and a.asname:
                    yield a.asname, a.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "distlearn":
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            dotted = _dotted(node.value, {})
            if dotted:
                yield node.targets[0].id, dotted


def _library_names(cell: Cell, aliases: dict[str, str]) -> set[str]:
    """Names such as `dl.nn.ReLU` in a cell, the longest of each."""
    found, todo = set(), [cell.tree] if cell.tree else []
    while todo:
        node = todo.pop()
        dotted = _dotted(node, aliases)
        if dotted:
            found.add(re.sub(r"^distlearn\b", "dl", dotted))
        else:
            todo += ast.iter_child_nodes(node)
    return found - {"dl"}


def _dotted(node, aliases: dict[str, str]) -> str:
    """The dotted name of the library that an expression is, or ""."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {"dl": "dl", "distlearn": "dl", **aliases}.get(node.id, "")
    return ""


def grade_id_of(cell) -> str:
    """Return nbgrader's name of a notebook's cell, or ""."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def name_of(cell) -> str:
    """How the instructor finds a cell: by nbgrader's name, or by its first line."""
    grade_id = grade_id_of(cell)
    first = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    return f"'{grade_id}'" if grade_id else f"'{first[:50]}{'...' if len(first) > 50 else ''}'"


def course_of(config) -> str:
    """Return the course directory."""
    from nbgrader.coursedir import CourseDirectory

    return CourseDirectory(config=config).root


def source_of(config, assignment: str, notebook: str) -> Source | None:
    """Return the lab's source from the course directory, or None if it is not there."""
    from nbgrader.coursedir import CourseDirectory

    course = CourseDirectory(config=config)
    folder = Path(course.format_path(course.source_directory, ".", assignment))
    try:
        return Source(folder / f"{notebook}.ipynb")
    except (OSError, ValueError):
        return None


def _harmless(node) -> bool:
    """Whether running the statement again can do no harm: it binds names, and calls nothing."""
    if isinstance(node, DEFINE):
        return True
    return isinstance(node, BIND) and not any(isinstance(n, (ast.Call, ast.Await)) for n in ast.walk(node))


def _text(cell: Cell, node) -> str:
    """A statement as it was written, decorators included."""
    marks = "".join(f"@{ast.get_source_segment(cell.python, d)}\n" for d in getattr(node, "decorator_list", []))
    return marks + ast.get_source_segment(cell.python, node)


class _Text(dict):
    """The attributes of a notebook's code cell that `Cell` reads."""

    cell_type, metadata = "code", {}

    def __init__(self, source: str):
        self.source = source
