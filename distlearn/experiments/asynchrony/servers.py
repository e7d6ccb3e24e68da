"""Try a parameter server from another author: on a problem whose answer is known, and on the digits.

A server is a function `train(comm, w, gradient, lr, steps)`: rank 0 serves and returns its log of `("pull", worker)`
and `("push", worker)`, all other ranks work.
"""

from __future__ import annotations

import numpy as np

from ...comm import Network
from ...data import load
from ...nn import MLP, SoftmaxCrossEntropy
from ...parallel.asynchronous.param_server.worker import FlatModel
from ...sim import Roofline, SimWorld

FAST = Network(alpha=2e-6, beta=10e9)
"""So quick that messages hardly matter beside the gradients."""


def try_server(train, size: int, steps: int, *, lr=0.1, slow=None, d=4, seed=3):
    """Run a server on a problem whose answer its log gives away: every worker has a target of its own.

    The gradient of worker r in step k is (k + 1) (w - t_r). The server begins with ones, a worker with zeros.

    Parameters
    ----------
    train : callable
    size, steps : int
        Ranks; steps of each worker.
    lr : float
    slow : dict of int to float, optional
        By rank: how many times as long its gradients take.
    d : int
        Weights.
    seed : int
        Of the targets.

    Returns
    -------
    targets : (size, d) array
    ranks : list of (w, log, asked)
        By rank: the weights, what `train` returned, and for which steps it asked for a gradient.
    """
    targets = np.random.default_rng(seed).normal(size=(size, d))

    def on_rank(comm):
        w, asked = np.ones(d) if comm.rank == 0 else np.zeros(d), []

        def gradient(w, step):
            with comm.clock.span("gradient", flops=1e6):
                asked.append(step)
                return (w - targets[comm.rank]) * (1 + step)

        log = train(comm, w, gradient, lr, steps)
        return w, log, asked

    return targets, SimWorld(size, Network(alpha=20e-6, beta=1e9), Roofline(1e9), slowdown=slow).run(on_rank)


def replay(targets, log, lr: float, *, late: bool = False, steps: bool = True) -> np.ndarray:
    """Work out which weights a log of `try_server` must lead to.

    Parameters
    ----------
    targets : (size, d) array
    log : list of (str, int)
        Without fault: see `check_log`.
    lr : float
    late : bool
        Take each step from the weights that its worker had pulled, as a server must not.
    steps : bool
        False: as if every gradient were one of step 0.

    Returns
    -------
    w : (d,) array
    """
    w, pulled, step = np.ones(targets.shape[1]), {}, dict.fromkeys(range(len(targets)), -1 if steps else 0)
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = w.copy()
        else:
            k = step[worker] = step[worker] + steps
            w = (pulled[worker] if late else w) - lr * (pulled[worker] - targets[worker]) * (1 + k)
    return w


def check_log(log, workers: int, steps: int) -> str:
    """Say what is wrong with a server's log, in a sentence; "" if nothing is.

    Examples
    --------
    >>> check_log([("push", 1), ("pull", 1)], workers=1, steps=1)
    'worker 1 pushes before it has pulled for the first time: pull, compute, push, in this order'
    """
    if not isinstance(log, list):
        return f"the server returns {type(log).__name__}, expected its log, a list: is `return log` after the loop?"
    for entry in log:
        if not (isinstance(entry, (tuple, list)) and len(entry) == 2 and entry[0] in ("pull", "push")):
            return f'the log has {entry!r:.40}, expected pairs such as ("pull", 1)'
    pulled = set()
    for kind, worker in log:
        if kind == "push" and worker not in pulled:
            if ("pull", worker) not in map(tuple, log):
                return f"the log has pushes of worker {worker}, but no pull: log both, as they arrive"
            return f"worker {worker} pushes before it has pulled for the first time: pull, compute, push, in this order"
        pulled.add(worker)
    for worker in range(1, workers + 1):
        counts = [sum(tuple(entry) == (kind, worker) for entry in log) for kind in ("pull", "push")]
        if counts != [steps, steps]:
            told = f"{counts[0]} pulls and {counts[1]} pushes of worker {worker}, expected {steps} of each"
            return f"the log has {told}: every message of every step must be received and logged"
    return ""


