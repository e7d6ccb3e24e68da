"""Files around the package: one list of dependencies, a README whose code runs and whose links lead somewhere."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import distlearn

ROOT = Path(__file__).resolve().parents[1]
README, MANUAL = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "course/notes/manual.md"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_environment_has_no_second_list():
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, pip = content["dependencies"]
    assert pip == {"pip": ["-e .[dev]"]}
    assert {re.split("[=<>]", name)[0] for name in conda} == {"python", "pip", "make", "cxx-compiler"}
    assert "conda-forge" in content["channels"]


def test_supported_pythons_agree():
    """What the metadata claims is what CI runs and the README says."""
    claimed = [c.rpartition(" ")[2] for c in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    yaml = pytest.importorskip("yaml")
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert ci["jobs"]["test"]["strategy"]["matrix"]["python"] == claimed
    assert PYPROJECT["project"]["requires-python"] == f">={claimed[0]}"
    assert f"Python {claimed[0]} to {claimed[-1]}" in README


def test_ci_runs_what_a_maintainer_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text(encoding="utf-8")
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert ".ci/run" in workflow


def test_the_labs_are_validated_where_everything_is_tested():
    """`make test`, and so CI, runs nbval on all sources; its holes are closed for this one release."""
    assert "-m pytest -n $(WORKERS) --nbval-lax --durations=40 $(ARGS)" in (ROOT / "Makefile").read_text(
        encoding="utf-8"
    )
    assert "course/source" in PYPROJECT["tool"]["pytest"]["ini_options"]["testpaths"]
    assert "nbval==0.11.0" in PYPROJECT["project"]["optional-dependencies"]["labs"]
    assert "`pytest --nbval-lax course/source`" in README


@pytest.mark.parametrize("target", ["env", "lab", "test", "test-all", "lint", "bench", "ui", "labs", "clean", "help"])
def test_make_knows(target):
    if target in ("env", "help"):
        done = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, timeout=30, check=True)
        assert f"make {target} " in done.stdout
    command = ["make", "-C", str(ROOT), "--dry-run", "--assume-old=pyproject.toml", target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("has", "expected"), [("Python 3.10.2", 2), (f"Python {platform.python_version()}", 0)])
def test_make_does_not_pass_over_another_python(tmp_path, has, expected):
    """An environment that is there already keeps its Python, so `make env PYTHON=another` must not end well."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f"#!/bin/sh\necho {has}\n", encoding="utf-8")
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / ".env-stamp").touch()  # newer than pyproject.toml: nothing is left to be made
    command = ["make", "-C", str(ROOT), "--assume-old=pyproject.toml", "env"]
    command += [f"VENV={tmp_path}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == expected, done.stderr
    assert (f"{tmp_path} has Python 3.10.2" in done.stderr) == (expected != 0)


@pytest.mark.parametrize(("made_in", "has_python", "again"), [(ROOT, 1, 0), (ROOT, 0, 1), (ROOT / "before", 1, 1)])
def test_make_replaces_an_environment_that_was_moved_or_has_lost_its_python(tmp_path, made_in, has_python, again):
    """Its scripts name both by their paths: `.venv/bin/distlearn: not found`, though it is there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable if has_python else "gone")
    (tmp_path / ".env-stamp").write_text(f"{made_in}\n", encoding="utf-8")
    command = ["make", "-C", str(ROOT), "--dry-run", "--assume-old=pyproject.toml", "lint", f"VENV={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ("venv --clear" in done.stdout) == again


def test_a_release_writes_the_one_version(tmp_path, monkeypatch):
    """The package's; the metadata takes it from there, and the citation repeats it."""
    yaml = pytest.importorskip("yaml")
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "distlearn.__version__"}
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    for name in ("distlearn/__init__.py", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "run", lambda *command, **options: "")
    release.set_version("7.8.9")
    assert '__version__ = "7.8.9"' in (tmp_path / "distlearn/__init__.py").read_text(encoding="utf-8")
    assert yaml.safe_load((tmp_path / "CITATION.cff").read_text(encoding="utf-8"))["version"] == "7.8.9"
    assert "## 7.8.9, " in (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == distlearn.__version__ == importlib.metadata.version("distlearn")


def test_environment_has_the_releases_that_were_tested():
    """Every dependency is in constraints.txt, so that `make env` makes the same environment everywhere."""
    locked = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = PYPROJECT["project"]["dependencies"] + [d for extra in extras if extra != "bench" for d in extras[extra]]
    names = {re.match(r"[\w.-]+", entry)[0].lower() for entry in named} - {"distlearn"}
    assert sorted(names - set(locked)) == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--constraint $(LOCK)" in makefile
    assert "LOCK ?= constraints.txt" in makefile


def test_what_make_runs_can_be_imported_as_it_is_called():
    """A file that imports from its package is a module: `python -m`."""
    for flag, what in re.findall(r"/python (-m )?(tests/\S+\.py|tests\.\S+)", (ROOT / "Makefile").read_text("utf-8")):
        if flag:
            assert importlib.util.find_spec(what), what
        else:
            assert not re.search(r"^from \.", (ROOT / what).read_text("utf-8"), re.MULTILINE), what


@functools.cache
def core(name: str = "distlearn") -> dict[str, int]:
    """What `pip install` of a package brings without extras: bytes by name, from the metadata of what is installed."""
    found, waiting = {}, [name]
    while waiting:
        found_here = importlib.metadata.distribution(waiting.pop())
        found[canonicalize_name(found_here.name)] = sum(file.size or 0 for file in found_here.files or ())
        needs = map(Requirement, found_here.requires or [])
        names = {canonicalize_name(n.name) for n in needs if not n.marker or n.marker.evaluate({"extra": ""})}
        waiting += names - set(found)
    return found


def test_the_core_is_small():
    """Nothing of Jupyter, CUDA or MPI, and less than 150 MB of files; `make env` and conda install the extras, too."""
    assert [name for name in core() if re.search("jupyter|ipy|notebook|cupy|nvidia|mpi|scipy|torch", name)] == []
    assert sum(core().values()) < 150e6, core()
    dev = PYPROJECT["project"]["optional-dependencies"]["dev"]
    assert "distlearn[book,course,nvrtc]" in dev
    assert "-e .[dev]" in (ROOT / "environment.yml").read_text(encoding="utf-8")
    seven = ("jupyterlab", "ipyparallel", "cupy-cuda13x", "numpy", "matplotlib", "nbval", "pytest")
    assert all(importlib.metadata.version(name) for name in seven)


WITHOUT_EXTRAS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
exec(CODE)
import distlearn as dl
from click.testing import CliRunner
from distlearn.cli import main
for use in (lambda: dl.EngineWorld(2), dl.MPIWorld, lambda: __import__("distcourse.drawing")):
    try:
        use()
    except ModuleNotFoundError as error:
        print(error)
for words in (["start"], ["progress"], ["labs", "check"], ["train", "--world", "engines", "--size", "2"]):
    print(CliRunner().invoke(main, words).output)
"""


def test_the_core_trains_and_names_the_extra_that_is_missing(tmp_path):
    """The twelve lines run with nothing but the core, and whatever needs more says by which command to get it."""
    dists = importlib.metadata.packages_distributions()
    hidden = {name for name, of in dists.items() if not {*map(canonicalize_name, of)} & set(core())} - {"distcourse"}
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    script = WITHOUT_EXTRAS.replace("HIDDEN", repr(hidden)).replace("CODE", repr(code))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "of the test images" in done.stdout
    assert {"ipyparallel", "mpi4py", "anywidget"} < hidden
    for name, extra in (("ipyparallel", "labs"), ("mpi4py", "mpi"), ("anywidget", "labs"), ("nbformat", "labs")):
        assert f"{name} is not installed; it comes with: pip install 'distlearn[{extra}]'" in done.stdout
    assert done.stdout.count("pip install 'distlearn[labs]'") == 6, done.stdout


def test_licence():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("BSD 3-Clause License\n\nCopyright (c) 2026, the distlearn developers\n")
    assert PYPROJECT["project"]["license"] == "BSD-3-Clause"
    for name in PYPROJECT["project"]["license-files"]:
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "course/notes/manual.md"]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+?)\)", text)
    missing = [t for t in targets if not t.startswith("http") and not (ROOT / page).parent.joinpath(t).exists()]
    assert missing == []


def test_readme_lists_the_labs_that_exist():
    rows = re.findall(r"^\| (\d\d) [^|]+\|[^|]+\| (.+?) \|$", README, re.MULTILINE)
    assert [number for number, _ in rows] == [f"{i:02}" for i in range(len(rows))]
    linked = {number for number, where in rows if where != "planned"}
    existing = {path.name[3:5] for path in (ROOT / "course" / "source").glob("lab*") if path.is_dir()}
    assert linked == existing


def test_readme_code_runs(capsys):
    """The twelve lines: they are twelve, and they do what they say."""
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) == 12
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["world"].trace.ranks == [0, 1, 2, 3]
    accuracy = float(re.match(r"([\d.]+)% of the test images", capsys.readouterr().out)[1])
    assert accuracy > 90


def test_the_manuals_piece_of_ones_own_passes_its_checks():
    (code,) = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)
    exec(compile(code, "manual.md", "exec"), {"__name__": "own"})


def ways_to_share() -> str:
    """The names and calls in the manual's table of ways to share the work."""
    table = MANUAL.partition("## Ways to share the work")[2].partition("\n## ")[0]
    return "".join(re.findall(r"^\| [^|]+\| ([^|]+) \|", table, re.MULTILINE)[2:])


def test_names_of_the_manual_are_there():
    """What the table of ways to share the work names is `dl.` and that name."""
    import distlearn as dl

    names = re.findall(r"`([\w.]+)(?:\([^`]*\))?`", ways_to_share())
    assert len(names) >= 20
    for name in names:
        found = dl
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found), name


