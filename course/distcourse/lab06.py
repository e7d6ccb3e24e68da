"""Lab 06: collectives written by a student, judged and counted, measured on engines, in the place of the library's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from distlearn.comm.base import CommError, DoneWork
from distlearn.comm.network import Network, cost
from distlearn.comm.network.fit import all_reduce_sweep, fastest, ping_pong
from distlearn.comm.point_to_point import DelayedComm
from distlearn.sim import SimWorld, explore, run_in_order
from distlearn.tables import format_time, quantity
from distlearn.viz.look import COLORS, INK, MARKERS, MUTED, new_axes, styled, write_title

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


# -- The checks of lab 06: a given collective against NumPy on simulated ranks, what it sends against the formulas.


NAMES = {
    "star": "naive_all_reduce",
    "tree": "tree_all_reduce",
    "ring": "ring_all_reduce",
    "halving": "halving_doubling_all_reduce",
}
"""The all-reduces of the lab, and the library's function of each."""
PARTS = (NAMES["ring"], NAMES["halving"])
"""Those that send parts of an array."""


def _inputs(size, shape, dtype, seed) -> np.ndarray:
    """An array for each rank; whole numbers, so that every order of adding gives the same."""
    return np.random.default_rng(seed).integers(1, 90, size=(size, *shape)).astype(dtype)


def _check_sent(check, of: str, world: SimWorld, algorithm: str, n: int, rounds: int | None, mistakes: dict) -> None:
    """Compare messages, bytes and rounds of a world's last run with the formulas; a mistake sends (messages, bytes)."""
    got, p = Counted.of(world), world.size
    want, nbytes = cost.messages(algorithm, n, p), round(cost.nbytes(algorithm, n, p))
    fitting = {told: sent[0] for told, sent in mistakes.items() if got.nbytes == sent[1]}
    whole = {"every message is a whole array: send parts of it": got.messages * n} if got.nbytes > nbytes else {}
    with check.group(f"what is sent, {of}", most=3):
        check.equal(f"messages, {of}", got.messages, want, suspects=fitting)
        check.equal(f"bytes, {of}", got.nbytes, nbytes, suspects=whole if algorithm in PARTS else {})
        if rounds is not None:
            told = f"{got.rounds:g} messages wait for each other, {rounds} suffice: who could send at the same time?"
            check.true(f"rounds, {of}", got.rounds <= rounds, told)


def check_scatter_gather(check, scatter, gather, size: int, root: int = 0, shape=(3,), dtype="float64", seed=1) -> None:
    """Compare a given scatter and gather with what they should do; add the outcome to a lab's check.

    Parameters
    ----------
    scatter, gather : callable
        `scatter(comm, x, out, root)` and `gather(comm, x, root)`, with the meaning of the communicator's.
    shape : tuple of int
        Of a row.
    """
    rows, of = _inputs(size, shape, dtype, seed), f"{size} rank{'s' * (size > 1)}, root {root}"
    n = rows[0].nbytes
    world = SimWorld(size, ROUNDS)

    def scattered(comm):
        out = np.full(shape, 91, dtype)
        check.call(scatter, comm, rows.copy() if comm.rank == root else None, out, root, inplace=True)
        return out

    got = world.run(scattered)
    with check.group(f"scatter, {of}", most=3):
        for rank, out in enumerate(got):
            wrong = {
                "nothing was written into out": np.full(shape, 91, dtype),
                "this is row 0: rank r gets row r": rows[0],
                "this is the root's row": rows[root],
            }
            check.close(f"scatter: out on rank {rank}, {of}", out, rows[rank], dtype=dtype, suspects=wrong)
        whole = {"the root keeps its own row: copy it, without a message": (size, size * n)}
        _check_sent(check, f"scatter, {of}", world, "flat_scatter", n, None, whole)

    def gathered(comm):
        return check.call(gather, comm, rows[comm.rank].copy(), root)

    got = world.run(gathered)
    with check.group(f"gather, {of}", most=3):
        for rank, result in enumerate(got):
            if rank == root:
                wrong = {"the rows are not in the order of ranks": rows[::-1], "the root's own row is missing": 0}
                others = rows.copy()
                others[root] = 0
                wrong["the root's own row is not filled in"] = others
                check.close(f"gather: result on the root, {of}", result, rows, dtype=dtype, suspects=wrong)
                told = f"it is a {type(result).__name__}: return one array, (size, ...)"
                check.true(f"gather: an array, {of}", isinstance(result, np.ndarray) or result is None, told)
            else:
                told = "only the root returns the rows, all other ranks None"
                check.true(f"gather: result on rank {rank}, {of}", result is None, told)
        _check_sent(check, f"gather, {of}", world, "flat_gather", n, None, whole)


