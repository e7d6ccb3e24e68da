"""The servers' side: the first server decides about every arrival, and all servers execute its commands in one order.

    worker:        gradient, Push ------------------------> all servers
    first server:  PolicyState.arrive -> Command ---------> the other servers
    each server:   keep the gradient, update its share ---> a reply to every worker that the command releases

It cannot deadlock. A server blocks in two places only: while no message has arrived, and while it receives an
array whose send began before the message that announced it. It replies by `isend` to workers that posted the receive
before they asked; and the first server's commands go to servers that do nothing but receive. So every server
comes back to its `recv_obj`, and the policy's state ensures that not all workers wait.

Where workers can be lost (`SimWorld(failures=...)`), a server receives a report of the loss instead of a message: the
coordinator treats the worker as if it had left, so none waits for it; a gradient that only some of the servers received
counts as zeros on the others. The loss of a server raises.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ....comm.base import PeerLostError
from ....comm.calls import ANY
from ....optim.optimizer import apply_rule, needs_whole
from .policy import PolicyState


class Push(NamedTuple):
    """From a worker to every server: a gradient; this server's share of it follows as an array."""

    worker: int
    step: int
    used: int
    rows: int
    loss: float


class Leave(NamedTuple):
    """From a worker to the first server: its last message."""

    worker: int


class Lost(NamedTuple):
    """Received instead of a message when workers are lost."""

    workers: tuple[int, ...]


class Command(NamedTuple):
    """From the first server to the others: how to treat an arrival. All execute the same commands, in order.

    Then all shares have the same version at all times, and the results do not depend on the number of servers.
    """

    arrived: int | None  # the worker whose gradient this is about; None where one left
    step: int
    taken: bool
    merged: tuple[tuple[int, int, float], ...]  # (worker, step, weight) of the gradients that make the new version
    version: int  # after the command
    released: tuple[tuple[int, bool], ...]  # (worker, continue?): the workers that get the parameters now
    end: bool  # whether this is the last command


def make_reply(n: int, dtype) -> np.ndarray:
    """Return memory for a server's reply to a worker, one record: the header and n parameters in one message."""
    return np.zeros(1, [("version", "i8"), ("go", "i8"), ("share", dtype, (n,))])


class Snapshot(NamedTuple):
    """A share of the parameters at some version."""

    version: int
    time: float
    share: np.ndarray


class Coordinator:
    """Decides, on the first server: applies the policy, and turns arrivals into commands."""

    def __init__(self, clock, report, workers: int, policy, rate, max_gradients: float, seconds: float):
        self.clock, self.report, self.rate = clock, report, rate
        self.policy_state = PolicyState(policy, workers)
        self.log: list[tuple] = []  # rows of `run.GRADIENT`, as gradients are applied or dropped
        self._held: dict[tuple[int, int], tuple] = {}  # (worker, step) -> push and time of arrival, until applied
        self.began = clock.now()
        self._until, self._max_gradients = self.began + seconds, max_gradients
        self._given = workers  # every worker's first step
        self._stopped: set[int] = set()  # workers that may not start another step
        self.diverged, self.lost = False, 0

    def decide(self, message: Push | Leave | Lost) -> Iterator[Command]:
        """Turn a message into commands: one for every worker that it is about and that is still in training."""
        state, now = self.policy_state, self.clock.now()
        for worker in message.workers if isinstance(message, Lost) else (message.worker,):
            if worker not in state.active:  # its loss was known before this message arrived
                continue
            if not isinstance(message, Push):
                if isinstance(message, Lost) and worker not in self._stopped:
                    self.lost += 1
                    self._given -= not state.waits(worker)  # another worker may do the step that it was computing
                yield self._command(None, 0, state.leave(worker)._replace(taken=False), now)
                continue
            step, used, rows, loss = message[1:]
            decision = state.arrive(worker, used)
            if decision.taken:
                self._held[worker, step] = message, now
            else:
                self.log.append((worker, step, used, 0, decision.staleness, rows, now, now, loss, 0.0))
            self.diverged |= not math.isfinite(loss)
            yield self._command(worker, step, decision, now)

    def _command(self, arrived, step, decision, now: float) -> Command:
        merged, released = self._weigh(decision.merged, now) if decision.merged else (), []
        for worker in decision.released:  # each may do one more step, unless the run is over or no step is left
            go = not self.diverged and now < self._until and self._given < self._max_gradients
            self._given += go
            if not go:
                self._stopped.add(worker)
            released.append((worker, go))
        state = self.policy_state
        return Command(arrived, step, decision.taken, merged, state.version, tuple(released), not state.active)

    def _weigh(self, merged, now: float):
        """Weigh the gradients of an update by their samples, and by their staleness."""
        version, weighed = self.policy_state.version, []
        held = [self._held.pop((gradient.worker, gradient.step)) for gradient in merged]
        rows = sum(push.rows for push, _ in held)
        loss = sum(push.rows * push.loss for push, _ in held) / rows if rows else math.nan
        for push, arrived in held:
            staleness = version - 1 - push.used
            factor = self.rate(staleness, version - 1)
            share = push.rows / max(1, rows) if len(held) > 1 else 1.0
            weighed.append((push.worker, push.step, factor * share))
            row = push.worker, push.step, push.used, version, staleness, push.rows, arrived, now, push.loss, factor
            self.log.append(row)
        total = len(self.log) if self._max_gradients == math.inf else self._max_gradients
        self.report(len(self.log), total, loss=loss, version=version)
        return tuple(weighed)


