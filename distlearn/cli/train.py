"""`distlearn train`: training from the terminal, on one kind of ranks or on several numbers of them, with a report."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ..comm.network import Network
from ..nn.activation import ACTIVATIONS
from ..optim import RULES
from ..parallel.schedule import SCHEDULES
from ..train import MODELS, STRATEGIES, Settings
from .console import plain_errors
from .output import make_folder
from .presets import PRESETS

DEFAULT = Settings()
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


def _numbers(ctx, param, value):
    """Parse "256,128": whole numbers, 1 or more; an empty text is none of them."""
    try:
        numbers = tuple(int(word) for word in value.split(",")) if value else ()
    except ValueError:
        numbers = (0,)
    if any(n < 1 for n in numbers):
        raise click.BadParameter(f"{value!r}, expected whole numbers from 1 on, such as 256,128", ctx, param)
    return numbers


def _sizes(ctx, param, value):
    """Parse "1,2,4": rising numbers of ranks."""
    numbers = _numbers(ctx, param, value)
    if list(numbers) != sorted(set(numbers)):
        raise click.BadParameter(f"{value!r}, expected rising numbers of ranks, such as 1,2,4", ctx, param)
    return numbers


def _preset(ctx, param, value):
    """Make the preset's options the defaults of the others."""
    if value is not None:
        ctx.default_map = {**(ctx.default_map or {}), **PRESETS[value].options}
    return value


def _positive(ctx, param, value):
    """Refuse a rate that is not above 0."""
    if value is not None and not value > 0:
        raise click.BadParameter(f"{value:g}, expected a number above 0", ctx, param)
    return value


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), is_eager=True, callback=_preset, help="A whole experiment.")
@click.option(
    "--data", default=DEFAULT.data, show_default=True, help="digits, mnist, fashion-mnist, or a folder's name."
)
@click.option("--model", type=click.Choice(MODELS), default=DEFAULT.model, show_default=True)
@click.option("--hidden", default="256,128", show_default=True, callback=_numbers, help="Widths of the hidden layers.")
@click.option("--activation", type=click.Choice(list(ACTIVATIONS)), default=DEFAULT.activation, show_default=True)
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
@click.option("--epochs", type=click.IntRange(1), default=DEFAULT.epochs, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=DEFAULT.seed, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), default=DEFAULT.dtype, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--n-train", type=click.IntRange(1), help="Use only so many training samples.")
@click.option(
    "--evaluate-every", type=click.IntRange(0), default=1, show_default=True, help="Epochs; 0 for the end only."
)
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), default=DEFAULT.strategy, show_default=True)
@click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="hybrid: stages of a pipeline.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="hybrid: ranks that share layers.")
@click.option(
    "--accumulate", type=click.IntRange(1), default=1, show_default=True, help="Micro-batches, one after another."
)
@click.option(
    "--schedule", type=click.Choice(list(SCHEDULES)), default="1f1b", show_default=True, help="Order of a pipeline."
)
@click.option("--n-microbatches", type=click.IntRange(1), help="Of a pipeline.  [default: 4 a rank]")
@click.option(
    "--average-every",
    type=click.IntRange(1),
    default=DEFAULT.average_every,
    show_default=True,
    help="local_sgd: steps between averages.",
)
@click.option("--overlap/--no-overlap", default=True, show_default=True, help="Communicate while backward goes on.")
@click.option(
    "--bucket-kib", type=float, default=1024.0, show_default=True, callback=_positive, help="Gradient bucket."
)
@click.option(
    "--world", type=click.Choice(["local", "sim", "mpi", "engines"]), help="Default: local, or engines for more ranks."
)
@click.option("--size", type=click.IntRange(1), help="Number of ranks.  [default: 1]")
@click.option("--sizes", default="", callback=_sizes, help="Compare numbers of ranks: 1,2,4.")
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
    "--checkpoint-every", type=click.IntRange(1), default=100, show_default=True, help="Steps; and after the last one."
)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in --checkpoint.")
@click.option("--force", is_flag=True, help="Overwrite the results in --out, instead of making a numbered folder.")
def train(preset, size, sizes, out, force, **options):
    """Train a network on images, and report time, speed, accuracy and communication.

    Writes history.json, trace.json (opens in ui.perfetto.dev), curves.png and timeline.png into --out; of a pipeline
    also schedule.png, and with --sizes speedup.png. Every rank has --threads BLAS threads, and so has the sequential
    run that speed-ups refer to.

    With --checkpoint a run that was interrupted goes on with --resume, on any number of ranks, to the same result; and
    engines that die are started anew and go on by themselves.

    \b
    distlearn train --data mnist --world engines --size 4 --epochs 5
    distlearn train --world sim --sizes 1,2,4,8,16 --alpha 5e-6
    distlearn train --preset fashion-sigmoid
    distlearn train --preset large-batch --world sim --size 8
    distlearn train --strategy zero3 --world engines --size 4
    distlearn train --data mnist --world engines --size 4 --checkpoint state --resume
    mpiexec -n 4 distlearn train --data mnist
    """  # noqa: D301  (click wants the control character, not its name)
    from .applies import check_applies
    from .mpiexec import mpi_rank, mpi_size, train_as_rank
    from .report import Experiment, load_average, report

    check_applies(click.get_current_context())
    with plain_errors(ValueError, OSError):
        settings = _settings(options)
        ranks = mpi_size()
        places = [_place_under_mpi(options, size, sizes, ranks)] if ranks else _places(options, size, sizes)
        if mpi_rank() > 0:  # one of many under mpiexec: rank 0 looks at everything first and tells
            train_as_rank(places[0], settings, None)
            return
        dataset = check_data(settings, places)
    folder = make_folder(_folder(out, settings, places), force)
    about = Experiment(settings, dataset, preset, folder, load=load_average())
    if ranks:
        train_as_rank(places[0], settings, lambda runs: report(runs, about))
        return
    from .ranks import run_training

    report([run_training(place, settings) for place in places], about)


def _settings(options) -> Settings:
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


def _places(options, size, sizes) -> list:
    """Say where each of the runs happens."""
    from ..comm import Roofline
    from .ranks import Place

    if sizes and size is not None:
        raise click.UsageError("--size and --sizes: give one of them")
    sizes = sizes or (size or 1,)
    world = options["world"] or ("local" if sizes == (1,) else "engines")
    if world == "local" and sizes != (1,):
        raise click.UsageError(f"--world local is one rank, not {sizes[-1]}; use sim, mpi or engines")
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


def _place_under_mpi(options, size, sizes, ranks):
    """Under mpiexec the ranks are there already; say so where the options want others."""
    from .ranks import Place

    if sizes or options["world"] not in (None, "mpi") or (size is not None and size != ranks):
        raise click.UsageError(f"mpiexec started {ranks} ranks: leave --world, --size and --sizes out")
    return Place("mpi", ranks, options["threads"], saving=_saving(options, 1))


def check_data(settings: Settings, places):
    """Load the data here first: what is wrong with it shows before any rank is started, and a download happens once."""
    from .. import data

    dataset = data.load(settings.data, dtype=settings.dtype)
    dataset = dataset if settings.n_train is None else dataset.take(settings.n_train)
    most = max(place.size for place in places)
    if most > len(dataset.x_train):
        raise ValueError(f"{most} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    return dataset


def _folder(out, settings, places) -> Path:
    """Name the folder of the results."""
    if out is not None:
        return out
    sizes = "-".join(str(place.size) for place in places)
    return Path("runs") / f"{settings.data}-{settings.model}-{places[0].world}{sizes}"
