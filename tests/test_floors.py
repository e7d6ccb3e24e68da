"""The architecture as a test: imports go only down, and heavy packages are imported in one place each."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "distlearn"
COURSE = ROOT / "course"

FLOORS = {
    "backend": 0,
    "bounds": 0,
    "files": 0,
    "shares": 0,
    "tables": 0,
    "trace": 0,
    "cuda": 1,
    "nn": 2,
    "optim": 2,
    "data": 2,
    "comm": 2,
    "sim": 3,
    "parallel": 4,
    "train": 5,
    "world": 5,
    "viz": 6,
    "testing": 7,
    "pytest_plugin": 7,
    "cli": 8,
}

# packages of one floor may import one another, but communicators know nothing of layers, nor layers of communicators
STRANGERS = {"comm": ("nn", "optim", "data"), "nn": ("comm",), "optim": ("comm",), "data": ("comm",)}

# package: the modules that may import it (with everything below them)
HEAVY = {
    "cupy": ("backend", "comm.nccl", "cuda"),
    "greenlet": ("sim.scheduler", "distcourse.judge.student"),  # ranks, and the calls that wait for them
    "ipyparallel": ("world",),
    "matplotlib": ("viz", "distcourse"),  # a lab shows figures
    "mpi4py": ("comm.mpi", "world.mpi"),
    "pooch": ("data",),
    "scipy": ("distcourse.lab07",),
    "sklearn": (),
    "torch": ("train.torch_ddp",),
}

# strategies are written against the protocol; which communicator they get is the world's business
IMPLEMENTATIONS = ("comm.mpi", "comm.nccl", "sim.world", "sim.SimWorld")


class Import(NamedTuple):
    """One thing that a module imports, dots resolved: `distlearn.sim.world`."""

    line: int
    target: str


def imports(source: str, module: str, is_package: bool = False) -> list[Import]:
    """Every import of a module, also inside functions and under `if TYPE_CHECKING`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            found += [Import(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__", "need"):
            name = node.args[0]
            if isinstance(name, ast.Constant) and not name.value.startswith("."):
                found.append(Import(node.lineno, name.value))
    return found


def below(name: str, prefixes) -> bool:
    """Say whether a dotted name is one of the prefixes or inside one."""
    return any(name == p or name.startswith(f"{p}.") for p in prefixes)


def complaints(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a module imports against the rules."""
    here = module.removeprefix("distlearn.")
    mine, found = here.partition(".")[0], imports(source, module, is_package)
    packages = [(line, target.partition(".")[0]) for line, target in found]
    wrong = [
        f"{module}, line {line}: {package} belongs to {', '.join(HEAVY[package]) or 'the benchmarks'} alone"
        for line, package in packages
        if package in HEAVY and not below(here, HEAVY[package])
    ]
    if mine == "distcourse":  # on top of everything
        return wrong
    if mine not in FLOORS:
        return [f"{module}: on which floor is {mine!r}? Add it to FLOORS"]
    floor = FLOORS[mine]
    for line, target in found:
        package, _, rest = target.partition(".")
        where = f"{module}, line {line}: imports {target}"
        if package == "distcourse":
            wrong.append(f"{where}: the library knows nothing of the course")
        if package != "distlearn" or rest.partition(".")[0] == mine:
            continue
        other = rest.partition(".")[0]
        if FLOORS.get(other, -1) > floor:
            wrong.append(f"{where}: up from floor {floor} to {FLOORS[other]}")
        if other in STRANGERS.get(mine, ()):
            wrong.append(f"{where}: {mine} knows nothing of {other}")
        if here.startswith(("parallel.planning", "parallel.memory")):
            continue  # it runs strategies in a SimWorld
        if mine not in ("comm", "sim") and FLOORS[mine] < 5 and below(rest, IMPLEMENTATIONS):
            wrong.append(f"{where}: floor {FLOORS[mine]} knows comm.base, not who implements it")
    return wrong


def modules() -> list[tuple[str, Path]]:
    """Every module of the package but its `__init__`, which names all floors and loads them lazily."""
    found = []
    for path in sorted([*PACKAGE.rglob("*.py"), *COURSE.glob("distcourse/**/*.py")]):
        parts = path.relative_to(ROOT if path.is_relative_to(PACKAGE) else COURSE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in ("distlearn", "distlearn.__main__"):
            found.append((name, path))
    return found


def test_imports_go_down():
    found = [
        text
        for module, path in modules()
        for text in complaints(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


def test_every_floor_is_inhabited():
    """A package that was renamed would otherwise keep its old floor, and its imports go unseen."""
    names = {path.stem if path.suffix == ".py" else path.name for path in PACKAGE.iterdir()}
    assert {name for name in names if not name.startswith("_")} - {"py.typed"} == set(FLOORS)


def test_every_exception_is_for_a_module_that_exists():
    """The same for a module that may import a heavy package."""
    known = {name.removeprefix("distlearn.") for name, _ in modules()}
    assert {module for allowed in HEAVY.values() for module in allowed} <= known


def test_architecture_draws_these_floors():
    """The table is in this order, and the files that its second table sends a reader to are there."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", text, re.MULTILINE)
    drawn = {name: int(floor) for floor, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert drawn == FLOORS | {"distcourse": max(FLOORS.values()) + 1}
    assert [int(floor) for floor, _ in rows] == sorted((int(floor) for floor, _ in rows), reverse=True)
    for name in re.findall(r"participant \w+ as (\w+\.[\w.]+)", text):
        assert pkgutil.resolve_name(f"distlearn.{name}"), name
    table = text.partition("## Where to change what")[2].partition("\n## ")[0]
    places = [place for place in re.findall(r"`([\w/.*]+/[\w/.*]*)`", table) if "/" in place]
    assert len(places) > 15
    for place in places:
        place = place.replace("labNN", "lab07")
        assert any(next(folder.glob(place), None) for folder in (ROOT, PACKAGE, COURSE)), place


def test_root_loads_nothing():
    """`distlearn/__init__` may import the standard library alone: everything else comes on first use."""
    source = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert {target.partition(".")[0] for _, target in imports(source, "distlearn", True)} == {"__future__", "importlib"}
