"""Messages and all-reduces on real ranks: bare, and over a link that makes messages as slow as between two computers."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import numpy as np

from ...comm.network.measure import all_reduce_sweep, fastest, ping_pong
from ...comm.protocol import DoneWork


class WithAllReduce:
    """A communicator whose sums over ranks are made by a given function, and all else by another communicator.

    Parameters
    ----------
    host : Communicator
    all_reduce : callable
        `all_reduce(comm, x)`: replaces x by the sum over ranks.
    """

    def __init__(self, host, all_reduce):
        self.host, self._all_reduce = host, all_reduce

    def __getattr__(self, name):
        if name == "host":  # not set yet: `copy` and `pickle` make the object without calling __init__
            raise AttributeError(name)
        return getattr(self.host, name)

    def all_reduce(self, x, op="sum"):
        """Sum by the given function; other operators are the host's."""
        if op != "sum":
            return self.host.all_reduce(x, op)
        self._all_reduce(self.host, x)
        return x

    def iall_reduce(self, x, op="sum"):
        """Sum at once: the given function blocks."""
        return DoneWork(self.all_reduce(x, op))


class SlowLink:
    """A communicator between whose ranks a message of n bytes takes alpha + n / beta longer, on the ranks' clock.

    A rank sends one message at a time and receives one at a time, as `Network(alpha, beta, contention="ports")` has it.
    Collectives are the host's, at its speed.

    Parameters
    ----------
    host : Communicator
    alpha : float
        [s]
    beta : float
        [bytes/s]
    """

    def __init__(self, host, alpha: float, beta: float):
        if not (alpha >= 0 and beta > 0):
            raise ValueError(f"SlowLink: alpha is {alpha!r}, beta {beta!r}, expected 0 seconds or more, above 0 bytes/s")
        self.host, self.alpha, self.beta = host, alpha, beta
        self._free = 0.0  # when this rank has received the last message

    def __getattr__(self, name):
        if name == "host":  # as in `WithAllReduce`
            raise AttributeError(name)
        return getattr(self.host, name)

    def send(self, x, dest, tag=0):
        """Send, after the time that the message takes."""
        self.host.clock.sleep(self.alpha + x.nbytes / self.beta)
        self.host.send(x, dest, tag)

    def recv(self, out, source, tag=0):
        """Receive; messages that arrive together are taken one after another."""
        clock = self.host.clock
        self.host.recv(out, source, tag)
        self._free = max(clock.now(), self._free + out.nbytes / self.beta)
        clock.sleep(max(0.0, self._free - clock.now()))
        return out

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once."""
        self.host.clock.sleep(self.alpha + x.nbytes / self.beta)
        return self.host.send_recv(x, dest, out, source, tag)

    def isend(self, x, dest, tag=0):
        """Start a send, after the time that the message takes."""
        self.host.clock.sleep(self.alpha + x.nbytes / self.beta)
        return self.host.isend(x, dest, tag)


def measure(comm, all_reduces: dict, sizes, repeats: int = 5, link=None) -> tuple:
    """Time messages between two ranks, and given all-reduces on all of them.

    Parameters
    ----------
    comm : Communicator
    all_reduces : dict of str to callable
        `all_reduce(comm, x)`.
    sizes : sequence of int
        [bytes]
    repeats : int
        Of each all-reduce, and a quarter of those of a message.
    link : (alpha, beta), optional
        Of a `SlowLink`; the ranks' own connection by default.

    Returns
    -------
    messages : (sizes,) array
        Shortest seconds of a message of each size; only those of rank 0 count.
    found : dict of str to (sizes,) array
        Shortest seconds until the last rank was done, by all-reduce.
    """
    comm = comm if link is None else SlowLink(comm, *link)
    messages = ping_pong(comm, sizes, 4 * repeats)
    sweep = all_reduce_sweep(comm, all_reduces, sizes, repeats)
    return fastest(messages), {name: fastest(times) for name, times in sweep.items()}


def thread_seconds(repeats: int = 200) -> float:
    """Return the seconds in which one thread hands an array to another: a reference, whatever the size."""
    there, back, x = SimpleQueue(), SimpleQueue(), np.zeros(1)

    def answer():
        for _ in range(repeats):
            back.put(there.get())

    thread = threading.Thread(target=answer)
    thread.start()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        there.put(x)
        back.get()
        times.append((time.perf_counter() - began) / 2)
    thread.join()
    return min(times)
