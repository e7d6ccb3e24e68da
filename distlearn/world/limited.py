"""LimitedWorld: engines whose ranks are connected by a link of limited bandwidth, as a communicator that delays."""

from __future__ import annotations

from ..comm.network import Network
from ..comm.point_to_point import DelayedComm
from .engines import EngineWorld

LATENCY = 1e-3
"""Of a delayed message [s]: about what one takes between engines over TCP."""


class LimitedWorld(EngineWorld):
    """An `EngineWorld` whose ranks send at most so many bits per second; takes its arguments."""

    _network: Network | None = None

    def limit(self, bits_per_second: float | None) -> None:
        """Limit what each rank may send or receive from now on; None for no limit."""
        if bits_per_second is not None and not bits_per_second > 0:
            raise ValueError(f"limit: {bits_per_second!r}, expected a number of bits per second above 0, or None")
        self._network = None if bits_per_second is None else Network(LATENCY, bits_per_second / 8)

    def run(self, fn, *args, **options):
        """Call `fn` on every rank behind the limited link; see `EngineWorld.run`."""
        __tracebackhide__ = True
        if self._network is None:
            return super().run(fn, *args, **options)
        return super().run(delayed, self._network, fn, *args, **options)


def delayed(comm, network, fn, *args, **kwargs):
    """Call `fn` with a communicator that delays every message as `network` would."""
    return fn(DelayedComm(comm, network), *args, **kwargs)
