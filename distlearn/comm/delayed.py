"""A slow network where none can be had: every message waits as long as the network would need for it."""

from __future__ import annotations

import copy

from . import collectives
from .delegating import DelegatingComm
from .protocol import DoneWork

_TAG = 1 << 12
"""Of the messages of collectives; the caller's tags are below it."""


class DelayedComm(DelegatingComm):
    """Sends through `host`, after a wait of alpha + n / beta seconds for a message of n bytes."""

    # With a network whose contention is "ports" a rank also receives one message at a time: those that arrive together
    # are taken one after another, n / beta seconds each.

    n_tags = _TAG

    def __init__(self, host, network):
        super().__init__(host)
        self.network = network
        self._free = [0.0]  # when this rank has received its last message; in a list, which the copy below shares
        self._unrestricted = copy.copy(self)
        self._unrestricted.n_tags = _TAG + 1

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

    # -- collectives ---------------------------------------------------------------------------------------------------
    def _iall_reduce(self, call, x, op):
        return DoneWork(collectives.ring_all_reduce(self._unrestricted, x, op, tag=_TAG))

    def _ireduce_scatter(self, call, x, op):
        return DoneWork(collectives.ring_reduce_scatter(self._unrestricted, x, op, tag=_TAG))

    def _all_gather(self, call, x):
        return collectives.ring_all_gather(self._unrestricted, x, tag=_TAG)

    def _broadcast(self, call, x, root):
        return collectives.tree_broadcast(self._unrestricted, x, root, tag=_TAG)

    def _scatter(self, call, x, out, root):
        return collectives.tree_scatter(self._unrestricted, x, out, root, tag=_TAG)

    def _gather(self, call, x, root):
        return collectives.tree_gather(self._unrestricted, x, root, tag=_TAG)

    def _all_to_all(self, call, x):
        return collectives.pairwise_all_to_all(self._unrestricted, x, tag=_TAG)

    def _split(self, call, color, key):
        part = self.host.split(color, key)
        return None if part is None else DelayedComm(part, self.network)
