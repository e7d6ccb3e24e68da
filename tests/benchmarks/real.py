"""Real ranks with a straggler, compared with a simulation calibrated from their run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from distlearn.comm import Network
from distlearn.comm.base import ignore_report
from distlearn.comm.network.fit import MESSAGE_SIZES, fastest, line, ping_pong
from distlearn.data import Dataset, load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD
from distlearn.parallel.asynchronous.param_server import ParameterServer, Run, Speeds, asp, backup, bsp, ssp
from distlearn.sim import SimWorld

ON_FOUR = (bsp(), backup(0.75), ssp(1), ssp(4), asp())
"""For four real workers, one of them a backup."""


@dataclass(frozen=True)
class Task:
    """A small network, its data, and a learning rate *per gradient*."""

    # An update that is the mean of k gradients gets k times the rate (the linear scaling rule), so that every policy
    # adds up the same gradients with the same weight, and differs in nothing but staleness, waiting and drops.

    dataset: Dataset
    hidden: tuple[int, ...] = (32,)
    batch: int = 16
    lr: float = 0.05


def digits_task(**changes) -> Task:
    """Return the task on scikit-learn's 8 x 8 digits: always available, and fast."""
    return Task(load("digits"), **changes)


def program(comm, task: Task, policy, *, steps, seed=0, pace=None, points=25):
    """Train on a communicator of any world, each worker with `steps` gradients on average; return the run on rank 0."""
    workers = comm.size - 1
    quorum = policy.quorum(workers)
    server = ParameterServer(
        comm,
        MLP((task.dataset.n_features, *task.hidden, task.dataset.n_classes), seed=seed),
        SoftmaxCrossEntropy(),
        SGD(),
        task.lr * quorum,
        policy,
        pace=pace,
        every=max(1, steps * workers // quorum // points),
    )
    return server.train(task.dataset, batch_size=task.batch * workers, steps=steps, seed=seed)


def run_policy(task: Task, policy, speeds: Speeds, *, network=None, **options) -> Run:
    """Train once on simulated ranks; by default a message of 0.1 MB takes 2 ms, beside steps that take a second."""
    network = network or Network(alpha=1e-3, beta=1e8)
    world = SimWorld(speeds.workers + 1, network)
    with threadpool_limits(1):  # small products are slower on several cores
        return world.run(program, task, policy, pace=speeds, **options)[0]


@dataclass
class Pair:
    """The same training on real and on simulated ranks.

    Attributes
    ----------
    real, simulated : dict of str to Run
        By policy.
    network : Network
        The cost of a message between real ranks while they trained: beta from a ping-pong, alpha from the run.
    speeds : Speeds
        How long the real workers' steps took.
    """

    real: dict[str, Run]
    simulated: dict[str, Run]
    network: Network
    speeds: Speeds

    def ratios(self) -> dict[str, float]:
        """Return simulated / real gradients per second, by policy: 1 if the simulation is accurate."""
        return {
            name: (self.simulated[name].samples_per_second / run.samples_per_second) for name, run in self.real.items()
        }


def calibrate(trace, workers: int, seed: int = 0) -> Speeds:
    """Fit speeds to the spans of a real run: each worker's mean, and the variation of the steps.

    Parameters
    ----------
    trace : Trace
        With a span "gradient" for every step.
    workers : int
    seed : int
        Of the speeds that are returned.

    Returns
    -------
    speeds : Speeds
        Log-normal; the quickest worker's mean is `seconds`, the others' are in `slow`.

    Examples
    --------
    >>> from distlearn.trace import Span, Trace
    >>> spans = [Span(1, "compute", "gradient", t, t + 1.0) for t in range(5)]
    >>> spans += [Span(2, "compute", "gradient", t, t + 4.0) for t in range(0, 20, 4)]
    >>> calibrate(Trace(spans), 2)
    Speeds(2, 1 s, lognormal 0, slow={1: 4.0})
    """
    took = [np.array([s.seconds for s in trace.select(rank=1 + w, name="gradient")]) for w in range(workers)]
    for worker, seconds in enumerate(took):
        if not len(seconds):
            raise ValueError(f"calibrate: the trace has no span 'gradient' of worker {worker} (rank {1 + worker})")
    means = np.array([seconds.mean() for seconds in took])
    base = float(means.min())
    shape = float(np.median([np.log(seconds).std() for seconds in took]))
    slow = {w: float(mean / base) for w, mean in enumerate(means) if mean > base}
    return Speeds(workers, base, law="lognormal", shape=shape, slow=slow, seed=seed)


def real_beside_simulated(
    world, task: Task, *, pace: Speeds | None = None, policies=ON_FOUR, steps=40, seed=0, report=None
) -> Pair | None:
    """Train on real ranks, calibrate the simulator from the asynchronous run, and train there, too.

    Parameters
    ----------
    world : World
        Such as `EngineWorld(5)`: a server and four workers.
    task : Task
        Travels to the ranks.
    pace : Speeds, optional
        Delay added to every step; by default 20 ms, and 80 ms on worker 0, so that sleeping takes most of the
        time and ranks that share cores do not matter.
    policies : sequence of ASP
        ASP among them: the simulator is calibrated from its run, in which no worker waits.
    steps : int
        Gradients of each worker, on average.
    seed : int
    report : callable, optional

    Returns
    -------
    pair : Pair or None
        Under mpiexec on rank 0, and None elsewhere.
    """
    report, workers = report or ignore_report, world.size - 1
    pace = Speeds(workers, 0.02, slow={0: 4.0}, seed=seed) if pace is None else pace
    policies = sorted(policies, key=lambda policy: policy != asp())
    if not policies or policies[0] != asp():
        raise ValueError(
            f"real_beside_simulated: policies are {', '.join(map(str, policies))}, expected ASP among them"
        )
    network = Network(*line(np.array(MESSAGE_SIZES, float), fastest(world.run(ping_pong, MESSAGE_SIZES, 88)[0])))
    options = {"steps": steps, "seed": seed}
    real, trace = {}, None
    world.run(_on_one_thread, task, policies[0], pace=pace, **options | {"steps": 1})  # warm-up: lazy imports, caches
    for i, policy in enumerate(policies):
        real[str(policy)] = world.run(_on_one_thread, task, policy, pace=pace, **options)[0]
        trace = trace or world.trace  # that of the asynchronous run
        report(i + 1, len(policies), policy=str(policy))
    if world.rank:
        return None
    speeds = calibrate(trace, workers, seed)
    network = _slowed(network, trace, real[str(policies[0])])
    simulated = {str(policy): run_policy(task, policy, speeds, network=network, **options) for policy in policies}
    return Pair(real, simulated, network, speeds)


def _slowed(network: Network, trace, run: Run) -> Network:
    """Raise the latency until an exchange takes as long as in a run: servers that wait for a core answer late.

    An exchange is a message each way, one after the other.
    """
    took = float(np.median([span.seconds for span in trace.select(name="exchange")]))
    nbytes = sum(value.nbytes for value in run.params.values())
    return Network(max(network.alpha, took / 2 - nbytes / network.beta), network.beta)


def _on_one_thread(comm, task, policy, **options):
    """Train with one BLAS thread per rank."""
    with threadpool_limits(1):
        return program(comm, task, policy, **options)