@pytest.mark.nightly
def test_calls_of_the_manual_run():
    import distlearn as dl

    calls = [call for call in re.findall(r"`(\w+\([^`]+\))`", ways_to_share()) if "=..." not in call]
    assert any(call.startswith("plan(") for call in calls)
    for call in calls:  # with the arguments that the table gives it
        eval(call, {name: getattr(dl, name) for name in dir(dl)})


def test_commands_of_readme_and_manual_are_accepted():
    """Every `distlearn ...` line is one that the command accepts, up to doing it; every `make ...` is a target."""
    from click.testing import CliRunner

    from distlearn.cli import main

    text = README + MANUAL
    lines = re.findall(r"^(?:mpiexec -n \d+ )?(distlearn [a-z][^#\n]*)", text, re.MULTILINE)
    lines += re.findall(r"`(distlearn [a-z][^`]*)`", text)
    assert len(lines) >= 15
    for line in lines:
        words = [word.strip('"') for word in line.split()[1:]]
        result = CliRunner().invoke(main, [*words, "--help"])
        assert result.exit_code == 0, (line, result.output)
    targets = {*re.findall(r"\bmake ([a-z-]+)", " ".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL)))}
    assert targets == targets & {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)}


def test_readme_fits_on_three_screens():
    """One for each of its readers; what is longer stands on a page of its own."""
    assert len(README.splitlines()) <= 3 * 40


def test_nothing_mentions_where_it_was_made():
    """A public project names no private place."""
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, timeout=30, check=False)
    if tracked.returncode:
        pytest.skip("no git checkout")
    private = re.compile(r"/wo" r"rk/|\.\./sha" r"red|/ro" r"ot/")
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ".ipynb", ".cfg", ".json", ""} and path.is_file():
            found = private.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name}: {found}"
