"""Every rank with every other: the all-to-all exchange, and the barrier."""

from __future__ import annotations

import numpy as np

from ...backend import get_xp
from ..base import check_rows


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
