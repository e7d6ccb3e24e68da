"""Rings: every rank sends to its right neighbour and receives from its left one, so all links carry the same load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...backend import Array, get_xp
from ...shares import share
from ..calls import REDUCTIONS, check_buffer, check_reduction

if TYPE_CHECKING:
    from ..base import Communicator


def ring_all_reduce(comm: Communicator, x: Array, op: str = "sum", tag: int = 0) -> Array:
    r"""All-reduce around a ring, in place: reduce-scatter, then all-gather.

    The array is divided into p shares. In p - 1 steps each rank sends a share to its right neighbour and reduces the
    one it receives from its left into its own; then rank r holds the complete reduction of share r + 1. In p - 1 more
    steps the complete shares are passed around. Every rank sends 2 (p - 1) messages and 2 n (p - 1) / p bytes, less
    than 2 n for any p: bandwidth-optimal.

    .. math:: T(n, p) = 2 (p - 1) \left(\alpha + \frac{n}{p \beta}\right)

    Parameters
    ----------
    x : contiguous array
        Replaced by the reduction over ranks; same shape and dtype everywhere.

    References
    ----------
    P. Patarasuk, X. Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2),
    section 3.
    """
    check_reduction("ring_all_reduce", x, op, comm.rank)
    if comm.size > 1:
        parts = cut(x, comm.size)
        reduce_around(comm, parts, op, tag)
        pass_around(comm, parts, tag)
    return x


def ring_reduce_scatter(comm, x, op: str = "sum", tag: int = 0):
    r"""Reduce the flat array `x` around a ring; return this rank's share (that of `numpy.array_split`).

    p (p - 1) messages, n (p - 1) bytes.

    .. math:: T(n, p) = (p - 1) \left(\alpha + \frac{n}{p \beta}\right)

    References
    ----------
    Patarasuk, Yuan (2009), section 3.
    """
    check_reduction("ring_reduce_scatter", x, op, comm.rank, in_place=False)
    parts = cut(x.copy(), comm.size)
    if comm.size > 1:
        reduce_around(comm, parts[-1:] + parts[:-1], op, tag)  # so that rank r ends with share r, not r + 1
    return parts[comm.rank].copy()


def ring_all_gather(comm, x, tag: int = 0):
    r"""Return the `x` of every rank, stacked (size, \*x.shape), passed on around a ring.

    p (p - 1) messages, n p (p - 1) bytes.

    .. math:: T(n, p) = (p - 1) \left(\alpha + \frac{n}{\beta}\right)

    References
    ----------
    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), section 4.1.
    """
    check_buffer("ring_all_gather", x, comm.rank)
    rows = get_xp(x).empty((comm.size, *x.shape), x.dtype)
    rows[comm.rank] = x
    if comm.size > 1:
        row = [rows[r : r + 1] for r in range(comm.size)]
        pass_around(comm, row[1:] + row[:1], tag, holds=comm.rank - 1)
    return rows


# -- the two halves of the ring all-reduce, in place on a list of one share per rank


def cut(x, size: int) -> list[Any]:
    """Return the flat shares of `x` as views."""
    flat = x.reshape(-1)
    return [flat[share(flat.size, rank, size)] for rank in range(size)]


def reduce_around(comm, parts: list[Any], op: str, tag: int) -> int:
    """Reduce the shares around the ring; afterwards this rank's share (rank + 1) mod p is complete: return its index.

    p - 1 messages of one share per rank.
    """
    p, r, reduce = comm.size, comm.rank, REDUCTIONS[op]
    right, left = (r + 1) % p, (r - 1) % p
    whole = get_xp(parts[0]).empty_like(max(parts, key=len))
    for step in range(p - 1):
        incoming = parts[r - step - 1]  # indices run from 1 - p to p - 1: Python takes negative ones mod p
        buffer = whole[: incoming.size]
        comm.send_recv(parts[r - step], right, buffer, left, tag)
        reduce(incoming, buffer, out=incoming)
    return right


def pass_around(comm, parts: list[Any], tag: int, holds: int | None = None) -> None:
    """Pass complete shares on until every rank has all; this rank begins with the share `holds` or (rank + 1) mod p.

    p - 1 messages of one share per rank.
    """
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    first = right if holds is None else holds
    for step in range(p - 1):
        comm.send_recv(parts[first - step], right, parts[first - step - 1], left, tag)
