"""What every measurement shares: fair comparisons, and records with goals that a program checks.

A module `bench_*.py` in this folder has one function, `records()`, that returns a list of `record(...)`s.
`python -m tests.benchmarks` runs each module in a fresh process, with one BLAS thread unless the module pins its own,
and prints the table. A peer that is not installed is a note, not an error::

    torch = optional("torch")

    def records():
        peer = torch_step if torch else None
        ratio = paired(our_step, peer, repeats=15)
        return [record("MLP step", "ms", ratio.ours * 1e3, ratio.peer and ratio.peer * 1e3, goal="ratio <= 1")]
"""

from __future__ import annotations

import importlib
import json
import math
import operator
import os
import re
import tempfile
import time
from pathlib import Path
from statistics import median

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def quick() -> bool:
    """Say whether `python -m tests.benchmarks --quick` asks for the shortest run that still means something."""
    return os.environ.get("DISTLEARN_BENCH_QUICK") == "1"


def optional(module: str):
    """Import a peer, or return None when it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


class Ratio(float):
    """The median of ours / peer over the pairs; NaN without a peer.

    Attributes
    ----------
    ours, peer : float
        Median seconds (`peer` is None without one).
    ratios : list of float
        One per pair, in the order in which they were measured.
    """

    ours: float
    peer: float | None
    ratios: list[float]

    def __new__(cls, ours: list[float], peer: list[float]):
        """Make it from seconds of both sides, pair by pair."""
        ratios = [a / b for a, b in zip(ours, peer, strict=True)] if peer else []
        self = super().__new__(cls, median(ratios) if ratios else math.nan)
        self.ours, self.peer, self.ratios = median(ours), median(peer) if peer else None, ratios
        return self


def load_note(least: float = 0.3) -> str:
    """Say, before a measurement, that other programs use the cores; "" if they use less than `least` of them."""
    from distlearn.world.launching import busy_cores, count_cores

    busy = busy_cores()
    return f"before the run other programs used {busy:.1f} of {count_cores()} cores" if busy > least else ""


def times_on_ranks(module: str, ranks: int) -> dict:
    """Run `tests.benchmarks.<module> FILE` on ranks under mpiexec; return what rank 0 wrote into the file as JSON."""
    from distlearn.world import launch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.json")
        done = launch(ranks, ["python", "-m", f"tests.benchmarks.{module}", path], timeout=300, capture=True)
        if done.returncode:
            raise RuntimeError(f"the ranks failed: {done.stderr[-500:]}")
        return json.loads(path.read_text(encoding="utf-8"))


def seconds(call, clock=time.perf_counter) -> float:
    """Return the time of one call [s], on the wall by default."""
    began = clock()
    call()
    return clock() - began


def paired(ours, peer, repeats: int = 11, *, warmup: int = 2, clock=time.perf_counter) -> Ratio:
    """Measure two callables turn by turn (A B, B A, A B, ...) and return the median of ours / peer in seconds.

    A machine that is slow for a while is slow for both halves of a pair, so the ratio stands where two separate
    averages would not. The order within a pair alternates, so that neither side always finds the caches warm.

    Parameters
    ----------
    ours, peer : callable
        Without arguments. `peer` may be None (not installed): then only `ours` is measured.
    repeats : int
        Pairs; a third of them, at least 3, under `--quick`.
    warmup : int
        Calls of each before the first measured one.
    clock : callable
        `time.process_time` where both sides compute on one thread and wait for nothing: that is the time which they
        would take on an idle core, whatever else runs.
    """
    if repeats < 1:
        raise ValueError(f"paired: repeats is {repeats!r}, expected 1 or more")
    repeats = max(3, repeats // 3) if quick() else repeats
    sides = [ours] if peer is None else [ours, peer]
    for _ in range(warmup):
        for side in sides:
            side()
    times: list[list[float]] = [[] for _ in sides]
    for i in range(repeats):
        order = range(len(sides)) if i % 2 == 0 else reversed(range(len(sides)))
        for side in order:
            times[side].append(seconds(sides[side], clock))
    return Ratio(times[0], times[1] if peer is not None else [])


def in_turns(sides, calls: int, rounds: int, before) -> list[list[float]]:
    """Measure callables on every rank, turn by turn; return seconds of one call, by side, round by round.

    Parameters
    ----------
    sides : list of callable
        The order alternates, as in `paired`.
    calls : int
        Calls of one side in one turn.
    rounds : int
        One more is made first, to warm up.
    before : callable
        Called before every turn: a barrier.
    """
    found = []
    for i in range(rounds + 1):
        times = [0.0] * len(sides)
        for side in range(len(sides)) if i % 2 else reversed(range(len(sides))):
            before()
            began = time.perf_counter()
            for _ in range(calls):
                sides[side]()
            times[side] = (time.perf_counter() - began) / calls
        found.append(times)
    return found[1:]


def record(name: str, unit: str, ours, peer=None, *, ratio=None, goal: str = "", note: str = "") -> dict:
    """Make one row of the table; whether the goal holds is computed here, never claimed.

    Parameters
    ----------
    name, unit : str
        What was measured, and in what.
    ours, peer : float
        Our number and the peer's; None where there is no peer.
    ratio : float, optional
        ours / peer by default; give the median of paired ratios where there is one.
    goal : str
        `"ours < 0.3"` or `"ratio >= 0.85"`; empty for a number that is only watched.
    note : str
        What the reader must know: the machine, the reason of a missing peer.

    Returns
    -------
    record : dict
        {name, unit, ours, peer, ratio, goal, holds, note}; `holds` is None where nothing can be judged.
    """
    ours, peer, ratio = (_number(v) for v in (ours, peer, ratio))
    if ratio is None and ours is not None and peer:
        ratio = ours / peer
    row = {"name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio, "goal": goal}
    return row | {"holds": _holds(goal, row), "note": note}


def _number(value) -> float | None:
    """A finite float, or None."""
    return None if value is None or not math.isfinite(value) else float(value)


def _holds(goal: str, row: dict) -> bool | None:
    """Judge a goal such as "ratio >= 0.85" by the row's numbers."""
    if not goal:
        return None
    match = re.fullmatch(r"(ours|ratio) *(<=|>=|<|>) *([-+0-9.eE]+)", goal.strip())
    if match is None:
        raise ValueError(f"record {row['name']!r}: goal is {goal!r}, expected such as 'ours < 0.3' or 'ratio >= 0.85'")
    value = row[match[1]]
    return None if value is None else COMPARISONS[match[2]](value, float(match[3]))
