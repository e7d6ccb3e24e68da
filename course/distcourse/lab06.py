"""Lab 06: collectives written by a student, judged and counted, measured on engines, in the place of the library's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from distlearn.comm.base import CommError, DoneWork
from distlearn.comm.network import Network
from distlearn.comm.network.fit import all_reduce_sweep, fastest, ping_pong
from distlearn.comm.point_to_point import DelayedComm
from distlearn.sim import SimWorld, explore, run_in_order
from distlearn.tables import format_time, quantity
from distlearn.viz.look import COLORS, MARKERS, MUTED, new_axes, styled, write_title

from .study import label_ticks

# -- What a collective sends: messages and bytes counted, and rounds, on simulated ranks.


ROUNDS = Network(alpha=1.0, contention="ports")
"""A network on which a message takes one second, whatever its size: seconds are rounds."""


class Counted(NamedTuple):
    """What was sent."""

    messages: int
    nbytes: int
    busiest: int
    rounds: float

    @classmethod
    def of(cls, world: SimWorld) -> Counted:
        """Count the last run of a world."""
        sent = world.trace.messages
        traffic = [sum(m.nbytes for m in sent if rank in (m.source, m.dest)) for rank in range(world.size)]
        return cls(len(sent), sum(m.nbytes for m in sent), max(traffic), world.makespan)


def counted(all_reduce, size: int, n: int) -> Counted:
    """Count what an all-reduce sends.

    Parameters
    ----------
    all_reduce : callable
        `all_reduce(comm, x)`.
    size : int
        Number of ranks.
    n : int
        Elements of x, of 8 bytes each.

    Examples
    --------
    >>> from distlearn.comm.collectives import ring_all_reduce
    >>> counted(ring_all_reduce, 4, 1000)
    Counted(messages=24, nbytes=48000, busiest=24000, rounds=6.0)
    """
    world = SimWorld(size, ROUNDS)
    world.run(lambda comm: all_reduce(comm, np.ones(n)) is None)
    return Counted.of(world)


# -- What answers to lab 06's exercises give, for their checks.


NAMES = {
    "star": "naive_all_reduce",
    "tree": "tree_all_reduce",
    "ring": "ring_all_reduce",
    "halving": "halving_doubling_all_reduce",
}
"""The all-reduces of the lab, and the library's function of each."""


def _inputs(size, shape, dtype, seed) -> np.ndarray:
    """An array for each rank; whole numbers, so that every order of adding gives the same."""
    return np.random.default_rng(seed).integers(1, 90, size=(size, *shape)).astype(dtype)


def _run(size, call) -> dict:
    """Run a function on simulated ranks; return its results by name, what was sent, and in how many rounds."""
    world = SimWorld(size, ROUNDS)
    found = {}
    for rank, results in enumerate(world.run(call)):
        found |= {f"{name} on rank {rank}": value for name, value in results.items()}
    sent = Counted.of(world)
    others = {span.name for span in world.trace.spans} - {"send", "recv", "send_recv"}
    found["used"] = ", ".join(sorted(others)) or "send and receive alone"
    return found | {"messages": sent.messages, "bytes": sent.nbytes, "rounds": sent.rounds, "busiest": sent.busiest}


def run_moves(scatter, gather, star_all_reduce, of, size, shape, dtype="float64", seed=1, root=0):
    if of == "star_all_reduce":
        return _all_reduce(star_all_reduce, size, shape, dtype, seed)
    rows = _inputs(size, shape, dtype, seed)

    def scattered(comm):
        out = np.full(shape, 91, dtype)
        whole = rows.copy() if comm.rank == root else None
        scatter(comm, whole, out, root)
        return {"out": out, "x": whole}

    def gathered(comm):
        x = rows[comm.rank].copy()
        result = gather(comm, x, root)
        result = "a list, wanted one array" if isinstance(result, list) else result
        return {"result": result, "x": x}

    found = _run(size, scattered if of == "scatter" else gathered)
    return {name: value for name, value in found.items() if name not in ("rounds", "busiest")}


def run_tree(broadcast, tree_all_reduce, of, size, shape, dtype="float64", seed=1, root=0):
    if of == "tree_all_reduce":
        return _all_reduce(tree_all_reduce, size, shape, dtype, seed)
    arrays = _inputs(size, shape, dtype, seed)

    def run(comm):
        x = arrays[comm.rank].copy()
        broadcast(comm, x, root)
        return {"x": x}

    return _run(size, run)


def run_ring(ring_all_reduce, size, shape, dtype="float64", seed=1):
    found = _all_reduce(ring_all_reduce, size, shape, dtype, seed)
    del found["busiest"]  # which part is the longest is free
    wire = SimWorld(size, Network(beta=1.0, contention="ports"))  # a byte takes a second
    wire.run(lambda comm: ring_all_reduce(comm, np.zeros(shape, dtype)) is None)
    return found | {"bytes one after another": wire.makespan}


run_halving = run_ring


def _all_reduce(all_reduce, size, shape, dtype, seed):
    arrays = _inputs(size, shape, dtype, seed)

    def run(comm):
        x = arrays[comm.rank].copy()
        all_reduce(comm, x)
        return {"x": x}

    return _run(size, run)


