"""`distlearn train`: training from the terminal, with one or several numbers of ranks, and a report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..comm.network import Network
from ..train import Settings
from ..train.settings import SETTINGS
from .console import plain_errors, say
from .options import PRESETS, WORLDS, check_needs, note_of, parse_sizes, set_preset, setting_options
from .output import check_writable, results_folder

INTERRUPTED = 130  # Exit status after Ctrl-C, as in shells.


@click.command()
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), is_eager=True, callback=set_preset, help="A whole experiment."
)
@setting_options
@click.option("--world", type=click.Choice(WORLDS), help="Default: local, engines for more ranks.")
@click.option("--size", type=click.IntRange(1), help="Number of ranks.  [default: 1]")
@click.option("--sizes", callback=parse_sizes, help="Compare numbers of ranks: 1,2,4.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="BLAS threads of each rank.")
@click.option("--alpha", type=float, default=20e-6, show_default=True, help="sim: latency of a message [s].")
@click.option("--beta", type=float, default=1.25e9, show_default=True, help="sim: bandwidth of a link [bytes/s].")
@click.option("--peak", type=float, default=50e9, show_default=True, help="sim: speed of a rank [flop/s].")
@click.option("--bandwidth", type=float, default=20e9, show_default=True, help="sim: memory of a rank [bytes/s].")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results.  [default: runs/..., or CHECKPOINT/results]",
)
@click.option(
    "--checkpoint", type=click.Path(file_okay=False, path_type=Path), help="Folder in which the run's state is saved."
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Steps between two checkpoints; one more after the last step.",
)
@click.option("--resume", is_flag=True, help="Continue from the newest checkpoint in --checkpoint.")
@click.option("--resume-anyway", is_flag=True, help="Also from that of another run: other optimizer, data, ...")
@click.option("--force", is_flag=True, help="Overwrite the results in --out, instead of making a numbered folder.")
def train(preset, size, sizes, out, force, **options):
    """Train a network on images, and report time, speed, accuracy and communication.

    Writes history.json, model.safetensors (for `distlearn.load`), trace.json (opens in ui.perfetto.dev), curves.png and
    timeline.png into --out; of a pipeline also schedule.png, and with --sizes speedup.png. Every rank has --threads
    BLAS threads, and so has the sequential run that speed-ups refer to. Ctrl-C ends a run, and keeps the epochs that
    are done.

    With --checkpoint an interrupted run continues with --resume, on any number of ranks, to the same result
    (local_sgd and pipedream, which depend on that number: from the same state); and engines that die are restarted,
    and the run continues.

    \b
    distlearn train --data mnist --world engines --size 4 --epochs 5
    distlearn train --world sim --sizes 1,2,4,8,16 --alpha 5e-6
    distlearn train --preset fashion-sigmoid
    distlearn train --preset large-batch --world sim --size 8
    distlearn train --strategy zero3 --world engines --size 4
    distlearn train --trainer torch --world engines --size 2
    distlearn train --strategy param_server --policy "ssp(4)" --world sim --size 5
    distlearn train --data mnist --world engines --size 4 --checkpoint state --resume
    mpiexec -n 4 distlearn train --data mnist
    """  # noqa: D301  (click wants the control character, not its name)
    from ..world.launching import busy_cores
    from .mpiexec import end_other_ranks, mpi_rank, mpi_size, train_as_rank
    from .output import Experiment, report
    from .ranks import run_training

    check_needs(click.get_current_context())
    note = note_of(click.get_current_context())
    with plain_errors(ValueError, OSError):
        settings = Settings(**{name: options[name] for name in SETTINGS})
        ranks = mpi_size()
        targets = _targets(options, size, sizes, ranks)
        if mpi_rank() > 0:  # under mpiexec, rank 0 alone checks the options and reports errors
            train_as_rank(targets[0], settings, None, None)
            return
    force |= options["resume"] or options["resume_anyway"]  # into the same folder
    sizes = "-".join(str(target.size) for target in targets)
    default = Path("runs") / f"{Path(settings.data).name}-{settings.model}-{targets[0].world}{sizes}"
    default = default if options["checkpoint"] is None else options["checkpoint"] / "results"
    with end_other_ranks(ranks), plain_errors(ValueError, OSError):
        dataset = _load_data(settings, targets)
        if options["checkpoint"] is not None:
            check_writable("--checkpoint", options["checkpoint"])
        folder = click.get_current_context().with_resource(results_folder(out or default, force))
    load = 0.0 if ranks else busy_cores()  # waiting ranks would count as busy cores
    about = Experiment(settings, dataset, note, folder, load)
    if ranks:
        train_as_rank(targets[0], settings, folder, lambda runs: report(runs, about))
        return
    runs = []
    for target in targets:
        runs.append(run_training(target, settings, folder))
        if runs[-1] is None or runs[-1].interrupted:
            break
    done = [run for run in runs if run is not None]
    if done:
        report(done, about)
    else:
        say("interrupted in the first epoch: there are no results", err=True)
    if len(done) < len(runs) or done[-1].interrupted:
        sys.exit(INTERRUPTED)


def _targets(options, size, sizes, under_mpi: int) -> list:
    from ..sim import Roofline
    from .ranks import Target

    if under_mpi:
        if sizes or options["world"] or (size is not None and size != under_mpi):
            raise click.UsageError(f"mpiexec started {under_mpi} ranks: remove --world, --size and --sizes")
        return [Target("mpi", under_mpi, options["threads"], saving=_saving(options, 1))]
    if sizes and size is not None:
        raise click.UsageError("--size and --sizes: give only one of them")
    sizes = sizes or (size or 1,)
    world = options["world"] or ("local" if sizes == (1,) else "engines")
    if world == "local" and sizes != (1,):
        raise click.UsageError(f"--world local is one rank, not {sizes[-1]}; use sim or engines")
    network = Network(options["alpha"], options["beta"])
    compute = Roofline(options["peak"], options["bandwidth"])
    saving = _saving(options, len(sizes))
    return [Target(world, n, options["threads"], network, compute, saving) for n in sizes]


def _saving(options, n_runs: int) -> dict:
    folder = options["checkpoint"]
    if folder is None:
        if options["resume"] or options["resume_anyway"]:
            raise click.UsageError("--resume needs --checkpoint, the folder in which the run's state was saved")
        return {}
    if n_runs > 1:
        raise click.UsageError("--checkpoint keeps the state of one run; remove --sizes")
    resume = "anyway" if options["resume_anyway"] else options["resume"]
    return {"checkpoints": str(folder.resolve()), "every": options["checkpoint_every"], "resume": resume}


def _load_data(settings: Settings, targets):
    """Load the data here first: errors show before any rank is started, and a download happens once."""
    from .. import backend, data

    if settings.device != "cpu" and not backend.has_gpu():
        raise ValueError(
            f"--device {settings.device}, but no usable GPU was found (see `distlearn doctor`); "
            "remove --device to use the CPU"
        )
    dataset = data.load(settings.data, **settings.how_to_read)
    dataset = dataset if settings.n_train is None else dataset.take(settings.n_train)
    most = max(target.size for target in targets)
    if most > len(dataset.x_train):
        raise ValueError(f"{most} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    return dataset
