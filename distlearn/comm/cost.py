r"""What each collective of `distlearn.comm.collectives` sends, and how long that takes: the formulas, as functions.

    messages("ring_all_reduce", n, p)   ->   2 p (p - 1)
    nbytes("ring_all_reduce", n, p)     ->   2 n (p - 1)
    seconds("ring_all_reduce", n, p, network)

n is the size in bytes of the array that one rank gives: all of it for a broadcast or a reduction, one row for scatter
and gather. Messages and bytes are sums over all ranks and exact for every n and p. Seconds are those of a network on
which a rank sends one message and receives one at a time; they are exact where all shares are equally long, and for
trees where p is a power of two (else a bound from above). Arithmetic is free unless gamma says what a byte costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .network import Network


class Formula(NamedTuple):
    """The cost of one algorithm; `time(n)` is what a message of n bytes takes [s]."""

    messages: Callable  # (p) -> int
    nbytes: Callable  # (n, p) -> bytes
    seconds: Callable  # (n, p, time) -> s
    reduced: Callable = lambda n, p: 0.0  # (n, p) -> bytes that go through arithmetic, one after another


def rounds(p: int) -> int:
    """Return ceil(log2 p)."""
    return (p - 1).bit_length()


def _floor(p: int) -> int:
    """Return the largest power of two up to p."""
    return 1 << (p.bit_length() - 1)


def _hops(p: int) -> int:
    """How many messages the rows of a binomial scatter travel in, all together."""
    return sum(v.bit_count() for v in range(p))


def _wire(n, time):
    """Seconds that n bytes take without the latency."""
    return time(n) - time(0)


def _star(n, p, time):
    return (p - 1) * time(n)


def _to_root(n, p, time):
    return time(0) + (p - 1) * _wire(n, time) if p > 1 else 0.0


def _fold(n, p, time):
    """A round before and one after, for ranks beyond a power of two."""
    return 2 * time(n) if _floor(p) < p else 0.0


def _reduced_in_rounds(n, p):
    """Bytes that a rank adds up when it gets whole arrays at distance 1, 2, 4, ..."""
    return n * (rounds(_floor(p)) + (_floor(p) < p))


def _binomial(n, p, time):
    return rounds(p) * time(0) + (p - 1) * _wire(n, time)


FORMULAS = {
    "flat_broadcast": Formula(lambda p: p - 1, lambda n, p: n * (p - 1), _star),
    "flat_scatter": Formula(lambda p: p - 1, lambda n, p: n * (p - 1), _star),
    "flat_gather": Formula(lambda p: p - 1, lambda n, p: n * (p - 1), _to_root),
    "flat_reduce": Formula(lambda p: p - 1, lambda n, p: n * (p - 1), _to_root, lambda n, p: n * (p - 1)),
    "naive_all_reduce": Formula(
        lambda p: 2 * (p - 1),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, time: _to_root(n, p, time) + _star(n, p, time),
        lambda n, p: n * (p - 1),
    ),
    "tree_broadcast": Formula(lambda p: p - 1, lambda n, p: n * (p - 1), lambda n, p, time: rounds(p) * time(n)),
    "tree_reduce": Formula(
        lambda p: p - 1, lambda n, p: n * (p - 1), lambda n, p, time: rounds(p) * time(n), lambda n, p: n * rounds(p)
    ),
    "tree_all_reduce": Formula(
        lambda p: 2 * (p - 1),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, time: 2 * rounds(p) * time(n),
        lambda n, p: n * rounds(p),
    ),
    "tree_scatter": Formula(lambda p: p - 1, lambda n, p: n * _hops(p), _binomial),
    "tree_gather": Formula(lambda p: p - 1, lambda n, p: n * _hops(p), _binomial),
    "ring_all_reduce": Formula(
        lambda p: 2 * p * (p - 1),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, time: 2 * (p - 1) * time(n / p),
        lambda n, p: n * (p - 1) / p,
    ),
    "ring_reduce_scatter": Formula(
        lambda p: p * (p - 1),
        lambda n, p: n * (p - 1),
        lambda n, p, time: (p - 1) * time(n / p),
        lambda n, p: n * (p - 1) / p,
    ),
    "ring_all_gather": Formula(
        lambda p: p * (p - 1), lambda n, p: n * p * (p - 1), lambda n, p, time: (p - 1) * time(n)
    ),
    "bruck_all_gather": Formula(lambda p: p * rounds(p), lambda n, p: n * p * (p - 1), _binomial),
    "doubling_all_reduce": Formula(
        lambda p: _floor(p) * rounds(_floor(p)) + 2 * (p - _floor(p)),
        lambda n, p: n * (_floor(p) * rounds(_floor(p)) + 2 * (p - _floor(p))),
        lambda n, p, time: rounds(_floor(p)) * time(n) + _fold(n, p, time),
        _reduced_in_rounds,
    ),
    "halving_doubling_all_reduce": Formula(
        lambda p: 2 * _floor(p) * rounds(_floor(p)) + 2 * (p - _floor(p)),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, time: 2 * rounds(_floor(p)) * time(0)
        + 2 * (_floor(p) - 1) * _wire(n / _floor(p), time)
        + _fold(n, p, time),
        lambda n, p: n * ((_floor(p) - 1) / _floor(p) + (_floor(p) < p)),
    ),
    "pairwise_all_to_all": Formula(
        lambda p: p * (p - 1), lambda n, p: n * (p - 1), lambda n, p, time: (p - 1) * time(n / p)
    ),
    "dissemination_barrier": Formula(lambda p: p * rounds(p), lambda n, p: 0, lambda n, p, time: rounds(p) * time(0)),
}
"""By the name of the function; the two-level algorithms, which know nodes, stand below."""


def _hierarchical(s: int) -> Formula:
    """The cost of `hierarchical_all_reduce` with s ranks per node."""

    def messages(p):
        nodes = -(-p // s)
        return 2 * (p - nodes) + 2 * nodes * (nodes - 1)

    def seconds(n, p, inside, between):
        nodes = -(-p // s)
        return 2 * rounds(min(s, p)) * inside(n) + 2 * (nodes - 1) * between(n / nodes)

    def reduced(n, p):
        nodes = -(-p // s)
        return n * (rounds(min(s, p)) + (nodes - 1) / nodes)

    return Formula(messages, lambda n, p: 2 * n * (p - 1), seconds, reduced)


def _torus(s: int) -> Formula:
    """The cost of `torus_all_reduce` with s ranks per node."""
    return Formula(
        lambda p: 2 * p * (s - 1 + p // s - 1),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, inside, between: 2 * (s - 1) * inside(n / s) + 2 * (p // s - 1) * between(n / p),
        lambda n, p: n * (s - 1) / s + n * (p // s - 1) / p,
    )


LEVELS = {"hierarchical_all_reduce": _hierarchical, "torus_all_reduce": _torus}


def messages(algorithm, n: float, p: int, ranks_per_node: int | None = None) -> int:
    """Count the messages of a collective, over all ranks.

    Parameters
    ----------
    algorithm : callable or str
        A function of `distlearn.comm.collectives`, or its name; "ring" is short for "ring_all_reduce".
    n : float
        Bytes of the array that a rank gives (for counting messages it does not matter).
    p : int
        Number of ranks.
    ranks_per_node : int, optional
        For the two-level algorithms.

    Examples
    --------
    >>> messages("ring", 4e6, 4), messages("halving_doubling_all_reduce", 4e6, 4)
    (24, 16)
    """
    return _formula(algorithm, p, ranks_per_node).messages(p)


def nbytes(algorithm, n: float, p: int, ranks_per_node: int | None = None) -> float:
    """Return the bytes that all ranks send in a collective, added up; parameters as for `messages`.

    Examples
    --------
    >>> nbytes("ring", 4_000_000, 4)
    24000000
    """
    return _formula(algorithm, p, ranks_per_node).nbytes(n, p)


def seconds(
    algorithm, n: float, p: int, network: Network, ranks_per_node: int | None = None, gamma: float = 0.0
) -> float:
    """Return how long a collective takes on a network [s]; parameters as for `messages`.

    `gamma` is the time that a rank takes to reduce a byte [s / byte].

    The two-level algorithms take their links from a `HierarchicalNetwork`; on a plain one all links are alike. The
    others' messages all cost what the slowest link costs.

    Examples
    --------
    >>> seconds("ring", 4_000_000, 4, Network(alpha=1e-5, beta=1e9))
    0.00606
    """
    formula = _formula(algorithm, p, ranks_per_node)
    if _name(algorithm) in LEVELS:
        inside, between = getattr(network, "inside", network), getattr(network, "between", network)
        return formula.seconds(n, p, inside.message, between.message) + gamma * formula.reduced(n, p)
    if p <= getattr(network, "ranks_per_node", 0):
        network = network.inside
    return formula.seconds(n, p, network.message) + gamma * formula.reduced(n, p)


def crossover(first, second, p: int, network: Network, low: float = 1.0, high: float = 2.0**36) -> float | None:
    """Return the size of array at which the second algorithm becomes the faster one [bytes], or None.

    Parameters
    ----------
    first, second : callable or str
        The one that is faster for short arrays, and the other.
    p : int
    network : Network
    low, high : float
        Where to look [bytes].

    Examples
    --------
    >>> round(crossover("doubling", "ring", 8, Network(alpha=1e-5, beta=1e9)))
    88000
    """

    def gain(n):
        return seconds(first, n, p, network) - seconds(second, n, p, network)

    if not gain(low) < 0 < gain(high):
        return None
    while high / low > 1 + 1e-12:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if gain(middle) < 0 else (low, middle)
    return high


def _name(algorithm) -> str:
    """The name under which the formulas know an algorithm."""
    name = algorithm if isinstance(algorithm, str) else algorithm.__name__
    name = name.replace("-", "_")
    return name if name in FORMULAS or name in LEVELS else f"{name}_all_reduce"


def _formula(algorithm, p: int, ranks_per_node) -> Formula:
    """Look a formula up."""
    if p < 1:
        raise ValueError(f"cost: p is {p!r}, expected a number of ranks, 1 or more")
    name = _name(algorithm)
    if name in FORMULAS:
        return FORMULAS[name]
    if name not in LEVELS:
        raise ValueError(f"cost: {algorithm!r}, expected one of {', '.join([*FORMULAS, *LEVELS])}")
    if ranks_per_node is None:
        raise ValueError(f"cost: {name} needs ranks_per_node")
    return LEVELS[name](ranks_per_node)
