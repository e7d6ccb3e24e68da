"""Stars: the root exchanges a message with every other rank. Simple, but all data pass its network card."""

from __future__ import annotations

from ...backend import get_xp
from ..calls import REDUCTIONS, check_buffer, check_reduction, check_root


def flat_broadcast(comm, x, root: int = 0, tag: int = 0):
    r"""Replace `x` on every rank by the root's: the root sends it to one rank after another.

    p - 1 messages, n (p - 1) bytes, all from the root.

    .. math:: T(n, p) = (p - 1) \left(\alpha + \frac{n}{\beta}\right)
    """
    check_root(root, comm.rank, comm.size)
    if comm.rank != root:
        return comm.recv(x, root, tag)
    check_buffer("flat_broadcast", x, root)
    for dest in _others(comm):
        comm.send(x, dest, tag)
    return x


def flat_reduce(comm, x, op: str = "sum", root: int = 0, tag: int = 0):
    r"""Replace the root's `x` by the reduction over ranks, in the order of ranks; the others' stay as they are.

    p - 1 messages, n (p - 1) bytes, all to the root, whose network card takes one after another.

    .. math:: T(n, p) = \alpha + (p - 1) \frac{n}{\beta}

    Returns
    -------
    x : array
        None on all ranks but the root.
    """
    check_reduction("flat_reduce", x, op, comm.rank)
    check_root(root, comm.rank, comm.size)
    if comm.rank != root:
        comm.send(x, root, tag)
        return None
    received = get_xp(x).empty_like(x)
    for source in _others(comm):
        comm.recv(received, source, tag)
        REDUCTIONS[op](x, received, out=x)
    return x


def naive_all_reduce(comm, x, op: str = "sum", tag: int = 0):
    r"""All-reduce through rank 0, in place: every rank sends it its array, and it sends every rank the result.

    2 (p - 1) messages, 2 n (p - 1) bytes, all of them through rank 0. A parameter server works like this.

    .. math:: T(n, p) = \alpha + (p - 1) \frac{n}{\beta} + (p - 1) \left(\alpha + \frac{n}{\beta}\right)
    """
    flat_reduce(comm, x, op, 0, tag)
    return flat_broadcast(comm, x, 0, tag)


def _others(comm):
    return (r for r in range(comm.size) if r != comm.rank)
