"""Binomial trees: in every round each rank that has the data sends it on, so the number of ranks that have it doubles.

Ranks are numbered from the root: v = (rank - root) mod p. The parent of v is v without its lowest set bit; its subtree
consists of the numbers from v to v + (lowest set bit of v) - 1.

    v:  0 -> 4, 2, 1        4 -> 6, 5        6 -> 7        2 -> 3
"""

from __future__ import annotations

from ...backend import get_xp
from ..calls import REDUCTIONS, check_buffer, check_output, check_reduction, check_root, check_scatter


def tree_broadcast(comm, x, root: int = 0, tag: int = 0):
    r"""Replace `x` on every rank by the root's, along a binomial tree.

    p - 1 messages, n (p - 1) bytes, of which the root sends n log2 p.

    .. math:: T(n, p) = \lceil\log_2 p\rceil \left(\alpha + \frac{n}{\beta}\right)

    References
    ----------
    R. Thakur, R. Rabenseifner, W. Gropp (2005), Optimization of collective communication operations in MPICH,
    IJHPCA 19(1), section 4.2.
    """
    check_root(root, comm.rank, comm.size)
    (check_buffer if comm.rank == root else check_output)("tree_broadcast", x, comm.rank)
    parent, children = _family(comm, root)
    if parent is not None:
        comm.recv(x, parent, tag)
    for child, _ in reversed(children):
        comm.send(x, child, tag)
    return x


def tree_reduce(comm, x, op: str = "sum", root: int = 0, tag: int = 0):
    r"""Replace the root's `x` by the reduction over ranks, up a binomial tree; the others' end with partial results.

    p - 1 messages, n (p - 1) bytes.

    .. math:: T(n, p) = \lceil\log_2 p\rceil \left(\alpha + \frac{n}{\beta}\right)

    (less, by at most one round per missing rank, where p is not a power of two).

    Returns
    -------
    x : array
        None on all ranks but the root.

    References
    ----------
    Thakur, Rabenseifner, Gropp (2005), section 4.5.
    """
    check_reduction("tree_reduce", x, op, comm.rank)
    check_root(root, comm.rank, comm.size)
    parent, children = _family(comm, root)
    received = get_xp(x).empty_like(x) if children else None
    for child, _ in children:
        comm.recv(received, child, tag)
        REDUCTIONS[op](x, received, out=x)
    if parent is None:
        return x
    comm.send(x, parent, tag)
    return None


def tree_all_reduce(comm, x, op: str = "sum", tag: int = 0):
    r"""All-reduce up a binomial tree and down again, in place.

    2 (p - 1) messages, 2 n (p - 1) bytes.

    .. math:: T(n, p) = 2 \lceil\log_2 p\rceil \left(\alpha + \frac{n}{\beta}\right)
    """
    tree_reduce(comm, x, op, 0, tag)
    return tree_broadcast(comm, x, 0, tag)


def tree_scatter(comm, x, out, root: int = 0, tag: int = 0):
    r"""Distribute the rows of the root's `x` (size, \*out.shape), one to each rank, into `out`, along a binomial tree.

    A child gets the rows of its whole subtree in one message. p - 1 messages; row v makes as many hops as v has bits,
    so :math:`n \sum_{v < p} \mathrm{popcount}(v)` bytes, about n p log2(p) / 2, where n is one row.

    .. math:: T(n, p) = \log_2 p \; \alpha + (p - 1) \frac{n}{\beta} \qquad (p \text{ a power of two})

    References
    ----------
    Thakur, Rabenseifner, Gropp (2005), section 4.2 (the scatter of the long broadcast).
    """
    check_root(root, comm.rank, comm.size)
    parent, children = _family(comm, root)
    check_output("tree_scatter", out, comm.rank)
    if parent is None:
        check_scatter("tree_scatter", x, out, comm.rank, comm.size)
        rows = get_xp(x).concatenate([x[root:], x[:root]]) if root else x  # in the order of v
    elif children:
        rows = get_xp(out).empty((_subtree(comm, root), *out.shape), out.dtype)
    else:
        rows = out[None]
    if parent is not None:
        comm.recv(rows, parent, tag)
    for child, (first, last) in reversed(children):
        comm.send(rows[first:last], child, tag)
    if rows.shape[0] > 1 or parent is None:
        out[...] = rows[0]
    return out


def tree_gather(comm, x, root: int = 0, tag: int = 0):
    r"""Return the `x` of every rank, stacked (size, \*x.shape), on the root, and None elsewhere; up a binomial tree.

    p - 1 messages, as many bytes as `tree_scatter`.

    .. math:: T(n, p) = \log_2 p \; \alpha + (p - 1) \frac{n}{\beta} \qquad (p \text{ a power of two})
    """
    check_root(root, comm.rank, comm.size)
    check_buffer("tree_gather", x, comm.rank)
    parent, children = _family(comm, root)
    rows = get_xp(x).empty((_subtree(comm, root), *x.shape), x.dtype)
    rows[0] = x
    for child, (first, last) in children:
        comm.recv(rows[first:last], child, tag)
    if parent is not None:
        comm.send(rows, parent, tag)
        return None
    return get_xp(x).concatenate([rows[comm.size - root :], rows[: comm.size - root]]) if root else rows


def _family(comm, root: int):
    """Return this rank's parent (None at the root) and [(child, (first, last) row of its subtree)], smallest first."""
    p, v, children, bit = comm.size, (comm.rank - root) % comm.size, [], 1
    while bit < p and not v & bit:
        if v + bit < p:
            children.append(((v + bit + root) % p, (bit, min(2 * bit, p - v))))
        bit *= 2
    return ((v - bit + root) % p if v else None), children


def _subtree(comm, root: int) -> int:
    """Return the number of ranks in this rank's subtree, itself included."""
    v = (comm.rank - root) % comm.size
    return min(v & -v, comm.size - v) if v else comm.size
