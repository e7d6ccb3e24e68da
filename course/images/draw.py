"""The README's pictures: what overlap gains, and that the number of ranks does not change what is learnt; and three
other ways to share the work, each with its cost.

All data are computed when they are drawn: `python course/images/draw.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from distcourse import lab11, scaling
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from distlearn.comm import Network
from distlearn.data import load
from distlearn.parallel.asynchronous.param_server import Speeds, asp, bsp, ssp
from distlearn.sim import Roofline, SimWorld
from distlearn.tables import format_time
from distlearn.trace import Trace
from distlearn.train import History, Settings, train
from distlearn.viz.curves import plot_history
from distlearn.viz.files import save
from distlearn.viz.look import COLORS, INK, LINES, MUTED, style, write_title
from distlearn.viz.pipeline import plot_schedule
from distlearn.viz.timeline import FAMILY_COLORS, plot_timeline

# Two steps of a network whose layers each fill a bucket, so that sending can start after each of them.
STEP = Settings(hidden=(384,) * 5, batch_size=512, n_train=1024, epochs=1, evaluate_every=0, cap_bytes=1 << 19)
LEARNING = Settings(hidden=(64, 32), batch_size=64, lr=0.02, epochs=12, dtype="float64", evaluate_every=0)
SIZES = (1, 2, 4)


def one_step(overlap: bool, size: int = 4) -> Trace:
    """Simulate data-parallel training on a slow network; return its second step, with time 0 where that begins."""
    world = SimWorld(size, Network(alpha=20e-6, beta=0.75e9), Roofline(peak=50e9), jitter=0.06, seed=4)
    world.run(train, STEP.but(overlap=overlap))
    begins = [world.trace.select(rank=rank, name="forward[0.Linear]")[1].start for rank in range(size)]
    zero = min(begins)  # ranks begin at slightly different times: their updates did not take equally long
    step = [s for s in world.trace if s.start >= begins[s.rank]]
    return Trace([s._replace(start=s.start - zero, end=s.end - zero) for s in step])


def learn() -> dict[str, History]:
    """Train on the digits with 1, 2 and 4 ranks."""
    names = {1: "1 rank"}
    return {names.get(p, f"{p} ranks"): SimWorld(p).run(train, LEARNING)[0].history for p in SIZES}


def readme_picture(path) -> Path:
    """Draw the README's picture and write it, about 1200 pixels wide."""
    with style():
        figure = Figure(figsize=(12, 5.1), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08, wspace=0.03)
        axes = figure.subplot_mosaic([["off", "learn"], ["on", "learn"]], width_ratios=[1.55, 1])
        _draw_steps(axes["off"], axes["on"])
        _draw_learning(axes["learn"])
        figure.suptitle(
            "One training function, three worlds: simulated ranks, ipyparallel engines, mpiexec", fontsize=15
        )
        return save(figure, path, alt=ALT, dpi=100)


ALT = (
    "Left: simulated time lines of one data-parallel training step on 4 ranks. Without overlap all ranks wait for the "
    "all-reduces after backward; with overlap most of them run while backward goes on, and the step is shorter. "
    "Right: the loss curves of training with 1, 2 and 4 ranks lie on top of each other."
)


def _draw_steps(off, on) -> None:
    slow, fast = one_step(overlap=False), one_step(overlap=True)
    for ax, trace, title in (
        (off, slow, f"All-reduce after backward: a step takes {format_time(slow.makespan)}"),
        (on, fast, f"All-reduce during backward: {format_time(fast.makespan)}"),
    ):
        plot_timeline(trace, ax=ax, start=0.0, title=title, legend=False)
        ax.axvline(trace.makespan, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
        ax.set_xlim(0, 1.02 * slow.makespan)
    off.set_xlabel("")
    on.set_xlabel(f"simulated {on.get_xlabel()}", loc="left")
    off.tick_params(labelbottom=False)
    middle = (len(fast.ranks) - 1) / 2
    ends = {"xy": (fast.makespan, middle), "xytext": (slow.makespan, middle)}
    on.annotate("", **ends, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 1})
    saved = f"{1 - fast.makespan / slow.makespan:.0%} less"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 2.5}
    on.text((fast.makespan + slow.makespan) / 2, middle, saved, ha="center", va="center", fontweight="bold", bbox=box)
    names = ("forward", "backward", "all_reduce")
    handles = [Patch(facecolor=FAMILY_COLORS[name], label=name.replace("_", "-")) for name in names]
    on.legend(handles=handles, loc="upper right", bbox_to_anchor=(1, -0.14), ncols=3, borderaxespad=0, handlelength=1.2)


def _draw_learning(ax) -> None:
    runs = learn()
    losses = np.array([run.losses for run in runs.values()])
    apart = np.abs(losses - losses[0]).max()
    plot_history(runs, y="loss", ax=ax, title="1, 2 and 4 ranks learn the same")
    ax.text(
        0.98,
        0.62,
        f"largest difference\nin {losses.shape[1]} steps: {apart:.0e}",
        transform=ax.transAxes,
        ha="right",
        color=MUTED,
    )
    ax.set_ylim(bottom=0)


def ways_picture(path) -> Path:
    """Draw the README's second picture and write it: a pipeline, asynchronous training, scaling that stalls."""
    grid = {"nodes": [1, 4, 16, 64, 256, 1024], "batch": 128}
    curves = [scaling.scaling_curve(name, "ethernet-10g", **grid) for name in ("alexnet", "googlenet")]
    with style():
        figure = Figure(figsize=(12, 6.6), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
        (pipeline, learning), sizes = figure.subplots(2, 2)
        plot_schedule("1f1b", 4, 8, ax=pipeline, title="1F1B, 4 ranks, 8 micro-batches: bubble 27%", legend=False)
        _draw_policies(learning)
        sizes[1].sharey(sizes[0])
        scaling.plot_stall(curves, axes=sizes)
        return save(figure, path, alt=WAYS_ALT, dpi=100)


def _draw_policies(ax) -> None:
    at, digits = np.linspace(0, 60, 60), load("digits", dtype="float32")

    def loss(w):
        return lab11.loss_and_gradient(w, digits.x_train, digits.y_train)[0]

    for policy, color, line in zip((asp(), ssp(4), bsp()), COLORS, LINES, strict=False):
        runs = [lab11.train(policy, Speeds(8, slow={0: 4.0}, seed=seed), 0.05, 480, batch=16) for seed in range(3)]
        losses = [np.interp(at, run.times, [loss(w) for w in run.versions]) for run in runs]
        ax.plot(at, np.median(losses, axis=0), color=color, linestyle=line, label=str(policy))
        ax.fill_between(at, np.min(losses, axis=0), np.max(losses, axis=0), color=color, alpha=0.18, linewidth=0)
    ax.set(xlabel="time [s]", ylabel="training loss")
    write_title(ax, "One slow worker of eight: policies that wait for it lag")
    ax.legend()


WAYS_ALT = (
    "From left to right: a 1F1B pipeline schedule of 8 micro-batches on 4 ranks; training loss against time of three "
    "policies of a parameter server with one slow worker; the time of an iteration of AlexNet and of GoogLeNet on 1 to "
    "1,024 simulated nodes."
)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(readme_picture(folder / "timeline.png"), ways_picture(folder / "ways.png"))
