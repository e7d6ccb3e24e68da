"""The output of `distlearn train`: a table with notes, and a folder with numbers, time line and figures."""

from __future__ import annotations

import json
import math
import platform
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from ..files import whole_file
from ..nn.metrics import format_metric, metric_title
from ..tables import table
from ..train.history import SPLITS
from ..train.program import learning_rate
from ..train.weights import FILE as WEIGHTS
from ..train.weights import save_trained
from .console import say

PARTIAL = "history.partial.json"  # The finished epochs of a run in progress; it remains if the run is killed.
FILES = (PARTIAL, WEIGHTS, "history.json", "trace.json", "curves.png", "timeline.png", "schedule.png", "speedup.png")
RUNNING = ".running"  # A folder holds this file while a command writes there.
TIMELINE_STEPS = 3  # Steps in the figure of the time line.


@contextmanager
def results_folder(path: Path, force: bool = False):
    """Make the folder of a run: `path`, or `path-2`, `path-3`, ... where that holds or gets results."""
    # with `force` it is `path` in any case, and results stay there until the run reports
    for number in count(1):
        chosen = path if number == 1 else path.with_name(f"{path.name}-{number}")
        check_writable("--out", chosen)
        if force:
            break
        if not any(chosen.iterdir()):
            with suppress(FileExistsError):  # another command was faster
                (chosen / RUNNING).touch(exist_ok=False)
                break
    try:
        yield chosen
    finally:
        (chosen / RUNNING).unlink(missing_ok=True)
        with suppress(OSError):  # it is not empty
            chosen.rmdir()


def check_writable(option: str, folder: Path) -> None:
    """Make a folder, and raise unless files can be written there: better now than after an hour of training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.UsageError(f"{option} {folder}: cannot write there ({error.strerror or error})") from error


def write_json(path: Path, content) -> Path:
    """Write strict JSON: numbers that are not finite become null."""
    with whole_file(path) as fresh:
        fresh.write_text(json.dumps(_finite(content), indent=1, allow_nan=False), encoding="utf-8")
    return path


def _finite(value):
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def middle_steps(trace) -> tuple[float | None, float | None]:
    """Return start and end of some steps in the middle of a trace: (None, None), for all, of a shorter one."""
    # a step ends with rank 0's "update"; steps with an evaluation between them are avoided
    n, ends = TIMELINE_STEPS, [span.end for span in trace.select(rank=0, name="update")]
    if len(ends) <= n:
        return None, None
    pauses = [span.start for span in trace.select(rank=0, name="evaluate")]
    first = range(len(ends) - n)
    unbroken = [i for i in first if not any(ends[i] <= pause < ends[i + n] for pause in pauses)]
    i = min(unbroken or first, key=lambda i: abs(i - (len(ends) - n) // 2))
    return ends[i], ends[i + n]


def pipeline_step(trace) -> tuple[float, float]:
    """Return start and end of a step in the middle of a pipeline's run; rank 0 begins each with micro-batch 0."""
    from ..parallel.pipeline.schedule import Action, actions_of

    begins = sorted(a.start for a in actions_of(trace) if a.rank == 0 and a.action == Action("F", 0, 0))
    ends, middle = [*begins[1:], float("inf")], len(begins) // 2
    return (begins[middle], ends[middle]) if begins else (0.0, float("inf"))


def draw(histories: dict, trace, seconds: dict[int, float], simulated: bool) -> dict:
    """Draw the figures of a run; `trace` is of the most ranks, `seconds` the training time by number of ranks."""
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
        figures["timeline.png"] = viz.plot_timeline(work, start=start, end=end, title="Steps in the middle of the run")
        if len(work) < len(trace):
            figures["schedule.png"] = viz.plot_schedule(
                trace.window(*pipeline_step(trace)), title="A step of the pipeline"
            )
    if len(seconds) > 1 and 1 in seconds:
        times, most = {"simulated" if simulated else "measured": seconds}, max(seconds)
        title = f"{most} ranks are {seconds[1] / seconds[most]:.2g} times as fast as one"
        figures["speedup.png"] = viz.plot_speedup(sorted(seconds), **times, title=title)
    return figures


class Experiment(NamedTuple):
    """Settings, data and folder of all runs of one command."""

    settings: object
    dataset: object
    note: str  # The note of the preset.
    folder: Path
    load: float  # Cores that other programs used before the first run.


def report(runs, about: Experiment) -> None:
    """Print the table, write the files."""
    from .. import viz

    largest, folder = runs[-1], about.folder
    rows = [row(run, runs[0] if runs[0].target.size == 1 and len(runs) > 1 else None) for run in runs]
    for line in title(about.settings, about.dataset, largest.result.fused, largest.target.size):
        say(line, bold=True)
    first, *rest = notes(runs, about)
    for line in (*([about.note] if about.note else []), first, str(table(rows)), *rest):
        say(line)
    histories = {run.target.label: run.history for run in runs}
    seconds = {run.target.size: run.history.last.seconds for run in runs if not run.interrupted}
    write = {"history.json": lambda path: write_json(path, as_dict(runs, rows, about))}
    if largest.result.params is not None:
        write[WEIGHTS] = lambda path: save_trained(path, largest.result.params, about.settings, about.dataset)
    figures = draw(histories, largest.trace, seconds, largest.target.world == "sim")
    write |= {name: partial(viz.save, figure, close=True) for name, figure in figures.items()}
    write["trace.json"] = largest.trace.save
    failed = {}
    for name, to in write.items():
        try:
            to(folder / name)
        except OSError as error:  # a full disk: what else fits is written
            failed[name] = error
    for name in set(FILES) - set(write):  # of the run before
        (folder / name).unlink(missing_ok=True)
    say(f"wrote {', '.join(name for name in write if name not in failed) or 'nothing'} to {folder}")
    if failed:
        reasons = "; ".join(f"{name} ({error.strerror or error})" for name, error in failed.items())
        raise click.ClickException(f"{folder}: could not write {reasons}; a file of the run before is as it was")


