"""The servers' side: a loop that receives, obeys, and answers.

It cannot deadlock. A server blocks in two places only: while nobody has anything to say, and while it receives an
array whose sending began before the message that announced it. It answers by `isend` to workers that have posted the
receive before they asked; and the lead's orders go to servers that do nothing but receive. So every server comes back
to its `recv_obj`, and the ledger sees to it that not all workers wait.

Where workers can be lost (`FaultTolerant` communicators), a server hears of it instead of a message: the lead lets the
worker go as if it had left, so nobody waits for it; a gradient that only some of the servers got whole counts as zeros
on the others. The loss of a server is not borne here: it raises (see `survival`).
"""

from __future__ import annotations

import math
from collections import deque

from ....comm.protocol import ANY, CommError, PeerLostError
from .ledger import Ledger
from .messages import Lost, Order, Push
from .record import Diary
from .shard import Shard


class Link:
    """A server's connection to the workers: gradients in, answers out.

    Parameters
    ----------
    comm : Communicator
    servers : int
        Ranks below are servers; worker w is rank servers + w.
    shard : Shard

    Attributes
    ----------
    gone : set of int
        Workers that are known to be lost.
    """

    def __init__(self, comm, servers: int, shard: Shard):
        self.comm, self.servers, self.shard = comm, servers, shard
        self.gone: set[int] = set()
        self._sent = {}  # worker -> the answer under way

    def listen(self):
        """Receive what comes next: a message, or the news that workers are lost."""
        try:
            return self.comm.recv_obj(ANY)
        except PeerLostError as error:
            return Lost(self._workers_of(error))

    def gradient(self, push: Push):
        """Receive this server's share of a gradient; None if its worker was lost on the way."""
        self._settle(push.worker)
        try:
            return self.comm.recv(self.shard.buffer(), self.servers + push.worker)
        except PeerLostError as error:
            self._workers_of(error)
            return None

    def _workers_of(self, error: PeerLostError) -> tuple[int, ...]:
        """Return the workers that are lost; raise the error again if servers are."""
        if min(error.ranks) < self.servers:
            raise error
        workers = tuple(rank - self.servers for rank in error.ranks)
        self.gone.update(workers)
        return workers

    def answer(self, order: Order) -> None:
        """Send the parameters to all whom the order releases."""
        for worker, go in order.released:
            message = self.shard.reply(order.version, go, order.loss)
            self._settle(worker)
            self._sent[worker] = (self.comm.isend(message, self.servers + worker), message)

    def _settle(self, worker: int) -> None:
        """Let go of the last answer to a worker; it has that when it speaks again."""
        if worker in self._sent:
            try:
                self._sent.pop(worker)[0].wait()
            except PeerLostError as error:
                self._workers_of(error)

    def close(self) -> None:
        """Wait until every answer has arrived."""
        for worker in list(self._sent):
            self._settle(worker)


