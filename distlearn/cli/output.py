"""What `distlearn train` leaves behind: a folder that overwrites nothing, with numbers, time line and pictures."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import click
import numpy as np

from ..train.history import SPLITS

FILES = ("history.json", "trace.json", "curves.png", "timeline.png", "schedule.png", "speedup.png")
TIMELINE_STEPS = 3
"""Steps that the picture of the time line shows, from the middle of what was recorded."""


def make_folder(path: Path, force: bool = False) -> Path:
    """Make the folder of a run; if it holds something already, make `path-2`, `path-3`, ... instead.

    Parameters
    ----------
    path : Path
    force : bool
        Use `path` in any case: what an earlier run wrote there is overwritten, other files stay.

    Raises
    ------
    click.UsageError
        If it cannot be made: a file is in the way, there is no permission.
    """
    chosen, number = path, 1
    while not force and chosen.is_dir() and any(chosen.iterdir()):
        number += 1
        chosen = path.with_name(f"{path.name}-{number}")
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        probe = chosen / FILES[0]
        with probe.open("a", encoding="utf-8"):  # a run of an hour must not end with "permission denied"
            pass
        if probe.stat().st_size == 0:
            probe.unlink()
    except OSError as error:
        raise click.UsageError(f"--out {path}: cannot write there ({error.strerror or error})") from error
    if force:
        for name in FILES:
            (chosen / name).unlink(missing_ok=True)
    return chosen


def write_json(path: Path, content) -> Path:
    """Write JSON that every reader accepts: what is not a finite number becomes null."""
    path.write_text(json.dumps(_finite(content), indent=1, allow_nan=False), encoding="utf-8")
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

    A step ends with rank 0's "update".
    """
    ends = [span.end for span in trace.select(rank=0, name="update")]
    if len(ends) <= n + 1:
        return None, None
    first = len(ends) // 2 - n // 2
    return ends[first - 1], ends[first + n - 1]


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
    from ..parallel.pipeline.schedule.traces import LANE
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