def check_broadcast(check, broadcast, size: int, root: int = 0, shape=(4,), dtype="float64", seed=1) -> None:
    """Compare a given broadcast along a tree with what it should do; add the outcome to a lab's check.

    Parameters
    ----------
    broadcast : callable
        `broadcast(comm, x, root)`.
    """
    arrays, of = _inputs(size, shape, dtype, seed), f"{size} rank{'s' * (size > 1)}, root {root}"
    world = SimWorld(size, ROUNDS)

    def run(comm):
        x = arrays[comm.rank].copy()
        check.call(broadcast, comm, x, root, inplace=True)
        return x

    with check.group(f"broadcast, {of}", most=3):
        for rank, x in enumerate(world.run(run)):
            wrong = {"this is the rank's own array: nothing was received": arrays[rank]} if rank != root else {}
            for other in set(range(size)) - {rank, root}:
                told = f"this is the array of rank {other}, which sent before it had the root's: largest distance first"
                wrong[told] = arrays[other]
            check.close(f"broadcast: x on rank {rank}, {of}", x, arrays[root], dtype=dtype, suspects=wrong)
        rounds = (size - 1).bit_length()
        _check_sent(check, f"broadcast, {of}", world, "tree_broadcast", arrays[0].nbytes, rounds, {})


def check_all_reduce(check, all_reduce, name: str, size: int, shape=(8,), dtype="float64", seed=1) -> None:
    """Compare a given all-reduce with a sum over ranks, and what it sends with the formulas of its algorithm.

    Parameters
    ----------
    all_reduce : callable
        `all_reduce(comm, x)`: replaces x by the sum over ranks.
    name : {"star", "tree", "ring", "halving"}
    shape : tuple of int
        Of x.
    """
    arrays = _inputs(size, shape, dtype, seed)
    of = f"{name}, {size} rank{'s' * (size > 1)}, shape {shape}"
    want, world = arrays.sum(axis=0, dtype=dtype), SimWorld(size, ROUNDS)

    rings = {
        "each part is one rank's: the first phase adds, and passing on begins with part r + 1": _ring(arrays, first=0),
        "what is passed on is complete: it replaces the part, and is not added": _ring(arrays, add=True),
        "parts[k] = ... puts a new array into the list: += or parts[k][...] = writes into x": _ring(arrays, new=True),
        "p - 1 steps of adding: this is one too few": _ring(arrays, steps=size - 2),
    } if name == "ring" else {}  # fmt: skip
    distances = [2**k for k in range((size - 1).bit_length())]
    sums = {
        "tree": {
            "on the way up the smallest distance comes first": _tree(arrays, distances[::-1]),
            "one round too few on the way up": _tree(arrays, distances[:-1]),
        },
        "halving": {
            "ranks beyond the power of two are not added": arrays[: 1 << (size.bit_length() - 1)].sum(0, dtype=dtype),
        },
    }.get(name, {})

    def run(comm):
        x = arrays[comm.rank].copy()
        check.call(all_reduce, comm, x, inplace=True)
        return x

    with check.group(f"x on all ranks, {of}"):
        for rank, x in enumerate(world.run(run)):
            wrong = {}
            if size > 1:
                wrong = {
                    "this is the rank's own array: nothing was changed": arrays[rank],
                    "this is the sum of all other ranks: its own array is missing": want - arrays[rank],
                    "its own array is counted twice": want + arrays[rank],
                }
                wrong |= {f"this is the array of rank {r}": arrays[r] for r in range(size) if r != rank}
                wrong |= {told: xs[rank] for told, xs in rings.items()} | sums
                if name == "halving" and size > 4:
                    group = arrays[rank // 4 * 4 :][:4].sum(axis=0, dtype=dtype)
                    wrong["only four ranks exchange: the first distance is q / 2"] = group
                if np.shape(x) == shape and (arrays == x).any(axis=0).all():
                    wrong["each number is one rank's own: what arrives must be added, in place"] = x
            check.close(f"x on rank {rank}, {of}", x, want, dtype=dtype, factors={"ranks": size}, suspects=wrong)
    p, q = size, 1 << (size.bit_length() - 1)
    log = q.bit_length() - 1
    rounds = {
        "star": p if p > 1 else 0,
        "tree": 2 * (p - 1).bit_length(),
        "ring": 2 * (p - 1),
        "halving": 2 * log + 2 * (q < p),
    }[name]
    n, beyond = arrays[0].nbytes, 2 * (p - q)
    everyone = (p * (p - 1), p * (p - 1) * n)
    mistakes = {
        "star": {"every rank sends to every other: send to rank 0 only, which adds up and answers": everyone},
        "tree": {
            "every rank sends to every other": everyone,
            "half of them: the sum must come down again, by your broadcast": (p - 1, (p - 1) * n),
        },
        "ring": {
            "half of the steps: after p - 1 steps of adding, p - 1 steps of passing on": (p * (p - 1), (p - 1) * n),
            "p steps in each phase: the last one brings back what is known": (2 * p * p, 2 * p * n),
        },
        "halving": {
            "half of the exchanges: what was halved must be doubled again": (q * log + beyond, (q - 1 + beyond) * n),
            "whole arrays between all: exchange halves of what is left": (q * log + beyond, (q * log + beyond) * n),
            "the ranks beyond the power of two get no result": (
                2 * q * log + beyond // 2,
                (2 * q - 2 + beyond // 2) * n,
            ),
        },
    }[name]
    _check_sent(check, of, world, NAMES[name], n, rounds, mistakes if p > 2 else {})
    if name == "tree":
        most, suffice = Counted.of(world).busiest / n, rounds
        told = f"{most:g} arrays go through one rank, {suffice} suffice: add up along the tree, not all on rank 0"
        check.true(f"the busiest rank, {of}", most <= suffice, told)
    if name == "ring" and p > 1:
        wire = SimWorld(p, Network(beta=1.0, contention="ports"))  # a byte takes a second
        wire.run(lambda comm: all_reduce(comm, np.zeros(shape, dtype)) is None)
        least = 2 * (p - 1) * -(-arrays[0].size // p) * arrays.itemsize
        told = f"{wire.makespan:g} bytes one after another, {least} suffice: parts of x.reshape(-1), equally long"
        check.true(f"the parts are equally long, {of}", wire.makespan <= least, told)


def _tree(arrays, distances) -> np.ndarray:
    """Return the sum on rank 0 after rounds of adding at some distances."""
    xs, p = [a.copy() for a in arrays], len(arrays)
    for d in distances:
        for r in range(0, p - d, 2 * d):
            xs[r] += xs[r + d]
    return xs[0]


def _ring(arrays, first: int = 1, add: bool = False, new: bool = False, steps: int | None = None) -> list[np.ndarray]:
    """Return what every rank's array is after a ring all-reduce with a mistake."""
    # `first`: where passing on begins; `add`: passing on adds; `new`: a part is replaced in the list, not in the array;
    # `steps`: of adding
    p, xs = len(arrays), [a.copy() for a in arrays]
    parts = [np.array_split(x.reshape(-1), p) for x in xs]
    steps = p - 1 if steps is None else steps
    for s in range(steps + p - 1):
        adding, step = s < steps, s if s < steps else s - steps
        start = 0 if adding else first
        sent = [parts[r][(r + start - step) % p].copy() for r in range(p)]
        for r in range(p):
            k = (r + start - step - 1) % p
            if adding and new:
                parts[r][k] = parts[r][k] + sent[r - 1]
            elif adding or add:
                parts[r][k] += sent[r - 1]
            else:
                parts[r][k][...] = sent[r - 1]
    return xs


def check_fit(check, fit, alpha: float, beta: float, noise: float, seed: int = 0) -> None:
    """Compare a given fit of a network's two numbers with least squares of relative errors.

    Parameters
    ----------
    fit : callable
        `fit(nbytes, times)` returns alpha and beta.
    alpha, beta : float
        Of the times that are made up.
    noise : float
        Standard deviation of the logarithm of the times.
    """
    sizes = 4.0 ** np.arange(2, 12)
    times = (alpha + sizes / beta) * np.exp(noise * np.random.default_rng(seed).normal(size=len(sizes)))
    slope, start = np.polyfit(sizes, times, 1)
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / times, sizes / times], axis=1), np.ones(len(times)), rcond=None)
    got, told = check.call(fit, sizes, times), "absolute errors: divide each equation by its t"
    if got[0] > 1:  # no network needs a second for an empty message
        check.true(f"fit, noise {noise:g}", False, "alpha comes first, then beta")
        return
    check.close(f"alpha, noise {noise:g}", got[0], a, rtol=1e-6, suspects={told: start})
    wrong = {told: 1 / slope, "beta is bytes per second, the slope is seconds per byte": b}
    check.close(f"beta, noise {noise:g}", got[1], 1 / b, rtol=1e-6, suspects=wrong)


