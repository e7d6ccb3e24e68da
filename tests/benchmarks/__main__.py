"""`python -m tests.benchmarks`: each module's measurements in a fresh process, as a table, as JSON and as a chart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import click

from distlearn import viz
from distlearn.cli.console import print_table, say, status
from distlearn.cli.doctor import last_line, run
from distlearn.world.launching import thread_settings

from . import chart as charts

FIELDS = ("name", "unit", "ours", "peer", "ratio", "goal", "holds")  # Fields of every record; `note` is optional.

COLLECT = """
import importlib, json, sys
records = importlib.import_module(sys.argv[1]).records()
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(records, file)
"""


def modules(folder: Path, only: str = "") -> list[str]:
    """Name the modules `bench_*.py` of a folder, those that contain `only`."""
    names = sorted(path.stem for path in folder.glob("bench_*.py"))
    chosen = [name for name in names if only in name]
    if not chosen:
        raise click.UsageError(f"--only {only!r}: no such module, expected a part of {', '.join(names)}")
    return chosen


def measure(root: Path, module: str, *, quick: bool, seconds: float) -> list[dict]:
    """Run one module's `records()` in a fresh process in `root`; an error there becomes a record that reports it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "records.json")
        command = [sys.executable, "-c", COLLECT, f"tests.benchmarks.{module}", str(out)]
        # one thread: otherwise the result depends on how many cores are idle
        environment = os.environ | thread_settings(1, threads=1) | {"DISTLEARN_BENCH_QUICK": "1" if quick else "0"}
        environment["PYTHONPATH"] = str(root)  # `root` is another commit's with --against
        try:
            done = run(command, seconds=seconds, cwd=root, env=environment)
        except subprocess.TimeoutExpired:
            return [failure(module, f"took longer than {seconds:.0f} s")]
        if done.returncode:
            return [failure(module, f"failed: {last_line(done.stdout, done.stderr)}")]
        try:
            records = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return [failure(module, f"wrote no records ({error})")]
    lacking = [name for name in FIELDS if any(name not in record for record in records)]
    return [failure(module, f"a record lacks {', '.join(lacking)}")] if lacking else records


def failure(module: str, why: str) -> dict:
    """Make the record of a module that failed."""
    return dict.fromkeys(FIELDS) | {"name": module, "unit": "", "goal": "runs", "holds": False, "note": why}


ROUNDS = 5  # How often `--against` measures both sides, unless `--quick`.


def check_out(root: Path, commit: str, folder: Path) -> list[Path]:
    """Make `folder/here`, the library of a commit with the measurements of `root`, and `folder/own`, with its own."""
    done = run(["git", "archive", "--format=tar", f"--output={folder / 'tar'}", commit], cwd=root)
    if done.returncode:
        raise click.ClickException(f"--against {commit}: {last_line(done.stdout, done.stderr)}")
    shutil.unpack_archive(folder / "tar", folder / "own", "tar")
    shutil.copytree(folder / "own" / "distlearn", folder / "here" / "distlearn")
    shutil.copytree(root / "tests", folder / "here" / "tests")
    return [folder / "here", folder / "own"]


def compare(root: Path, others: list[Path], module: str, **options) -> list[dict]:
    """Measure a module here and in the first of `others` that has it, in turns; records get `against`, a ratio."""
    # The ratio is this library's number over the commit's, the median of the rounds; None for measurements that the
    # commit lacks.
    records, ratios = measure(root, module, **options), {}
    for other in others:
        for turn in range(1 if options["quick"] else ROUNDS):
            ours = {r["name"]: r["ours"] for r in (measure(root, module, **options) if turn else records)}
            for theirs in measure(other, module, **options):
                if ours.get(theirs["name"]) and theirs["ours"]:
                    ratios.setdefault(theirs["name"], []).append(ours[theirs["name"]] / theirs["ours"])
            if not ratios:
                break  # fails with that library
        if ratios:
            break
    return [r | {"against": median(ratios[r["name"]]) if r["name"] in ratios else None} for r in records]


