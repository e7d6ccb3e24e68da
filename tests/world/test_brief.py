"""What a notebook shows of a run's error: the user's lines and the message, not this package's frames."""

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from distlearn.comm.base import RankError
from distlearn.world.progress import shorten_traceback


@pytest.fixture
def shell():
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture
def run():
    """A stand-in for `EngineWorld.run`, whose frames are this package's."""
    inside = {"__name__": "distlearn.world.engines", "shorten_traceback": shorten_traceback}
    exec("def run(error):\n    return watch(error)\n\ndef watch(error):\n    raise shorten_traceback(error)", inside)
    return inside["run"]


@pytest.mark.parametrize("error", [RankError(1, "boom:\n  here"), KeyboardInterrupt("all ranks:\n  here")])
def test_a_notebook_shows_the_cell_and_the_message(shell, run, capsys, error):
    shell.push({"run": run, "error": error})
    shell.run_cell("def mine():\n    run(error)\n\nmine()")
    shown = capsys.readouterr()
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.out + shown.err).splitlines()  # without colours
    assert len(lines) <= 15, lines
    text = "\n".join(lines)
    assert "----> 2     run(error)" in text
    assert text.rstrip().endswith(f"{error}")
    assert "watch" not in text


def test_elsewhere_it_is_the_error_that_it_was(run):
    error = RankError(1, "boom")
    with pytest.raises(RankError) as caught:
        run(error)
    assert caught.value is error
    assert [entry.name for entry in caught.traceback][-2:] == ["run", "watch"]
