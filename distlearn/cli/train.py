"""`distlearn train`: training from the terminal, on one kind of ranks or on several numbers of them, with a report."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..nn.activation import ACTIVATIONS
from ..optim import RULES
from ..parallel.pipeline.schedule import SCHEDULES
from ..train import MODELS, STRATEGIES, Settings
from .console import plain_errors, say
from .options import WORLDS, parse_numbers, parse_sizes, require_positive
from .output import check_writable, results_folder
from .presets import PRESETS, note_of
from .request import check_data, folder_of, place_under_mpi, places_of, settings_of

DEFAULT = Settings()
INTERRUPTED = 130
"""Exit status after Ctrl-C, as of shells."""


def _preset(ctx, param, value):
    """Make the preset's options the defaults of the others."""
    if value is not None:
        ctx.default_map = {**(ctx.default_map or {}), **PRESETS[value].options}
    return value


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), is_eager=True, callback=_preset, help="A whole experiment.")
@click.option(
    "--data", default=DEFAULT.data, show_default=True, help="digits, mnist, fashion-mnist, or a folder's name."
)
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default=DEFAULT.model,
    show_default=True,
    help="All but mlp take 28 x 28 pixels.",
)
@click.option(
    "--hidden", default="256,128", show_default=True, callback=parse_numbers, help="mlp: widths of the hidden layers."
)
@click.option(
    "--activation",
    type=click.Choice(list(ACTIVATIONS)),
    default=DEFAULT.activation,
    show_default=True,
    help="mlp: between its layers.",
)
@click.option("--optimizer", type=click.Choice(list(RULES)), default=DEFAULT.optimizer, show_default=True)
@click.option("--lr", type=float, default=DEFAULT.lr, show_default=True, help="Learning rate.")
@click.option(
    "--batch-size", type=click.IntRange(1), default=DEFAULT.batch_size, show_default=True, help="Of all ranks."
)
@click.option(
    "--reference-batch",
    type=click.IntRange(1),
    help="Batch size that --lr is right for: the rate grows with the batch.",
)
@click.option(
    "--warmup-epochs", type=click.FloatRange(0), default=0.0, show_default=True, help="Epochs in which the rate rises."
)
@click.option(
    "--epochs", type=click.IntRange(1), default=DEFAULT.epochs, show_default=True, help="Passes over the data."
)
@click.option("--seed", type=click.IntRange(0), default=DEFAULT.seed, show_default=True, help="Of weights and order.")
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default=DEFAULT.dtype, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--n-train", type=click.IntRange(1), help="Use only so many training samples.")
@click.option(
    "--evaluate-every",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Epochs between two looks at the accuracies; 0 for the end only.",
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default=DEFAULT.strategy,
    show_default=True,
    help="What ranks share: samples, layers, optimizer, ...",
)
@click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="hybrid: stages of a pipeline.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="hybrid: ranks that share layers.")
@click.option(
    "--accumulate", type=click.IntRange(1), default=1, show_default=True, help="data: micro-batches, one after another."
)
@click.option(
    "--schedule",
    type=click.Choice(list(SCHEDULES)),
    default="1f1b",
    show_default=True,
    help="pipeline, hybrid: who runs what when.",
)
@click.option("--n-microbatches", type=click.IntRange(1), help="pipeline, hybrid.  [default: 4 a rank]")
@click.option(
    "--average-every",
    type=click.IntRange(1),
    default=DEFAULT.average_every,
    show_default=True,
    help="local_sgd: steps between averages.",
)
@click.option("--overlap/--no-overlap", default=True, show_default=True, help="Communicate while backward goes on.")
@click.option(
    "--bucket-kib",
    type=float,
    default=1024.0,
    show_default=True,
    callback=require_positive,
    help="Size of a bucket of gradients [KiB].",
)
@click.option("--world", type=click.Choice(WORLDS), help="Default: local, engines for more ranks, mpi under mpiexec.")
@click.option("--size", type=click.IntRange(1), help="Number of ranks.  [default: 1]")
@click.option("--sizes", default="", callback=parse_sizes, help="Compare numbers of ranks: 1,2,4.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="BLAS threads of each rank.")
@click.option("--alpha", type=float, default=20e-6, show_default=True, help="sim: latency of a message [s].")
@click.option("--beta", type=float, default=1.25e9, show_default=True, help="sim: bandwidth of a link [bytes/s].")
@click.option("--peak", type=float, default=50e9, show_default=True, help="sim: speed of a rank [flop/s].")
@click.option("--bandwidth", type=float, default=20e9, show_default=True, help="sim: memory of a rank [bytes/s].")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results.  [default: runs/...]"
)
@click.option(
    "--checkpoint", type=click.Path(file_okay=False, path_type=Path), help="Folder in which the run's state is saved."
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Steps between two; and after the last one.",
)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in --checkpoint.")
@click.option("--force", is_flag=True, help="Overwrite the results in --out, instead of making a numbered folder.")
def train(preset, size, sizes, out, force, **options):
    """Train a network on images, and report time, speed, accuracy and communication.

    Writes history.json, trace.json (opens in ui.perfetto.dev), curves.png and timeline.png into --out; of a pipeline
    also schedule.png, and with --sizes speedup.png. Every rank has --threads BLAS threads, and so has the sequential
    run that speed-ups refer to. Ctrl-C ends a run, and keeps the epochs that are done.

    With --checkpoint a run that was interrupted goes on with --resume, on any number of ranks, to the same result
    (local_sgd and pipedream, which depend on that number: from the same state); and engines that die are started anew
    and go on by themselves.

    \b
    distlearn train --data mnist --world engines --size 4 --epochs 5
    distlearn train --world sim --sizes 1,2,4,8,16 --alpha 5e-6
    distlearn train --preset fashion-sigmoid
    distlearn train --preset large-batch --world sim --size 8
    distlearn train --strategy zero3 --world engines --size 4
    distlearn train --data mnist --world engines --size 4 --checkpoint state --resume
    mpiexec -n 4 distlearn train --data mnist
    """  # noqa: D301  (click wants the control character, not its name)
    from ..world.launching import busy_cores
    from .applies import check_applies
    from .mpiexec import mpi_rank, mpi_size, train_as_rank
    from .ranks import run_training
    from .report import Experiment, report

    check_applies(click.get_current_context())
    note = note_of(click.get_current_context())
    with plain_errors(ValueError, OSError):
        settings = settings_of(options)
        ranks = mpi_size()
        places = [place_under_mpi(options, size, sizes, ranks)] if ranks else places_of(options, size, sizes)
        if mpi_rank() > 0:  # one of many under mpiexec: rank 0 looks at everything first and tells
            train_as_rank(places[0], settings, None, None)
            return
        dataset = check_data(settings, places)
    if options["checkpoint"] is not None:
        check_writable("--checkpoint", options["checkpoint"])
    folder = click.get_current_context().with_resource(results_folder(folder_of(out, settings, places), force))
    load = 0.0 if ranks else busy_cores()  # ranks that wait for this one are no other programs
    about = Experiment(settings, dataset, note, folder, load)
    if ranks:
        train_as_rank(places[0], settings, folder, lambda runs: report(runs, about))
        return
    runs = []
    for place in places:
        runs.append(run_training(place, settings, folder))
        if runs[-1] is None or runs[-1].interrupted:
            break
    done = [run for run in runs if run is not None]
    if done:
        report(done, about)
    else:
        say("interrupted in the first epoch: there is nothing to keep", err=True)
    if len(done) < len(runs) or done[-1].interrupted:
        sys.exit(INTERRUPTED)
