"""`ParameterServer`: the one object that every rank makes, server or worker."""

from __future__ import annotations

import math

import numpy as np

from ....backend import to_numpy
from ....comm.base import CutOffError
from ....nn.layer import check_positive
from ....optim.optimizer import check_rule
from ....optim.schedules import as_schedule
from ....shares import shares
from ...strategy import Strategy
from .coordinator import Coordinator
from .learning_rate import constant
from .policy import BSP, check_policy
from .run import Run, make_run
from .server import ParamShard, coordinate, follow
from .worker import FlatModel, WorkerComm, endless_batches

COLLECT = 9
"""Tag of what servers send to the first one in the end."""


class ParameterServer(Strategy):
    r"""Training in which servers hold the parameters, and workers push gradients and pull parameters.

    rank 0 .. s - 1: servers, each with a contiguous share of the flat parameters, equal to within one value;
    rank s .. p - 1: workers, each with a copy of the model and a part of every batch.

    Parameters
    ----------
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast. A worker's may be on a GPU, with its data, while
        the servers keep theirs on the CPU. Running statistics, which no gradient changes, stay with each worker.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`.
    rule : Rule
        The servers' formula, such as `SGD()` or `Momentum(0.9)`; its velocities are kept on the servers.
    lr : float or callable
        Learning rate of an update, or a schedule: a function of the number of the update (from 0).
    policy : Policy, optional
        `bsp()` by default.
    servers : int
        s, from 1 to p - 1.
    rate : Rate, optional
        Factor on the learning rate by staleness, such as `inverse`; none by default.
    pace : callable, optional
        `pace(worker, step) -> seconds` that the step takes longer: a straggler. Virtual on simulated ranks, slept on
        real ones. `Speeds` has laws to choose from.
    every : int
        Copy the parameters every so many updates, for the curve; 0 for never.

    Attributes
    ----------
    rank, size : int
        Of the workers: which part of every batch a worker takes. On a server 0 and the number of workers.
    version : int
        Of the parameters that a worker has.

    Notes
    -----
    Messages per gradient, with s servers and n bytes of parameters: s arrays of n / s bytes and s announcements
    from the worker, s arrays of n / s bytes back, and s - 1 commands among servers. A worker's gradient is the mean
    over its rows; an update of several weighs them by their rows, so that BSP equals serial SGD on the whole batch
    however uneven the parts are. The first server decides on every arrival and the others execute its commands in
    the same order: all shares have the same version, and the number of servers changes no number. (Production servers
    let every shard decide independently, which saves the commands, and lets a worker read shares of different
    versions.)

    On a `FaultTolerant` communicator training survives the loss of workers: a lost one is treated as if it had left, so
    no worker waits for it, and the rows it would have trained on are left out. The loss of a server ends the run.

    References
    ----------
    M. Li et al. (2014), Scaling distributed machine learning with the parameter server, OSDI, section 3.
    """

    checkpointable = False  # the optimizer's state is on servers, parameters are on servers and workers

    def __init__(self, comm, model, loss, rule, lr, policy=None, *, servers=1, rate=constant, pace=None, every=0):
        if not (hasattr(servers, "__index__") and 1 <= servers < comm.size):
            raise ValueError(
                f"ParameterServer: {servers!r} servers on {comm.size} ranks, "
                "expected at least one server and one worker"
            )
        check_rule("ParameterServer", rule)
        self.comm, self.clock, self.loss, self.pace = comm, comm.clock, loss, pace
        self.policy, self.rate, self.servers = BSP() if policy is None else policy, rate, servers
        check_policy("ParameterServer", self.policy)
        if not callable(rate):
            raise TypeError(
                f"ParameterServer: rate is {rate!r}, expected a function of staleness and step, such as `inverse`"
            )
        if not (hasattr(every, "__index__") and every >= 0):
            raise ValueError(f"ParameterServer: every is {every!r}, expected a number of updates, 0 or more")
        self.flat = FlatModel(model)
        if servers > self.flat.data.size:
            raise ValueError(f"ParameterServer: {servers} servers for {self.flat.data.size} parameters")
        self._trained = False
        values = to_numpy(self.flat.data)  # a worker's model may be on a GPU; messages are not
        comm.broadcast(values)
        self.flat.load(values)
        self.is_server, self.go = comm.rank < servers, True
        self._peers = comm.split(int(self.is_server))
        self.size, self.rank = comm.size - servers, 0 if self.is_server else comm.rank - servers
        parts, lr = shares(values.size, servers), as_schedule(lr, "ParameterServer")
        if self.is_server:
            self._shard = ParamShard(values[parts[comm.rank]].copy(), rule, lr, every)
        else:
            self._worker_comm = WorkerComm(comm, parts, self.flat, self.rank)

    # -- a worker is a Strategy ------------------------------------------------------------------------------------
    def step(self, batch) -> float:
        """Push the gradient of this worker's rows, wait until it may continue; return the loss.

        That of the whole update where the policy waits for one (BSP: of the global batch), else of these rows.
        """
        if self.is_server:
            raise TypeError(f"ParameterServer: rank {self.comm.rank} is a server, which takes no steps; call serve()")
        with self.clock.span("gradient", flops=self.flat.flops(batch.x.shape)):
            loss = self.flat.gradient(batch.x, batch.y, self.loss)
            if self.pace is not None:
                self.clock.sleep(self.pace(self.rank, self._worker_comm.steps))
        reply = self._worker_comm.exchange(len(batch.x), loss)
        self.go = reply.go
        return reply.loss if self.policy.waits else loss

    @property
    def version(self) -> int:
        return self._worker_comm.version

    @property
    def model(self):
        """The copy of the model on this rank; a server's has the initial values."""
        return self.flat.model

    def total(self, values):
        return self._peers.all_reduce(values)

    def finish(self) -> None:
        """Tell the servers that this worker has ended; every worker does so at the end."""
        self._worker_comm.leave()

    # -- a server ----------------------------------------------------------------------------------------------------
    def serve(self, steps: int | None = None, seconds: float = math.inf) -> Coordinator | None:
        """Serve until all workers have left; return the coordinator of the first server on rank 0."""
        # steps: Gradients that each worker computes, on average; unlimited by default.
        # seconds: Begin no step later than that [s].
        self._shard.take_snapshot(0, self.clock.now())
        if self.comm.rank:
            follow(self.comm, self.servers, self._shard)
            return None
        left = math.inf if steps is None else steps * self.size
        coordinator = Coordinator(self.clock, self.comm.report, self.size, self.policy, self.rate, left, seconds)
        coordinate(self.comm, self.servers, self._shard, coordinator)
        coordinator.check_ended("ParameterServer")
        return coordinator

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def train(self, dataset, *, batch_size: int, steps=None, seconds=math.inf, seed=0, probe: int = 1000) -> Run | None:
        """Train; return the run on rank 0, and None elsewhere. Every rank calls it, once.

        Parameters
        ----------
        batch_size : int
            Samples of a global batch, of which each worker takes its part: what an update of BSP uses, and what n
            updates of ASP use.
        steps : int, optional
            Gradients that each worker computes, on average: faster ones compute more under ASP.
        seconds : float, optional
            Begin no step later than that [s].
        seed : int
            Of the order of samples.
        probe : int
            Training samples on which the curve's loss is measured.

        Raises
        ------
        CommError
            If all workers are lost, or a server.
        """
        if steps is None and seconds == math.inf:
            raise ValueError("ParameterServer.train: give steps, seconds, or both; else training would never end")
        check_positive("ParameterServer.train", steps=1 if steps is None else steps)
        if self._trained:
            raise ValueError("ParameterServer.train: this one has trained, and workers end at different versions")
        self._trained, coordinator = True, None
        try:
            if self.is_server:
                coordinator = self.serve(steps, seconds)
            else:
                batches = endless_batches(dataset, batch_size, self.rank, self.size, seed)
                while self.go:
                    self.step(next(batches))
                self.finish()
        except CutOffError:  # the others declared this rank lost
            return None
        found = self._from_servers((self._shard.share, self._shard.snapshots) if self.is_server else None)
        return None if found is None else make_run(coordinator, self.flat, found, dataset, self.loss, probe)

    def _from_servers(self, held) -> list | None:
        """Gather what every server holds on rank 0; workers take no part, as some may be lost."""
        if self.comm.rank == 0:
            return [held, *(self.comm.recv_obj(server, COLLECT) for server in range(1, self.servers))]
        if self.is_server:
            self.comm.send_obj(held, 0, COLLECT)
        return None

    def gather_params(self) -> dict[str, np.ndarray] | None:
        """Return the trained parameters by name on rank 0, and None elsewhere. Every server calls it."""
        found = self._from_servers(self._shard.share if self.is_server else None)
        return None if found is None else self.flat.named(np.concatenate(found))