def check_seconds(check, seconds, name: str, n: float, p: int, alpha: float, beta: float) -> None:
    """Compare a given formula for an all-reduce's time with the library's; add the outcome to a lab's check.

    Parameters
    ----------
    seconds : callable
        `seconds(name, n, p, alpha, beta)`.
    name : {"star", "tree", "ring", "halving"}
    n : float
        Bytes of x.
    p : int
        Ranks.
    """
    network, q = Network(alpha, beta), 1 << (p.bit_length() - 1)
    log, up, wire = q.bit_length() - 1, (p - 1).bit_length(), n / beta
    want = cost.seconds(NAMES[name], n, p, network)
    message = alpha + wire
    wrong = {
        "star": {
            "2 (p - 1) latencies: messages to rank 0 leave at the same time, so they share one": 2 * (p - 1) * message,
            "rank 0 receives one message after another": 2 * message + (p - 2) * message,
            "only the way to rank 0": alpha + (p - 1) * wire,
        },
        "tree": {
            "only one way: up the tree and down again": up * message,
            "2 (p - 1) messages, but many of them at the same time": 2 * (p - 1) * message,
            "the rounds of p ranks are log2 p, rounded up": 2 * log * message,
            "log2 p, rounded up to a whole number": 2 * np.log2(p) * message,
        },
        "ring": {
            "a ring's messages have n / p bytes": 2 * (p - 1) * message,
            "two phases, of p - 1 steps each": (p - 1) * (alpha + wire / p),
            "p - 1 steps in a phase, not p": 2 * p * (alpha + wire / p),
        },
        "halving": {
            "the bytes are halved in every round": 2 * log * message + (q < p) * 2 * message,
            "two phases: halving and doubling": log * alpha + (q - 1) / q * wire + (q < p) * 2 * message,
            "ranks beyond the power of two send before, and get the result after": 2 * log * alpha
            + 2 * (q - 1) / q * wire,
            "whole arrays before and after: two of them": 2 * log * alpha + 2 * (q - 1) / q * wire + (q < p) * message,
            "as if all p ranks took part in the halving": 2 * np.log2(p) * alpha + 2 * (p - 1) / p * wire,
        },
    }[name]
    wrong["beta is bytes per second: divide by it"] = cost.seconds(NAMES[name], n, p, Network(alpha, 1 / beta))
    wrong["a power of two sends nothing before and after"] = want + 2 * message
    got = check.call(seconds, name, n, p, alpha, beta)
    check.close(
        f"{name}, {n:g} bytes, {p} rank{'s' * (p > 1)}",
        got,
        want,
        suspects=wrong if p > 1 else {"on one rank nothing is sent": got},
    )