class Server:
    """A share of the parameters, with the optimizer's state for it (velocities are kept here), and its messages."""

    def __init__(self, comm, servers: int, share, rule, lr, every: int):
        if needs_whole(rule):
            name = type(rule).__name__
            raise ValueError(f"parameter server: {name} needs whole parameters, but each server holds a shard")
        self.comm, self.servers = comm, servers
        self.share, self.rule, self.lr, self.every = share, rule, lr, every
        self.state = rule.init(share)
        self.snapshots: list[Snapshot] = []
        self._arrived: dict[int, np.ndarray] = {}  # by worker: its gradient; it sends no other before the reply
        self._kept: dict[tuple[int, int], np.ndarray] = {}  # (worker, step) -> gradient that waits for its update
        self._lost: set[int] = set()
        self._sent = {}  # worker -> the reply in progress

    def serve(self, coordinator: Coordinator | None) -> None:
        """Serve until every worker has left; the first server has the coordinator, the others get its commands."""
        self.snapshots.append(Snapshot(0, self.comm.clock.now(), self.share.copy()))
        commands: deque[Command] = deque()
        ended = False
        while not ended:
            message = self._receive()
            if coordinator is not None:
                for command in coordinator.decide(message):
                    commands.append(command)
                    for server in range(1, self.servers):
                        self.comm.send_obj(command, server)
            elif isinstance(message, Command):
                commands.append(message)
            while commands:
                worker = commands[0].arrived
                if not (worker is None or worker in self._arrived or worker in self._lost):
                    break  # its gradient has reached the first server, and has yet to reach this one
                command = commands.popleft()
                self._execute(command)
                self._reply(command)
                ended = command.end
        for work in self._sent.values():
            with suppress(PeerLostError):
                work.wait()

    def _receive(self) -> Push | Leave | Command | Lost:
        """Receive the next message, with its gradient, or the report that workers are lost."""
        try:
            message = self.comm.recv_obj(ANY)
            if isinstance(message, Push):
                if message.worker in self._sent:  # returns at once: a worker that sends again has received the reply
                    self._sent.pop(message.worker).wait()
                gradient = self.comm.recv(np.empty_like(self.share), self.servers + message.worker)
                self._arrived[message.worker] = gradient
            return message
        except PeerLostError as error:
            if min(error.ranks) < self.servers:
                raise
            workers = tuple(rank - self.servers for rank in error.ranks)
            self._lost.update(workers)
            return Lost(workers)

    def _execute(self, command: Command) -> None:
        """Keep or drop a gradient, and make the update if there is one."""
        gradient = self._arrived.pop(command.arrived, None)
        if command.taken:
            lost = gradient is None  # its worker was lost after the gradient had reached the first server
            self._kept[command.arrived, command.step] = np.zeros_like(self.share) if lost else gradient
        if not command.merged:
            return
        total = self._mean(command.merged)
        n = len(command.merged)
        with self.comm.clock.span("update", flops=2 * n * self.share.size, nbytes=(n + 2) * self.share.nbytes):
            step = command.version - 1
            apply_rule(self.rule, self.share, total, self.state, self.lr(step), step)
        if self.every and command.version % self.every == 0:
            self.snapshots.append(Snapshot(command.version, self.comm.clock.now(), self.share.copy()))

    def _mean(self, merged):
        """Add weighted gradients up in the order of workers, whatever order they arrived in."""
        total = None
        for worker, step, weight in sorted(merged):
            gradient = self._kept.pop((worker, step))
            if len(merged) > 1 or weight != 1.0:
                gradient *= gradient.dtype.type(weight)
            total = gradient if total is None else np.add(total, gradient, out=total)
        return total

    def _reply(self, command: Command) -> None:
        """Send the parameters to all workers that the command releases."""
        reply = None
        for worker, go in command.released:
            if reply is None or reply["go"] != go:
                reply = make_reply(self.share.size, self.share.dtype)
                reply["version"], reply["go"], reply["share"] = command.version, go, self.share
            self._sent[worker] = self.comm.isend(reply.view(np.uint8), self.servers + worker)