def show(records: list[dict], commit: str = "") -> None:
    """Print the table, and the notes under it; with a commit, the ratios to it."""
    words = {True: "yes", False: "NO", None: "-"}
    styles = {True: {}, False: {"fg": "red", "bold": True}, None: {"dim": True}}
    rows = [
        (r["name"], r["unit"], *(_number(r[key]) for key in ("ours", "peer", "ratio")), r["goal"], words[r["holds"]])
        for r in records
    ]
    columns = ["measurement", "unit", "ours>", "peer>", "ratio>", "goal", "holds"]
    if commit:
        columns.append(f"/ {commit}>")
        rows = [(*row, _number(r["against"]) or f"not in {commit}") for row, r in zip(rows, records, strict=True)]
    print_table("Measurements, one BLAS thread", columns, rows, styles=[styles[r["holds"]] for r in records])
    shared: dict[str, list[str]] = {}  # measurements by note: a note shared by several is printed once
    for record in records:
        if record.get("note"):
            shared.setdefault(record["note"], []).append(record["name"])
    for note, (first, *others) in shared.items():
        say(f"{first}{f' and {len(others)} more' if others else ''}: {note}")


def _number(value) -> str | None:
    return None if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def draw(records: list[dict], path: Path) -> None:
    """Draw the ratios to peers beside their goals."""
    goals = [record["holds"] for record in records if record["ratio"] is not None and record["holds"] is not None]
    if any(record["ratio"] is not None for record in records):
        title = f"{sum(goals)} of {len(goals)} goals against peers are met"
        viz.save(charts.plot(records, title=title), path, close=True)
        say(f"wrote {path}")
    else:
        say(f"--chart {path}: no peer was measured, so there is nothing to draw")


@click.command()
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the records here.")
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), help="Draw the ratios to peers here (.png).")
@click.option("--only", default="", metavar="MODULE", help="Run only the modules whose name contains this.")
@click.option("--quick", is_flag=True, help="Fewer repetitions: a quick check with rough numbers.")
@click.option("--strict", is_flag=True, help="Exit with status 1 when a goal is missed.")
@click.option("--against", default="", metavar="COMMIT", help="Measure COMMIT in turns; add the ratio to it.")
@click.option("--timeout", default=900.0, show_default=True, help="Longest time for one module [s].")
def bench(json_file, chart, only, quick, strict, against, timeout):
    """Measure the library against its goals, and against its peers where they are installed."""
    # Every module of tests/benchmarks runs in a fresh process. A ratio is ours / peer. With --against each module runs
    # five times (with --quick once) in turns with COMMIT's library, measured as here, or where that fails as in COMMIT.
    root = Path(__file__).resolve().parents[2]
    for option, file in (("--json", json_file), ("--chart", chart)):
        if file is not None and not file.parent.is_dir():
            raise click.UsageError(f"{option} {file}: there is no folder {file.parent}")
    records = []
    names = modules(root / "tests" / "benchmarks", only)
    with status("measuring ...") as update, tempfile.TemporaryDirectory() as folder:
        others = check_out(root, against, Path(folder)) if against else []
        for module in names:
            update(f"measuring: {module}")
            find = partial(compare, root, others) if against else partial(measure, root)
            records += find(module, quick=quick, seconds=timeout)
    show(records, against)
    if json_file is not None:
        json_file.write_text(json.dumps(records, indent=2), encoding="utf-8")
        say(f"wrote {json_file}")
    if chart is not None:
        draw(records, chart)
    missed = [record["name"] for record in records if record["holds"] is False]
    if missed:
        say(f"goals missed: {', '.join(missed)}", fg="red", bold=True)
    if missed and strict:
        sys.exit(1)


if __name__ == "__main__":
    bench(prog_name="python -m tests.benchmarks")
