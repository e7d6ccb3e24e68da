"""What holds for the whole package: no import cycle, no file that is too long, no public name without a docstring."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from graphlib import CycleError, TopologicalSorter

import pytest

from .test_floors import COURSE, PACKAGE, ROOT, imports, modules

LONGEST = 900


def at_import(path) -> str:
    """The source of a module without what runs later: function bodies and `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    class Now(ast.NodeTransformer):
        def visit_FunctionDef(self, node):
            return None

        visit_AsyncFunctionDef = visit_FunctionDef

        def visit_If(self, node):
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Now().visit(tree)))


def test_no_import_cycle():
    """Modules, packages included: a package's `__init__` counts for what is imported from the package by name."""
    known = {name for name, _ in modules()}
    graph = {}
    for name, path in modules():
        found = set()
        for _, target in imports(at_import(path), name, path.name == "__init__.py"):
            while target not in known and "." in target:  # from a import b: the module a.b, or the name b of a
                target = target.rpartition(".")[0]
            if target in known and target != name:
                found.add(target)
        graph[name] = found
    assert sum(map(len, graph.values())) > len(graph)  # imports were found
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("suffix", [".py", ".cu", ".h", ".cpp"])
def test_no_file_is_too_long(suffix):
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for folder in (PACKAGE, COURSE / "distcourse")
        for path in folder.rglob(f"*{suffix}")
    }
    assert lengths
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LONGEST} == {}


def test_every_public_name_is_documented():
    """What a package lists in `__all__` says what it is; constants are documented where they are assigned."""
    missing, seen = [], 0
    for name, path in modules():
        if path.name != "__init__.py":
            continue
        package = importlib.import_module(name)
        for public in getattr(package, "__all__", ()):
            what = getattr(package, public)
            if inspect.ismodule(what) or not (inspect.isclass(what) or inspect.isroutine(what)):
                continue
            seen += 1
            own = what.__doc__ if inspect.isclass(what) else inspect.getdoc(what)
            if not own or (inspect.isclass(what) and own.startswith(f"{what.__name__}(")):  # written by dataclass
                missing.append(f"{name}.{public}")
    assert seen > 200
    assert missing == []


def test_the_text_names_what_it_means():
    """Words that stand in for a noun or a plain verb: a message, a number of steps, continues."""
    vague = re.compile(r"\b(?:told|[Ss]o many|go(?:es)? on|went on|as often each|anew)\b")
    found = {path: vague.findall(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {str(path.relative_to(ROOT)): words for path, words in found.items() if words} == {}
