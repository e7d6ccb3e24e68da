"""The servers' side: a loop that receives, does what the coordinator commands, and replies.

It cannot deadlock. A server blocks in two places only: while no message has arrived, and while it receives an
array whose send began before the message that announced it. It replies by `isend` to workers that posted the receive
before they asked; and the coordinator's commands go to servers that do nothing but receive. So every server
comes back to its `recv_obj`, and the policy's state ensures that not all workers wait.

Where workers can be lost (`FaultTolerant` communicators), a server is told so instead of receiving a message: the
coordinator treats the worker as if it had left, so none waits for it; a gradient that only some of the servers received
counts as zeros on the others. The loss of a server raises.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from ....comm.base import ANY, PeerLostError
from ....optim.optimizer import apply_rule, needs_whole
from .coordinator import Coordinator
from .messages import Command, Lost, Push, Reply


class Snapshot(NamedTuple):
    """A share of the parameters at some version."""

    version: int
    time: float
    share: np.ndarray


class ParamShard:
    """A share of the parameters, with the optimizer's state for it: velocities are kept here."""

    def __init__(self, share, rule, lr, every: int = 0):
        if needs_whole(rule):
            name = type(rule).__name__
            raise ValueError(f"parameter server: {name} looks at whole parameters, but a server has only a share")
        self.share, self.rule, self.lr, self.every = share, rule, lr, every
        self.state = rule.init(share)
        self.snapshots: list[Snapshot] = []
        self._kept: dict[tuple[int, int], np.ndarray] = {}  # (worker, step) -> gradient
        self._spare: list[np.ndarray] = []
        self._reply: tuple | None = None

    def buffer(self) -> np.ndarray:
        """Return memory to receive a gradient into."""
        return self._spare.pop() if self._spare else np.empty_like(self.share)

    def apply(self, command: Command, gradient, clock) -> None:
        """Keep or drop a gradient, and make the update if there is one."""
        if command.taken:
            lost = gradient is None  # its worker was lost after the gradient had reached the first server
            self._kept[command.arrived, command.step] = np.zeros_like(self.share) if lost else gradient
        elif gradient is not None:
            self._spare.append(gradient)
        if not command.merged:
            return
        total, used = self._mean(command.merged)
        flops = 2 * len(used) * self.share.size
        with clock.span("update", flops=flops, nbytes=(len(used) + 2) * self.share.nbytes):
            step = command.version - 1
            apply_rule(self.rule, self.share, total, self.state, self.lr(step), step)
        self._spare += used
        if self.every and command.version % self.every == 0:
            self.take_snapshot(command.version, clock.now())

    def _mean(self, merged):
        """Add weighted gradients up in the order of workers, whatever order they arrived in."""
        used = [self._kept.pop((worker, step)) for worker, step, _ in sorted(merged)]
        weights = [weight for *_, weight in sorted(merged)]
        total = used[0]
        if len(used) > 1 or weights[0] != 1.0:
            total *= total.dtype.type(weights[0])
        for gradient, weight in zip(used[1:], weights[1:], strict=True):
            gradient *= gradient.dtype.type(weight)
            total += gradient
        return total, used

    def take_snapshot(self, version: int, now: float) -> None:
        if not self.snapshots or self.snapshots[-1].version != version:
            self.snapshots.append(Snapshot(version, now, self.share.copy()))

    def reply(self, version: int, go: bool, loss: float) -> np.ndarray:
        """Return the reply to a pull, as bytes; the same array for all workers that get the same reply."""
        key = (version, go, loss)
        if self._reply is None or self._reply[0] != key:
            self._reply = (key, Reply.of(self.share, version, go, loss).buffer)
        return self._reply[1]


class ServerComm:
    """A server's messages to and from the workers: gradients in, parameters out."""

    def __init__(self, comm, servers: int, shard: ParamShard):
        self.comm, self.servers, self.shard = comm, servers, shard
        self.lost: set[int] = set()
        self._sent = {}  # worker -> the reply in progress

    def receive(self):
        """Receive what comes next: a message, or the news that workers are lost."""
        try:
            return self.comm.recv_obj(ANY)
        except PeerLostError as error:
            return Lost(self._lost_workers(error))

    def recv_gradient(self, push: Push):
        """Receive this server's share of a gradient; None if its worker was lost on the way."""
        self._finish_reply(push.worker)
        try:
            return self.comm.recv(self.shard.buffer(), self.servers + push.worker)
        except PeerLostError as error:
            self._lost_workers(error)
            return None

    def _lost_workers(self, error: PeerLostError) -> tuple[int, ...]:
        """Return the workers that are lost; raise the error again if servers are."""
        if min(error.ranks) < self.servers:
            raise error
        workers = tuple(rank - self.servers for rank in error.ranks)
        self.lost.update(workers)
        return workers

    def reply(self, command: Command) -> None:
        """Send the parameters to all workers that the command releases."""
        for worker, go in command.released:
            message = self.shard.reply(command.version, go, command.loss)
            self._finish_reply(worker)
            self._sent[worker] = (self.comm.isend(message, self.servers + worker), message)

    def _finish_reply(self, worker: int) -> None:
        """Wait for the last reply to a worker, which returns at once: a worker that sends again has received it."""
        if worker in self._sent:
            try:
                self._sent.pop(worker)[0].wait()
            except PeerLostError as error:
                self._lost_workers(error)

    def finish(self) -> None:
        for worker in list(self._sent):
            self._finish_reply(worker)


def coordinate(comm, servers: int, shard: ParamShard, coordinator: Coordinator) -> None:
    """Serve as the first server until every worker has left: decide, tell the other servers, apply the command."""
    server_comm = ServerComm(comm, servers, shard)
    active = coordinator.policy_state.active
    while active:
        message = server_comm.receive()
        gradient = server_comm.recv_gradient(message) if isinstance(message, Push) else None
        if isinstance(message, Lost):
            commands = ((coordinator.handle_loss(worker), None) for worker in message.workers if worker in active)
        elif message.worker not in active:  # its loss was known before this message arrived
            commands = []
        elif isinstance(message, Push):
            commands = [] if gradient is None else [(coordinator.handle_push(message), gradient)]
        else:
            commands = [(coordinator.handle_leave(message.worker), None)]
        for command, gradient in commands:
            for server in range(1, servers):
                comm.send_obj(command, server)
            shard.apply(command, gradient, comm.clock)
            server_comm.reply(command)
    server_comm.finish()


def follow(comm, servers: int, shard: ParamShard) -> None:
    """Serve as another server: execute the coordinator's commands, each once its gradient has arrived."""
    server_comm = ServerComm(comm, servers, shard)
    commands: deque[Command] = deque()
    gradients = {}  # by worker: it sends no other before the reply
    while True:
        message = server_comm.receive()
        if isinstance(message, Push):
            gradients[message.worker] = server_comm.recv_gradient(message)
        elif isinstance(message, Command):
            commands.append(message)
        while commands and (commands[0].arrived is None or commands[0].arrived in gradients.keys() | server_comm.lost):
            command = commands.popleft()
            shard.apply(command, gradients.pop(command.arrived, None), comm.clock)
            server_comm.reply(command)
            if command.end:
                server_comm.finish()
                return
