"""Collectives from messages: communicators over connections that have nothing better.

`PointToPoint` runs those of `comm.collectives`: a communicator over a new kind of connection is a subclass of it with
the five primitives of `Communicator`. `DelegatingComm` takes the primitives from another communicator.
"""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np

from ..backend import get_xp
from ..trace import WallClock
from . import collectives
from .base import Communicator, DoneWork, Work, ignore_report
from .calls import ANY, Call, reduced


class PointToPoint(Communicator):
    """A communicator whose collectives are messages of its own."""

    @functools.cached_property
    def _messages(self) -> Communicator:
        """Itself with one tag more, `n_tags`: the messages of collectives never match those of a caller."""
        comm = copy.copy(self)
        comm.n_tags = self.n_tags + 1
        return comm

    def _share_of_halves(self, x, op):
        """Reduce this rank's share, which every rank sends it: as many bytes as around a ring, and rounded once."""
        comm, parts, p, r = self._messages, collectives.rings.cut(x, self.size), self.size, self.rank
        rows = {r: parts[r]}
        for step in range(1, p):
            to, source = (r + step) % p, (r - step) % p
            rows[source] = get_xp(x).empty_like(parts[r])
            comm.send_recv(parts[to], to, rows[source], source, self.n_tags)
        return reduced([rows[rank] for rank in range(p)], op)

    def _run(self, call: Call, *args):
        return collectives.ALGORITHMS[call.name](self._messages, *args, self.n_tags)

    _broadcast = _scatter = _gather = _all_to_all = _barrier = _run

    def _iall_reduce(self, call: Call, x, op) -> Work:
        if x.dtype == np.float16 and self.size > 2:
            parts = collectives.rings.cut(x, self.size)
            parts[self.rank][...] = self._share_of_halves(x, op)
            collectives.rings.pass_around(self._messages, parts, self.n_tags, holds=self.rank)
            return DoneWork(x)
        return DoneWork(self._run(call, x, op))

    def _ireduce_scatter(self, call: Call, x, op) -> Work:
        halves = x.dtype == np.float16 and self.size > 2
        return DoneWork(self._share_of_halves(x, op) if halves else self._run(call, x, op))

    def _iall_gather(self, call: Call, x) -> Work:
        return DoneWork(self._run(call, x))

    def _broadcast_obj(self, call: Call, obj, root):
        if self.rank != root:
            return self._recv_obj(root, self.n_tags)
        for dest in range(self.size):
            if dest != root:
                self._send_obj(obj, dest, self.n_tags)
        return pickle.loads(pickle.dumps(obj, protocol=5))  # a copy on every rank, the root too

    def _gather_obj(self, call: Call, obj, root):
        if self.rank != root:
            return self._send_obj(obj, root, self.n_tags)
        own = pickle.loads(pickle.dumps(obj, protocol=5))
        return [own if rank == root else self._recv_obj(rank, self.n_tags) for rank in range(self.size)]


class DelegatingComm(PointToPoint):
    """Delegates messages, and everything pickled, to `host`, a communicator of the same ranks."""

    # Attributes that are not a `Communicator`'s, such as MPIComm's `raw` and `activity`, are looked up in `host`.

    def __init__(self, host):
        self.host = host
        self.rank, self.size, self.clock, self.report = host.rank, host.size, host.clock, host.report
        self.members, self.recorder = host.members, host.recorder
        self.timeout, self.n_tags = host.timeout, host.n_tags - 1  # one is left for the collectives

    def __getattr__(self, name):
        if name == "host":  # not set yet: `copy` and `pickle` make the object without calling __init__
            raise AttributeError(name)
        return getattr(self.host, name)

    def agreement(self, call):
        """Begin to compare this rank's call of a collective with the others', as `host` does."""
        return self.host.agreement(call)

    def _send(self, x, dest, tag):
        self.host.send(x, dest, tag)

    def _recv(self, out, source, tag):
        return self.host.recv(out, source, tag)

    def _isend(self, x, dest, tag):
        return self.host.isend(x, dest, tag)

    def _irecv(self, out, source, tag):
        return self.host.irecv(out, source, tag)

    def _send_recv(self, sent, received):
        x, dest, _ = sent
        return self.host.send_recv(x, dest, *received)

    def _send_obj(self, obj, dest, tag):
        self.host.send_obj(obj, dest, tag)

    def _recv_obj(self, source, tag):
        return self.host.recv_obj(source, tag)

    def _broadcast_obj(self, call, obj, root):
        return self.host.broadcast_obj(obj, root)

    def _gather_obj(self, call, obj, root):
        return self.host.gather_obj(obj, root)

    def _barrier(self, call):
        self.host.barrier()


class DelayedComm(DelegatingComm):
    """Sends through `host`, after a wait of alpha + n / beta seconds for a message of n bytes."""

    # With a network whose contention is "ports" a rank also receives one message at a time: those that arrive together
    # are taken one after another, n / beta seconds each.

    def __init__(self, host, network):
        super().__init__(host)
        self.network = network
        self._free = [0.0]  # when this rank has received its last message; in a list, which copies share

    def _delay(self, x) -> None:
        with self.clock.span("delay", lane="comm"):
            self.clock.sleep(self.network.message(x.nbytes))

    def _send(self, x, dest, tag):
        self._delay(x)
        super()._send(x, dest, tag)

    def _recv(self, out, source, tag):
        got = super()._recv(out, source, tag)
        if self.network.contention == "ports":
            self._free[0] = max(self.clock.now(), self._free[0] + out.nbytes / self.network.beta)
            self.clock.sleep(max(0.0, self._free[0] - self.clock.now()))
        return got

    def _isend(self, x, dest, tag):
        self._delay(x)
        return super()._isend(x, dest, tag)

    def _send_recv(self, sent, received):
        self._delay(sent[0])
        return super()._send_recv(sent, received)

    def _split(self, call, color, key):
        part = self.host.split(color, key)
        return None if part is None else DelayedComm(part, self.network)


# -- one rank ----------------------------------------------------------------------------------------------------------


class LocalComm(PointToPoint):
    """The `Communicator` of one rank, without MPI: the same checks, the wall clock, no messages."""

    rank = 0
    size = 1

    def __init__(self, clock=None, report=None):
        self.clock = WallClock() if clock is None else clock
        self._report = ignore_report if report is None else report

    def __repr__(self) -> str:
        return "LocalComm()"

    # between two ranks: there is no second one, so the base class refuses every `dest` and every `source` but ANY
    def _recv_obj(self, source, tag):
        assert source == ANY
        raise ValueError("rank 0: recv_obj(source=ANY) on a communicator of one rank: no other rank can send")

    def _split(self, call, color, key):
        return None if color is None else LocalComm(self.clock, self._report)
