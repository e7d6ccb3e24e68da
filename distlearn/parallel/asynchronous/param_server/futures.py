"""A parameter server without a communicator: it submits steps as calls, and collects the results as they complete.

For clusters without MPI: plain ipyparallel engines, a pool of processes or of threads. The caller is the server;
policies, rates and records are those of `ParameterServer`. Every step passes through the caller, so this is for a
handful of workers whose steps take longer than a message of the model's size.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from concurrent.futures import FIRST_COMPLETED, wait

import numpy as np

from ....comm.protocol import CommError, RankError, ignore_report
from ....optim.schedules import as_schedule
from ....trace import WallClock
from .coordinator import Coordinator
from .learning_rate import constant
from .messages import Push
from .run import Run, make_run
from .server import ParamShard
from .training import check_end, check_parts
from .worker import FlatModel, endless_batches


def train_on_futures(
    submit,
    workers: int,
    setup,
    rule,
    lr,
    policy,
    *,
    batch_size: int,
    steps: int | None = None,
    seconds: float = math.inf,
    seed: int = 0,
    rate=constant,
    pace=None,
    every: int = 0,
    probe: int = 1000,
    lost=None,
    report=None,
) -> Run:
    """Train on workers that are called with `submit(worker, fn, *args)`.

    Parameters
    ----------
    submit : callable
        Calls `fn(*args)` on that worker, always the same one; returns a `concurrent.futures.Future`. For ipyparallel
        `lambda worker, fn, *args: client[worker].apply_async(fn, *args)`.
    workers : int
    setup : callable
        Returns (model, loss, dataset). Called once on every worker, and once here.
    rule, lr, policy, rate, pace, every
        See `ParameterServer`.
    batch_size, steps, seconds, seed, probe
        See `ParameterServer.train`.
    lost : callable, optional
        `lost(exception) -> bool`: whether a call failed because its worker is lost. Training then goes on without
        it, and `run.notes["lost"]` names it. Any other failure ends the training.
    report : callable, optional
        Gets `report(gradients so far, gradients in all, loss=, version=)`.

    Returns
    -------
    run : Run

    Raises
    ------
    RankError
        If a call failed: `rank` is the worker.
    CommError
        If all workers are lost.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from distlearn import data, nn, optim
    >>> from distlearn.parallel.asynchronous.param_server import ssp
    >>> pools = [ThreadPoolExecutor(1) for _ in range(3)]
    >>> make = lambda: (nn.MLP((64, 16, 10)), nn.SoftmaxCrossEntropy(), data.load("digits"))
    >>> run = train_on_futures(
    ...     lambda worker, fn, *args: pools[worker].submit(fn, *args),
    ...     3, make, optim.SGD(), 0.1, ssp(2), batch_size=30, steps=4,
    ... )
    >>> run.updates, run.dropped
    (12, 0)
    """
    check_end("train_on_futures", steps, seconds)
    check_parts("train_on_futures", policy, rate, every)
    model, loss, dataset = setup()
    flat = FlatModel(model)
    shard = ParamShard(flat.data, rule, as_schedule(lr, "train_on_futures"), every)
    total_steps = None if steps is None else steps * workers
    clock = WallClock()
    coordinator = Coordinator(clock, report or ignore_report, workers, policy, rate, total_steps, seconds)
    shard.take_snapshot(0, clock.now())
    job = (uuid.uuid4().hex, setup, workers, batch_size, seed, pace)
    calls = _Calls(submit, job, flat.data)
    for worker in range(workers):
        calls.start(worker, coordinator.policy_state)
    lost_workers = []
    while calls.pending:
        for call in calls.ended():
            commands = _account_for(call, coordinator, shard, clock, lost, lost_workers)
            for worker, go in itertools.chain.from_iterable(command.released for command in commands):
                if go:
                    calls.start(worker, coordinator.policy_state)
    if len(lost_workers) == workers:
        raise CommError(
            f"train_on_futures: all {workers} workers are lost, after {coordinator.policy_state.version} updates"
        )
    run = make_run(coordinator, flat, [(shard.share.copy(), shard.snapshots)], dataset, loss, probe)
    run.notes["lost"] = lost_workers
    return run


class _Calls:
    """Steps in progress."""

    def __init__(self, submit, job, values):
        self._submit, self._job, self._values = submit, job, values
        self.pending = {}  # future -> (worker, step, used)

    def start(self, worker: int, policy_state) -> None:
        """Submit a worker's next step, at the current parameters."""
        step = policy_state.clocks[worker]
        future = self._submit(worker, compute, self._job, worker, step, self._values.copy())
        self.pending[future] = (worker, step, policy_state.version)

    def ended(self):
        """Wait for one at least; return those that have ended as (worker, step, used, future)."""
        done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
        return sorted(((*self.pending.pop(future), future) for future in done), key=lambda call: call[0])


def _account_for(call, coordinator: Coordinator, shard: ParamShard, clock, lost, lost_workers: list):
    """Account for a call that has ended; return the commands that follow."""
    worker, step, used, future = call
    error = future.exception()
    if error is None:
        gradient, rows, loss = future.result()
        commands = [coordinator.handle_push(Push(worker, step, used, rows, loss))]
        shard.apply(commands[0], np.array(gradient), clock)  # arrays from a message may be read-only
    elif lost is not None and lost(error):
        lost_workers.append(worker)
        commands = [coordinator.handle_leave(worker)]
        shard.apply(commands[0], None, clock)
    else:
        raise RankError(worker, f"{type(error).__name__}: {error}", original=error) from error
    for command in commands:  # grows: a worker that may not continue leaves, which may release others
        for who, go in command.released:
            if not go:
                commands.append(coordinator.handle_leave(who))
                shard.apply(commands[-1], None, clock)
    return commands


# -- on the worker ----------------------------------------------------------------------------------------------------

_jobs: dict = {}
"""What a worker keeps from one call to the next, by job and worker."""


def compute(job, worker: int, step: int, values):
    """Compute the gradient of a worker's next batch at `values`; return (gradient, rows, loss)."""
    key, setup, workers, batch_size, seed, pace = job
    if (key, worker) not in _jobs:
        model, loss, dataset = setup()
        batches = endless_batches(dataset, batch_size, worker, workers, seed)
        for old in [k for k in _jobs if k[0] != key and k[1] == worker]:
            del _jobs[old]
        _jobs[key, worker] = FlatModel(model), loss, batches
    flat, loss, batches = _jobs[key, worker]
    batch = next(batches)
    flat.load(values)
    value = flat.gradient(batch.x, batch.y, loss)
    if pace is not None:
        time.sleep(pace(worker, step))
    return flat.grad.copy(), len(batch.x), value
