"""`distlearn run module:function`: any function, any world."""

from __future__ import annotations

import re
import textwrap

import click
import pytest
from click.testing import CliRunner

from distlearn.cli import main
from distlearn.cli.run import find_function, parse_arguments

MODULE = """
import numpy as np

def helper(x):
    return x + 1

def total(comm, start=0, *, factor=1):
    return float(comm.all_reduce(np.array([helper(comm.rank) * factor + start], float))[0])

def differs(comm):
    return comm.all_reduce(np.zeros(3 + comm.rank)).size

def quiet(comm):
    pass

def fails(comm):
    if comm.rank == comm.size - 1:
        raise KeyError("the last rank has no key")
    comm.barrier()

number = 3
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call `distlearn run` in a folder that holds a module of the user's."""
    import sys

    name = f"users_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("DISTLEARN_DEBUG", raising=False)
    return lambda *words: CliRunner().invoke(main, ["run", *(str(w).replace("MODULE", name) for w in words)])


def lines(result):
    assert result.exit_code == 0, result.output
    return [line for line in result.output.splitlines() if line.startswith("rank ")]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["MODULE:total"], ["rank 0: 1.0"]),
        (["MODULE:total", "--world", "sim", "--size", 3, "10", "factor=2"], [f"rank {r}: 42.0" for r in range(3)]),
        (["MODULE:total", "-5"], ["rank 0: -4.0"]),  # a negative number is no option
        (["MODULE:quiet", "--world", "sim", "--size", "2"], []),
        pytest.param(
            ["--world", "engines", "--size", 2, "MODULE:total"],
            ["rank 0: 3.0", "rank 1: 3.0"],
            marks=pytest.mark.engines,
        ),
    ],
)
def test_what_ranks_return_is_printed(call, words, printed):
    assert lines(call(*words)) == printed


@pytest.mark.mpi
def test_mpi(call, capfd):
    result = call("--world", "mpi", "--size", 3, "MODULE:total", "1")
    assert result.exit_code == 0, result.output
    assert capfd.readouterr().out.splitlines() == [f"rank {r}: 9.0" for r in range(3)]


@pytest.mark.mpi
def test_under_mpiexec(call, tmp_path):
    """`mpiexec -n 4 distlearn run mymodule:train`, as in the README."""
    from distlearn.world import launch

    module = next(tmp_path.glob("*.py")).stem
    done = launch(4, ["python", "-m", "distlearn", "run", f"{module}:total"], timeout=60, capture=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"rank {r}: 10.0" for r in range(4)]
    words = ["run", "--size", "2", f"{module}:total"]
    done = launch(3, ["python", "-m", "distlearn", *words], timeout=60, capture=True)
    assert done.returncode != 0
    assert "mpiexec started 3 ranks" in done.stderr


@pytest.mark.mpi
def test_a_rank_that_raises_ends_all(call, capfd):
    result = call("--world", "mpi", "--size", 2, "--timeout", "60", "MODULE:fails")
    assert result.exit_code != 0
    err = capfd.readouterr().err
    assert "RankError: rank 1: KeyError" in err
    assert "comm.rank == comm.size - 1" in err or "in fails" in err, "the traceback shows the user's line"


@pytest.mark.mpi
def test_strict_ranks_compare_their_calls(call, capfd):
    result = call("MODULE:differs", "--world", "mpi", "--size", 2)
    assert result.exit_code != 0
    error = capfd.readouterr().err
    for rank, size in enumerate((3, 4)):
        assert re.search(
            rf"rank {rank} calls all_reduce\(op='sum', \({size},\), float64\) \(.*line 11, in differs\)", error
        )


def test_a_simulated_rank_that_raises(call):
    result = call("--world", "sim", "--size", 2, "MODULE:fails")
    assert result.exit_code == 1
    assert "Error: rank 1: KeyError" in result.output
    assert 'raise KeyError("the last rank has no key")' in result.output, "the user's own bug comes with its traceback"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["MODULE"], "expected module:function"),
        ([":f"], "expected module:function"),
        (["nowhere:f"], "there is no module 'nowhere'"),
        (["MODULE:nothing"], "has no 'nothing'; it has helper, total, differs, quiet, fails"),
        (["MODULE:number"], "is a int, expected a function"),
        (["MODULE:total", "abc"], """write a string as '"abc"'"""),
        (["MODULE:total", "factor=2", "3"], "names come last"),
        (["MODULE:total", "--size", "2", "--world", "local"], "one rank, not 2"),
        (["MODULE:total", "--size", "0"], "0 is not in the range"),
    ],
)
def test_bad_input(call, words, expected):
    result = call(*words)
    assert result.exit_code == 2
    assert expected in result.output
    assert "Traceback" not in result.output


def test_a_module_that_cannot_import_what_it_needs(tmp_path, monkeypatch):
    """The user's own missing import is not reported as a missing module of ours."""
    (tmp_path / "needs_more.py").write_text("import not_there_at_all", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        find_function("needs_more:f")


def test_arguments():
    assert parse_arguments(["1", '"a=b"', "x=[1]", 'y={"a": null}']) == ([1, "a=b"], {"x": [1], "y": {"a": None}})
    assert parse_arguments(['{"lr": 0.1}']) == ([{"lr": 0.1}], {})
    with pytest.raises(click.UsageError):
        parse_arguments(["x=oops"])