def judge_server(check, train, size: int, steps: int, *, lr=0.1, slow=None, d=4, seed=3) -> None:
    """Try a server, and add to a lab's check what its log, its weights and its workers must be.

    Parameters
    ----------
    check : Check
    train, size, steps, lr, slow, d, seed
        For `try_server`.
    """
    targets, ranks = try_server(train, size, steps, lr=lr, slow=slow, d=d, seed=seed)
    (w, log, _), *workers = ranks
    of = f"{len(workers)} worker{'s' * (size > 2)}, {steps} steps"
    check.true(f"workers return None, {of}", all(r[1] is None for r in workers), "rank 0 returns the log")
    fault = check_log(log, size - 1, steps)
    check.true(f"log, {of}", not fault, fault)
    if fault:
        return
    wrong = {
        "not updated, or not in place: `w -= ...` changes the array itself": np.ones(d),
        "uphill: the gradient should be subtracted": replay(targets, log, -lr),
        "the server steps from the weights that the worker had pulled, not from its newest": replay(
            targets, log, lr, late=True
        ),
        "the gradients are of step 0 in every step": replay(targets, log, lr, steps=False),
        "a worker computes at zeros: take the gradient at the weights received": _at_zeros(targets, log, lr),
    }
    if size > 2:
        wrong["every push is a whole step, not a share of one"] = replay(targets, log, lr / (size - 1))
    check.close(f"weights, {of}", w, replay(targets, log, lr), rtol=1e-10, suspects=wrong)
    check.equal(f"steps asked for, {of}", [asked for _, _, asked in workers], [list(range(steps))] * (size - 1))
    others = [rank for rank in range(1, size) if rank not in (slow or {})]
    for rank, factor in (slow or {}).items():
        before = log[: log.index(("push", rank))]
        quick, wanted = min(before.count(("push", other)) for other in others), min(steps, int(factor)) - 1
        told = f"before its first push another worker pushed {quick} times, expected {wanted} or more: "
        check.true(f"no worker waits for rank {rank}, {of}", quick >= wanted, told + "serve whichever comes first")


def _at_zeros(targets, log, lr: float) -> np.ndarray:
    """Work out the weights if every gradient were computed at zeros."""
    w, step = np.ones(targets.shape[1]), {}
    for kind, worker in log:
        if kind == "push":
            k = step[worker] = step.get(worker, -1) + 1
            w = w + lr * targets[worker] * (1 + k)
    return w


def train_digits(comm, train, lr: float, steps: int, *, seed: int = 0, pause: dict[int, float] | None = None):
    """Train a network on the digits with a server; on rank 0 the weights and the log, on a worker (time, loss) pairs.

    Parameters
    ----------
    comm : Communicator
    train : callable
        Gets all parameters as one flat array.
    lr : float
    steps : int
        Of each worker, on 32 samples each.
    seed : int
        Of the weights; with the rank, of the samples.
    pause : dict of int to float, optional
        By rank: how long it sleeps in every step [s].
    """
    digits, loss, flat = load("digits", dtype="float64"), SoftmaxCrossEntropy(), FlatModel(make_model(seed))
    rng, seen = np.random.default_rng([seed, comm.rank]), []

    def gradient(w, step):
        rows = rng.integers(0, len(digits.x_train), 32)
        with comm.clock.span("gradient", flops=flat.flops((32, 64))):
            if pause:
                comm.clock.sleep(pause[comm.rank])
            flat.load(w)
            seen.append((comm.clock.now(), flat.gradient(digits.x_train[rows], digits.y_train[rows], loss)))
        return flat.grad.copy()

    log = train(comm, flat.data, gradient, lr, steps)
    return (flat.data, log) if comm.rank == 0 else seen


def make_model(seed: int = 0):
    """Return the network of `train_digits`, with 32 hidden units."""
    return MLP((64, 32, 10), seed=seed, dtype="float64")


def run_digits(train, workers: int, lr: float, *, gradients: int = 800, seed: int = 0):
    """Run `train_digits` on simulated workers, equally fast but for 20 %.

    Returns
    -------
    w : (n,) array
    log : list of (str, int)
    losses : (gradients,) array
        In the order of time.
    """
    world = SimWorld(workers + 1, FAST, Roofline(1e9), jitter=0.2, seed=seed)
    with np.errstate(all="ignore"):  # it may diverge
        (w, log), *seen = world.run(train_digits, train, lr, gradients // workers, seed=seed)
    return w, log, np.array([loss for _, loss in sorted(point for one in seen for point in one)])


def run_digits_synchronous(workers: int, lr: float, *, gradients: int = 800, seed: int = 0):
    """Train as `run_digits` does, but synchronously: the mean of the workers' gradients at `workers` times the rate.

    Every gradient counts as much as there, and none is stale: the control.

    Returns
    -------
    w : (n,) array
    losses : (gradients,) array
    """
    digits, loss, flat = load("digits", dtype="float64"), SoftmaxCrossEntropy(), FlatModel(make_model(seed))
    draws, losses = [np.random.default_rng([seed, rank]) for rank in range(1, workers + 1)], []
    with np.errstate(all="ignore"):
        for _ in range(gradients // workers):
            total = np.zeros_like(flat.data)
            for rng in draws:
                rows = rng.integers(0, len(digits.x_train), 32)
                losses.append(flat.gradient(digits.x_train[rows], digits.y_train[rows], loss))
                total += flat.grad
            flat.data -= lr * workers * (total / workers)
    return flat.data, np.array(losses)


def active_units(w) -> int:
    """Count the hidden units of `train_digits`' network that are above zero for at least one training digit."""
    x = load("digits", dtype="float64").x_train
    with np.errstate(all="ignore"):
        return int((x @ w[:2048].reshape(64, 32) + w[2048:2080] > 0).any(axis=0).sum())
