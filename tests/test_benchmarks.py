"""The benchmarks: fresh processes, failures as records, goals judged by numbers, and the chart."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from itertools import pairwise

import pytest
from click.testing import CliRunner
from matplotlib.colors import same_color

from distlearn.viz.look import COLORS, VERMILION

from .benchmarks import __main__ as benchmarks
from .benchmarks import chart, paired, record


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with its own measurements: write them with `add(name, code)`."""
    folder = tmp_path / "tests" / "benchmarks"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    monkeypatch.setattr(benchmarks, "__file__", str(folder / "__main__.py"))

    def add(name, code):
        (folder / f"bench_{name}.py").write_text(code, encoding="utf-8")

    return add


def call(*words):
    return CliRunner().invoke(benchmarks.bench, words)


GOOD = """
import os
def records():
    assert os.environ["OMP_NUM_THREADS"] == "1"
    quick = os.environ["DISTLEARN_BENCH_QUICK"] == "1"
    return [{"name": "speed", "unit": "ms", "ours": 1.0 if quick else 2.0, "peer": None, "ratio": None,
             "goal": "ours < 3", "holds": True, "note": "torch is not installed"}]
"""


def test_table_json_and_quick(checkout, tmp_path):
    checkout("good", GOOD)
    file = tmp_path / "out.json"
    result = call("--json", str(file), "--quick")
    assert result.exit_code == 0, result.output
    assert "torch is not installed" in result.output
    (row,) = json.loads(file.read_text(encoding="utf-8"))
    assert row["ours"] == 1.0
    assert set(benchmarks.FIELDS) <= set(row)


TWICE = """
def records():
    row = {"unit": "ms", "ours": 1.0, "peer": None, "ratio": None, "goal": "", "holds": None}
    return [row | {"name": name, "note": note} for name, note in (("a", "busy"), ("b", "odd"), ("c", "busy"))]
"""


def test_a_note_that_holds_for_several_is_said_once(checkout):
    checkout("twice", TWICE)
    lines = call().output.splitlines()
    assert [line for line in lines if "busy" in line or "odd" in line] == ["a and 1 more: busy", "b: odd"]


def test_a_module_that_crashes_is_a_record(checkout, tmp_path):
    checkout("a_bad", "def records():\n    raise RuntimeError('no luck')")
    checkout("b_dead", "import os\ndef records():\n    os._exit(7)")
    checkout("c_odd", "def records():\n    return [{'name': 'x'}]")
    checkout("d_good", GOOD)
    file = tmp_path / "out.json"
    result = call("--json", str(file))
    assert result.exit_code == 0
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert [r["holds"] for r in rows] == [False, False, False, True]
    assert "no luck" in rows[0]["note"]
    assert "lacks unit" in rows[2]["note"]
    assert "goals missed: bench_a_bad, bench_b_dead, bench_c_odd" in result.output
    assert call("--strict").exit_code == 1


def test_a_module_that_hangs_is_stopped(checkout):
    checkout("slow", "import time\ndef records():\n    time.sleep(60)")
    result = call("--timeout", "0.5")
    assert "took longer than" in result.output


def test_only(checkout):
    checkout("good", GOOD)
    checkout("bad", "def records():\n    1 / 0")
    assert call("--only", "good", "--strict").exit_code == 0
    result = call("--only", "nothing")
    assert result.exit_code == 2
    assert "no such module, expected a part of bench_bad, bench_good" in result.output
    assert "MODULE" in call("--help").output


AGAINST = """
from distlearn import seconds
from distlearn.speed import name
def records():
    row = {"unit": "s", "ours": seconds, "peer": None, "ratio": None, "goal": "", "holds": None}
    return [row | {"name": name}, row | {"name": f"only {seconds}"}]
"""


