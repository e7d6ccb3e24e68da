"""Name answers that an instructor should look at: they may be right for the wrong reason. No points are deducted."""

from __future__ import annotations

import ast
import re
import symtable

from .source import BEGIN_SOLUTION, END_SOLUTION, Cell, Source, Text, name_of

# Words that answers rarely need but tricks on a check do: reasons to look, not to deduct points.
ODD = re.compile(
    r"_getframe|currentframe|inspect\.(?:stack|trace|getsource)|f_(?:back|locals|globals|code)\b|\bgc\.get_|\blinecache\b"
    r"|\bIn\[|\bhistory_manager\b|_transformers\b|__(?:eq|ne|array|array_ufunc|array_function|code|closure)__"
    r"|\b(?:system|popen|syscall|_exit|execv\w*)\s*\(|distlearn\.lab\b|\bdl\.lab\b|\b__import__\b|\bimportlib\b|sys\.modules|NBGRADER|\bgradebook\b|\bnbgrader\b"
)
_CHANGE = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
_CHANGE |= {"put", "fill", "sort", "send", "throw", "write"}  # Methods that change their object.
_OUTSIDE = {"open", "save", "savez", "load", "savetxt", "loadtxt", "tofile", "fromfile", "memmap", "dump", "setattr"}
# Functions that reach files, or what belongs to a module.
_OUTSIDE |= {"write_text", "write_bytes", "read_text", "read_bytes", "SharedMemory", "globals", "vars", "putenv"}
CASES = 4  # So many fixed sizes in one answer make a table.


def suspicions(cells, source: Source | None) -> list[str]:
    """Return what is worth a look in a submission, a line each."""
    told = [f"the cell {name} says {words}" for name, words in odd_words(cells, source)]
    told += [f"the answer {name} uses the library's {names}" for name, names in library_calls(cells, source)]
    told += [f"the answer {name} holds a table of fixed cases: {line}" for name, line in tables(cells, source)]
    lines = "the answer {} keeps {} from call to call: simulated ranks could share it without sending a message"
    return told + [lines.format(name, names) for name, names in kept_state(cells, source)]


def odd_words(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, words) for student code that inspects or changes what grades it."""
    given, found = "\n".join(c.source for c in source.code) if source else "", []
    for cell in _written(cells):
        hits = [m for m in ODD.finditer(cell.source) if m[0] not in given]
        if hits:
            words = ", ".join(dict.fromkeys(m[0] for m in hits))
            line = cell.source.count("\n", 0, hits[0].start())
            found.append((name_of(cell.node), f"{words}: {_line(cell.source, line)}"))
    return found


def _written(cells) -> list[Cell]:
    return [c for c in (Cell(0, cell) for cell in cells) if c.is_code and not c.grader.get("locked")]


def _line(text: str, number: int) -> str:
    line = text.splitlines()[number].strip()
    return f"`{''.join(ch for ch in line if ch.isprintable())[:80]}`"


def library_calls(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, names) for answers that use something of the library that was not given to them."""
    # Found under whatever name it was imported or assigned to, and in functions of the student's that the answer uses.
    if source is None:
        return []
    imported = dict(pair for c in source.code if not c.is_solution for pair in _library_aliases(c))
    shown = {re.sub(r"^distlearn\b", "dl", name) for name in imported.values()} - {"dl"}  # the notebook has these
    released = {c.grade_id: Cell(0, Text(c.without(BEGIN_SOLUTION, END_SOLUTION))) for c in source.exercises}
    given = {name: shown | _library_names(c, imported).keys() for name, c in released.items()}
    known, public = {c.source for c in source.code}, {part.source for c in source.code for part in _statements(c)}
    code = _written(cells)
    aliases = dict(pair for c in code for pair in _library_aliases(c))
    # statement by statement: a setup cell with an import more is still the setup
    own = [c for c in code if c.grade_id not in given and c.source not in known]
    helpers = [part for c in own for part in _statements(c) if part.source not in public]
    found = []
    for answer in (c for c in code if c.grade_id in given):
        names = {}
        for cell in _with_helpers(answer, helpers):
            names |= {n: at for n, at in _library_names(cell, aliases).items() if n not in given[answer.grade_id]}
        if names:
            found.append((name_of(answer.node), f"{', '.join(sorted(names))}: {names[min(names)]}"))
    return found


LIBRARY = ("distlearn", "distcourse")


def _statements(cell: Cell) -> list[Cell]:
    return [Cell(0, Text(ast.unparse(node))) for node in cell.tree.body] if cell.tree else []


