"""LimitedWorld: engines whose ranks are connected by a link of limited bandwidth.

Where this process may make network namespaces, every engine is on its own host and the kernel limits what a host
receives: real messages over TCP. Elsewhere the engines share this machine's memory as usual, and the communicator
delays every message.
"""

from __future__ import annotations

import shutil

import numpy as np

from ..comm.delayed import DelayedComm
from ..comm.network import Network
from .engines import EngineWorld
from .launching import find_mpiexec, is_hydra
from .namespaces import Net, why_not

LATENCY = 1e-3
"""Of a delayed message [s]: about what one takes between engines over TCP."""
BURST_SECONDS, BURST_BYTES = 8e-3, (32e3, 256e3)
METHODS = {"namespaces": "network namespaces", "delay": "a delay in the communicator"}


def why_no_namespaces() -> str:
    """Say what keeps engines from being put into network namespaces with a limited link; empty if nothing does."""
    if reason := why_not():
        return reason
    if shutil.which("tc") is None:
        return "the tool 'tc' is missing (Debian: iproute2)"
    return "" if is_hydra(find_mpiexec()) else "only MPICH's mpiexec can be told how to reach the hosts"


class LimitedWorld(EngineWorld):
    """An `EngineWorld` whose ranks send at most so many bits per second.

    Parameters
    ----------
    method : {"namespaces", "delay"}, optional
        By default namespaces where they are allowed.
    **options
        Of `EngineWorld`.

    Attributes
    ----------
    how : str
        The same in words.
    reason : str
        Why there are no namespaces; empty if there are.
    """

    def __init__(self, engines: int = 4, *, method: str | None = None, **options):
        if method not in (None, *METHODS):
            raise ValueError(f"LimitedWorld: method is {method!r}, expected one of {', '.join(METHODS)}")
        self.reason = "" if method == "delay" else why_no_namespaces()
        if method == "namespaces" and self.reason:
            raise RuntimeError(f"LimitedWorld: {self.reason}")
        self.method = method or ("delay" if self.reason else "namespaces")
        self._net = self._network = None
        try:
            if self.method == "namespaces":
                self._net = Net(engines)
                options["hosts"] = self._net.for_engines()
            super().__init__(engines, **options)
        except BaseException:
            self._take_down()
            raise

    @property
    def how(self) -> str:
        """The method in words."""
        return METHODS[self.method]

    def limit(self, bits_per_second: float | None) -> None:
        """Limit what each rank may send or receive from now on; None for no limit."""
        if bits_per_second is not None and not bits_per_second > 0:
            raise ValueError(f"limit: {bits_per_second!r}, expected a number of bits per second above 0, or None")
        if self._net is None:
            self._network = None if bits_per_second is None else Network(LATENCY, bits_per_second / 8)
            return
        for host in self._net.hosts:
            if bits_per_second is None:
                self._net.shape(host, None)
            else:  # the kernel looks every few milliseconds, and what may go until then is the burst
                burst = np.clip(BURST_SECONDS * bits_per_second / 8, *BURST_BYTES)
                self._net.shape(host, f"{bits_per_second:.0f}bit", burst=f"{burst:.0f}b")

    def run(self, fn, *args, **options):
        """Call `fn` on every rank behind the limited link; see `EngineWorld.run`."""
        __tracebackhide__ = True
        if self._network is None:
            return super().run(fn, *args, **options)
        return super().run(delayed, self._network, fn, *args, **options)

    def close(self) -> None:
        """Stop the engines and remove their hosts; do nothing the second time."""
        super().close()
        self._take_down()

    def _take_down(self) -> None:
        if self._net is not None:
            self._net.down()


def delayed(comm, network, fn, *args, **kwargs):
    """Call `fn` with a communicator that delays every message as `network` would."""
    return fn(DelayedComm(comm, network), *args, **kwargs)