def row(run, serial) -> dict:
    """One line of the table: a run, and how it compares with the sequential one."""
    last = run.history.last
    made = {
        "ranks": run.target.size,
        "simulated time [s]" if run.target.world == "sim" else "time [s]": last.seconds,
        "samples/s": round(run.history.samples_per_second) if last.seconds > 0 else None,
    }
    if serial is not None:
        # by samples a second: a run that was interrupted took less time because it did less
        speedup = run.history.samples_per_second / serial.history.samples_per_second if last.seconds > 0 else None
        made |= {"speed-up": speedup, "efficiency": percent(speedup and speedup / run.target.size)}
    names = {f"train {metric_title(last.metric)}": last.train, "validation": last.val, "test": last.test}
    made |= {name: format_metric(last.metric, value) for name, value in names.items()}
    return made | {"communication": percent(run.share)}


def percent(share) -> str | None:
    """A share as a percentage; None where there is none."""
    return None if share is None or math.isnan(share) else f"{share:.1%}"


def title(settings, dataset, fused: bool | None, size: int = 1) -> list[str]:
    """Describe the model, the data and the settings in two lines."""
    model = settings.model
    if model == "mlp":  # only the MLP has configurable widths and activation
        widths = "-".join(map(str, (dataset.n_features, *settings.hidden, dataset.n_classes)))
        model = f"MLP {widths}, {settings.activation}"
    layers = "" if fused is None else ", fused layers" if fused else ", plain layers"
    layers = ", by PyTorch" if settings.trainer == "torch" else layers
    splits = ", ".join(f"{len(x):,} {name}" for name, x, _ in dataset.splits())
    batch = "all" if settings.batch_size >= len(dataset.x_train) else f"{settings.batch_size:,}"
    plan = learning_rate(settings, len(dataset.x_train), size)
    rate = f"{plan(10**9):g} after {settings.warmup_epochs:g} epochs" if callable(plan) else f"{plan:g}"
    epochs = f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}"
    how = f"{settings.optimizer}, learning rate {rate}, batch {batch}, {epochs}{_strategy(settings)}"
    return [
        f"{dataset.name}: {splits} images, from {dataset.source}",
        f"{model}{layers}, {settings.dtype}, seed {settings.seed}; {how}",
    ]


def _strategy(settings) -> str:
    if settings.strategy in ("serial", "data"):
        return ""
    hybrid = f"pipeline {settings.pp}, tensor {settings.tp}, {settings.schedule}"
    details = {"hybrid": hybrid, "pipeline": settings.schedule, "param_server": settings.policy}
    about = details.get(settings.strategy)
    return f", {settings.strategy}" + (f" ({about})" if about else "")


def notes(runs, about: Experiment) -> list[str]:
    """List notes for the reader of the table."""
    target = runs[-1].target
    if target.world == "sim":
        lines = [
            f"Simulated: alpha = {target.network.alpha:g} s, beta = {target.network.beta:g} bytes/s; a rank computes "
            f"{target.compute.peak:g} flop/s and moves {target.compute.bandwidth:g} bytes/s."
        ]
    else:
        lines = _about_cores(runs, about.load)
    if runs[-1].interrupted:
        lines.append(
            f"The last run was interrupted after {len(runs[-1].history.epochs)} of {about.settings.epochs} epochs."
            + (" The same command with --resume continues from its last checkpoint." if target.saving else "")
        )
    if about.settings.strategy in ("pipeline", "pipedream") or about.settings.pp > 1:
        lines.append("Communication is all time in which a rank waits for another stage, the bubble included.")
    if any(run.dropped for run in runs):
        lines.append("The trace holds the first part of the run; the communication share is that part's.")
    return lines


def _about_cores(runs, load) -> list[str]:
    from ..world.launching import count_cores

    target, cores = runs[-1].target, count_cores()
    threads = f"{target.threads} BLAS thread{'s' if target.threads > 1 else ''} per rank"
    also = ", in the sequential run, too" if len(runs) > 1 else ""
    here = f"On this machine, with {cores} cores: world {target.world}, {threads}{also}"
    lines = [f"{here}. Time is training alone, without evaluation."]
    if target.size * target.threads > cores:
        lines.append(f"{target.size} ranks share {cores} cores here: more ranks than cores cannot be faster.")
    if load > cores / 2:
        lines.append(f"Before the first run other programs used {load:.1f} of the {cores} cores: times are unreliable.")
    return lines


def as_dict(runs, rows, about: Experiment) -> dict:
    """Return all results of the runs, for history.json."""
    from .. import __version__

    settings, dataset = about.settings, about.dataset
    splits = {name: len(x) for name, x, _ in dataset.splits()}
    return {
        "distlearn": __version__,
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {
            "node": platform.node(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "load": about.load,
        },
        "data": {"name": dataset.name, "source": dataset.source, **splits},
        "settings": settings.as_dict(),
        "runs": [
            {
                "world": run.target.world,
                "ranks": run.target.size,
                "threads": run.target.threads,
                "seconds": run.history.last.seconds,
                "samples_per_second": run.history.samples_per_second,
                "communication_share": run.share,
                "fused": run.result.fused,
                "spans_not_kept": run.dropped,
                "interrupted": run.interrupted,
                "epochs": run.history.as_dicts(),
                "losses": run.history.losses,
            }
            for run in runs
        ],
        "table": rows,
    }
