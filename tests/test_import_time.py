"""`import distlearn` is quick, because everything else comes on first use."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from . import test_floors

HEAVY = {*test_floors.HEAVY, "IPython", "ipywidgets", "numpy", "pandas", "tqdm"}

PROBE = """
import json, sys, time
before = time.process_time()
{statement}
seconds = time.process_time() - before
print(json.dumps([seconds, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


def fresh(statement: str) -> tuple[float, set[str]]:
    """Run a statement in a fresh process: its processor seconds, and the packages that it left loaded."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV"))}
    command = [sys.executable, "-c", PROBE.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    seconds, loaded = json.loads(done.stdout)
    return seconds, set(loaded)


def test_import_is_quick():
    """Of processor time, in one of several tries: other programs make it no slower."""
    assert any(fresh("import distlearn")[0] < 0.3 for _ in range(7))


@pytest.mark.parametrize("statement", ["import distlearn", "import distlearn.cli"])
def test_import_loads_nothing_heavy(statement):
    _, loaded = fresh(statement)
    assert "distlearn" in loaded
    assert loaded & HEAVY == set()


def test_names_come_on_first_use():
    _, loaded = fresh("import distlearn; distlearn.Network(1e-6, 1e9)")
    assert "numpy" in loaded
    assert loaded & {"cupy", "ipyparallel", "matplotlib", "mpi4py", "sklearn"} == set(), "a network needs none of these"


def test_help_loads_no_command():
    """`distlearn --help` must work, at once, on a machine where half of the rest is broken."""
    _, loaded = fresh(
        "from click.testing import CliRunner; import distlearn.cli as c; CliRunner().invoke(c.main, ['-h'])"
    )
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_resolves():
    import distlearn

    for name in distlearn.__all__:
        assert getattr(distlearn, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        distlearn.nonsense  # noqa: B018
