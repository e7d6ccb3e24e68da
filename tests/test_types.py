"""What type checkers see: names that are loaded lazily, or listed at run time, are in stubs written from the packages.

`python -m tests.test_types` writes them.
"""

import importlib
import inspect
import os
import subprocess
import sys

import pytest

from .test_floors import PACKAGE, ROOT

PACKAGES = ["", "comm", "cuda", "data", "nn", "optim", "parallel", "sim", "testing", "train", "viz", "world"]


def stub(name: str) -> str:
    """Write what a package offers as a stub: each public name from where it is defined."""
    package, lines = importlib.import_module(f"distlearn.{name}".rstrip(".")), []
    names = [*package.__all__, *(["lazy", "need"] if not name else [])]
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
        else:
            lines.append(f"{public}: {type(value).__name__}")
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("from"))) + "\n"


@pytest.mark.parametrize("name", PACKAGES)
def test_stubs_are_what_the_packages_offer(name):
    text = (PACKAGE / name / "__init__.pyi").read_text(encoding="utf-8")
    assert text == stub(name), "python -m tests.test_types writes it"


def mypy(tmp_path, program: str) -> str:
    pytest.importorskip("mypy", reason="types are checked where mypy is installed: pip install mypy")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "program.py"], cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_a_type_checker_takes_the_readmes_program_and_refuses_a_slip(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = readme.partition("```python\n")[2].partition("```")[0]
    slips = ["dl.SimWorldd(4)", "dl.nn.Lineer(3, 2)", "dl.viz.plot_timelin(world.trace)", 'dl.SimWorld("4")']
    found = mypy(tmp_path, program + "\n".join([*slips, "reveal_type(dl.fit)", "reveal_type(dl.DataParallel)"]))
    errors = [line for line in found.splitlines() if ": error: " in line]
    assert len(errors) == len(slips), found
    assert 'Argument 1 to "SimWorld" has incompatible type "str"; expected "int"' in found
    for name in ("SimWorldd", "Lineer", "plot_timelin"):
        assert f'has no attribute "{name}"' in found
    assert "def (strategy: " in found
    assert "def (comm: Any, model: Any" in found


if __name__ == "__main__":
    for package in PACKAGES:
        (PACKAGE / package / "__init__.pyi").write_text(stub(package), encoding="utf-8")
