"""The command as a whole: help, version, what is imported when."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import distlearn
from distlearn.cli import COMMANDS, main
from distlearn.cli.console import plain_errors, print_table


@pytest.fixture
def call():
    return lambda *words, **options: CliRunner().invoke(main, words, **options)


def test_help_names_every_command(call):
    result = call("--help")
    assert result.exit_code == 0
    for name, help_line in COMMANDS.items():
        assert name in result.output
        assert help_line.split(",")[0] in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call, name):
    result = call(name, "--help")
    assert result.exit_code == 0, result.output
    assert "--help" in result.output


def test_examples_stand_on_lines_of_their_own(call):
    lines = [line.strip() for line in call("train", "--help").output.splitlines()]
    assert sum(line.startswith(("distlearn train ", "mpiexec -n 4 distlearn")) for line in lines) >= 2
    assert not any("\\b" in line for line in lines)


def test_version(call):
    assert call("--version").output == f"distlearn {distlearn.__version__}\n"


@pytest.mark.parametrize(("words", "expected"), [(("dr",), "No such command 'dr'"), (("doctor", "--fast"), "--fast")])
def test_mistyped(call, words, expected):
    result = call(*words)
    assert result.exit_code == 2
    assert expected in result.output
    assert "Traceback" not in result.output


def test_python_m():
    done = subprocess.run(
        [sys.executable, "-m", "distlearn", "-V"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("distlearn ")


def test_plain_errors(monkeypatch):
    import click

    monkeypatch.delenv("DISTLEARN_DEBUG", raising=False)
    with pytest.raises(click.ClickException, match="lr is -1"), plain_errors(ValueError):
        raise ValueError("lr is -1")
    with pytest.raises(ZeroDivisionError), plain_errors(ValueError):
        1 / 0  # noqa: B018
    monkeypatch.setenv("DISTLEARN_DEBUG", "1")
    with pytest.raises(ValueError, match="lr is -1"), plain_errors(ValueError):
        raise ValueError("lr is -1")


def test_a_table_is_as_wide_as_the_terminal(capsys):
    """Long cells are folded, line breaks too; nothing of them is lost, and no column but the longest is narrowed."""
    why = "expected 4 ranks, " * 20
    print_table("Why", ["team", "n>", "why"], [("otters", 1, why + "\nlast"), ("owls", None, "")])
    title, head, rule, *rows = capsys.readouterr().out.splitlines()
    assert (title, head.split()) == ("Why", ["team", "n", "why"])
    assert len(rule) <= 120
    assert max(map(len, rows)) <= 120
    assert " ".join(row[11:] for row in rows[:-1]).split() == [*why.split(), "last"]
    assert rows[0].startswith("otters  1  expected")
    assert rows[-1].split() == ["owls", "-"]
