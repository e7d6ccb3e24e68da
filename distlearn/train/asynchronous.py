"""Asynchronous methods, whose ranks do not wait for one another; their record is converted to a history."""

from __future__ import annotations

import re

import numpy as np

from ..data import Batches
from ..parallel import ParameterServer, asp, backup, bsp, softsync, ssp
from ..parallel.asynchronous.param_server import ASP, RATES, Run
from .fit import DivergedError, why_not_finite
from .history import Epoch, History

_POLICIES = {"bsp": bsp, "asp": asp, "ssp": ssp, "softsync": softsync, "backup": backup}
POLICIES = ("bsp()", "asp()", "ssp(bound)", "softsync(splits)", "backup(share)")
"""How the policies of a parameter server are written."""
STALENESS_RATES = tuple(RATES)
"""How staleness may change the learning rate, by name."""


def make_policy(text: str) -> ASP:
    """Parse the name of a policy."""
    found = re.fullmatch(r"(\w+)(?:\(([\d.]*)\))?", text.strip()) if isinstance(text, str) else None
    if found is None or found[1] not in _POLICIES:
        raise ValueError(f"{text!r} is not a policy")
    number = found[2] or ""
    arguments = [float(number) if "." in number else int(number)] if number else []
    return _POLICIES[found[1]](*arguments)


ASYNCHRONOUS = ("param_server",)
"""Names of the strategies whose ranks do not wait for one another."""


def updates_per_step(settings, size: int) -> float:
    """Return how many updates are made while every worker computes one gradient, as schedules count updates."""
    if settings.strategy not in ASYNCHRONOUS:
        return 1.0
    policy, workers = make_policy(settings.policy), max(1, size - 1)
    return 1.0 if policy.waits else workers / policy.quorum(workers)


def train_asynchronously(comm, settings, dataset, model, loss, rule, lr) -> tuple[History, dict | None]:
    """Train with a parameter server."""
    # Workers take as many steps on average as an epoch has batches, times the epochs; faster workers take more.
    batches = len(Batches(dataset.x_train, dataset.y_train, settings.batch_size))
    updates = updates_per_step(settings, comm.size) * batches  # in an epoch
    stride = min(settings.evaluate_every or settings.epochs, settings.epochs)
    rate, every = RATES[settings.staleness_rate], max(1, int(stride * updates))
    server = ParameterServer(comm, model, loss, rule, lr, make_policy(settings.policy), rate=rate, every=every)
    run = server.train(dataset, batch_size=settings.batch_size, steps=settings.epochs * batches, seed=settings.seed)
    if run is None:
        return History(), None
    if run.diverged:
        bad = run.gradients[~np.isfinite(run.gradients["loss"])]
        why = why_not_finite(dataset, bool((bad["used"] == 0).any()))
        raise DivergedError(f"the loss is not finite after {run.updates} updates: {why}")
    return history_of(run, updates, loss.metric.name), run.params


def history_of(run: Run, updates: float, metric: str) -> History:
    """Convert a record to a history, with an epoch of `updates` updates for every point of its curve."""
    applied, history, before = run.applied, History(), 0
    history.losses = run.losses.tolist()
    for point in run.curve[1:]:
        until = applied["version"] <= point["version"]
        new = applied[until & (applied["version"] > before)]
        loss = float(np.average(new["loss"], weights=new["rows"])) if new["rows"].sum() else float("nan")
        samples, before = int(applied[until]["rows"].sum()), point["version"]
        value = float(point[f"test_{metric}"])
        epoch = max(1, round(point["version"].item() / updates))
        history.epochs.append(Epoch(epoch, float(point["time"]), samples, loss, test=value, metric=metric))
    return history
