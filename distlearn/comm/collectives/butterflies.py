"""Butterflies: in round k every rank exchanges data with one at distance 2^k, so log2 p rounds reach all ranks."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp
from ...shares import share
from ..calls import REDUCTIONS, check_reduction, check_rows


def doubling_all_reduce(comm, x, op: str = "sum", tag: int = 0):
    r"""All-reduce by recursive doubling, in place: exchange whole arrays at distance 1, 2, 4, ...

    With q the largest power of two up to p: q log2 q + 2 (p - q) messages of n bytes each. Ranks beyond q hand their
    array to a neighbour first and get the result from it at the end.

    .. math:: T(n, p) = (\log_2 q + 2 [q < p]) \left(\alpha + \frac{n}{\beta}\right)

    References
    ----------
    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), section 4.5.
    """
    check_reduction("doubling_all_reduce", x, op, comm.rank)
    q, v, rank_of = _fold_in(comm, x, op, tag)
    if v is not None:
        received, distance = get_xp(x).empty_like(x), 1
        while distance < q:
            partner = rank_of(v ^ distance)
            comm.send_recv(x, partner, received, partner, tag)
            first, second = (x, received) if comm.rank < partner else (received, x)
            REDUCTIONS[op](first, second, out=x)  # in one order on both: the maximum of 0 and -0 is the first
            distance *= 2
    return _fold_out(comm, x, q, tag)


def halving_doubling_all_reduce(comm, x, op: str = "sum", tag: int = 0):
    r"""All-reduce by recursive halving and doubling (Rabenseifner), in place: as few bytes as the ring, fewer rounds.

    Reduce-scatter: partners at distance 1, 2, 4, ... split what they share in half; each sends away one half and
    reduces the other. All-gather: the same exchanges in reverse order. With q the largest power of two up to p,
    2 q log2 q + 2 (p - q) messages and 2 n (p - 1) bytes. Ranks beyond q hand their array to a neighbour first and get
    the result from it at the end.

    .. math::
       T(n, p) = 2 \log_2 q \, \alpha + 2 \frac{q - 1}{q} \frac{n}{\beta}
                 + 2 [q < p] \left(\alpha + \frac{n}{\beta}\right)

    References
    ----------
    R. Rabenseifner (2004), Optimization of collective reduction operations, ICCS 2004, LNCS 3036.

    Thakur, Rabenseifner, Gropp (2005), section 4.5.
    """
    check_reduction("halving_doubling_all_reduce", x, op, comm.rank)
    q, v, rank_of = _fold_in(comm, x, op, tag)
    if v is not None and q > 1:
        _halve_and_double(comm, x, op, tag, q, v, rank_of)
    return _fold_out(comm, x, q, tag)


def _halve_and_double(comm, x, op, tag, q, v, rank_of) -> None:
    """Reduce-scatter by halving, all-gather by doubling, among the ranks v = 0 .. q - 1."""
    flat = x.reshape(-1)
    start = lambda i: share(flat.size, i, q).start  # noqa: E731
    received = get_xp(x).empty_like(flat[: start(q // 2)])  # no later half is longer than the first
    low, high, distance, done = 0, q, 1, []
    while distance < q:
        middle = (low + high) // 2
        halves = [flat[start(low) : start(middle)], flat[start(middle) : start(high)]]
        keep, give = halves[::-1] if v & distance else halves
        partner, buffer = rank_of(v ^ distance), received[: keep.size]
        comm.send_recv(give, partner, buffer, partner, tag)
        REDUCTIONS[op](keep, buffer, out=keep)
        low, high = (middle, high) if v & distance else (low, middle)
        done.append((partner, keep, give))
        distance *= 2
    for partner, mine, theirs in reversed(done):
        comm.send_recv(mine, partner, theirs, partner, tag)


def _fold_in(comm, x, op, tag):
    """Reduce p ranks to a power of two, q: of the first 2 (p - q) ranks the even ones hand their array to the odd ones.

    Returns
    -------
    v : int or None
        This rank's number among the q; None if it has handed its array over.
    rank_of : callable
        Maps v to its rank.
    """
    q = 1 << (comm.size.bit_length() - 1)
    extra = comm.size - q
    rank_of = lambda v: 2 * v + 1 if v < extra else v + extra  # noqa: E731
    if comm.rank >= 2 * extra:
        return q, comm.rank - extra, rank_of
    if comm.rank % 2 == 0:
        comm.send(x, comm.rank + 1, tag)
        return q, None, rank_of
    received = get_xp(x).empty_like(x)
    comm.recv(received, comm.rank - 1, tag)
    REDUCTIONS[op](received, x, out=x)  # lower rank first
    return q, comm.rank // 2, rank_of


def _fold_out(comm, x, q, tag):
    """Give the result to the ranks that handed their array over."""
    if comm.rank < 2 * (comm.size - q):
        if comm.rank % 2 == 0:
            comm.recv(x, comm.rank + 1, tag)
        else:
            comm.send(x, comm.rank - 1, tag)
    return x


# -- every rank with every other ---------------------------------------------------------------------------------------


def pairwise_all_to_all(comm, x, tag: int = 0):
    r"""Send row j of `x` (size, ...) to rank j; return the rows received, by source.

    In step i a rank sends to the one i places to its right and receives from the one i places to its left, so that
    no rank gets two messages at once. p (p - 1) messages, n (p - 1) bytes.

    .. math:: T(n, p) = (p - 1) \left(\alpha + \frac{n}{p \beta}\right)

    References
    ----------
    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), section 4.3.
    """
    check_rows("pairwise_all_to_all", x, comm.rank, comm.size)
    p, r = comm.size, comm.rank
    rows = get_xp(x).empty_like(x)
    rows[r] = x[r]
    for step in range(1, p):
        to, source = (r + step) % p, (r - step) % p
        comm.send_recv(x[to : to + 1], to, rows[source : source + 1], source, tag)
    return rows


def dissemination_barrier(comm, tag: int = 0) -> None:
    r"""Wait until every rank has called it: in round k, signal rank r + 2^k and wait for the signal of rank r - 2^k.

    p ceil(log2 p) messages of 0 bytes.

    .. math:: T(p) = \lceil\log_2 p\rceil \, \alpha

    References
    ----------
    D. Hensgen, R. Finkel, U. Manber (1988), Two algorithms for barrier synchronization, International Journal of
    Parallel Programming 17(1).
    """
    p, r, distance = comm.size, comm.rank, 1
    nothing, ignored = np.empty(0, np.uint8), np.empty(0, np.uint8)
    while distance < p:
        comm.send_recv(nothing, (r + distance) % p, ignored, (r - distance) % p, tag)
        distance *= 2