def tables(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, line) for answers that look results up by fixed sizes, as a check asks for them."""
    exercises, found = {c.grade_id for c in source.exercises} if source else set(), []
    for answer in (c for c in _written(cells) if c.grade_id in exercises):
        asked: dict[str, list] = {}
        for node in ast.walk(answer.tree) if answer.tree else ():
            if isinstance(node, ast.Dict) and len([k for k in node.keys if _fixed(k)]) >= CASES:
                asked["{"] = [node] * CASES
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and _fixed(node.comparators[0]):
                asked.setdefault(ast.unparse(node.left), []).append(node)
        hits = [nodes[0] for nodes in asked.values() if len(nodes) >= CASES]
        if hits:
            found.append((name_of(answer.node), _line(answer.python, hits[0].lineno - 1)))
    return found


def _fixed(node) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return bool(parts) and all(isinstance(p, ast.Constant) and isinstance(p.value, (int, float)) for p in parts)


def _library_aliases(cell: Cell):
    for node in ast.walk(cell.tree) if cell.tree else ():
        if isinstance(node, ast.Import):
            yield from ((a.asname, a.name) for a in node.names if a.name.split(".")[0] in LIBRARY and a.asname)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARY:
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            dotted = _dotted(node.value, {})
            if dotted:
                yield node.targets[0].id, dotted


def _library_names(cell: Cell, aliases: dict[str, str]) -> dict[str, str]:
    """Names such as `dl.nn.ReLU` in a cell, the longest of each, with a line that has it."""
    found, todo = {}, [cell.tree] if cell.tree else []
    while todo:
        node = todo.pop()
        dotted = _dotted(node, aliases)
        if dotted:
            found[re.sub(r"^distlearn\b", "dl", dotted)] = _line(cell.python, node.lineno - 1)
        else:
            todo += ast.iter_child_nodes(node)
    return found


def _dotted(node, aliases: dict[str, str]) -> str:
    """The dotted name of the library that an expression is, or ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and node.args[1:]:
        owner, name = _dotted(node.args[0], aliases), node.args[1]
        return owner and f"{owner}.{name.value if isinstance(name, ast.Constant) else '<any>'}"
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return {"dl": "dl", "distlearn": "dl", "distcourse": "distcourse", **aliases}.get(node.id, "")
    return ""


def kept_state(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, names) for answers on a communicator whose functions change what outlives the call."""
    # Simulated ranks call one function in one process: what it keeps in a global variable, in an attribute of a class
    # or a function, or in a default argument is seen by the other ranks, which real ranks would have to be sent.
    exercises = source.exercises if source else ()
    on_ranks = {c.grade_id for c in exercises if any(node.arg == "comm" for node in _nodes(c, ast.arg))}
    written, found = _written(cells), []
    imports = [n for cell in cells if cell.cell_type == "code" for n in _nodes(Cell(0, cell), ast.alias)]
    modules = {alias.asname or alias.name for alias in imports}
    for answer in (c for c in written if c.grade_id in on_ranks):
        names = set().union(*(_kept(c, modules) for c in _with_helpers(answer, written)))
        if names:
            found.append((name_of(answer.node), ", ".join(sorted(names))))
    return found


def _with_helpers(answer: Cell, code: list[Cell]) -> list[Cell]:
    used = [answer]
    for cell in used:
        used += [c for c in code if c.binds & cell.uses and c not in used]
    return used


def _nodes(cell: Cell, kind) -> list:
    return [node for node in ast.walk(cell.tree) if isinstance(node, kind)] if cell.tree else []


def _kept(cell: Cell, modules: set[str]) -> set[str]:
    functions = _nodes(cell, ast.FunctionDef)
    inner = {id(n) for f in functions for n in ast.walk(f) if n is not f and isinstance(n, ast.FunctionDef)}
    return set().union(*(_kept_by(f, modules) for f in functions if id(f) not in inner))


def _kept_by(function: ast.FunctionDef, modules: set[str]) -> set[str]:
    """The same of one function, with those inside of it."""
    tables = symtable.symtable(ast.unparse(function), "cell", "exec").get_children()
    for table in tables:
        tables += table.get_children()
    local = {s.get_name() for table in tables for s in table.get_symbols() if s.is_local()}
    changed, outside = set(), set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            of_module = _root(node) in modules and not isinstance(node, ast.Name)
            (outside if of_module else changed).add(_root(node))
        elif isinstance(node, ast.Call) and _called(node) in _OUTSIDE:
            outside.add(_called(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGE:
            changed |= {_root(node.func)} - modules
        elif isinstance(node, ast.arguments):
            defaults = [*node.defaults, *node.kw_defaults]
            outside |= {ast.unparse(d) for d in defaults if isinstance(d, (ast.List, ast.Dict, ast.Set, ast.Call))}
    return changed - local - {""} | outside


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _root(node) -> str:
    """The name that an expression such as `seen["a"].b` starts with, or ""."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
