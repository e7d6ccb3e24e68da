"""Policies of a parameter server on one task: the same gradients, time simulated."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter
from threadpoolctl import threadpool_limits

from distlearn.comm import Network
from distlearn.comm.base import ignore_report
from distlearn.data import Dataset, available, load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, Momentum
from distlearn.parallel.asynchronous.param_server import ParameterServer, Run, Speeds, asp, backup, bsp, constant, ssp
from distlearn.sim import SimWorld
from distlearn.viz.look import (
    AMBER,
    INK,
    LINES,
    MUTED,
    NAVY,
    PURPLE,
    SKY,
    TEAL,
    VERMILION,
    WIDEST,
    new_axes,
    styled,
    write_title,
)
from distlearn.viz.units import count_axis, share_axis, time_axis

# -- The training task of the experiments, and the speeds of its workers.


SCENARIOS = ("even", "straggler", "heavy tail")
"""All workers alike up to 10 %; worker 0 four times as slow; every step Pareto-distributed with tail index 1.5."""

NETWORK = Network(alpha=1e-3, beta=1e8)
"""Of the simulated runs, whose steps take a second: messages of 0.1 MB take 2 ms."""


@dataclass(frozen=True)
class Task:
    """A small network, its data, and a learning rate *per gradient*."""

    # An update that is the mean of k gradients gets k times the rate (the linear scaling rule), so that every policy
    # adds up the same gradients with the same weight, and differs in nothing but staleness, waiting and drops.

    dataset: Dataset
    hidden: tuple[int, ...] = (32,)
    batch: int = 16
    lr: float = 0.02
    momentum: float = 0.0

    def but(self, **changes) -> Task:
        """Return the same task with some settings changed."""
        return replace(self, **changes)


def digits_task(**changes) -> Task:
    """Return the task on scikit-learn's 8 x 8 digits: always available, and fast."""
    return Task(load("digits"), **({"lr": 0.05} | changes))


def mnist_task(n_train: int = 8000, n_test: int = 1000, **changes) -> Task:
    """Return the task on MNIST if it is available (DISTLEARN_DATA, or loaded before), else `digits_task`."""
    where = {found.name: found.origin for found in available()}
    if where.get("mnist") not in ("folder", "cache"):
        return digits_task(**changes)
    return Task(load("mnist").take(n_train, n_test), **changes)


def scenario_speeds(scenario: str, workers: int, seed: int = 0, seconds: float = 1.0) -> Speeds:
    """Return the speeds of a scenario of `SCENARIOS`."""
    if scenario not in SCENARIOS:
        raise ValueError(f"scenario_speeds: {scenario!r}, expected one of {', '.join(SCENARIOS)}")
    if scenario == "heavy tail":
        return Speeds(workers, seconds, law="pareto", seed=seed)
    return Speeds(workers, seconds, slow={0: 4.0} if scenario == "straggler" else None, seed=seed)


