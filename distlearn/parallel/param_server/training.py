"""`ParameterServer`: the one object that every rank makes, server or worker."""

from __future__ import annotations

import math

import numpy as np

from ...backend import to_numpy
from ...comm.collectives import shares
from .curve import finish
from .flat import FlatModel
from .policy import BSP
from .rate import constant
from .record import Run
from .server import Lead, follow, lead
from .shard import Shard
from .stream import check_end, endless
from .worker import WorkerLink


class ParameterServer:
    r"""Training in which servers hold the parameters, and workers push gradients and pull parameters.

    rank 0 .. s - 1: servers, each with a contiguous share of the flat parameters, equal to a value;
    rank s .. p - 1: workers, each with a copy of the model and a part of every batch.

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The same on every rank; rank 0's parameters are broadcast. A worker's may live on a GPU, with its data, while
        the servers keep theirs on the CPU. Running statistics, which no gradient changes, stay with each worker.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`.
    rule : Rule
        The servers' formula, such as `SGD()` or `Momentum(0.9)`; its velocities live on the servers.
    lr : float or callable
        Learning rate of an update, or a plan: a function of the number of the update (from 0).
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
        Keep the parameters every so many updates, for the curve; 0 for never.

    Attributes
    ----------
    is_server : bool
    rank, size : int
        Of the workers: which part of every batch a worker takes. On a server 0 and the number of workers.
    version : int
        Of the parameters that a worker has.

    Notes
    -----
    Messages per gradient, with s servers and n bytes of parameters: s arrays of n / s bytes and s announcements
    from the worker, s arrays of n / s bytes back, and s - 1 orders among servers. A worker's gradient is the mean
    over its rows; an update of several weighs them by their rows, so that BSP equals serial SGD on the whole batch
    however uneven the parts are. The first server decides on every arrival and the others obey in the same order:
    all shares have the same version, and the number of servers changes no number. (Production servers let every
    shard decide for itself, which saves the orders, and lets a worker read shares of different versions.)

    References
    ----------
    M. Li et al. (2014), Scaling distributed machine learning with the parameter server, OSDI, section 3.
    """

    def __init__(self, comm, model, loss, rule, lr, policy=None, *, servers=1, rate=constant, pace=None, every=0):
        if not (hasattr(servers, "__index__") and 1 <= servers < comm.size):
            raise ValueError(
                f"ParameterServer: {servers!r} servers on {comm.size} ranks, "
                "expected at least one server and one worker"
            )
        self.comm, self.clock, self.loss, self.pace = comm, comm.clock, loss, pace
        self.policy, self.rate, self.servers = BSP() if policy is None else policy, rate, servers
        self.flat = FlatModel(model)
        if servers > self.flat.data.size:
            raise ValueError(f"ParameterServer: {servers} servers for {self.flat.data.size} parameters")
        values = to_numpy(self.flat.data)  # a worker's model may live on a GPU; what travels does not
        comm.broadcast(values)
        self.flat.load(values)
        self.is_server = comm.rank < servers
        self.size = comm.size - servers
        self.rank = 0 if self.is_server else comm.rank - servers
        self.go, self._trained = True, False
        self._peers = comm.split(int(self.is_server))
        parts = shares(self.flat.data.size, servers)
        if self.is_server:
            plan = lr if callable(lr) else (lambda step: lr)
            self._shard = Shard(values[parts[comm.rank]], rule, plan, every)
        else:
            self._link = WorkerLink(comm, parts, self.flat, self.rank)

    # -- a worker is a Strategy ------------------------------------------------------------------------------------
    def step(self, batch) -> float:
        """Push the gradient of this worker's rows, wait for leave to go on; return the loss.

        That of the whole update where the policy waits for one (BSP: of the global batch), else of these rows.
        """
        with self.clock.span("gradient", flops=self.flat.flops(batch.x.shape)):
            loss = self.flat.gradient(batch.x, batch.y, self.loss)
            if self.pace is not None:
                self.clock.sleep(self.pace(self.rank, self._link.steps))
        reply = self._link.exchange(len(batch.x), loss)
        self.go = reply.go
        return reply.loss if self.policy.waits else loss

    @property
    def version(self) -> int:
        """Version of the parameters that this worker has."""
        return self._link.version

    def predict(self, x):
        """Run the model forward."""
        return self.flat.model.eval().forward(x)[0]

    def total(self, values):
        """Return `values` summed over workers."""
        return self._peers.all_reduce(values)

    def leave(self) -> None:
        """Tell the servers that this worker has ended; every worker does, in the end."""
        self._link.leave()

    # -- a server ----------------------------------------------------------------------------------------------------
    def serve(self, steps: int | None = None, seconds: float = math.inf) -> Lead | None:
        """Serve until all workers have left; return the head of the first server on rank 0.

        Parameters
        ----------
        steps : int, optional
            Let workers compute so many gradients each, on average; by default as many as they like.
        seconds : float
            Let no step begin later than that [s].
        """
        self._shard.snap(0, self.clock.now())
        if self.comm.rank:
            follow(self.comm, self.servers, self._shard)
            return None
        tickets = None if steps is None else steps * self.size
        head = Lead(self.clock, self.comm.report, self.size, self.policy, self.rate, tickets, seconds)
        lead(self.comm, self.servers, self._shard, head)
        return head

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def train(self, dataset, *, batch_size: int, steps=None, seconds=math.inf, seed=0, probe: int = 1000) -> Run | None:
        """Train; return what happened on rank 0, and None elsewhere. Every rank calls it, once.

        Parameters
        ----------
        dataset : Dataset
        batch_size : int
            Samples of a global batch, of which each worker takes its part: what an update of BSP uses, and what n
            updates of ASP use.
        steps : int, optional
            Gradients that each worker computes, on average: quick ones compute more under ASP.
        seconds : float, optional
            Begin no step later than that [s].
        seed : int
            Of the order of samples.
        probe : int
            Training samples on which the curve's loss is measured.

        Returns
        -------
        run : Run or None
        """
        check_end("ParameterServer.train", steps, seconds)
        if self._trained:
            raise ValueError("ParameterServer.train: this one has trained, and workers end at different versions")
        self._trained, head = True, None
        if self.is_server:
            head = self.serve(steps, seconds)
        else:
            self._work(endless(dataset, batch_size, self.rank, self.size, seed))
        return self._run(head, dataset, probe)

    def _work(self, batches) -> None:
        """Do steps until the servers give no leave for another."""
        while self.go:
            self.step(next(batches))
        self.leave()

    def _run(self, head, dataset, probe: int) -> Run | None:
        """Collect on rank 0 what the servers have."""
        mine = (self._shard.share, self._shard.snapshots) if self.is_server else None
        found = self.comm.gather_obj(mine)
        return None if head is None else finish(head, self.flat, found[: self.servers], dataset, self.loss, probe)

    def gather_params(self) -> dict[str, np.ndarray] | None:
        """Return the trained parameters by name on rank 0, and None elsewhere. Every rank calls it."""
        found = self.comm.gather_obj(self._shard.share if self.is_server else None)
        return None if found is None else self.flat.named(np.concatenate(found[: self.servers]))
