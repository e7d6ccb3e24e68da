"""`distlearn labs` as a maintainer types it."""

import shutil

import pytest
from click.testing import CliRunner
from distcourse.commands.labs import labs

from .conftest import COURSE, LABS


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A course with lab 00 alone, as the working directory."""
    shutil.copytree(COURSE / "source" / LABS[0], tmp_path / "course" / "source" / LABS[0])
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path / "course")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    """Run the command; return exit status and everything it printed."""
    result = CliRunner().invoke(labs, list(words), catch_exceptions=False)
    return result.exit_code, result.output


@pytest.mark.nightly
def test_generate_check_generate(here):
    status, text = run("generate", "--check")
    assert status == 1
    assert "run `distlearn labs generate`" in text
    status, text = run("generate")
    assert status == 0
    assert run("generate", "--check") == (0, "the students' copies match the sources\n")

    copy = here / "labs" / LABS[0] / "lab00.ipynb"
    made = copy.read_text(encoding="utf-8")
    copy.write_text(made.replace("raise NotImplementedError()", "return 3"), encoding="utf-8")
    status, text = run("generate")
    assert status == 1
    assert "copies have been edited: lab00_welcome (lab00.ipynb has an answer in mean_over_ranks)" in text
    assert run("generate", "--force", LABS[0])[0] == 0
    assert copy.read_text(encoding="utf-8") == made


def test_check_and_fix(here):
    path = here / "course" / "source" / LABS[0] / "lab00.ipynb"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"execution_count": null', '"execution_count": 3', 1), encoding="utf-8")
    status, said = run("check", str(path))
    assert status == 1
    assert "or outputs that are not compared" in said
    assert "mended" in run("check", "--fix", str(path))[1]
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("generate", "lab77"), "no lab 'lab77'"),
        (("check", "nothing.ipynb"), "does not exist"),
        (("check", "--course", "/nowhere"), "no course here"),
    ],
)
def test_mistakes_are_one_line(here, words, said):
    status, text = run(*words)
    assert status != 0
    assert said in text
    assert "Traceback" not in text


def test_a_file_that_is_no_notebook(here):
    (here / "x.ipynb").write_text("{}", encoding="utf-8")
    status, text = run("check", "x.ipynb")
    assert status != 0
    assert "x.ipynb" in text