def run_seconds(seconds, **case):
    return {"seconds": seconds(**case)}


def run_network(decisions, mended, collect, epochs, relay, ledger, of, size=3, seed=1, losses=(7, 3)):
    if of == "mended":
        return _mended(mended, size, seed)
    orders = decisions()
    programs = {"collect": collect, "epochs": lambda comm: epochs(comm, losses), "relay": relay, "ledger": ledger}
    if not isinstance(orders, dict):
        return {"decisions": f"{orders!r}, not a dict with an entry for each of the four programs"}
    made = sum(len(order) for order in orders.values() if isinstance(order, (list, tuple)))
    found = {name: outcome(program, 3, orders.get(name, "no entry")) for name, program in programs.items()}
    return found | {"decisions": "5 or fewer" if made <= 5 else f"more\n{made} in all"}


def outcome(program, size: int, order) -> str:
    """Say what comes of an order of the network's decisions; None claims that none breaks the program."""
    if order is None:
        right = explore(program, size).ok
        return "no order breaks it" if right else "an order breaks it: at which receive does the network have a choice?"
    if not isinstance(order, (list, tuple)) or not all(isinstance(decision, str) for decision in order):
        return f"{order!r}, neither None nor a list of decisions such as ['2->0']"
    try:
        run = run_in_order(program, size, order)
    except ValueError as error:  # the text of a decision
        return str(error)
    if isinstance(run.error, CommError):
        return "broken"
    if run.error is not None:
        return str(run.error)
    made, possible = ", ".join(run.order), ", ".join(run.options[0])
    return f"the program ends well\ndecisions: {made}; the first choice was between {possible}"


def _mended(mended, size, seed):
    """The sums of both epochs under every order, and what the other ranks send."""
    losses = np.random.default_rng(seed).integers(1, 90, (size, 2)).tolist()
    found = explore(lambda comm: mended(comm, tuple(losses[comm.rank])), size, max_runs=200)
    if found.first is None or not found.ok:
        return {"every order": str(found.failure.error if found.failure else found)}

    def taken(comm):
        if comm.rank:
            return mended(comm, tuple(losses[comm.rank]))
        return [[comm.recv_obj(rank) for _ in range(2)] for rank in range(1, size)]

    sums, *others = found.first.results
    sent = SimWorld(size).run(taken)[0]
    return {
        "every order": "ends well, with the same sums",
        "sums on rank 0": sums,
        "on the others": "None" if others == [None] * (size - 1) else f"{others}",
        **{f"what rank {rank} sends": value for rank, value in enumerate(sent, 1)},
    }


# -- Messages and all-reduces on real ranks: bare, and over a link as slow as one between two computers.


class WithCollectives:
    """A communicator of which some collectives are given functions, and all else another communicator's.

    Parameters
    ----------
    **functions
        By name, of `all_reduce(comm, x)` (for sums; other operators are the host's), `broadcast(comm, x, root)`,
        `scatter(comm, x, out, root)` and `gather(comm, x, root)`. They work on `host`, by its sends and receives.
    """

    def __init__(self, host, **functions):
        self.host, self._given = host, functions

    def _call(self, name, *args):
        return self._given.get(name, getattr(type(self.host), name))(self.host, *args)

    def __getattr__(self, name):
        if name == "host":  # not set yet: `copy` and `pickle` make the object without calling __init__
            raise AttributeError(name)
        return getattr(self.host, name)

    def all_reduce(self, x, op="sum"):
        """Sum by the given function, in place."""
        if op != "sum":
            return self.host.all_reduce(x, op)
        self._call("all_reduce", x)
        return x

    def iall_reduce(self, x, op="sum"):
        """Sum at once: the given function blocks."""
        if op != "sum" or "all_reduce" not in self._given:
            return self.host.iall_reduce(x, op)
        return DoneWork(self.all_reduce(x))

    def broadcast(self, x, root=0):
        """Replace x by the root's."""
        self._call("broadcast", x, root)
        return x

    def scatter(self, x, out, root=0):
        """Fill out by this rank's row of the root's x."""
        self._call("scatter", x, out, root)
        return out

    def gather(self, x, root=0):
        """Return the rows of all ranks on the root."""
        return self._call("gather", x, root)


