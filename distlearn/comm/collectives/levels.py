"""Two levels: fast links inside a node, slow ones between nodes, and collectives that send little over the slow ones.

Ranks 0 .. s - 1 are on the first node, the next s on the second, and so on, as `mpiexec` places them by default.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...backend import get_xp
from ..base import check_buffer, check_reduction
from .rings import cut, pass_around, reduce_around, ring_all_gather, ring_all_reduce


class Group:
    """The given ranks of `comm` as ranks 0, 1, ... of a group; made without communication, unlike `comm.split`.

    Messages are sent on `comm`, with its tags: between the same two ranks they stay in order, so collectives on groups
    may follow one another, but must not overlap.

    Parameters
    ----------
    members : sequence of int
        Ranks of `comm`; this rank must be one of them.
    """

    def __init__(self, comm, members: Sequence[int]):
        if comm.rank not in members:
            raise ValueError(f"rank {comm.rank}: Group of ranks {list(members)}, expected this rank to be one of them")
        self._comm, self._members = comm, members
        self.rank, self.size, self.clock = members.index(comm.rank), len(members), comm.clock

    def __repr__(self) -> str:
        return f"Group(rank {self.rank} of {self.size})"

    def send(self, x, dest, tag=0):
        self._comm.send(x, self._members[dest], tag)

    def recv(self, out, source, tag=0):
        return self._comm.recv(out, self._members[source], tag)

    def send_recv(self, x, dest, out, source, tag=0):
        return self._comm.send_recv(x, self._members[dest], out, self._members[source], tag)


def torus_all_reduce(comm, x, ranks_per_node: int, op: str = "sum", tag: int = 0):
    r"""All-reduce along the two directions of a torus, in place: every rank reduces its share between nodes.

    Reduce-scatter around each node, ring all-reduce of share i among the i-th ranks of all nodes, all-gather around
    each node. With m full nodes of s ranks: p (2 (s - 1) + 2 (m - 1)) messages; 2 n (p - 1) bytes in all. A rank
    reduces only n / s bytes over the slow links, and all ranks use them at once.

    .. math::
       T(n, p) = 2 (s - 1) \left(\alpha_{in} + \frac{n}{s \beta_{in}}\right)
                 + 2 (m - 1) \left(\alpha_{out} + \frac{n}{p \beta_{out}}\right)

    Parameters
    ----------
    ranks_per_node : int
        s, which divides the number of ranks.

    References
    ----------
    H. Mikami et al. (2018), Massively distributed SGD: ImageNet/ResNet-50 training in a flash, arXiv:1811.05233
    (2D-torus all-reduce).

    M. Cho, U. Finkler, D. Kung, H. Hunter (2019), BlueConnect: decomposing all-reduce for deep learning on
    heterogeneous network hierarchy, MLSys 2019.
    """
    check_reduction("torus_all_reduce", x, op, comm.rank)
    node, peers = _torus("torus_all_reduce", comm, ranks_per_node)
    if node.size == 1:
        return ring_all_reduce(peers, x, op, tag)
    parts = cut(x, node.size)
    mine = reduce_around(node, parts, op, tag)
    ring_all_reduce(peers, parts[mine], op, tag)
    pass_around(node, parts, tag)
    return x


def torus_reduce_scatter(comm, x, ranks_per_node: int, op: str = "sum", tag: int = 0):
    r"""Reduce the flat array `x` along the two directions of a torus; return this rank's share.

    The first half of `torus_all_reduce`, with shares as `numpy.array_split` makes them: around each node what belongs
    to the i-th ranks of all nodes, then, among these, each one's share. p (s - 1 + m - 1) messages; n (p - 1) bytes.

    .. math::
       T(n, p) = (s - 1) \left(\alpha_{in} + \frac{n}{s \beta_{in}}\right)
                 + (m - 1) \left(\alpha_{out} + \frac{n}{p \beta_{out}}\right)

    Parameters and references are those of `torus_all_reduce`.
    """
    check_reduction("torus_reduce_scatter", x, op, comm.rank, in_place=False)
    node, peers = _torus("torus_reduce_scatter", comm, ranks_per_node)
    shares, lanes = cut(x, comm.size), range(node.size)
    columns = [get_xp(x).concatenate(shares[lane :: node.size]) for lane in lanes]  # copies, one for each lane
    reduce_around(node, columns[-1:] + columns[:-1], op, tag)
    mine, start = [], 0
    for share in shares[node.rank :: node.size]:
        mine.append(columns[node.rank][start : start + len(share)])
        start += len(share)
    reduce_around(peers, mine[-1:] + mine[:-1], op, tag)
    return mine[peers.rank].copy()


def torus_all_gather(comm, x, ranks_per_node: int, tag: int = 0):
    r"""Return the `x` of every rank, stacked, gathered along the two directions of a torus.

    The other half of `torus_all_reduce`: among the i-th ranks of all nodes, then around each node, where a message
    holds m rows. p (s - 1 + m - 1) messages; n p (p - 1) bytes, where n is one row.

    .. math::
       T(n, p) = (m - 1) \left(\alpha_{out} + \frac{n}{\beta_{out}}\right)
                 + (s - 1) \left(\alpha_{in} + \frac{m n}{\beta_{in}}\right)

    Parameters and references are those of `torus_all_reduce`.
    """
    check_buffer("torus_all_gather", x, comm.rank)
    node, peers = _torus("torus_all_gather", comm, ranks_per_node)
    rows = ring_all_gather(node, ring_all_gather(peers, x, tag), tag)  # (s, m, ...)
    return get_xp(x).ascontiguousarray(rows.swapaxes(0, 1)).reshape(comm.size, *x.shape)


def _torus(what: str, comm, ranks_per_node: int) -> tuple[Group, Group]:
    """Return the groups of a rank's two rings: its node, and the ranks in its place on all nodes."""
    s = ranks_per_node
    if not hasattr(s, "__index__") or s < 1 or comm.size % s:
        raise ValueError(f"rank {comm.rank}: {what}: ranks_per_node={s!r}, expected a divisor of {comm.size} ranks")
    first, lane = comm.rank - comm.rank % s, comm.rank % s
    return Group(comm, range(first, first + s)), Group(comm, range(lane, comm.size, s))
