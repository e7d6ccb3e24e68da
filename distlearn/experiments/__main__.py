"""`python -m distlearn.experiments FOLDER`: run every experiment on asynchrony, and draw its figure."""

from __future__ import annotations

import pickle
from pathlib import Path

import click

from .. import viz
from ..world import EngineWorld
from ..world.progress import Bar
from . import (
    SCENARIOS,
    compare_policies,
    lr_limits,
    mnist_task,
    real_beside_simulated,
    recovered,
    throughputs,
    time_to_loss,
)


def on_engines(task, report, **_):
    """Train on a server and four workers that are engines."""
    with EngineWorld(5, progress=False) as world:
        return real_beside_simulated(world, task, report=report)


def _policies(scenario):
    return lambda task, report, seeds: compare_policies(task, scenario=scenario, seeds=seeds, report=report)


EXPERIMENTS = {
    **{f"policies-{scenario.replace(' ', '-')}": (_policies(scenario), viz.plot_policies) for scenario in SCENARIOS},
    "throughput": (lambda task, report, seeds: throughputs(seeds=seeds, report=report), viz.plot_throughputs),
    "throughput-10000": (
        lambda task, report, seeds: throughputs(workers=(10, 100, 1000, 10_000), steps=50, seeds=3, report=report),
        viz.plot_throughputs,
    ),
    "time-to-loss": (
        lambda task, report, seeds: time_to_loss(task.but(lr=task.lr / 2), seeds=seeds, report=report),
        viz.plot_time_to_loss,
    ),
    "lr-limits": (lambda task, report, seeds: lr_limits(task, report=report), viz.plot_lr_limits),
    "recovered": (
        lambda task, report, seeds: recovered(task.but(lr=10 * task.lr), seeds=seeds, report=report),
        viz.plot_recovered,
    ),
    "engines": (on_engines, viz.plot_real_and_simulated),
}
"""By name: the function to run, and the one that draws its result."""


@click.command(help="Run the experiments on asynchrony; write figures and results into FOLDER.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only", default="", help="Only the experiments whose name contains this.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Seeds of each experiment.")
def main(folder: Path, only: str, seeds: int) -> None:
    """Run them."""
    names = [name for name in EXPERIMENTS if only in name]
    if not names:
        raise click.ClickException(f"no experiment is called {only!r}, expected part of {', '.join(EXPERIMENTS)}")
    folder.mkdir(parents=True, exist_ok=True)
    task = mnist_task()
    for name in names:
        run, plot = EXPERIMENTS[name]
        bar = Bar(name)
        found = run(task, report=bar, seeds=seeds)
        bar.close()
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(found))
        click.echo(viz.save(plot(found), folder / f"{name}.png", close=True))


if __name__ == "__main__":
    main()