def measure(comm, all_reduces: dict, sizes, repeats: int = 5, link=None) -> tuple:
    """Time messages between two ranks, and given all-reduces on all of them.

    Parameters
    ----------
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
    slow = comm if link is None else DelayedComm(comm, Network(*link, contention="ports"))
    messages = ping_pong(slow, sizes, repeats if link else 4 * repeats)
    # the barriers between measurements take no slow link
    calls = {name: lambda _, x, f=f: f(slow, x) for name, f in all_reduces.items()}
    sweep = all_reduce_sweep(comm, calls, sizes, repeats)
    return fastest(messages), {name: fastest(times) for name, times in sweep.items()}


def thread_seconds() -> float:
    """Return the seconds in which one thread hands an array to another: a reference, whatever the size."""
    repeats, there, back, x = 200, SimpleQueue(), SimpleQueue(), np.zeros(1)

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


# -- Which all-reduce is the fastest for which size of array: predicted by a network model, and measured.


class Crossover(NamedTuple):
    """From `nbytes` on, `after` is the fastest instead of `before`."""

    nbytes: float
    before: str
    after: str


@styled
def plot_crossover(sweeps):
    """Draw the seconds of several algorithms against the size of the array, and where the fastest changes.

    Dashed lines are predictions, points are measurements; vertical lines mark where, by the model, another algorithm
    becomes the fastest.

    Parameters
    ----------
    sweeps : dict of str to Sweep
        By name: `nbytes`, the same for all, with `measured` and `predicted` seconds.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator

    (ax,), dashed, titles, found = new_axes(figsize=(8.4, 4.0)), (0, (5, 1.5)), [], {}
    for (name, sweep), color, marker in zip(sweeps.items(), COLORS, MARKERS, strict=False):
        ax.plot(sweep.nbytes, sweep.predicted, color=color, linestyle=dashed, linewidth=1.6, marker="")
        ax.plot(sweep.nbytes, sweep.measured, color=color, linestyle="", marker=marker, zorder=3)
        ax.plot([], [], linestyle="-", label=name, color=color, marker=marker)
    for what in ("predicted", "measured"):
        times = {name: getattr(sweep, what) for name, sweep in sweeps.items()}
        found[what] = changes = crossovers(sweep.nbytes, times)
        if changes:
            steps = " < ".join(f"{c.before} < {quantity(c.nbytes, 'B', 1024)}" for c in changes)
            titles.append(f"Fastest, {what}: {steps} < {changes[-1].after}")
        else:
            titles.append(f"Fastest, {what}: {min(times, key=lambda name: times[name][0])} at every size")
    for change in found["predicted"]:
        ax.axvline(change.nbytes, color=MUTED, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=1)
    _show_sizes(ax)
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    label_ticks(ax.yaxis, LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)), format_time)
    ax.set_ylabel("time of one all-reduce")
    handles = ax.get_legend_handles_labels()[0]
    handles.append(Line2D([], [], color=MUTED, linestyle=dashed, marker="", label="predicted"))
    handles.append(Line2D([], [], color=MUTED, linestyle="", marker="o", label="measured"))
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, "\n".join(titles))
    return ax


def crossovers(nbytes, seconds: Mapping[str, np.ndarray]) -> list[Crossover]:
    """Find where the fastest of several algorithms changes; between two sizes the seconds are straight lines.

    Examples
    --------
    >>> crossovers(np.array([1.0, 5.0]), {"a": np.array([1.0, 10.0]), "b": np.array([10.0, 1.0])})
    [Crossover(nbytes=3.0, before='a', after='b')]
    """
    order = [min(seconds, key=lambda name: seconds[name][i]) for i in range(len(nbytes))]
    found = []
    for i, (before, after) in enumerate(pairwise(order)):
        if before == after:
            continue
        lead, lag = (seconds[after][j] - seconds[before][j] for j in (i, i + 1))
        share = lead / (lead - lag) if lead != lag else 0.5
        found.append(Crossover(float(nbytes[i] + share * (nbytes[i + 1] - nbytes[i])), before, after))
    return found


@styled
def plot_fastest(nbytes, ranks, seconds: Mapping[str, np.ndarray], *, title=None):
    """Draw a map of which algorithm is the fastest, by the size of the array and the number of ranks.

    Parameters
    ----------
    nbytes : (n,) array
        Sizes, evenly spaced on a logarithmic axis [bytes].
    ranks : (m,) array of int
    seconds : dict of str to (m, n) array
        Of each algorithm; where several are equally fast, the first one counts.
    """
    from matplotlib.colors import ListedColormap

    times = np.stack([np.asarray(t, float) for t in seconds.values()])
    # rounding must not decide between two that are equally fast
    fastest = np.argmax(times <= times.min(axis=0) * (1 + 1e-9), axis=0)
    names = list(seconds)
    (ax,) = new_axes(figsize=(8.0, 4.2))
    for i in np.unique(fastest):
        cells = np.where(fastest == i, 1.0, np.nan)
        rows = np.arange(len(ranks))
        ax.pcolormesh(nbytes, rows, cells, cmap=ListedColormap([COLORS[i % len(COLORS)]]), shading="nearest")
        ax.plot([], [], linestyle="", marker="s", markersize=10, color=COLORS[i % len(COLORS)], label=names[i])
    _show_sizes(ax)
    ax.set_yticks(range(len(ranks)), [str(p) for p in ranks])
    ax.set_ylabel("ranks")
    ax.grid(visible=False)
    ax.legend(title="fastest", loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, f"{len(np.unique(fastest))} of {len(names)} algorithms are the fastest somewhere", title)
    return ax


def _show_sizes(ax) -> None:
    from matplotlib.ticker import LogLocator

    ax.set_xscale("log", base=2)
    label_ticks(ax.xaxis, LogLocator(base=4, numticks=12), lambda n: quantity(n, "B", 1024))
    ax.set_xlabel("size of the array")
