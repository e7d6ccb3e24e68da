"""What `distlearn train` tells about its runs: the table, the notes that it needs, and history.json."""

from __future__ import annotations

import math
import platform
import time
from pathlib import Path
from typing import NamedTuple

from ..nn.metrics import format_metric, metric_title
from ..tables import table
from ..train.program import learning_rate
from .console import say
from .output import PARTIAL, draw, write_json


class Experiment(NamedTuple):
    """What all runs of one command have in common."""

    settings: object
    dataset: object
    note: str
    """What a preset says about itself."""
    folder: Path
    load: float
    """Cores that other programs used before the first run."""


def report(runs, about: Experiment) -> None:
    """Print the table, write the files."""
    largest, folder = runs[-1], about.folder
    rows = [row(run, runs[0] if runs[0].place.size == 1 and len(runs) > 1 else None) for run in runs]
    for line in title(about.settings, about.dataset):
        say(line, style="bold")
    say(str(table(rows)))
    for line in notes(runs, about):
        say(line)
    write_json(folder / "history.json", as_dict(runs, rows, about))
    made = [folder / "history.json", largest.trace.save(folder / "trace.json")]
    histories = {run.place.label: run.history for run in runs}
    seconds = {run.place.size: run.history.last.seconds for run in runs}
    made += draw(folder, histories, largest.trace, seconds, largest.place.world == "sim")
    (folder / PARTIAL).unlink(missing_ok=True)
    say(f"wrote {', '.join(path.name for path in made)} to {folder}")


def row(run, serial) -> dict:
    """One line of the table: a run, and how it compares with the sequential one."""
    last = run.history.last
    made = {
        "ranks": run.place.size,
        "simulated time [s]" if run.place.world == "sim" else "time [s]": last.seconds,
        "samples/s": round(run.history.samples_per_second) if last.seconds > 0 else None,
    }
    if serial is not None:
        speedup = serial.history.last.seconds / last.seconds if last.seconds > 0 else None
        made |= {"speed-up": speedup, "efficiency": percent(speedup and speedup / run.place.size)}
    names = {f"train {metric_title(last.metric)}": last.train, "validation": last.val, "test": last.test}
    made |= {name: format_metric(last.metric, value) for name, value in names.items()}
    return made | {"communication": percent(run.share)}


def percent(share) -> str | None:
    """A share as a percentage; None where there is none."""
    return None if share is None or math.isnan(share) else f"{share:.1%}"


def title(settings, dataset) -> list[str]:
    """Say in two lines what was trained on what."""
    model = settings.model
    if model == "mlp":  # which alone has widths and an activation to choose
        widths = "-".join(map(str, (dataset.n_features, *settings.hidden, dataset.n_classes)))
        model = f"MLP {widths}, {settings.activation}"
    splits = ", ".join(f"{len(x):,} {name}" for name, x, _ in dataset.splits())
    batch = "all" if settings.batch_size >= len(dataset.x_train) else f"{settings.batch_size:,}"
    plan = learning_rate(settings, len(dataset.x_train))
    rate = f"{plan(10**9):g} after {settings.warmup_epochs:g} epochs" if callable(plan) else f"{plan:g}"
    epochs = f"{settings.epochs} epoch{'s' * (settings.epochs > 1)}"
    how = f"{settings.optimizer}, learning rate {rate}, batch {batch}, {epochs}{_strategy(settings)}"
    return [
        f"{dataset.name}: {splits} images, from {dataset.source}",
        f"{model}, {settings.dtype}, seed {settings.seed}; {how}",
    ]


def _strategy(settings) -> str:
    """Say how the work was shared, where it is not data parallelism."""
    if settings.strategy in ("serial", "data"):
        return ""
    axes = [f"{name} {n}" for name, n in (("pipeline", settings.pp), ("tensor", settings.tp)) if n > 1]
    about = axes if settings.strategy == "hybrid" else []
    if settings.strategy == "pipeline" or (about and settings.pp > 1):
        about = [*about, settings.schedule]
    return f", {settings.strategy}" + (f" ({', '.join(about)})" if about else "")


def notes(runs, about: Experiment) -> list[str]:
    """Say what a reader must know to read the table rightly."""
    simulated = runs[-1].place.world == "sim"
    lines = _about_simulation(runs[-1].place) if simulated else _about_cores(runs, about.load)
    if runs[-1].interrupted:
        lines.append(
            f"The last run was interrupted after {len(runs[-1].history.epochs)} of {about.settings.epochs} epochs."
        )
    if any(run.dropped for run in runs):
        lines.append("The trace holds the first part of the run; the communication share is that part's.")
    return lines + ([about.note] if about.note else [])


def _about_simulation(place) -> list[str]:
    network, compute = place.network, place.compute
    return [
        f"Simulated: alpha = {network.alpha:g} s, beta = {network.beta:g} bytes/s; a rank computes {compute.peak:g} "
        f"flop/s and moves {compute.bandwidth:g} bytes/s."
    ]


def _about_cores(runs, load) -> list[str]:
    from ..world.launching import count_cores

    place, cores = runs[-1].place, count_cores()
    threads = f"{place.threads} BLAS thread{'s' if place.threads > 1 else ''} per rank"
    also = ", in the sequential run, too" if len(runs) > 1 else ""
    lines = [f"World {place.world}: {threads}{also}; {cores} cores. Time is training alone, without evaluation."]
    if place.size * place.threads > cores:
        lines.append(f"{place.size} ranks share {cores} cores here: more ranks than cores cannot be faster.")
    if load > cores / 2:
        lines.append(f"Before the first run other programs used {load:.1f} of the {cores} cores: trust no time.")
    return lines


def as_dict(runs, rows, about: Experiment) -> dict:
    """Everything about the runs, for history.json."""
    import numpy as np

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
                "world": run.place.world,
                "ranks": run.place.size,
                "threads": run.place.threads,
                "seconds": run.history.last.seconds,
                "samples_per_second": run.history.samples_per_second,
                "communication_share": run.share,
                "spans_not_kept": run.dropped,
                "interrupted": run.interrupted,
                "epochs": run.history.as_dicts(),
                "losses": run.history.losses,
            }
            for run in runs
        ],
        "table": rows,
    }
