"""The server's side: it applies the policy to every message, makes the updates, and replies to the workers.

    worker:   gradient, Push ---> server:  PolicyState.arrive, perhaps an update ---> a reply to every worker released

It cannot deadlock. The server blocks in two places only: while no message has arrived, and while it receives an array
whose send began before the message that announced it. It replies by `isend` to workers that posted the receive before
they asked. So it comes back to its `recv_obj`, and the policy's state ensures that not all workers wait.

Where workers can be lost (`SimWorld(failures=...)`), the server receives a report of the loss instead of a message: it
treats the worker as if it had left, so none waits for it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ....comm.base import PeerLostError
from ....comm.calls import ANY
from ....optim.optimizer import apply_rule, needs_whole
from .policy import PolicyState


class Push(NamedTuple):
    """From a worker: a gradient, which follows as an array."""

    worker: int
    step: int
    used: int
    rows: int
    loss: float


class Leave(NamedTuple):
    """From a worker: its last message."""

    worker: int


class Arrived(NamedTuple):
    """A gradient that waits for its update."""

    push: Push
    time: float
    gradient: np.ndarray


def make_reply(n: int, dtype) -> np.ndarray:
    """Return memory for the reply to a worker, one record: the header and n parameters in one message."""
    return np.zeros(1, [("version", "i8"), ("go", "i8"), ("params", dtype, (n,))])


class Snapshot(NamedTuple):
    """The parameters at some version."""

    version: int
    time: float
    params: np.ndarray


class Server:
    """The parameters, with the optimizer's state for them (velocities are kept here), the policy, and the messages."""

    def __init__(self, comm, params, rule, lr, policy, rate, every: int):
        if needs_whole(rule):
            name = type(rule).__name__
            raise ValueError(f"parameter server: {name} needs whole parameters, but the server holds one flat array")
        self.comm, self.clock, self.params, self.rule, self.lr = comm, comm.clock, params, rule, lr
        self.rate, self.every = rate, every
        self.policy_state = PolicyState(policy, comm.size - 1)
        self.state = rule.init(params)
        self.snapshots: list[Snapshot] = []
        self.log: list[tuple] = []  # rows of `run.GRADIENT`, as gradients are applied or dropped
        self.diverged, self.lost = False, 0
        self._given = comm.size - 1  # steps: every worker's first
        self._stopped: set[int] = set()  # workers that may not start another step
        self._held: dict[tuple[int, int], Arrived] = {}  # by worker and step, until applied
        self._sent = {}  # worker -> the reply in progress

    def serve(self, max_gradients: float, seconds: float) -> None:
        """Serve until every worker has left."""
        self.began = self.clock.now()
        self._until, self._max_gradients = self.began + seconds, max_gradients
        self.snapshots.append(Snapshot(0, self.began, self.params.copy()))
        while self.policy_state.active:
            self._receive()
        for work in self._sent.values():
            with suppress(PeerLostError):
                work.wait()

    def _receive(self) -> None:
        """Receive the next message, with its gradient, or the report that workers are lost; treat it."""
        state = self.policy_state
        try:
            message = self.comm.recv_obj(ANY)
            if isinstance(message, Push):
                if message.worker in self._sent:  # returns at once: a worker that sends again has received the reply
                    self._sent.pop(message.worker).wait()
                gradient = self.comm.recv(np.empty_like(self.params), 1 + message.worker)
        except PeerLostError as error:
            now = self.clock.now()
            for worker in (rank - 1 for rank in error.ranks):
                if worker in state.active:
                    if worker not in self._stopped:
                        self.lost += 1
                        self._given -= not state.waits(worker)  # another worker may do the step that it was computing
                    self._apply(state.leave(worker), now)
            return
        now = self.clock.now()
        if message.worker not in state.active:  # its loss was known before this message arrived
            return
        if isinstance(message, Leave):
            self._apply(state.leave(message.worker), now)
            return
        worker, step, used, rows, loss = message
        decision = state.arrive(worker, used)
        if decision.taken:
            self._held[worker, step] = Arrived(message, now, gradient)
        else:
            self.log.append((worker, step, used, 0, decision.staleness, rows, now, now, loss, 0.0))
        self.diverged |= not math.isfinite(loss)
        self._apply(decision, now)

    def _apply(self, decision, now: float) -> None:
        """Make the update that the policy decided, if any, and send the parameters to the workers it released."""
        reply, version = None, self.policy_state.version
        if decision.merged:
            self._update([self._held.pop((merged.worker, merged.step)) for merged in decision.merged], version, now)
        for worker in decision.released:  # each may do one more step, unless the run is over or no step is left
            go = not self.diverged and now < self._until and self._given < self._max_gradients
            self._given += go
            if not go:
                self._stopped.add(worker)
            if reply is None or reply["go"] != go:
                reply = make_reply(self.params.size, self.params.dtype)
                reply["version"], reply["go"], reply["params"] = version, go, self.params
            self._sent[worker] = self.comm.isend(reply.view(np.uint8), 1 + worker)

    def _update(self, held: list[Arrived], version: int, now: float) -> None:
        """Make the update of some gradients, weighed by their samples, and by their staleness."""
        rows = sum(push.rows for push, *_ in held)
        loss = sum(push.rows * push.loss for push, *_ in held) / rows if rows else math.nan
        for push, arrived, gradient in held:
            staleness = version - 1 - push.used
            factor = self.rate(staleness, version - 1)
            if len(held) > 1 or factor != 1.0:
                share = push.rows / max(1, rows) if len(held) > 1 else 1.0
                gradient *= gradient.dtype.type(factor * share)
            row = push.worker, push.step, push.used, version, staleness, push.rows, arrived, now, push.loss, factor
            self.log.append(row)
        end = len(self.log) if self._max_gradients == math.inf else self._max_gradients
        self.comm.report(len(self.log), end, loss=loss, version=version)
        total, *others = (one.gradient for one in sorted(held, key=lambda one: one.push.worker))  # not as they arrived
        for gradient in others:
            total += gradient
        moved = (len(held) + 2) * self.params.nbytes
        with self.clock.span("update", flops=2 * len(held) * self.params.size, nbytes=moved):
            apply_rule(self.rule, self.params, total, self.state, self.lr(version - 1), version - 1)
        if self.every and version % self.every == 0:
            self.snapshots.append(Snapshot(version, self.clock.now(), self.params.copy()))
