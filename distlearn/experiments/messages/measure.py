"""Messages and all-reduces on real ranks: bare, and over a link as slow as one between two computers."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import numpy as np

from ...comm.delayed import DelayedComm
from ...comm.network import Network
from ...comm.network.measure import all_reduce_sweep, fastest, ping_pong
from ...comm.protocol import DoneWork


class WithCollectives:
    """A communicator of which some collectives are given functions, and all else another communicator's.

    Parameters
    ----------
    host : Communicator
    **functions
        By name, of `all_reduce(comm, x)` (for sums; other operators are the host's), `broadcast(comm, x, root)`,
        `scatter(comm, x, out, root)` and `gather(comm, x, root)`. They work on `host`, by its sends and receives.
    """

    def __init__(self, host, **functions):
        unknown = set(functions) - {"all_reduce", "broadcast", "scatter", "gather"}
        if unknown:
            raise ValueError(f"WithCollectives: {unknown.pop()!r}, expected all_reduce, broadcast, scatter or gather")
        self.host, self._given = host, functions

    def __getattr__(self, name):
        if name == "host":  # not set yet: `copy` and `pickle` make the object without calling __init__
            raise AttributeError(name)
        return getattr(self.host, name)

    def all_reduce(self, x, op="sum"):
        """Sum by the given function, in place."""
        if op != "sum" or "all_reduce" not in self._given:
            return self.host.all_reduce(x, op)
        self._given["all_reduce"](self.host, x)
        return x

    def iall_reduce(self, x, op="sum"):
        """Sum at once: the given function blocks."""
        if op != "sum" or "all_reduce" not in self._given:
            return self.host.iall_reduce(x, op)
        return DoneWork(self.all_reduce(x))

    def broadcast(self, x, root=0):
        """Replace x by the root's."""
        if "broadcast" not in self._given:
            return self.host.broadcast(x, root)
        self._given["broadcast"](self.host, x, root)
        return x

    def scatter(self, x, out, root=0):
        """Fill out by this rank's row of the root's x."""
        if "scatter" not in self._given:
            return self.host.scatter(x, out, root)
        self._given["scatter"](self.host, x, out, root)
        return out

    def gather(self, x, root=0):
        """Return the rows of all ranks on the root."""
        return self._given.get("gather", type(self.host).gather)(self.host, x, root)


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
        Of each all-reduce, and of each message over a slow link; four times as many of bare messages.
    link : (alpha, beta), optional
        Of a slow link between the ranks (`DelayedComm`); their own connection by default.

    Returns
    -------
    messages : (sizes,) array
        Shortest seconds of a message of each size; only those of rank 0 count.
    found : dict of str to (sizes,) array
        Shortest seconds until the last rank was done, by all-reduce.
    """
    comm = comm if link is None else DelayedComm(comm, Network(*link, contention="ports"))
    messages = ping_pong(comm, sizes, repeats if link else 4 * repeats)
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
