"""What the options of `distlearn train` ask for: which settings, on which ranks, on what data, and where results go."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ..comm.network import Network
from ..train import Settings

SETTINGS = (
    "data",
    "model",
    "activation",
    "optimizer",
    "lr",
    "batch_size",
    "epochs",
    "seed",
    "dtype",
    "device",
    "overlap",
    "strategy",
    "reference_batch",
    "warmup_epochs",
    "accumulate",
    "average_every",
    "pp",
    "tp",
    "schedule",
    "n_microbatches",
)
"""Options that are settings under the same name."""


def settings_of(options) -> Settings:
    """Build the settings from the options."""
    if not options["lr"] >= 0 or math.isinf(options["lr"]):
        raise ValueError(f"--lr is {options['lr']!r}, expected a learning rate of 0 or more")
    return Settings(
        **{name: options[name] for name in SETTINGS},
        hidden=options["hidden"],
        n_train=options["n_train"],
        evaluate_every=options["evaluate_every"] or options["epochs"],
        cap_bytes=int(options["bucket_kib"] * 1024),
    )


def places_of(options, size, sizes) -> list:
    """Say where each of the runs happens."""
    from ..sim import Roofline
    from .ranks import Place

    if sizes and size is not None:
        raise click.UsageError("--size and --sizes: give one of them")
    sizes = sizes or (size or 1,)
    world = options["world"] or ("local" if sizes == (1,) else "engines")
    if world == "local" and sizes != (1,):
        raise click.UsageError(f"--world local is one rank, not {sizes[-1]}; use sim, mpi or engines")
    _check_elastic(options, world)
    network = Network(options["alpha"], options["beta"])
    compute = Roofline(options["peak"], options["bandwidth"])
    saving = _saving(options, len(sizes))
    return [Place(world, n, options["threads"], network, compute, saving) for n in sizes]


def _saving(options, n_runs: int) -> dict:
    """Say where a run's state is saved, as `train` wants it."""
    folder = options["checkpoint"]
    if folder is None:
        if options["resume"]:
            raise click.UsageError("--resume needs --checkpoint, the folder in which the run's state was saved")
        return {}
    if n_runs > 1:
        raise click.UsageError("--checkpoint keeps the state of one run; leave --sizes out")
    return {"checkpoints": str(folder.resolve()), "every": options["checkpoint_every"], "resume": options["resume"]}


def _check_elastic(options, world: str) -> None:
    """Raise where no rank can outlive another."""
    if options["strategy"] == "elastic" and world == "mpi":
        raise click.UsageError(
            "--strategy elastic: mpiexec ends all ranks with the first that dies; use --world engines or sim, or "
            "--strategy data with --checkpoint, and --resume after a failure"
        )


def place_under_mpi(options, size, sizes, ranks):
    """Under mpiexec the ranks are there already; say so where the options want others."""
    from .ranks import Place

    if sizes or options["world"] not in (None, "mpi") or (size is not None and size != ranks):
        raise click.UsageError(f"mpiexec started {ranks} ranks: leave --world, --size and --sizes out")
    _check_elastic(options, "mpi")
    return Place("mpi", ranks, options["threads"], saving=_saving(options, 1))


def check_data(settings: Settings, places):
    """Load the data here first: what is wrong with it shows before any rank is started, and a download happens once."""
    from .. import backend, data

    if settings.device == "gpu" and not backend.has_gpu():
        raise ValueError("--device gpu, but no usable GPU was found (see `distlearn doctor`); leave it out for the CPU")
    dataset = data.load(settings.data, dtype=settings.dtype)
    dataset = dataset if settings.n_train is None else dataset.take(settings.n_train)
    most = max(place.size for place in places)
    if most > len(dataset.x_train):
        raise ValueError(f"{most} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    return dataset


def folder_of(out, settings, places) -> Path:
    """Name the folder of the results."""
    if out is not None:
        return out
    sizes = "-".join(str(place.size) for place in places)
    return Path("runs") / f"{settings.data}-{settings.model}-{places[0].world}{sizes}"
