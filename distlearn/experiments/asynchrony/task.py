"""The training task of the experiments, and the speeds of its workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm import Network
from ...data import Dataset, available, load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Momentum
from ...parallel.asynchronous.param_server import ParameterServer, Run, Speeds, constant
from ...sim import SimWorld

SCENARIOS = ("even", "straggler", "heavy tail")
"""All workers alike up to 10 %; worker 0 four times as slow; every step Pareto-distributed with tail index 1.5."""

NETWORK = Network(alpha=1e-3, beta=1e8)
"""Of the simulated runs, whose steps take a second: messages of 0.1 MB take 2 ms."""


@dataclass(frozen=True)
class Task:
    """A small network, its data, and a learning rate *per gradient*.

    An update that is the mean of k gradients gets k times the rate (the linear scaling rule), so that every policy adds
    up the same gradients with the same weight, and differs in nothing but staleness, waiting and drops.

    Parameters
    ----------
    dataset : Dataset
    hidden : tuple of int
        Widths of the hidden layers.
    batch : int
        Samples of one worker's gradient.
    lr : float
        Learning rate of one gradient.
    momentum : float
        Of the velocity on the server.

    References
    ----------
    P. Goyal et al. (2017), Accurate, large minibatch SGD, arXiv:1706.02677, section 2.1 (linear scaling).
    """

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
    """Return the task on MNIST if it is available (DISTLEARN_DATA, or loaded before), else `digits_task`.

    Parameters
    ----------
    n_train, n_test : int
        Samples to use.
    **changes
        Other settings of the `Task`.
    """
    where = {found.name: found.origin for found in available()}
    if where.get("mnist") not in ("folder", "cache"):
        return digits_task(**changes)
    return Task(load("mnist").take(n_train, n_test), **changes)


def scenario_speeds(scenario: str, workers: int, seed: int = 0, seconds: float = 1.0) -> Speeds:
    """Return the speeds of a scenario of `SCENARIOS`.

    Parameters
    ----------
    scenario : str
    workers : int
    seed : int
    seconds : float
        Mean of a worker that is not a straggler [s].
    """
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
    """Train on a communicator of any world; return the run on rank 0.

    Parameters
    ----------
    comm : Communicator
    task : Task
    policy : Policy
    steps : int, optional
        Gradients of each worker, on average.
    seconds : float, optional
        Time after which no step begins [s].
    seed : int
        Of weights and samples.
    pace : callable, optional
        Extra seconds of each step.
    rate : Rate
    points : int
        Of the curve, about.
    servers : int
    rule : Rule, optional
        Of the servers; by default SGD with the task's momentum.
    start : dict of str to array, optional
        Parameters to begin with, by name: those of an earlier run.
    """
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
    """Train once on simulated ranks.

    Parameters
    ----------
    task : Task
    policy : Policy
    speeds : Speeds
        Of the workers; says how many there are.
    steps : int
        Gradients of each worker, on average.
    seed : int
        Of weights and samples.
    network : Network
    **options
        `rate`, `points`, `servers`, `seconds`, `rule`, `start`.

    Returns
    -------
    run : Run

    Examples
    --------
    >>> from distlearn.parallel.asynchronous.param_server import asp
    >>> run = run_policy(digits_task(), asp(), scenario_speeds("straggler", 8), steps=10)
    >>> run.updates, bool(run.staleness.max() > 7)
    (80, True)
    """
    world = SimWorld(speeds.workers + options.get("servers", 1), network)
    with (
        threadpool_limits(1),
        np.errstate(all="ignore"),
    ):  # small products are slower on several cores; runs may diverge
        return world.run(program, task, policy, steps=steps, seed=seed, pace=speeds, **options)[0]
