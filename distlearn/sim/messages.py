"""Collectives as the messages of `comm.collectives`: what a student steps through is what the simulated ranks run.

A collective that blocks runs in the rank's own fibre, so that a breakpoint in `ring_all_reduce` shows the user's call
further down the stack. A non-blocking one runs in a fibre of its own, which shares the rank's network card. Collectives
of one communicator run one after another, in the order of their calls; those of different ones may overlap.
"""

from __future__ import annotations

from ..comm import collectives
from ..trace import Span
from .communicator import SimComm
from .events import Completion
from .formula import FormulaComm
from .work import CollectiveWork


class MessageComm(FormulaComm):
    """A simulated rank's `Communicator` whose collectives of arrays send messages.

    Those of objects, and `split`, take the time of the formula.
    """

    def __init__(self, transport, fibre, rank, members, context=0, clock=None):
        super().__init__(transport, fibre, rank, members, context, clock)
        self._inner = SimComm(transport, fibre, rank, members, -1 - context, self.clock)  # for collectives' messages
        self._latest: Completion | None = None  # of the non-blocking collectives

    def _join(self, call):
        """Note that this rank has come to its next collective."""
        seq = self._n_calls
        self._n_calls += 1
        return self._transport.join(call, self.rank, self._members, self._context, seq)

    def _perform(self, fibre, call, joined, nbytes, *args):
        """Run a collective in `fibre` and record it; return its result."""
        previous = fibre.call
        fibre.call = joined
        comm = self._inner if fibre is self._fibre else self._inner.in_fibre(fibre)
        start = fibre.now
        result = self._algorithm(call.name, nbytes)(comm, *args)
        fibre.call = previous
        self._transport.trace.spans.append(Span(fibre.rank, "comm", call.name, start, fibre.now, 0, nbytes))
        return result

    def _algorithm(self, name, nbytes):
        """Return the function that sends the messages of a collective."""
        network = self._transport.network
        chosen = network.algorithm(name, nbytes, [member.rank for member in self._members])
        algorithm = getattr(collectives, chosen)
        if chosen == "torus_all_reduce":
            return lambda comm, x, op: algorithm(comm, x, network.ranks_per_node, op)
        return algorithm

    def _run(self, call, nbytes, *args):
        """Perform a collective in the rank's own fibre, after those under way."""
        joined = self._join(call)
        self._settle()
        return self._perform(self._fibre, call, joined, nbytes, *args)

    def _settle(self) -> None:
        """Wait for the non-blocking collectives that were started before."""
        if self._latest is not None:
            self._transport.wait_for(self._fibre, self._latest)
            self._latest = None

    def _start(self, call, x, op, finish) -> CollectiveWork:
        """Perform a collective of a copy of `x` in a fibre of its own."""
        joined, transport = self._join(call), self._transport
        before, done = self._latest, Completion(joined, self._fibre)
        self._latest = done
        snapshot, mine = x.copy(), x.copy()

        def task(fibre):
            if before is not None:
                before.waiters.append(fibre)
                transport.wait_for(fibre, before)
            done.result = self._perform(fibre, call, joined, x.nbytes, mine, op)
            for waiter in done.waiters:
                transport.complete(done, fibre.now, waiter)

        transport.scheduler.spawn(self._fibre, task)
        return CollectiveWork(self, done, call, x, snapshot, lambda: finish(done.result))

    def _all_reduce(self, call, x, op):
        return self._run(call, x.nbytes, x, op)

    def _iall_reduce(self, call, x, op):
        def finish(result):
            x[...] = result
            return x

        return self._start(call, x, op, finish)

    def _reduce_scatter(self, call, x, op):
        return self._run(call, x.nbytes, x, op)

    def _ireduce_scatter(self, call, x, op):
        return self._start(call, x, op, lambda result: result)

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
        """Join a collective that takes the time of the formula, after those under way."""
        self._settle()
        return super()._meet(call, payload, nbytes, finish)
