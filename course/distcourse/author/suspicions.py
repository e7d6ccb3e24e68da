"""Name answers that an instructor should look at: they may be right for the wrong reason. No points are deducted."""

from __future__ import annotations

import ast
import re

from .source import BEGIN_SOLUTION, END_SOLUTION, Cell, Source, Text, grade_id_of, name_of

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
    for cell in cells:
        if cell.cell_type == "code" and not cell.metadata.get("nbgrader", {}).get("locked"):
            hits = [m for m in ODD.finditer(cell.source) if m[0] not in given]
            if hits:
                words = ", ".join(dict.fromkeys(m[0] for m in hits))
                found.append((name_of(cell), f"{words}: {_line(cell.source, hits[0].start())}"))
    return found


def _line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0].strip()
    return f"`{''.join(ch for ch in line if ch.isprintable())[:80]}`"


def library_calls(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, names) for answers that use something of the library that was not given to them."""
    # Found under whatever name it was imported or assigned to, and in functions of the student's that the answer uses.
    if source is None:
        return []
    imported = dict(pair for c in source.code if not c.is_solution for pair in _library_aliases(c))
    shown = {re.sub(r"^distlearn\b", "dl", name) for name in imported.values()} - {"dl"}  # the notebook has these
    released = {c.grade_id: Cell(0, Text(c.without(BEGIN_SOLUTION, END_SOLUTION))) for c in source.exercises}
    given = {name: shown | _library_names(c, imported) for name, c in released.items()}
    known, public = {c.source for c in source.code}, {part.source for c in source.code for part in _statements(c)}
    code = [Cell(0, c) for c in cells if c.cell_type == "code" and not c.metadata.get("nbgrader", {}).get("locked")]
    aliases = dict(pair for c in code for pair in _library_aliases(c))
    # statement by statement: a setup cell with an import more is still the setup
    own = [c for c in code if c.grade_id not in given and c.source not in known]
    helpers = [part for c in own for part in _statements(c) if part.source not in public]
    found = []
    for answer in (c for c in code if c.grade_id in given):
        used = _with_helpers(answer, helpers)
        names = {name: c for c in used for name in _library_names(c, aliases) - given[answer.grade_id]}
        if names:
            first = sorted(names)[0]
            text, last = names[first].source, first.rpartition(".")[2]
            alias = [name for name, stands in aliases.items() if stands.endswith(last) and name in text]
            at = next((text.find(word) for word in (last, *alias, "dl", "distlearn") if word in text), 0)
            found.append((name_of(answer.node), f"{', '.join(sorted(names))}: {_line(text, at)}"))
    return found


LIBRARY = ("distlearn", "distcourse")


def _statements(cell: Cell) -> list[Cell]:
    return [Cell(0, Text(ast.unparse(node))) for node in cell.tree.body] if cell.tree else []


def tables(cells, source: Source | None) -> list[tuple[str, str]]:
    """Return (name of the cell, line) for answers that look results up by fixed sizes, as a check asks for them."""
    exercises, found = {c.grade_id for c in source.exercises} if source else set(), []
    for answer in (Cell(0, c) for c in cells if c.cell_type == "code" and grade_id_of(c) in exercises):
        asked: dict[str, list] = {}
        for node in ast.walk(answer.tree) if answer.tree else ():
            if isinstance(node, ast.Dict) and len([k for k in node.keys if _fixed(k)]) >= CASES:
                asked["{"] = [node] * CASES
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and _fixed(node.comparators[0]):
                asked.setdefault(ast.unparse(node.left), []).append(node)
        hits = [nodes[0] for nodes in asked.values() if len(nodes) >= CASES]
        if hits:
            found.append((name_of(answer.node), f"`{answer.python.splitlines()[hits[0].lineno - 1].strip()[:80]}`"))
    return found


def _fixed(node) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return bool(parts) and all(isinstance(p, ast.Constant) and isinstance(p.value, (int, float)) for p in parts)


def _library_aliases(cell: Cell):
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
    changed, outside = [declared & stored], set()
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            (outside if _root(node) in modules else changed[0]).add(_root(node))
        elif isinstance(node, ast.Call) and _called(node) in _OUTSIDE:
            outside.add(_called(node))
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
    return (set().union(*changed) - (local - declared) - {""}) | mutable | outside


def _all_arguments(arguments: ast.arguments):
    rest = [a for a in (arguments.vararg, arguments.kwarg) if a]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _root(node) -> str:
    """The name that an expression such as `seen["a"].b` starts with, or ""."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
