"""Name answers that an instructor should look at: they may be right for the wrong reason. No points are deducted."""

from __future__ import annotations

import ast
import re

from .source import BEGIN_SOLUTION, END_SOLUTION, Cell, Source
from .stage import Text, name_of

ODD = re.compile(
    r"_getframe|currentframe|inspect\.(?:stack|trace|getsource)|f_(?:back|locals|globals|code)\b|\bgc\.get_|\blinecache\b"
    r"|\bIn\[|\bhistory_manager\b|_transformers\b|__(?:eq|ne|array|array_ufunc|array_function|code|closure)__"
    r"|\b(?:system|popen|syscall|_exit|execv\w*)\s*\(|distlearn\.lab\b|\bdl\.lab\b|\b__import__\b|\bimportlib\b|NBGRADER|\bgradebook\b|\bnbgrader\b"
)
"""Words that answers rarely need but tricks on a check do: reasons to look, not to deduct points."""
_CHANGE = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
_CHANGE |= {"put", "fill", "sort", "send", "throw", "write"}
"""Methods that change their object."""


def suspicions(cells, source: Source | None) -> list[str]:
    """Return what is worth a look in a submission, a line each."""
    told = [f"the cell {name} says {words}" for name, words in odd_words(cells, source)]
    told += [f"the answer {name} uses the library's {names}" for name, names in library_calls(cells, source)]
    lines = "the answer {} keeps {} from call to call: simulated ranks could share it without sending a message"
    return told + [lines.format(name, names) for name, names in kept_state(cells, source)]


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
        c.grade_id: _library_names(Cell(0, Text(c.without(BEGIN_SOLUTION, END_SOLUTION))), {}) for c in source.exercises
    }
    known = {c.source for c in source.code}
    code = [Cell(0, c) for c in cells if c.cell_type == "code" and not c.metadata.get("nbgrader", {}).get("locked")]
    aliases = dict(pair for c in code for pair in _library_aliases(c))
    helpers, found = [c for c in code if c.grade_id not in given and c.source not in known], []
    for answer in (c for c in code if c.grade_id in given):
        used = _with_helpers(answer, helpers)
        names = set().union(*(_library_names(c, aliases) for c in used)) - given[answer.grade_id]
        if names:
            found.append((name_of(answer.node), ", ".join(sorted(names))))
    return found


LIBRARY = ("distlearn", "distcourse")


def _library_aliases(cell: Cell):
    """Yield (name, what of the library it stands for) for imports and assignments."""
    for node in ast.walk(cell.tree) if cell.tree else ():
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split(".")[0] in LIBRARY and a.asname:
                    yield a.asname, a.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARY:
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
    return found - {"dl", "distcourse"}


def _dotted(node, aliases: dict[str, str]) -> str:
    """The dotted name of the library that an expression is, or ""."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {"dl": "dl", "distlearn": "dl", "distcourse": "distcourse", **aliases}.get(node.id, "")
    return ""


def kept_state(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, names) for answers on a communicator whose functions change what outlives the call.

    Simulated ranks call one function in one process: what it keeps in a global variable, in an attribute of a class or
    a function, or in a default argument is seen by the other ranks, which real ranks would have to be sent.
    """
    on_ranks = {c.grade_id for c in source.exercises if "comm" in _arguments(c)} if source else set()
    code = [Cell(0, c) for c in cells if c.cell_type == "code"]
    modules = set().union(*(_imported(c.tree) for c in code if c.tree))
    written, found = [c for c in code if not c.grader.get("locked")], []
    for answer in (c for c in written if c.grade_id in on_ranks):
        names = set().union(*(_kept(c, modules) for c in _with_helpers(answer, written)))
        if names:
            found.append((name_of(answer.node), ", ".join(sorted(names))))
    return found


def _with_helpers(answer: Cell, code: list[Cell]) -> list[Cell]:
    """The cell of an answer and those that define what it uses, directly or not."""
    used = [answer]
    for cell in used:
        used += [c for c in code if c.binds & cell.uses and c not in used]
    return used


def _arguments(cell: Cell) -> set[str]:
    nodes = ast.walk(cell.tree) if cell.tree else ()
    return {a.arg for node in nodes if isinstance(node, ast.arguments) for a in _all_arguments(node)}


def _imported(tree) -> set[str]:
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return {alias.asname or alias.name for n in imports for alias in n.names}


def _kept(cell: Cell, modules: set[str]) -> set[str]:
    """Names of a cell that its functions change and that outlive a call; a module's functions change nothing of it."""
    functions = [n for n in ast.walk(cell.tree) if isinstance(n, ast.FunctionDef)] if cell.tree else []
    inner = {id(n) for f in functions for n in ast.walk(f) if n is not f and isinstance(n, ast.FunctionDef)}
    return set().union(*(_kept_by(f, modules) for f in functions if id(f) not in inner))


def _kept_by(function: ast.FunctionDef, modules: set[str]) -> set[str]:
    """The same of one function, with those inside of it."""
    nodes = list(ast.walk(function))
    declared = {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    arguments = [n for n in nodes if isinstance(n, ast.arguments)]
    local = {a.arg for n in arguments for a in _all_arguments(n)} | stored | _imported(function)
    local |= {n.name for n in nodes if isinstance(n, ast.FunctionDef) and n is not function}
    changed = [declared & stored]
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            changed.append({_root(node)})
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGE:
            changed.append({_root(node.func)} - modules)
    defaults = [
        (argument.arg, default)
        for n in arguments
        for argument, default in [
            *zip(reversed([*n.posonlyargs, *n.args]), reversed(n.defaults), strict=False),
            *zip(n.kwonlyargs, n.kw_defaults, strict=True),
        ]
    ]
    mutable = {name for name, default in defaults if isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Call))}
    return (set().union(*changed) - (local - declared) - {""}) | mutable


def _all_arguments(arguments: ast.arguments):
    rest = [a for a in (arguments.vararg, arguments.kwarg) if a]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _root(node) -> str:
    """The name that an expression such as `seen["a"].b` starts with, or ""."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
