"""Collectives as the messages of `comm.collectives`: what a student steps through is what the simulated ranks run.

A collective that blocks runs in the rank's own fibre, so that a breakpoint in `ring_all_reduce` shows the user's call
further down the stack. A non-blocking one runs in a fibre of its own, which shares the rank's network card. Collectives
of one communicator run one after another, in the order of their calls; those of different ones may overlap.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ..comm import collectives
from ..trace import Span
from .communicator import SimComm
from .formula import FormulaComm
from .transport import Completion
from .work import CollectiveWork


class MessageComm(FormulaComm):
    """A simulated rank's `Communicator` whose collectives of arrays send messages.

    Collectives of objects, and `split`, take the time of the formula.
    """

    def __init__(self, transport, fibre, rank, members, context=0, clock=None):
        super().__init__(transport, fibre, rank, members, context, clock)
        self._inner = SimComm(transport, fibre, rank, members, -1 - context, self.clock)  # for collectives' messages
        self._latest: Completion | None = None  # of the non-blocking collectives
        self._algorithms: dict[tuple, Callable] = {}  # by name of the collective and bytes

    def _join(self, call):
        """Register this rank's next collective call."""
        seq = self._n_calls
        self._n_calls += 1
        return self._transport.join(call, self.rank, self._members, self._context, seq)

    def _perform(self, fibre, call, joined, nbytes, *args):
        """Run a collective in `fibre` and record it; return its result."""
        previous = fibre.call
        fibre.call = joined
        comm = self._inner
        if fibre is not self._fibre:
            comm = copy.copy(comm)
            comm._fibre = fibre
        start = fibre.now
        key = call.name, nbytes
        result = (self._algorithms.get(key) or self._choose(key))(comm, *args)
        fibre.call = previous
        self._transport.trace.spans.append(Span(fibre.rank, "comm", call.name, start, fibre.now, 0, nbytes))
        return result

    def _choose(self, key):
        """Return the function that sends the messages of a collective of this many bytes."""
        network = self._transport.network
        chosen = network.algorithm(*key, [member.rank for member in self._members])
        algorithm = getattr(collectives, chosen)
        if chosen == "torus_all_reduce":
            self._algorithms[key] = lambda comm, x, op: algorithm(comm, x, network.ranks_per_node, op)
        else:
            self._algorithms[key] = algorithm
        return self._algorithms[key]

    def _run(self, call, nbytes, *args):
        """Perform a collective in the rank's own fibre, after those in progress."""
        joined = self._join(call)
        if self._latest is not None:
            self._finish_earlier()
        return self._perform(self._fibre, call, joined, nbytes, *args)

    def _finish_earlier(self) -> None:
        """Wait for the non-blocking collectives that were started before."""
        self._transport.wait_for(self._fibre, self._latest)
        self._latest = None

    def _start(self, call, x, op) -> CollectiveWork:
        """Perform a collective of a copy of `x` in a fibre of its own."""
        joined, transport = self._join(call), self._transport
        before, done = self._latest, Completion(joined, self._fibre)
        self._latest = done
        snapshot, mine = x.copy(), x.copy()

        def task(fibre):
            if before is not None:
                before.waiters.append(fibre)
                transport.wait_for(fibre, before)
            done.results[self.rank] = self._perform(fibre, call, joined, x.nbytes, mine, op)
            for waiter in done.waiters:
                transport.complete(done, fibre.now, waiter)

        transport.scheduler.spawn(self._fibre, task)
        return CollectiveWork(self, done, call, x, snapshot)

    def _all_reduce(self, call, x, op):
        return self._run(call, x.nbytes, x, op)

    def _iall_reduce(self, call, x, op):
        return self._start(call, x, op)

    def _reduce_scatter(self, call, x, op):
        return self._run(call, x.nbytes, x, op)

    def _ireduce_scatter(self, call, x, op):
        return self._start(call, x, op)

    def _all_gather(self, call, x):
        return self._run(call, x.nbytes * self.size, x)

    def _broadcast(self, call, x, root):
        return self._run(call, x.nbytes, x, root)

    def _scatter(self, call, x, out, root):
        return self._run(call, out.nbytes * self.size, x, out, root)

    def _gather(self, call, x, root):
        return self._run(call, x.nbytes * self.size, x, root)

    def _all_to_all(self, call, x):
        return self._run(call, x.nbytes, x)

    def _barrier(self, call):
        self._run(call, 0)

    def _meet(self, call, payload, nbytes, finish):
        """Join a collective that takes the time of the formula, after those in progress."""
        if self._latest is not None:
            self._finish_earlier()
        return super()._meet(call, payload, nbytes, finish)
