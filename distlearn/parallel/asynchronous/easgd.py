r"""Elastic averaging: workers train independently, each pulled towards a common centre.

Each worker w has its own parameters x. Every `period` steps it and the centre c move towards each other:

.. math:: d = \alpha (x - c), \qquad x \leftarrow x - d, \qquad c \leftarrow c + d

It is the parameter server of `param_server` with another payload: parameters up, the centre down, and no gradient is
ever stale, because it is applied where it was computed. Workers communicate once in `period` steps.
"""

from __future__ import annotations

import math

import numpy as np

from ...comm.protocol import ANY
from ...optim.optimizer import apply_rule, check_rule
from ...optim.schedules import as_schedule
from .param_server.coordinator import Coordinator
from .param_server.learning_rate import constant
from .param_server.messages import Leave, Push, Reply
from .param_server.policy import ASP
from .param_server.run import Run, make_run
from .param_server.server import ParamShard, ServerComm
from .param_server.training import check_end
from .param_server.worker import FlatModel, endless_batches


class _Centre:
    """The rule of the centre: what arrives is a worker's parameters, and the centre moves towards them."""

    def __init__(self, alpha: float):
        self.alpha = alpha

    def init(self, data):
        """Return None: this rule has no state."""

    def update(self, data, grad, state, lr, step):
        """Move by alpha times the distance."""
        data += self.alpha * (grad - data)


class _Elastic(ASP):
    """ASP under another name."""

    name = "EASGD"


class EASGD:
    """Asynchronous elastic averaging SGD on a communicator: rank 0 holds the centre, the others train.

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast.
    loss : callable
    rule : Rule
        The workers' own formula: `SGD()` for EASGD, `Nesterov(mu)` for EAMSGD. Each worker keeps its memory.
    lr : float or callable
        Learning rate of a worker's step, or a schedule: a function of the worker's step (from 0).
    period : int
        tau: steps between two exchanges with the centre.
    alpha : float, optional
        Strength of the spring; 0.9 / workers by default, as in the paper (beta = 0.9).
    pace : callable, optional
        `pace(worker, step) -> seconds` that a step takes longer.
    every : int
        Copy the centre every so many exchanges, for the curve; 0 for never.

    Notes
    -----
    Per exchange n bytes of parameters up, n bytes down: 1 / period of what a parameter server moves.

    References
    ----------
    S. Zhang, A. Choromanska, Y. LeCun (2015), Deep learning with elastic averaging SGD, NeurIPS, algorithm 1.
    """

    def __init__(self, comm, model, loss, rule, lr, *, period=10, alpha=None, pace=None, every=0):
        if comm.size < 2:
            raise ValueError(f"EASGD: {comm.size} rank, expected the centre and at least one worker")
        if not (hasattr(period, "__index__") and period >= 1):
            raise ValueError(f"EASGD: period is {period!r}, expected a whole number of steps, 1 or more")
        check_rule("EASGD", rule)
        self.comm, self.clock, self.loss, self.rule, self.pace = comm, comm.clock, loss, rule, pace
        self.lr = as_schedule(lr, "EASGD")
        self.size, self.rank = comm.size - 1, max(0, comm.rank - 1)
        self.period, self.every = period, every
        self.alpha = 0.9 / self.size if alpha is None else alpha
        if not 0 < self.alpha < 1:
            raise ValueError(f"EASGD: alpha is {self.alpha!r}, expected a strength between 0 and 1")
        self.flat = FlatModel(model)
        comm.broadcast(self.flat.data)

    def train(self, dataset, *, batch_size: int, steps=None, seconds=math.inf, seed=0, probe: int = 1000) -> Run | None:
        """Train; return the centre's run on rank 0, and None elsewhere. Every rank calls it.

        Parameters
        ----------
        dataset, batch_size, seconds, seed, probe
            See `ParameterServer.train`.
        steps : int, optional
            Gradients that each worker computes, on average.

        Returns
        -------
        run : Run
            Its gradients are the exchanges: `used` and `staleness` count versions of the centre, `loss` is the mean of
            the worker's losses since its last one.
        """
        check_end("EASGD.train", steps, seconds)
        if self.comm.rank:
            self._work(endless_batches(dataset, batch_size, self.rank, self.size, seed))
            return None
        exchanges = None if steps is None else max(1, math.ceil(steps / self.period)) * self.size
        shard = ParamShard(self.flat.data, _Centre(self.alpha), lambda step: 1.0, self.every)
        shard.take_snapshot(0, self.clock.now())
        coordinator = Coordinator(self.clock, self.comm.report, self.size, _Elastic(), constant, exchanges, seconds)
        self._serve(shard, coordinator)
        return make_run(coordinator, self.flat, [(shard.share.copy(), shard.snapshots)], dataset, self.loss, probe)

    def _serve(self, shard: ParamShard, coordinator: Coordinator) -> None:
        """Serve the centre until every worker has left: reply with the centre as it was, then move it."""
        server_comm = ServerComm(self.comm, 1, shard)
        while coordinator.policy_state.active:
            message = self.comm.recv_obj(ANY)
            if isinstance(message, Leave):
                coordinator.handle_leave(message.worker)
                continue
            values = server_comm.recv_gradient(message)
            command = coordinator.handle_push(message)
            server_comm.reply(command)
            shard.apply(command, values, self.clock)
        server_comm.finish()

    def _work(self, batches) -> None:
        """Train, exchanging with the centre every `period` steps, until it allows no more steps."""
        flat, reply = self.flat, Reply(self.flat.data.size, self.flat.data.dtype)
        state, losses, rows, version = self.rule.init(flat.data), 0.0, 0, 0
        for step, batch in enumerate(batches):
            with self.clock.span("gradient", flops=flat.flops(batch.x.shape)):
                losses += flat.gradient(batch.x, batch.y, self.loss) * len(batch.x)
                rows += len(batch.x)
                apply_rule(self.rule, flat.data, flat.grad, state, self.lr(step), step)
                if self.pace is not None:
                    self.clock.sleep(self.pace(self.rank, step))
            if (step + 1) % self.period == 0:
                self._meet(Push(self.rank, step // self.period, version, rows, losses / max(1, rows)), reply)
                version, losses, rows = reply.version, 0.0, 0
                if not reply.go:
                    self.comm.send_obj(Leave(self.rank), 0)
                    return

    def _meet(self, push: Push, reply: Reply) -> None:
        """Send the parameters to the centre, receive it, and move towards it."""
        comm, data = self.comm, self.flat.data
        with comm.clock.span("exchange", lane="comm"):
            received, sent = comm.irecv(reply.buffer, 0), comm.isend(data, 0)
            comm.send_obj(push, 0)
            sent.wait()
            received.wait()
        data -= np.asarray(self.alpha, data.dtype) * (data - reply.share)