def check_decisions(check, orders, programs: dict) -> None:
    """Orders of the network that break programs, by name; None where no order does; no more decisions than needed."""
    for name, program in programs.items():
        check_order(check, name, program, 3, orders.get(name, "no entry"))
    made = sum(len(order) for order in orders.values() if isinstance(order, (list, tuple)))
    told = f"{made}, and 5 suffice: leave out what the network does without being told"
    check.true("at most 5 decisions", made <= 5, told)


def check_order(check, name: str, program, size: int, order) -> None:
    """An order of the network's decisions that breaks a program; None claims that there is none."""
    if order is None:
        told = "there is an order that breaks it: at which receive does the network have a choice?"
        return check.true(f"{name}: no order breaks it", explore(program, size).ok, told)
    if not isinstance(order, (list, tuple)) or not all(isinstance(decision, str) for decision in order):
        return check.true(f"{name}", False, f"{order!r} is neither None nor a list of decisions such as ['2->0']")
    try:
        run = run_in_order(program, size, order)
    except ValueError as error:  # the text of a decision
        return check.true(f"{name}", False, str(error))
    made = ", ".join(run.order) or "none"
    ended = f"the program ends well (decisions: {made}); the first choice was between {', '.join(run.options[0])}"
    told = ended if run.error is None else str(run.error)
    of = f"{name}: broken by {len(order)} decision{'s' * (len(order) != 1)}"
    return check.true(of, isinstance(run.error, CommError), told)


