"""Collectives written on send and receive, as the books draw them.

Each works on any communicator, any number of ranks (also no power of two) and any length (also 0, also shorter than
the number of ranks), and states its messages and bytes.
"""

from __future__ import annotations

from itertools import pairwise

from ..backend import get_xp
from .protocol import REDUCTIONS, check_op, check_output


def shares(n: int, size: int) -> list[slice]:
    """Cut n elements into `size` slices whose lengths differ by at most one, the longer ones first.

    Examples
    --------
    >>> shares(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    base, extra = divmod(n, size)
    cuts = [r * base + min(r, extra) for r in range(size + 1)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def ring_all_reduce(comm, x, op: str = "sum", tag: int = 0):
    r"""All-reduce around a ring, in place: reduce-scatter, then all-gather.

    The array is cut into p shares. In p - 1 steps each rank passes a share to its right and reduces the one that comes
    from its left into its own; then rank r holds the whole sum of share r + 1. In p - 1 more steps the finished shares
    travel around. Every rank sends 2 (p - 1) messages and 2 n (p - 1) / p bytes, whatever p is: bandwidth-optimal.

    .. math:: T(n, p) = 2 (p - 1) \left(\alpha + \frac{n}{p \beta}\right)

    Parameters
    ----------
    comm : Communicator
    x : contiguous array
        Replaced by the reduction over ranks; same shape and dtype everywhere.
    op : {"sum", "prod", "min", "max"}
    tag : int

    Returns
    -------
    x : array

    References
    ----------
    P. Patarasuk, X. Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2),
    section 3.
    """
    check_op(op, comm.rank)
    check_output("ring_all_reduce", x, comm.rank)
    p, r = comm.size, comm.rank
    if p == 1:
        return x
    flat = x.reshape(-1)
    share = [flat[s] for s in shares(flat.size, p)]
    received = get_xp(x).empty_like(share[0])  # share 0 is the longest
    reduce = REDUCTIONS[op]
    right, left = (r + 1) % p, (r - 1) % p
    for step in range(p - 1):
        outgoing, incoming = share[(r - step) % p], share[(r - step - 1) % p]
        buffer = received[: incoming.size]
        comm.send_recv(outgoing, right, buffer, left, tag)
        reduce(incoming, buffer, out=incoming)
    for step in range(p - 1):
        comm.send_recv(share[(r + 1 - step) % p], right, share[(r - step) % p], left, tag)
    return x