@pytest.mark.parametrize("same_interface", [True, False])
def test_against_a_commit(checkout, tmp_path, same_interface):
    def library(seconds, module):
        folder = tmp_path / "distlearn"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "__init__.py").write_text(f"seconds = {seconds}\n")
        (folder / f"{module}.py").write_text("name = 'a step'\n")

    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.org"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    old = "speed" if same_interface else "haste"
    library(4.0, old)
    checkout("turns", AGAINST.replace("speed", old))
    git("init")
    git("add", ".")
    git("commit", "-m", "old")
    library(3.0, "speed")
    checkout("turns", AGAINST)
    file = tmp_path / "out.json"
    result = call("--against", "HEAD", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "not in HEAD" in " ".join(result.output.split())
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert {row["name"]: row["against"] for row in rows} == {"a step": 0.75, "only 3.0": None}
    result = call("--against", "nowhere")
    assert result.exit_code == 1
    assert "--against nowhere: fatal: " in result.output


def test_json_into_a_missing_folder(checkout, tmp_path):
    checkout("good", GOOD)
    result = call("--json", str(tmp_path / "no" / "out.json"))
    assert result.exit_code == 2
    assert "there is no folder" in result.output


# -- what the measurements are made with


def test_paired_is_the_median_of_ratios(monkeypatch):
    times = {"ours": [4.0, 1.0, 2.0], "peer": [2.0, 1.0, 4.0]}
    calls = []

    def side(name):
        return lambda: calls.append(name)

    iterators = {name: iter(values) for name, values in times.items()}

    def measured(call, clock):
        call()
        return next(iterators[calls[-1]])

    monkeypatch.setattr("tests.benchmarks.seconds", measured)
    monkeypatch.delenv("DISTLEARN_BENCH_QUICK", raising=False)
    ratio = paired(side("ours"), side("peer"), 3, warmup=1)
    assert ratio == 1.0
    assert ratio.ratios == [2.0, 1.0, 0.5]
    assert (ratio.ours, ratio.peer) == (2.0, 2.0)
    assert calls == ["ours", "peer", "ours", "peer", "peer", "ours", "ours", "peer"]


def test_paired_without_a_peer(monkeypatch):
    monkeypatch.setenv("DISTLEARN_BENCH_QUICK", "1")
    n = []
    ratio = paired(lambda: n.append(1), None, 30, warmup=2)
    assert math.isnan(ratio)
    assert ratio.peer is None
    assert len(n) == 12, "a third of the repeats, and the warm-up"
    with pytest.raises(ValueError, match="repeats is 0"):
        paired(print, None, 0)


@pytest.mark.parametrize(
    ("options", "ratio", "holds"),
    [
        ({"ours": 2, "peer": 4, "goal": "ratio <= 0.5"}, 0.5, True),
        ({"ours": 2, "peer": 4, "goal": "ratio > 0.5"}, 0.5, False),
        ({"ours": 2, "peer": 4, "ratio": 0.7, "goal": "ratio >= 0.6"}, 0.7, True),
        ({"ours": 0.2, "goal": "ours < 0.3"}, None, True),
        ({"ours": 2, "goal": "ratio >= 1"}, None, None),
        ({"ours": 2, "peer": None}, None, None),
        ({"ours": math.nan, "peer": 1, "goal": "ours < 1"}, None, None),
    ],
)
def test_records_judge_themselves(options, ratio, holds):
    row = record("x", "s", **options)
    assert row["ratio"] == ratio
    assert row["holds"] is holds


def test_a_goal_that_says_nothing():
    with pytest.raises(ValueError, match="goal is 'fast'"):
        record("x", "s", 1.0, goal="fast")


PEERS = """
def records():
    row = {"unit": "ms", "ours": 1.0, "peer": 2.0, "ratio": 0.5, "goal": "ratio <= 1", "holds": True}
    return [row | {"name": "step"}]
"""


def test_a_chart_beside_the_table(checkout, tmp_path):
    checkout("peers", PEERS)
    result = call("--chart", str(tmp_path / "bench.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    result = call("--chart", str(tmp_path / "nowhere" / "bench.png"))
    assert result.exit_code == 2
    assert "--chart" in result.output


def test_no_chart_without_peers(checkout, tmp_path):
    checkout("good", GOOD)
    result = call("--chart", str(tmp_path / "bench.png"))
    assert result.exit_code == 0, result.output
    assert "no peer was measured" in result.output
    assert not (tmp_path / "bench.png").exists()


def row(name, ratio, goal="", holds=None):
    return {"name": name, "unit": "ms", "ours": ratio, "peer": 1.0, "ratio": ratio, "goal": goal, "holds": holds}


ROWS = [
    row("all-reduce 1 MB", 1.1, "ratio <= 1.2", True),
    row("all-reduce 8 MB", 1.3, "ratio <= 1.1", False),
    row("ASP", 3.0, "ratio >= 2", True),
    row("start", None),
    row("step", 0.8),
]


def parts(ax, kind):
    return {line.get_gid(): line for line in ax.lines if (line.get_gid() or "").startswith(kind)}


def test_ratios_goals_and_what_was_missed():
    ax = chart.plot(ROWS, title="mine")
    ratios = parts(ax, "ratio")
    assert [line.get_xdata()[0] for line in ratios.values()] == [1.1, 1.3, 3.0, 0.8], "without a peer there is none"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all-reduce 1 MB", "all-reduce 8 MB", "ASP", "step"]
    assert [same_color(line.get_color(), VERMILION) for line in ratios.values()] == [False, True, False, False]
    assert same_color(ratios["ratio 0"].get_color(), COLORS[0])
    goals = {gid: line.get_xdata()[0] for gid, line in parts(ax, "goal").items()}
    assert goals == {"goal 0": 1.2, "goal 1": 1.1, "goal 2": 2.0}
    assert ax.get_title("left") == "mine"
    assert ax.yaxis_inverted(), "in the order of the table"
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("ratios", [(1.05, 1.2, 1.44), (0.97, 1.01), (0.4, 1.5, 30)])
def test_names_are_whole_and_ticks_several(ratios):
    name = "data-parallel step of 2 ranks, small CNN, fused, batch 1,024 (ratio: torch DDP's time / ours)"
    ax = chart.plot([row(f"{name} {i}", ratio) for i, ratio in enumerate(ratios)])
    assert [" ".join(label.get_text().split()) for label in ax.get_yticklabels()] == [
        f"{name} {i}" for i in range(len(ratios))
    ]
    low, high = ax.get_xlim()
    assert sum(low <= tick <= high for tick in ax.get_xticks()) >= 3
    ax.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert min(box.x0 for box in boxes) >= 0
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes))