def check_mended(check, mended, size: int, seed: int) -> None:
    """The sums of both epochs under every order, and that the other ranks send what they sent before."""
    losses = np.random.default_rng(seed).integers(1, 90, (size, 2)).tolist()

    def run(comm):
        return check.call(mended, comm, tuple(losses[comm.rank]) if comm.rank else (0, 0))

    found, of = explore(run, size, max_runs=200), f"{size} ranks"
    check.true(f"mended, every order of {of}", found.ok, str(found))
    if found.first is None:
        return
    epochs = [sum(own[epoch] for own in losses[1:]) for epoch in range(2)]
    wrong = {
        "these are the sums of ranks, not of epochs": [sum(own) for own in losses[1:]],
        "the second epoch comes first": epochs[::-1],
        "one number for each epoch, not for both": sum(epochs),
        "only rank 1 is counted: range(1, comm.size)": losses[1],
        "return a list of two sums": tuple(epochs),
    }
    check.equal(f"sums on rank 0 of {of}", found.first.results[0], epochs, suspects=wrong if size > 2 else None)
    told = "the ranks other than 0 return None"
    check.true(f"on the others of {of}", found.first.results[1:] == [None] * (size - 1), told)

    def taken(comm):
        if comm.rank:
            return check.call(mended, comm, tuple(losses[comm.rank]), inplace=True)
        return [[comm.recv_obj(rank) for _ in range(2)] for rank in range(1, size)]

    sent = SimWorld(size).run(taken)[0]
    told = f"wanted {losses[1:]}, got {sent}: as before, and the order tells the epoch, since no message overtakes"
    check.true(f"what the others of {of} send", sent == losses[1:], told)


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
    for i, change in enumerate(found["predicted"]):
        ax.axvline(change.nbytes, color=MUTED, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=1)
        text, where = f" {change.after} from {quantity(change.nbytes, 'B', 1024)}", ax.get_xaxis_transform()
        ax.text(change.nbytes, 0.02 + 0.06 * i, text, transform=where, color=INK, fontsize=9, va="bottom")
    _show_sizes(ax)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: format_time(t)))
    ax.yaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    ax.set_ylabel("time of one all-reduce")
    handles = ax.get_legend_handles_labels()[0]
    handles.append(Line2D([], [], color=MUTED, linestyle=dashed, marker="", label="predicted"))
    handles.append(Line2D([], [], color=MUTED, linestyle="", marker="o", label="measured"))
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, "\n".join(titles))
    return ax


def crossovers(nbytes, seconds: Mapping[str, np.ndarray]) -> list[Crossover]:
    """Find where the fastest of several algorithms changes; between two sizes by interpolating logarithms.

    Examples
    --------
    >>> (found,) = crossovers(np.array([1.0, 100.0]), {"a": np.array([1.0, 10.0]), "b": np.array([10.0, 1.0])})
    >>> found.before, found.after, round(found.nbytes, 6)
    ('a', 'b', 10.0)
    """
    x, logs = np.log(nbytes), {name: np.log(t) for name, t in seconds.items()}
    order = [min(logs, key=lambda name: logs[name][i]) for i in range(len(x))]
    found = []
    for i, (before, after) in enumerate(pairwise(order)):
        if before == after:
            continue
        lead, lag = (logs[after][j] - logs[before][j] for j in (i, i + 1))
        share = lead / (lead - lag) if lead != lag else 0.5
        found.append(Crossover(float(np.exp(x[i] + share * (x[i + 1] - x[i]))), before, after))
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
    times = np.stack([np.asarray(t, float) for t in seconds.values()])
    if times.shape[1:] != (len(ranks), len(nbytes)):
        shape, want = times.shape[1:], (len(ranks), len(nbytes))
        raise ValueError(f"plot_fastest: seconds have shape {shape}, expected {want}: a row for each number of ranks")
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
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: quantity(n, "B", 1024)))
    ax.set_xlabel("size of the array")
