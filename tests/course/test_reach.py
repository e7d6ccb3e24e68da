"""No solution is within a student's reach: neither in what is handed out nor in the packages that are installed.

Compared are statements, up to the names of variables and docstrings: those between the markers of an exercise with
every run of as many statements in the students' tree. Kernels are compared as text without white space.
"""

import ast
import re
import zipfile
from collections import defaultdict

import nbformat
import pytest
from distcourse.author import Source, source_notebooks
from distcourse.author.export import bundle
from distcourse.author.source import BEGIN_SOLUTION, END_SOLUTION, Cell, packed

from .conftest import COURSE, LABS

TREE = COURSE.parent
SGD = {"distlearn/optim/momentum.py", "distlearn/optim/adaptive.py", "distlearn/nn/norm.py"}
KNOWN = {
    "lab01.sgd": SGD,  # `data -= lr * grad`: the library's rule is the topic, and one line long
    "lab02.momentum": SGD,  # its first part, SGD again
}
"""By exercise: where the same statements are. A student's answer that calls them is refused; the list only shrinks."""


def shape(statements) -> tuple:
    """What is left without docstrings and with variables numbered in the order in which they appear."""
    names = {}

    def form(part):
        if isinstance(part, list):
            return tuple(map(form, part))
        if not isinstance(part, ast.AST):
            return part
        if isinstance(part, (ast.Name, ast.arg)):
            name = part.id if isinstance(part, ast.Name) else part.arg
            return names.setdefault(name, len(names))
        fields = dict(ast.iter_fields(part))
        if isinstance(part, ast.FunctionDef):
            fields |= {"name": "", "body": part.body[ast.get_docstring(part) is not None :]}
        return (type(part).__name__, *map(form, fields.values()))

    return form(statements)


def outline(statements) -> int:
    """What equal shapes have in common, and is found quickly: how many nodes they have."""
    for statement in statements:
        if not hasattr(statement, "size"):
            statement.size = sum(1 for _ in ast.walk(statement))
    return sum(statement.size for statement in statements)


def kinds(statements) -> tuple:
    return tuple(type(statement).__name__ for statement in statements)


def blocks(node):
    """Every list of statements, the outermost first."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block
            for statement in block:
                yield from blocks(statement)


def solutions():
    """(exercise, statements, kernels) of every stretch between the markers of every lab."""
    for path in source_notebooks(COURSE):
        lab = Source(path)
        for cell in lab.exercises:
            lines = cell.source.splitlines()
            begins = [n for n, line in enumerate(lines, 1) if BEGIN_SOLUTION in line]
            ends = [n for n, line in enumerate(lines, 1) if END_SOLUTION in line]
            for begin, end in zip(begins, ends, strict=True):
                inside = ([s for s in block if begin < s.lineno < end] for block in blocks(cell.tree))
                body = next(filter(None, inside))  # of the outermost block
                long = [n.value for s in body for n in ast.walk(s) if isinstance(n, ast.Constant)]
                long = [packed(text) for text in long if isinstance(text, str) and len(text) > 100]
                yield f"lab{lab.number}.{cell.grade_id}", body, long


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    """What a student has, by where it is: the cells of the released notebooks, and the packages' modules."""
    target = tmp_path_factory.mktemp("bundle") / "labs.zip"
    bundle(COURSE, target)
    texts = {}
    with zipfile.ZipFile(target) as archive:
        assert "AGENTS.md" in archive.namelist()
        for name in archive.namelist():
            if name.endswith(".npz"):  # results: tests/course/test_exercises.py
                continue
            text = archive.read(name).decode("utf-8")
            cells = nbformat.reads(text, as_version=4).cells if name.endswith(".ipynb") else []
            texts |= {f"labs/{name}#{c.id}": Cell(0, c).python for c in cells if c.cell_type == "code"}
            texts |= {} if cells else {f"labs/{name}": text}
    for package in (TREE / "distlearn", COURSE / "distcourse"):
        for path in (p for p in package.rglob("*") if p.suffix in (".py", ".cu", ".h", ".cpp")):
            texts[str(path.relative_to(TREE))] = path.read_text(encoding="utf-8")
    return texts


def reached(texts) -> dict:
    """Where the solutions are, by exercise."""
    wanted, lengths, kernels, found = defaultdict(list), defaultdict(set), [], defaultdict(set)
    for exercise, body, long in solutions():
        wanted[kinds(body)].append((outline(body), shape(body), exercise))
        lengths[type(body[0])].add(len(body))
        kernels += [(text, exercise) for text in long]
    assert len({exercise for found in wanted.values() for *_, exercise in found}) > 90
    assert len(kernels) >= 6
    for where, text in texts.items():
        white = packed(text) if "__global__" in text else ""
        for exercise in (exercise for kernel, exercise in kernels if kernel in white):
            found[exercise].add(where)
        for block in blocks(ast.parse(text)) if where.endswith(".py") or "#" in where else ():
            for i, first in enumerate(block):
                for run in (block[i : i + n] for n in lengths.get(type(first), ())):
                    for size, form, exercise in wanted.get(kinds(run), ()):
                        if outline(run) == size and shape(run) == form:
                            found[exercise].add(where)
    return found


def test_no_solution_is_among_what_a_student_has(handed_out):
    assert reached(handed_out) == KNOWN, "what is new here must go; what has gone leaves the list"


def test_a_solution_with_other_names_is_found():
    exercises = [cell for path in source_notebooks(COURSE)[4:8:3] for cell in Source(path).exercises]
    planted = "\n\n".join(re.sub(r"\b(comm|loss|batches)\b", r"\1_", cell.source) for cell in exercises)
    found = reached({"planted.py": planted})
    assert {name.partition(".")[2] for name in found} >= {cell.grade_id for cell in exercises}


def test_assistants_are_told_the_rule_that_the_instructor_chose(tmp_path):
    told = {name: (COURSE / "staff" / f"AGENTS_{name}.md").read_text(encoding="utf-8") for name in ("tutor", "log")}
    assert (TREE / "labs" / "AGENTS.md").read_text(encoding="utf-8") in told.values(), "copy one of the two"
    for name, text in told.items():
        bundle(COURSE, tmp_path / "labs.zip", [LABS[0]], name)
        with zipfile.ZipFile(tmp_path / "labs.zip") as archive:
            assert archive.read("AGENTS.md").decode("utf-8") == text
