r"""Messages, bytes and seconds of each collective of `distlearn.comm.collectives`: the formulas, as functions.

    messages("ring_all_reduce", n, p)   ->   2 p (p - 1)
    nbytes("ring_all_reduce", n, p)     ->   2 n (p - 1)
    seconds("ring_all_reduce", n, p, network)

n is the size in bytes of the array that one rank passes: all of it for a broadcast or a reduction, one row for scatter
and gather. Messages and bytes are sums over all ranks and exact for every n and p. Seconds are those of a network on
which a rank sends one message and receives one at a time; they are exact where all shares are equally long, and for
trees where p is a power of two (else a bound from above). Arithmetic is free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...bounds import check_positive
from ..collectives import ALGORITHMS


def messages(algorithm, n: float, p: int) -> int:
    """Count the messages of a collective, over all ranks.

    Parameters
    ----------
    algorithm : callable or str
        A function of `distlearn.comm.collectives`, or its name; "ring" is short for "ring_all_reduce".
    n : float
        Bytes of the array that a rank passes (does not affect the number of messages).
    p : int
        Number of ranks.

    Examples
    --------
    >>> messages("ring", 4e6, 4), messages("halving_doubling_all_reduce", 4e6, 4)
    (24, 16)
    """
    return _formula(algorithm, p).messages(p)


def nbytes(algorithm, n: float, p: int) -> float:
    """Return the bytes that all ranks send in a collective, added up; parameters as for `messages`.

    Examples
    --------
    >>> nbytes("ring", 4_000_000, 4)
    24000000
    """
    return _formula(algorithm, p).nbytes(n, p)


def seconds(algorithm, n: float, p: int, network) -> float:
    """Return how long a collective takes on a network [s]; parameters as for `messages`.

    Examples
    --------
    >>> from distlearn.comm import Network
    >>> seconds("ring", 4_000_000, 4, Network(alpha=1e-5, beta=1e9))
    0.00606
    """
    return _formula(algorithm, p).seconds(n, p, network.message)


def _formula(algorithm, p: int) -> Formula:
    check_positive("cost", p=p)
    if isinstance(algorithm, Formula):  # of a collective of one's own
        return algorithm
    name = (algorithm if isinstance(algorithm, str) else algorithm.__name__).replace("-", "_")
    found = FORMULAS.get(name) or FORMULAS.get(f"{name}_all_reduce")
    if found is None:
        raise ValueError(f"cost: {algorithm!r}, expected one of {', '.join(FORMULAS)}")
    return found


# -- the formulas, by the name of the function -------------------------------------------------------------------------


class Formula(NamedTuple):
    """The cost of one algorithm; `time(n)` is the time of a message of n bytes [s]."""

    messages: Callable[..., Any]  # (p) -> int
    nbytes: Callable[..., Any]  # (n, p) -> bytes
    seconds: Callable[..., Any]  # (n, p, time) -> s


def rounds(p: int) -> int:
    """Return ceil(log2 p)."""
    return (p - 1).bit_length()


def _floor(p: int) -> int:
    return 1 << (p.bit_length() - 1)


def _hops(p: int) -> int:
    """Total number of hops that the rows of a binomial scatter make."""
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


def _doubling(p):
    """Messages of recursive doubling: of a power of two in every round, and two for each rank beyond it."""
    return _floor(p) * rounds(_floor(p)) + 2 * (p - _floor(p))


def _binomial(n, p, time):
    return rounds(p) * time(0) + (p - 1) * _wire(n, time)


def _then(first: Formula, second: Formula, share=lambda n, p: n) -> Formula:
    """One algorithm after another, which moves `share` of the bytes."""
    return Formula(
        lambda p: first.messages(p) + second.messages(p),
        lambda n, p: first.nbytes(n, p) + second.nbytes(share(n, p), p),
        lambda n, p, time: first.seconds(n, p, time) + second.seconds(share(n, p), p, time),
    )


def _to_others(n, p):
    return n * (p - 1)


_FLAT = Formula(lambda p: p - 1, _to_others, _star)
_FLAT_REDUCE = Formula(lambda p: p - 1, _to_others, _to_root)
_NAIVE = _then(_FLAT_REDUCE, _FLAT)
_TREE = Formula(lambda p: p - 1, _to_others, lambda n, p, time: rounds(p) * time(n))
_BINOMIAL = Formula(lambda p: p - 1, lambda n, p: n * _hops(p), _binomial)
_SHARES = Formula(lambda p: p * (p - 1), _to_others, lambda n, p, time: (p - 1) * time(n / p))
_RING_GATHER = Formula(_SHARES.messages, lambda n, p: n * p * (p - 1), lambda n, p, time: (p - 1) * time(n))
FORMULAS = {
    "flat_broadcast": _FLAT,
    "flat_reduce": _FLAT_REDUCE,
    "naive_all_reduce": _NAIVE,
    "tree_broadcast": _TREE,
    "tree_reduce": _TREE,
    "tree_all_reduce": _then(_TREE, _TREE),
    "tree_scatter": _BINOMIAL,
    "tree_gather": _BINOMIAL,
    "ring_all_reduce": _then(_SHARES, _RING_GATHER, lambda n, p: n / p)._replace(nbytes=_NAIVE.nbytes),
    "ring_reduce_scatter": _SHARES,
    "ring_all_gather": _RING_GATHER,
    "doubling_all_reduce": Formula(
        _doubling,
        lambda n, p: n * _doubling(p),
        lambda n, p, time: rounds(_floor(p)) * time(n) + _fold(n, p, time),
    ),
    "halving_doubling_all_reduce": Formula(
        lambda p: 2 * _floor(p) * rounds(_floor(p)) + 2 * (p - _floor(p)),
        lambda n, p: 2 * n * (p - 1),
        lambda n, p, time: 2 * _binomial(n / _floor(p), _floor(p), time) + _fold(n, p, time),
    ),
    "pairwise_all_to_all": _SHARES,
    "dissemination_barrier": Formula(lambda p: p * rounds(p), lambda n, p: 0, lambda n, p, time: rounds(p) * time(0)),
}


# Collectives of an array with one row per rank, whose formulas count one row.
BY_ROWS = ("all_gather", "scatter", "gather")


def collective_seconds(name: str, nbytes: float, p: int, time: Callable[..., Any]) -> float:
    """Seconds of a communicator's collective of `nbytes` (of all rows, where there are rows) among p ranks."""
    return _formula(ALGORITHMS.get(name, name), p).seconds(nbytes / p if name in BY_ROWS else nbytes, p, time)


def sent_bytes(name: str, nbytes: float, p: int) -> float:
    """Bytes that one of p ranks sends in such a collective, on average."""
    return _formula(ALGORITHMS.get(name, name), p).nbytes(nbytes / p if name in BY_ROWS else nbytes, p) / p