class Lead:
    """The head of the first server: keeps the ledger, and turns arrivals into orders.

    Parameters
    ----------
    clock : Clock
    report : callable
        Gets `report(gradients so far, gradients in all, loss=, version=)` at every update.
    workers : int
    policy : Policy
    rate : Rate
        Factor of a gradient by its staleness.
    tickets : int or None
        Gradients to compute in all; None (or infinity) for as many as the workers like.
    seconds : float
        No new step begins after that time [s].
    version : int
        Of the parameters to begin with.

    Attributes
    ----------
    diverged : bool
        Whether a loss was no longer a finite number: no new step begins after that.
    """

    def __init__(self, clock, report, workers, policy, rate, tickets=None, seconds=math.inf, version=0):
        self.clock, self.report, self.rate = clock, report, rate
        self.ledger, self.diary = Ledger(policy, workers, version, [version] * workers), Diary()
        self.tickets = math.inf if tickets is None else tickets
        self.began, self._seconds = clock.now(), seconds
        self._given = workers  # everybody's first step
        self._told: set[int] = set()  # workers that were given no leave for another step
        self._lost = 0  # workers that were lost before
        self._loss = math.nan
        self.diverged = False

    def take_over(self, earlier: Lead) -> None:
        """Continue the record of a head that had to stop, as far as its updates are not made again."""
        self.diary, self.began = earlier.diary, earlier.began
        self.diary.rewind(self.ledger.version)

    def decide(self, push: Push) -> Order:
        """Turn an arrival into an order."""
        now, diary = self.clock.now(), self.diary
        verdict = self.ledger.arrive(push.worker, push.used)
        if not math.isfinite(push.loss):
            self.diverged = True
        if verdict.taken:
            diary.takes(push, now)
        else:
            diary.drops(push, verdict.staleness, now)
        return self._order(push.worker, push.step, verdict, now)

    def let_go(self, worker: int) -> Order:
        """Turn a farewell into an order."""
        verdict = self.ledger.leave(worker)
        return self._order(None, 0, verdict._replace(taken=False), self.clock.now())

    def give_up(self, worker: int) -> Order:
        """Turn the loss of a worker into an order; the step that it was at may be done by another."""
        if worker not in self._told:
            self._lost += 1
            self._given -= not self.ledger.waits(worker)
        return self.let_go(worker)

    def check_ended(self, what: str) -> None:
        """Raise if training ended because the last worker was lost, and not because it was time."""
        if self._lost == len(self.ledger.clocks):
            raise CommError(
                f"{what}: all {self._lost} workers are lost, after {self.ledger.version} updates; "
                "nobody is left to train"
            )

    def _order(self, arrived, step, verdict, now: float) -> Order:
        """Say what the servers shall do."""
        version = self.ledger.version
        merged = self._weigh(verdict.merged, version, now)
        released = tuple((worker, self._may_go_on(now)) for worker in verdict.released)
        self._told.update(worker for worker, go in released if not go)
        end = not self.ledger.active
        return Order(arrived, step, verdict.taken, merged, version, released, self._loss, end)

    def _weigh(self, merged, version: int, now: float):
        """Weigh the gradients of an update by their samples, and by their staleness."""
        if not merged:
            return ()
        pushes = [self.diary.push_of(held) for held in merged]
        factors = [self.rate(version - 1 - push.used, version - 1) for push in pushes]
        rows = sum(push.rows for push in pushes)
        weights = [
            f * (p.rows / max(1, rows) if len(pushes) > 1 else 1.0) for f, p in zip(factors, pushes, strict=True)
        ]
        self._loss = sum(p.rows * p.loss for p in pushes) / rows if rows else math.nan
        for held, factor in zip(merged, factors, strict=True):
            self.diary.applies(held, version, factor, now)
        total = len(self.diary) if self.tickets == math.inf else self.tickets
        self.report(len(self.diary), total, loss=self._loss, version=version)
        return tuple((held.worker, held.step, weight) for held, weight in zip(merged, weights, strict=True))

    def _may_go_on(self, now: float) -> bool:
        """Give a ticket for one more step, if there is one."""
        if self.diverged or now >= self.began + self._seconds or self._given >= self.tickets:
            return False
        self._given += 1
        return True


def lead(comm, servers: int, shard: Shard, head: Lead) -> None:
    """Serve as the first server, until every worker has left: decide, tell the other servers, obey oneself."""
    link = Link(comm, servers, shard)
    while head.ledger.active:
        message = link.listen()
        gradient = link.gradient(message) if isinstance(message, Push) else None
        if isinstance(message, Lost):
            orders = ((head.give_up(worker), None) for worker in message.workers if worker in head.ledger.active)
        elif message.worker not in head.ledger.active:  # its last words; the news of its loss was quicker
            orders = []
        elif isinstance(message, Push):
            orders = [] if gradient is None else [(head.decide(message), gradient)]
        else:
            orders = [(head.let_go(message.worker), None)]
        for order, gradient in orders:
            for server in range(1, servers):
                comm.send_obj(order, server)
            shard.obey(order, gradient, comm.clock)
            link.answer(order)
    link.close()


def follow(comm, servers: int, shard: Shard) -> None:
    """Serve as a server that is not the lead: execute its orders, each once the gradient that it is about is here."""
    link = Link(comm, servers, shard)
    orders: deque[Order] = deque()
    gradients = {}  # by worker: it sends no other before it is answered
    while True:
        message = link.listen()
        if isinstance(message, Push):
            gradients[message.worker] = link.gradient(message)
        elif isinstance(message, Order):
            orders.append(message)
        while orders and (orders[0].arrived is None or orders[0].arrived in gradients.keys() | link.gone):
            order = orders.popleft()
            shard.obey(order, gradients.pop(order.arrived, None), comm.clock)
            link.answer(order)
            if order.end:
                link.close()
                return
