"""`distlearn profile`: the gain of larger batches on this machine, layer by layer, as tables and figures."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import click

from .console import make_progress, plain_errors, print_table, say
from .options import parse_numbers
from .output import results_folder, write_json


def _batches(ctx, param, value) -> tuple[int, ...]:
    """Parse "1,4,16", at least one of them."""
    try:
        found = parse_numbers(ctx, param, value)
    except click.BadParameter:
        found = ()
    if not found:
        raise click.BadParameter(f"{value!r}, expected batch sizes such as 1,16,256", ctx, param)
    return found


@click.command()
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--batches",
    default="1,4,16,64,256,1024",
    show_default=True,
    callback=_batches,
    help="Batch sizes, separated by commas.",
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="BLAS threads.")
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "gpu"]), help="Where layers run.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop a model after about this time [s].")
@click.option("--products", is_flag=True, help="Also time a dense layer's product: (batch, 4096) times (4096, 9192).")
@click.option(
    "--out",
    default="profiles",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for the results; numbered if it exists.",
)
def profile(models, batches, threads, device, seconds, products, out):
    """Profile MODELS (alexnet, googlenet, ...) at several batch sizes.

    Every layer is measured alone, so that AlexNet with 1,024 images fits into a laptop. Ctrl-C ends it, and keeps
    the models and batch sizes that are done.
    """
    from .. import backend, nn, viz

    if device == "gpu" and not backend.has_gpu():
        raise click.UsageError("--device gpu, but no usable GPU was found (see `distlearn doctor`)")
    if device == "gpu" and products:
        raise click.UsageError("--products times the CPU's BLAS: leave one of --products and --device gpu out")
    folder = click.get_current_context().with_resource(results_folder(out))
    sweeps, whole = {}, True
    with plain_errors(ValueError, TimeoutError):
        for name in models:
            began, options = time.perf_counter(), {"batches": batches, "threads": threads, "seconds": seconds}
            try:
                with closing(make_progress(name, "%")) as progress:
                    model = nn.MODELS.get(name)
                    if device == "gpu" and model:
                        moved = nn.move(model.build(), lambda array: backend.to_device(array, "gpu"))
                        sweeps[name] = nn.profile_sweep(moved, model.sample, **options, progress=progress)
                    else:
                        sweeps[name] = nn.profile_sweep(name, **options, progress=progress)
                out_of_time = seconds is not None and time.perf_counter() - began > seconds
                whole = len(sweeps[name]) == len(batches) or out_of_time  # else it was ended by Ctrl-C
            except KeyboardInterrupt:  # before its first batch size was done: the models before it are kept
                if not sweeps:
                    raise
                whole = False
            for found in sweeps.get(name, ()):
                say(f"\n{name}, {found}")
            if not whole:
                break
    figures = {"batching.png": viz.plot_batching(sweeps, title="The gain of larger batches")}
    for name, profiles in sweeps.items():
        figures[f"{name}-layers.png"] = viz.plot_layers(profiles, title=f"{name}: time per sample, by layer")
        title = f"{name}: share of a step, by layer"
        figures[f"{name}-shares.png"] = viz.plot_layers(profiles, share=True, title=title)
    timed = nn.skinny_products(batches, threads=threads) if products and whole else []
    if timed:
        rows = [(f"{p.batch:,}", f"{p.seconds * 1e3:.3g}", f"{p.flop_rate / 1e9:.3g}") for p in timed]
        print_table("Product (batch, 4096) x (4096, 9192)", ("batch>", "time [ms]>", "Gflop/s>"), rows)
        figures["products.png"] = viz.plot_products(timed, title="(batch, 4096) times (4096, 9192)")
    for name, figure in figures.items():
        viz.save(figure, folder / name, close=True)
    content = {
        name: [{"batch": p.batch, "layers": [t._asdict() for t in p.layers]} for p in profiles]
        for name, profiles in sweeps.items()
    }
    write_json(
        folder / "profiles.json",
        {"threads": threads, "device": device, "models": content, "products": [p._asdict() for p in timed]},
    )
    say(f"wrote {', '.join([*figures, 'profiles.json'])} to {folder}")
