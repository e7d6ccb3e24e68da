"""`ParameterServer`: the one object that every rank makes, server or worker."""

from __future__ import annotations

import math

import numpy as np

from ....backend import to_numpy
from ....comm.base import CommError, CutOffError, FaultTolerant, PeerLostError, RevokedError
from ....optim.optimizer import check_rule, state_arrays
from ....optim.schedules import as_schedule
from ....shares import shares
from ...strategy import Strategy
from .coordinator import Coordinator
from .learning_rate import constant
from .policy import BSP, check_policy
from .recovery import GlobalState, Mirror, agree_on_state
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
    mirror : int
        Servers copy their shares to one another every so many updates; 0 for never. On a `FaultTolerant` communicator
        training survives the loss of workers in any case, and with this the loss of a server, too.

    Attributes
    ----------
    rank, size : int
        Of the workers: which part of every batch a worker takes. On a server 0 and the number of workers.
    version : int
        Of the parameters that a worker has.
    recoveries : list of (float, int, int)
        When a server was lost and training continued [s], from which version, on how many servers.

    Notes
    -----
    Messages per gradient, with s servers and n bytes of parameters: s arrays of n / s bytes and s announcements
    from the worker, s arrays of n / s bytes back, and s - 1 commands among servers. A worker's gradient is the mean
    over its rows; an update of several weighs them by their rows, so that BSP equals serial SGD on the whole batch
    however uneven the parts are. The first server decides on every arrival and the others execute its commands in
    the same order: all shares have the same version, and the number of servers changes no number. (Production servers
    let every shard decide independently, which saves the commands, and lets a worker read shares of different
    versions.)

    A rank lost while the object is constructed ends the run; after that, training survives.
    A lost worker is treated as if it had left: no worker waits for it, and the rows it would have trained on are left
    out. After the loss of a server BSP still equals serial SGD: the updates since the last copy are repeated. The
    record then begins at that version if the first server was lost, which keeps it, and so does the curve.

    References
    ----------
    M. Li et al. (2014), Scaling distributed machine learning with the parameter server, OSDI, section 3.
    """

    checkpointable = False  # the optimizer's state is on servers, parameters are on servers and workers

    def __init__(
        self, comm, model, loss, rule, lr, policy=None, *, servers=1, rate=constant, pace=None, every=0, mirror=0
    ):
        if not (hasattr(servers, "__index__") and 1 <= servers < comm.size):
            raise ValueError(
                f"ParameterServer: {servers!r} servers on {comm.size} ranks, "
                "expected at least one server and one worker"
            )
        check_rule("ParameterServer", rule)
        self.comm, self.clock, self.loss, self.pace = comm, comm.clock, loss, pace
        self.policy, self.rate, self.servers = BSP() if policy is None else policy, rate, servers
        check_parts("ParameterServer", self.policy, rate, every)
        self.flat = FlatModel(model)
        if servers > self.flat.data.size:
            raise ValueError(f"ParameterServer: {servers} servers for {self.flat.data.size} parameters")
        if not (hasattr(mirror, "__index__") and mirror >= 0):
            raise ValueError(f"ParameterServer: mirror is {mirror!r}, expected a number of updates, 0 or more")
        self._rule, self._lr = rule, as_schedule(lr, "ParameterServer")
        self._every, self._mirror = every, mirror
        self._done, self.recoveries, self._trained = 0, [], False
        self._coordinator = self._earlier = None
        self._workers = comm.size - servers  # at the start
        values = to_numpy(self.flat.data)  # a worker's model may be on a GPU; messages are not
        comm.broadcast(values)
        memory = state_arrays(rule.init(values)) if mirror else ()
        start = GlobalState(0, np.stack([values, *memory]), 0)
        self._set_up(servers, start, comm.split(int(comm.rank < servers)))

    def _set_up(self, servers: int, start: GlobalState, peers) -> None:
        """Set this rank's role, and its share."""
        comm, flat = self.comm, self.flat
        self.servers, self._start, self._peers = servers, start, peers
        flat.load(start.rows[0])
        self.is_server, self._place = comm.rank < servers, comm.rank
        self.size = comm.size - servers
        self.rank = 0 if self.is_server else comm.rank - servers
        self.go = True
        parts = shares(flat.data.size, servers)
        if not self.is_server:
            self._worker_comm = WorkerComm(comm, parts, flat, self.rank, start.version)
            return
        own = parts[comm.rank]
        self._shard = ParamShard(start.rows[0][own].copy(), self._rule, self._lr, self._every)
        for array, row in zip(state_arrays(self._shard.state), start.rows[1:], strict=False):
            array[...] = row[own]
        if self._mirror:
            self._shard.mirror = Mirror(comm, parts, self._mirror, start)

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
        """Version of the parameters that this worker has."""
        return self._worker_comm.version

    @property
    def model(self):
        """The copy of the model on this rank; a server's has the initial values."""
        return self.flat.model

    def total(self, values):
        """Return `values` summed over workers."""
        return self._peers.all_reduce(values)

    def finish(self) -> None:
        """Tell the servers that this worker has ended; every worker does so at the end."""
        self._worker_comm.leave()

    # -- a server ----------------------------------------------------------------------------------------------------
    def serve(self, steps: int | None = None, seconds: float = math.inf) -> Coordinator | None:
        """Serve until all workers have left; return the coordinator of the first server on rank 0."""
        # steps: Gradients that each worker computes, on average; unlimited by default.
        # seconds: Begin no step later than that [s].
        self._shard.take_snapshot(self._start.version, self.clock.now())
        left = self._left(steps)
        if self.comm.rank:
            if left:
                follow(self.comm, self.servers, self._shard)
            return None
        version = self._start.version
        coordinator = Coordinator(
            self.clock, self.comm.report, self.size, self.policy, self.rate, left, seconds, version
        )
        if self._earlier is not None:
            coordinator.resume(self._earlier)
        self._coordinator, self._earlier = coordinator, None
        if left:
            coordinate(self.comm, self.servers, self._shard, coordinator)
            coordinator.check_ended("ParameterServer")
        return coordinator

    def _left(self, steps: int | None) -> float:
        """Return how many gradients are still to be computed; infinity if unlimited."""
        if steps is None:
            return math.inf
        if self.policy.waits:  # an update uses a whole batch, however many workers are left
            return max(0, steps - self._start.version) * self.size
        return max(0, steps * self._workers - self._start.gradients)

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
            If all workers are lost, or a share of the parameters is lost with its mirror.
        """
        check_end("ParameterServer.train", steps, seconds)
        if self._trained:
            raise ValueError("ParameterServer.train: this one has trained, and workers end at different versions")
        self._trained = True
        batching = {"batch_size": batch_size, "seed": seed}
        try:
            while True:
                done, run = self._attempt(dataset, steps, seconds, batching, probe)
                if not isinstance(self.comm, FaultTolerant) or self.comm.agree(done):
                    return run
                self._recover()
        except CutOffError:  # the others declared this rank lost
            return None

    def _attempt(self, dataset, steps, seconds, batching, probe: int) -> tuple[bool, Run | None]:
        """Train until the end, or until a server is lost; say which, and return the run on rank 0."""
        coordinator = None
        try:
            if self.is_server:
                coordinator = self.serve(steps, seconds)
            elif self._left(steps):
                start = self._start.version if self.policy.waits else self._done
                self._work(endless_batches(dataset, rank=self.rank, size=self.size, start=start, **batching))
            return True, self._run(coordinator, dataset, probe)
        except (PeerLostError, RevokedError):
            if not self._mirror:
                raise
            self.comm.revoke()
            return False, None

    def _work(self, batches) -> None:
        """Do steps until the servers allow no more."""
        while self.go:
            self.step(next(batches))
            self._done += 1
        self.finish()

    def _run(self, coordinator, dataset, probe: int) -> Run | None:
        """Collect on rank 0 what the servers have."""
        found = self._from_servers(lambda: (self._shard.share, self._shard.snapshots))
        return None if found is None else make_run(coordinator, self.flat, found, dataset, self.loss, probe)

    def _from_servers(self, get) -> list | None:
        """Gather `get()` of every server on rank 0; workers take no part, as some may be lost."""
        if self.comm.rank == 0:
            return [get(), *(self.comm.recv_obj(server, COLLECT) for server in range(1, self.servers))]
        if self.is_server:
            self.comm.send_obj(get(), 0, COLLECT)
        return None

    def gather_params(self) -> dict[str, np.ndarray] | None:
        """Return the trained parameters by name on rank 0, and None elsewhere. Every server calls it."""
        found = self._from_servers(lambda: self._shard.share)
        return None if found is None else self.flat.named(np.concatenate(found))

    # -- after the loss of a server ------------------------------------------------------------------------------------
    def _recover(self) -> None:
        """Go back to the newest version whose shares all survive, on the remaining ranks."""
        while True:
            self.comm = self.comm.shrink()
            arrangement = None
            try:
                arrangement = self._arrange()
            except (PeerLostError, RevokedError):
                self.comm.revoke()
            if self.comm.agree(arrangement is not None):
                break
        self._set_up(*arrangement)
        self._earlier = self._coordinator
        self.recoveries.append((self.clock.now(), self._start.version, self.servers))

    def _arrange(self) -> tuple:
        """Find out which ranks and shares are left; change nothing yet."""
        comm = self.comm
        places = comm.all_gather(np.array([self._place])).ravel().tolist()
        lost = sorted(set(range(self.servers)) - set(places))
        servers = self.servers - len(lost)
        if not 0 < servers < comm.size:
            raise CommError(
                f"of {self.servers} servers and {self.size} workers, no {'worker' if servers else 'server'} is left"
            )
        versions = self._shard.mirror.versions if self.is_server else None
        whole = agree_on_state(comm, versions, self.servers, lost)
        return servers, whole, comm.split(int(comm.rank < servers))


def check_parts(what: str, policy, rate, every) -> None:
    """Raise unless a parameter server can work with these."""
    check_policy(what, policy)
    if not callable(rate):
        raise TypeError(f"{what}: rate is {rate!r}, expected a function of staleness and step, such as `inverse`")
    if not (hasattr(every, "__index__") and every >= 0):
        raise ValueError(f"{what}: every is {every!r}, expected a number of updates, 0 or more")


def check_end(what: str, steps: int | None, seconds: float) -> None:
    """Raise unless training ends: after some steps, after some seconds, or after whichever comes first."""
    if steps is None and seconds == math.inf:
        raise ValueError(f"{what}: give steps, seconds, or both; else training would never end")
    if steps is not None and not (hasattr(steps, "__index__") and steps >= 1):
        raise ValueError(f"{what}: steps is {steps!r}, expected a whole number, 1 or more")
