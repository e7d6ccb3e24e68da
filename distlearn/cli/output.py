"""What `distlearn train` leaves behind: a folder that overwrites nothing, with numbers, time line and pictures."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import click
import numpy as np

from ..train.history import SPLITS

PARTIAL = "history.partial.json"
"""The epochs that are done, while a run is under way; it stays if the run is killed."""
FILES = (PARTIAL, "history.json", "trace.json", "curves.png", "timeline.png", "schedule.png", "speedup.png")
LOCK = ".lock"
"""Held by the command that writes into a folder."""
TIMELINE_STEPS = 3
"""Steps that the picture of the time line shows, from the middle of what was recorded."""


@contextmanager
def results_folder(path: Path, force: bool = False):
    """Make the folder of a run, and hold it while the block runs: another command at the same time gets another one.

    If it holds something already, or another command is at work in it, `path-2`, `path-3`, ... is made instead.

    Parameters
    ----------
    path : Path
    force : bool
        Use `path` in any case: what an earlier run wrote there is overwritten, other files stay.

    Raises
    ------
    click.UsageError
        If it cannot be made: a file is in the way, there is no permission, and with `force` if another command is
        writing there.
    """
    number, chosen = 1, path
    while (lock := _claim(chosen, force)) is None:
        if force:
            raise click.UsageError(f"--out {path}: another command is writing there; wait for it, or leave --force out")
        number += 1
        chosen = path.with_name(f"{path.name}-{number}")
    try:
        if force:
            for name in FILES:
                (chosen / name).unlink(missing_ok=True)
        yield chosen
    finally:
        lock.release()


def _claim(folder: Path, force: bool):
    """Lock a folder that is free; return None if it is not."""
    from filelock import FileLock, Timeout

    if not force and folder.is_dir() and _content(folder):
        return None
    check_writable("--out", folder)
    lock = FileLock(folder / LOCK)  # goes with the process, however that ends; the file stays, and says nothing
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    if not force and _content(folder):  # another command was done there since
        lock.release()
        return None
    return lock


def _content(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != LOCK]


def check_writable(option: str, folder: Path) -> None:
    """Make a folder, and raise unless files can be written there: a run of an hour must not end with that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.UsageError(f"{option} {folder}: cannot write there ({error.strerror or error})") from error


def write_json(path: Path, content) -> Path:
    """Write JSON that every reader accepts: what is not a finite number becomes null."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(_finite(content), indent=1, allow_nan=False), encoding="utf-8")
    os.replace(fresh, path)  # whoever looks sees all of it or none
    return path


def _finite(value):
    """Replace NaN and infinities, at any depth; turn NumPy's numbers and tuples into JSON's."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def middle_steps(trace, n: int = TIMELINE_STEPS) -> tuple[float | None, float | None]:
    """Return start and end of `n` steps in the middle of a trace: (None, None), for all of it, where there are no more.

    A step ends with rank 0's "update". Steps with an evaluation between them are avoided.
    """
    ends = [span.end for span in trace.select(rank=0, name="update")]
    if len(ends) <= n + 1:
        return None, None
    pauses = [span.start for span in trace.select(rank=0, name="evaluate")]
    first = range(len(ends) - n)
    unbroken = [i for i in first if not any(ends[i] <= pause < ends[i + n] for pause in pauses)]
    middle = len(ends) // 2 - n // 2 - 1
    i = min(unbroken or first, key=lambda i: abs(i - middle))
    return ends[i], ends[i + n]


def pipeline_step(trace) -> tuple[float, float]:
    """Return start and end of a step in the middle of a pipeline's trace; rank 0 begins each with micro-batch 0.

    The last batch of an epoch may be too small for all micro-batches: one of the steps with the most is taken.
    """
    from ..parallel.pipeline.schedule import Action, actions_of

    mine = sorted((a.start, a.action) for a in actions_of(trace) if a.rank == 0)
    first = [i for i, (_, action) in enumerate(mine) if action == Action("F", 0, 0)]
    if not first:
        return 0.0, float("inf")
    lengths = [b - a for a, b in pairwise([*first, len(mine)])]
    middle = (len(first) - 1) / 2
    i = max(range(len(first)), key=lambda i: (lengths[i], -abs(i - middle)))
    return mine[first[i]][0], mine[first[i + 1]][0] if i + 1 < len(first) else float("inf")


def draw(folder: Path, histories: dict, trace, seconds: dict[int, float], simulated: bool) -> list[Path]:
    """Draw the pictures of a run.

    Parameters
    ----------
    folder : Path
    histories : dict of str to History
    trace : Trace
        Of the run with the most ranks.
    seconds : dict of int to float
        Training time by number of ranks; a picture of speed-ups is drawn where there are several.
    simulated : bool
        Whether those are simulated seconds.
    """
    from .. import viz
    from ..parallel.pipeline.schedule import LANE
    from ..trace import Trace

    metric = next(iter(histories.values())).metric
    evaluated = [
        name
        for name in (f"{split}_{metric}" for split in SPLITS)
        if all(np.isfinite(history.column(name)).any() for history in histories.values())
    ]
    shown = evaluated if len(histories) == 1 else [name for name in evaluated if name.startswith("val_")]
    drawn = histories if len(histories) > 1 else next(iter(histories.values()))
    figures = {"curves.png": viz.plot_history(drawn, y=("loss", *shown))}
    if len(trace):
        start, end = middle_steps(trace)
        work = Trace([s for s in trace if s.lane != LANE], trace.messages)
        figures["timeline.png"] = viz.plot_timeline(work, start=start, end=end)
        if len(work) < len(trace):
            figures["schedule.png"] = viz.plot_schedule(trace.window(*pipeline_step(trace)))
    if len(seconds) > 1 and 1 in seconds:
        times = {"simulated" if simulated else "measured": seconds}
        figures["speedup.png"] = viz.plot_speedup(sorted(seconds), **times)
    return [viz.save(figure, folder / name, close=True) for name, figure in figures.items()]