def program(
    comm,
    task: Task,
    policy,
    *,
    steps=None,
    seconds=np.inf,
    seed=0,
    pace=None,
    rate=constant,
    points=25,
    servers=1,
    rule=None,
    start=None,
):
    """Train on a communicator of any world; return the run on rank 0."""
    # steps: Gradients of each worker, on average.
    # seconds: Time after which no step begins [s].
    # seed: Of weights and samples.
    # pace: Extra seconds of each step.
    # points: Of the curve, about.
    # rule: Of the servers; by default SGD with the task's momentum.
    # start: Parameters to begin with, by name: those of an earlier run.
    workers = comm.size - servers
    quorum = policy.quorum(workers)
    updates = (steps or 100) * workers // quorum
    model = MLP((task.dataset.n_features, *task.hidden, task.dataset.n_classes), seed=seed)
    for param in model.params if start else ():
        param.data[...] = start[param.name]
    server = ParameterServer(
        comm,
        model,
        SoftmaxCrossEntropy(),
        rule or (Momentum(task.momentum) if task.momentum else SGD()),
        task.lr * quorum,
        policy,
        servers=servers,
        rate=rate,
        pace=pace,
        every=max(1, updates // points) if points else 0,
    )
    return server.train(task.dataset, batch_size=task.batch * workers, steps=steps, seconds=seconds, seed=seed)


def run_policy(task: Task, policy, speeds: Speeds, *, steps: int, seed=0, network=NETWORK, **options) -> Run:
    """Train once on simulated ranks."""
    world = SimWorld(speeds.workers + options.get("servers", 1), network)
    with (
        threadpool_limits(1),
        np.errstate(all="ignore"),
    ):  # small products are slower on several cores; runs may diverge
        return world.run(program, task, policy, steps=steps, seed=seed, pace=speeds, **options)[0]


# -- Policies compared on the same gradients, samples and speeds: waiting, staleness and the resulting loss.


POLICIES = (bsp(), backup(0.9), ssp(0), ssp(1), ssp(4), ssp(16), asp())
"""What `compare_policies` compares."""

FEW = (bsp(), backup(0.9), ssp(4), ssp(16), asp())
"""Policies for figures with many workers."""

ON_FOUR = (bsp(), backup(0.75), ssp(1), ssp(4), asp())
"""For four real workers, one of them a backup."""


def compare_policies(
    task: Task, *, workers=16, scenario="straggler", seeds=5, steps=60, policies=POLICIES, report=None, **options
) -> dict[str, list[Run]]:
    """Train with every policy, with several seeds.

    Parameters
    ----------
    scenario : str
        One of `SCENARIOS`.
    seeds : int
        How many; a seed determines weights, samples and speeds, the same for all policies.
    steps : int
        Gradients of each worker, on average.
    report : callable, optional
        Gets `report(run, runs, policy=)` after each run; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `run_policy`.

    Returns
    -------
    runs : dict of str to list of Run
        By name of the policy; one run for each seed.
    """
    report = report or ignore_report
    runs: dict[str, list[Run]] = {str(policy): [] for policy in policies}
    for seed in range(seeds):
        speeds = scenario_speeds(scenario, workers, seed)
        for policy in policies:
            runs[str(policy)].append(run_policy(task, policy, speeds, steps=steps, seed=seed, **options))
            report(sum(map(len, runs.values())), seeds * len(policies), policy=str(policy))
    return runs


# -- Policies side by side: the same runs against updates and against time, their staleness, their throughput.


X_LABELS = {"updates": "updates of the parameters", "time": "time", "samples": "samples used"}
Y_LABELS = {"loss": "training loss", "error": "test error"}
_KNOWN = {"BSP": (NAVY, LINES[0]), "ASP": (VERMILION, LINES[1]), "backup": (AMBER, LINES[2])}


def policy_look(name: str, number: int, names) -> dict:
    """Return colour and line of a policy: the same in every figure; shades of SSP darken with its bound."""
    family = re.sub(r"\(.*", "", name)
    if family in _KNOWN:
        color, line = _KNOWN[family]
    elif family == "SSP":
        bounds = sorted(int(re.sub(r"\D", "", n)) for n in names if n.startswith("SSP("))
        place = bounds.index(int(re.sub(r"\D", "", name))) / max(1, len(bounds) - 1)
        color, line = mpl.colormaps["BuGn"](0.45 + 0.5 * place), LINES[3 + round(2 * place)]
    else:
        color, line = (PURPLE, TEAL, SKY)[number % 3], LINES[3 + number % 3]
    return {"color": color, "linestyle": line}


def _values(curve, y: str):
    """Return the loss of a curve's points, or the share of the test set that is wrong."""
    return curve["loss"] if y == "loss" else 1 - curve["test_accuracy"]


def band(runs, x: str, y: str = "loss", *, log: bool = False):
    """Bring curves of several seeds onto common points, evenly far apart on the axis: (x, median, lowest, highest)."""
    curves = []
    for run in runs:
        if len(run.curve) < 2:
            raise ValueError(f"plot_policies: {run!r} has no curve; train with every > 0")
        xs = run.curve["version"].astype(float) if x == "updates" else run.curve["time"]
        if x == "samples":
            rows = np.cumsum(np.bincount(run.applied["version"], run.applied["rows"], run.curve["version"][-1] + 1))
            xs = rows[run.curve["version"]]
        curves.append((xs, _values(run.curve, y)))
    end = min(float(xs[-1]) for xs, _ in curves)
    first = max(float(xs[1]) for xs, _ in curves)
    points = np.geomspace(min(first, end), end, 80) if log else np.linspace(0, end, 80)
    values = np.stack([np.interp(points, xs, ys) for xs, ys in curves])
    return points, np.median(values, axis=0), values.min(axis=0), values.max(axis=0)


@styled
def plot_loss(runs, *, x="time", y="loss", ax=None, title=None):
    """Draw the loss of several policies; a line is the median over seeds, its band reaches from best to worst."""
    if x not in X_LABELS:
        raise ValueError(f"plot_loss: x is {x!r}, expected one of {', '.join(X_LABELS)}")
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    if y not in Y_LABELS:
        raise ValueError(f"plot_loss: y is {y!r}, expected one of {', '.join(Y_LABELS)}")
    longest = 0.0
    for i, (name, several) in enumerate(runs.items()):
        points, median, low, high = band(several, x, y, log=x == "updates")
        look = policy_look(name, i, runs)
        ax.plot(points, median, label=name, **look)
        if len(several) > 1:
            ax.fill_between(points, low, high, color=look["color"], alpha=0.18, linewidth=0)
        longest = max(longest, float(points[-1]))
    if y == "loss":
        ax.set_ylabel(Y_LABELS[y])
    else:
        ax.set_ylim(0, 0.3)
        share_axis(ax.yaxis, Y_LABELS[y])
    if x == "time":
        time_axis(ax.xaxis, longest, X_LABELS[x])
    else:
        count_axis(ax.xaxis, X_LABELS[x])
    if x == "updates":
        ax.set_xscale("log")
        _plain_log(ax.xaxis)
    write_title(ax, f"{y.capitalize()} against {x}", title)
    return ax


@styled
def plot_staleness(runs, *, ax=None, title=None):
    """Draw how stale the gradients of each policy were: one row of bars for each, all of the same height in sum.

    Parameters
    ----------
    runs : dict of str to list of Run
        By policy. `Events` of the event simulation work, too.
    """
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    shares = {}
    for name, several in runs.items():
        counts = [run.histogram() for run in several]
        total = np.zeros(max(map(len, counts)))
        for count in counts:
            total[: len(count)] += count
        shares[name] = total / total.sum()
    furthest = max(int(np.searchsorted(np.cumsum(share), 0.98)) for share in shares.values()) + 1
    for i, (name, share) in enumerate(shares.items()):
        base = len(shares) - 1 - i
        tall = 0.82 * share[: furthest + 1] / share.max()
        ax.bar(np.arange(len(tall)), tall, 0.9, bottom=base, color=policy_look(name, i, runs)["color"])
        ax.axhline(base, color=MUTED, linewidth=0.6)
        mean = float(share @ np.arange(len(share)))
        ax.annotate(f"mean {mean:.3g}", (1.0, base + 0.3), xycoords=("axes fraction", "data"), ha="right", color=INK)
    ax.set_yticks(np.arange(len(shares)) + 0.35, list(shares)[::-1])
    ax.grid(visible=False, axis="y")
    ax.set_xlim(-0.8, 1.22 * furthest + 0.8)  # room for the words
    count_axis(ax.xaxis, "staleness of a gradient [versions]")
    write_title(ax, "How stale the gradients are", title)
    return ax


@styled
def plot_throughput(runs, *, ax=None, title=None):
    """Draw samples per second that went into updates; written beside each: updates per second, share dropped."""
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    top = 0.0
    for i, (name, several) in enumerate(runs.items()):
        rates = np.array([run.samples_per_second for run in several])
        row, middle = len(runs) - 1 - i, float(np.median(rates))
        ax.barh(row, middle, 0.7, color=policy_look(name, i, runs)["color"])
        ax.errorbar(middle, row, xerr=[[middle - rates.min()], [rates.max() - middle]], color=INK, capsize=3)
        dropped = np.mean([run.dropped / len(run.gradients) for run in several])
        text = (f"{middle:,.0f}" if middle >= 100 else f"{middle:.2g}") + (
            f", {dropped:.0%} dropped" if dropped else ""
        )
        ax.annotate(text, (float(rates.max()), row), (6, 0), textcoords="offset points", va="center", color=INK)
        top = max(top, float(rates.max()))
    ax.set_yticks(range(len(runs)), list(runs)[::-1])
    ax.grid(visible=False, axis="y")
    ax.set_xlim(0, 1.5 * top)
    ax.set_xlabel("samples used per second [1/s]")
    write_title(ax, "Throughput", title)
    return ax


@styled
def plot_policies(runs, *, y="loss", target=None, title=None):
    """Draw policies on four panels: loss against updates, against time, staleness, throughput.

    Parameters
    ----------
    runs : dict of str to list of Run
        What `compare_policies` returns.
    y : {"loss", "error"}
        Training loss, or the share of the test set that is wrong.
    target : float, optional
        The loss (or error) that the titles refer to; by default the highest of the medians at the end.
    """
    from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

    figure, axes = plt.subplots(2, 2, figsize=(WIDEST, 7.0))
    (updates, time), (stale, speed) = axes
    when = {x: _reached(runs, x, y, target) for x in ("updates", "time")}
    plot_loss(runs, x="updates", y=y, ax=updates, title=f"Fewest updates: {_first(*when['updates'])}")
    plot_loss(runs, x="time", y=y, ax=time, title=f"Least time: {_first(*when['time'])}")
    time.legend(loc="upper right", ncols=2, handlelength=2.6)
    plot_staleness(runs, ax=stale)
    plot_throughput(runs, ax=speed)
    write_title(figure, _finding(runs, y, *when["time"]), title)
    return updates, time, stale, speed


def _reached(runs, x: str, y: str, target) -> tuple[float, dict[str, float]]:
    """Return the loss that the titles refer to, and where on the axis the median of each policy reaches it."""
    medians = {name: band(several, x, y, log=x == "updates")[:2] for name, several in runs.items()}
    target = max(float(median[-1]) for _, median in medians.values()) if target is None else target
    when = {}
    for name, (points, median) in medians.items():
        below = np.flatnonzero(median <= target * (1 + 1e-9))
        if len(below):
            when[name] = float(points[below[0]])
    return target, when


def _first(target: float, when: dict[str, float]) -> str:
    """Name the policy that reaches the target first, or those that are within a tenth of it."""
    if not when:
        return "none reaches it"
    close = [name for name, at in when.items() if at <= 1.1 * min(when.values())]
    return " and ".join(close) if len(close) <= 2 else f"{len(close)} of {len(when)} are equal"


def _finding(runs, y: str, target: float, when: dict[str, float]) -> str:
    """Say which policy reaches the target first, and how much sooner than BSP."""
    workers = next(iter(runs.values()))[0].workers
    if "BSP" not in when or len(when) < 2:
        return f"{len(runs)} policies on {workers} workers"
    first = min(when, key=when.get)
    times = when["BSP"] / max(when[first], 1e-300)
    sooner = "no policy is faster than BSP" if first == "BSP" else f"{first} gets there {times:.2g} times sooner"
    goal = f"a loss of {target:.2g}" if y == "loss" else f"an error of {target:.2g}"
    return f"{workers} workers, to {goal}: {sooner}"


def _plain_log(axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
