r"""What each collective of `distlearn.comm.collectives` sends, and how long that takes: the formulas, as functions.

    messages("ring_all_reduce", n, p)   ->   2 p (p - 1)
    nbytes("ring_all_reduce", n, p)     ->   2 n (p - 1)
    seconds("ring_all_reduce", n, p, network)

n is the size in bytes of the array that one rank passes: all of it for a broadcast or a reduction, one row for scatter
and gather. Messages and bytes are sums over all ranks and exact for every n and p. Seconds are those of a network on
which a rank sends one message and receives one at a time; they are exact where all shares are equally long, and for
trees where p is a power of two (else a bound from above). Arithmetic is free unless gamma says what a byte costs.
"""

from __future__ import annotations

from .alpha_beta import Network
from .formulas import FORMULAS, Formula


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


def seconds(algorithm, n: float, p: int, network: Network, gamma: float = 0.0) -> float:
    """Return how long a collective takes on a network [s]; parameters as for `messages`.

    `gamma` is the time that a rank takes to reduce a byte [s / byte].

    Examples
    --------
    >>> seconds("ring", 4_000_000, 4, Network(alpha=1e-5, beta=1e9))
    0.00606
    """
    formula = _formula(algorithm, p)
    return formula.seconds(n, p, network.message) + gamma * formula.reduced(n, p)


def _formula(algorithm, p: int) -> Formula:
    if p < 1:
        raise ValueError(f"cost: p is {p!r}, expected a number of ranks, 1 or more")
    name = (algorithm if isinstance(algorithm, str) else algorithm.__name__).replace("-", "_")
    found = FORMULAS.get(name) or FORMULAS.get(f"{name}_all_reduce")
    if found is None:
        raise ValueError(f"cost: {algorithm!r}, expected one of {', '.join(FORMULAS)}")
    return found
