"""What type checkers see: names that are loaded lazily, or listed at run time, are in stubs written from the packages.

`python -m tests.test_types` writes them.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import FunctionType

import pytest

from .test_floors import PACKAGE, ROOT

PACKAGES = ["", "comm", "cuda", "data", "nn", "optim", "parallel", "sim", "testing", "train", "viz", "world"]


BARE = re.compile(r"\b(dict|list|tuple|Callable|Sequence|Iterable)\b(?!\[)")
ENV = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def stub(name: str) -> str:
    """Write what a package offers as a stub: each public name from where it is defined."""
    package, lines = importlib.import_module(f"distlearn.{name}".rstrip(".")), []
    names = [*package.__all__]
    names += ["lazy", "need"] if not name else []
    for public in sorted(names):
        value = getattr(package, public)
        home, own = getattr(value, "__module__", ""), getattr(value, "__name__", "")
        if inspect.ismodule(value):
            lines.append(f"from {value.__name__.rpartition('.')[0]} import {public} as {public}")
        elif own and home == package.__name__:
            lines.append(f"def {public}{inspect.signature(value)}: ...".replace("'", ""))
        elif own:
            lines.append(f"from {home} import {own} as {own}")
            lines += [f"{public} = {own}"] if own != public else []
        elif isinstance(value, (dict, tuple)):
            items, keys = (value.values(), "str, ") if isinstance(value, dict) else (value, "")
            kinds = {type(item) for item in items}
            kind = kinds.pop() if len(kinds) == 1 else object
            lines += [f"from {kind.__module__} import {kind.__name__} as {kind.__name__}"] * kind.__module__.startswith(
                "distlearn"
            )
            name = kind.__name__ if kind in (str, int) or kind.__module__.startswith("distlearn") else "Any"
            lines += ["from typing import Any"] * (name == "Any")
            lines.append(f"{public}: {type(value).__name__}[{keys or name}{name if keys else ', ...'}]")
        else:
            lines.append(f"{public}: {type(value).__name__}")
    lines = list(dict.fromkeys(lines))
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("from"))) + "\n"


@pytest.mark.parametrize("name", PACKAGES)
def test_stubs_are_what_the_packages_offer(name):
    text = (PACKAGE / name / "__init__.pyi").read_text(encoding="utf-8")
    assert text == stub(name), "python -m tests.test_types writes it"


def public() -> Iterator[tuple[str, FunctionType]]:
    """Every function that a user may call: of a package, or a method of its classes and of their bases here."""
    for package in (importlib.import_module(f"distlearn.{name}".rstrip(".")) for name in PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            homes = [k for k in value.__mro__ if k.__module__.startswith("distlearn")] if inspect.isclass(value) else []
            found = {f"{name}.{k}": f for home in reversed(homes) for k, f in vars(home).items()} or {name: value}
            for where, member in found.items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if inspect.isfunction(function) and not where.rpartition(".")[2].startswith("_"):
                    yield f"{function.__module__}: {where}", inspect.unwrap(function)
            if homes:
                yield f"{value.__module__}: {name}.__init__", value.__init__


def test_every_public_signature_is_annotated():
    bare = []
    for where, function in public():
        if not inspect.isfunction(function) or not function.__module__.startswith("distlearn"):
            continue
        signature = inspect.signature(function)
        given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
        if function.__name__ != "__init__":
            given.append(signature.replace(parameters=()).return_annotation)
        for p in given:
            kind = getattr(p, "annotation", p)  # a parameter's, or what is returned
            if kind is signature.empty or BARE.search(str(kind)):
                bare.append(f"{where}: {p}")
    assert not bare, "\n".join(sorted(set(bare)))


NAMES = [
    f"dl.{package}.{name}".replace("..", ".")
    for package in PACKAGES
    for name in importlib.import_module(f"distlearn.{package}".rstrip(".")).__all__
]
SLIPS = ["dl.SimWorldd(4)", "dl.nn.Lineer(3, 2)", "dl.viz.plot_timelin(world.trace)", 'dl.SimWorld("4")']
README = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
PROGRAMS = {
    "typed_program": (ROOT / "tests/typed_program.py").read_text(encoding="utf-8"),
    "readme": "\n".join([README, *SLIPS, "reveal_type(dl.fit)", "reveal_type(dl.DataParallel)"]),
    "names": "\n".join(["import distlearn as dl", *(f"reveal_type({name})" for name in NAMES)]),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `mypy --strict` says of the programs, a line each."""
    pytest.importorskip("mypy", reason="types are checked where mypy is installed: pip install mypy")
    folder = tmp_path_factory.mktemp("typed")
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *(f"{n}.py" for n in PROGRAMS)]
    return subprocess.run(command, cwd=folder, env=ENV, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.nightly
def test_a_program_of_strict_types_is_accepted_and_runs(found):
    assert not [line for line in found if ": error: " in line and not line.startswith("readme.py")], "\n".join(found)
    program = [sys.executable, "-c", PROGRAMS["typed_program"]]
    done = subprocess.run(program, capture_output=True, text=True, env=ENV)
    assert not done.returncode, done.stderr


@pytest.mark.nightly
def test_no_public_name_is_any(found):
    lines = [line for line in found if line.startswith("names.py") and "Revealed type is" in line]
    assert len(lines) == len(NAMES)
    assert not [name for name, line in zip(NAMES, lines, strict=True) if line.endswith('"Any"')]


@pytest.mark.nightly
def test_a_type_checker_takes_the_readmes_program_and_refuses_a_slip(found):
    lines = [line for line in found if line.startswith("readme.py")]
    errors = [line for line in lines if ": error: " in line and "[no-untyped-def]" not in line]
    assert len(errors) == len(SLIPS), errors
    assert any('Argument 1 to "SimWorld" has incompatible type "str"; expected "int"' in line for line in errors)
    for name in ("SimWorldd", "Lineer", "plot_timelin"):
        assert any(f'has no attribute "{name}"' in line for line in errors)
    text = "\n".join(lines)
    assert "def (strategy: distlearn.parallel.strategy.Strategy" in text
    assert "def (comm: distlearn.comm.base.Communicator, model: distlearn.nn.container.Sequential" in text


if __name__ == "__main__":
    for package in PACKAGES:
        (PACKAGE / package / "__init__.pyi").write_text(stub(package), encoding="utf-8")
