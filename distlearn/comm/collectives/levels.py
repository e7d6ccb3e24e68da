"""Two levels: fast links inside a node, slow ones between nodes, and all-reduces that send little over the slow ones.

Ranks 0 .. s - 1 are on the first node, the next s on the second, and so on, as `mpiexec` places them by default.
"""

from __future__ import annotations

import numpy as np

from ..base import check_reduction
from .group import Group
from .rings import cut, pass_around, reduce_around, ring_all_reduce
from .trees import tree_broadcast, tree_reduce


def hierarchical_all_reduce(comm, x, ranks_per_node: int, op: str = "sum", tag: int = 0):
    r"""All-reduce in three phases, in place: reduce to each node's leader, ring of leaders, broadcast in each node.

    With m nodes of s ranks (the last may have fewer): 2 (p - m) messages inside nodes, 2 m (m - 1) between them;
    2 n (p - 1) bytes in all, of which only 2 n (m - 1) between nodes.

    .. math::
       T(n, p) = 2 \lceil\log_2 s\rceil \left(\alpha_{in} + \frac{n}{\beta_{in}}\right)
                 + 2 (m - 1) \left(\alpha_{out} + \frac{n}{m \beta_{out}}\right)

    Parameters
    ----------
    comm : Communicator
    x : contiguous array
    ranks_per_node : int
        s, at least 1 (which gives a ring of all ranks).
    op : {"sum", "prod", "min", "max"}
    tag : int

    References
    ----------
    X. Jia et al. (2018), Highly scalable deep learning training system with mixed-precision: training ImageNet in four
    minutes, arXiv:1807.11205 (hierarchical all-reduce).
    """
    check_reduction("hierarchical_all_reduce", x, op, comm.rank)
    s = check_ranks_per_node("hierarchical_all_reduce", ranks_per_node, comm)
    first = comm.rank - comm.rank % s
    node = Group(comm, range(first, min(first + s, comm.size)))
    tree_reduce(node, x, op, 0, tag)
    if node.rank == 0:
        ring_all_reduce(Group(comm, range(0, comm.size, s)), x, op, tag)
    return tree_broadcast(node, x, 0, tag)


def torus_all_reduce(comm, x, ranks_per_node: int, op: str = "sum", tag: int = 0):
    r"""All-reduce along the two directions of a torus, in place: every rank reduces its share between nodes.

    Reduce-scatter around each node, ring all-reduce of share i among the i-th ranks of all nodes, all-gather around
    each node. With m full nodes of s ranks: p (2 (s - 1) + 2 (m - 1)) messages; 2 n (p - 1) bytes in all. Unlike in
    `hierarchical_all_reduce`, a rank reduces only n / s bytes over the slow links, and all ranks use them at once.

    .. math::
       T(n, p) = 2 (s - 1) \left(\alpha_{in} + \frac{n}{s \beta_{in}}\right)
                 + 2 (m - 1) \left(\alpha_{out} + \frac{n}{p \beta_{out}}\right)

    Parameters
    ----------
    comm : Communicator
    x : contiguous array
    ranks_per_node : int
        s, which divides the number of ranks.
    op : {"sum", "prod", "min", "max"}
    tag : int

    References
    ----------
    H. Mikami et al. (2018), Massively distributed SGD: ImageNet/ResNet-50 training in a flash, arXiv:1811.05233
    (2D-torus all-reduce).

    M. Cho, U. Finkler, D. Kung, H. Hunter (2019), BlueConnect: decomposing all-reduce for deep learning on
    heterogeneous network hierarchy, MLSys 2019.
    """
    check_reduction("torus_all_reduce", x, op, comm.rank)
    s = check_ranks_per_node("torus_all_reduce", ranks_per_node, comm)
    if comm.size % s:
        raise ValueError(
            f"rank {comm.rank}: torus_all_reduce needs full nodes: {comm.size} ranks are not a multiple of "
            f"ranks_per_node={s}; hierarchical_all_reduce takes any number"
        )
    first, lane = comm.rank - comm.rank % s, comm.rank % s
    node, peers = Group(comm, range(first, first + s)), Group(comm, range(lane, comm.size, s))
    if s == 1:
        return ring_all_reduce(peers, x, op, tag)
    parts = cut(x, s)
    mine = reduce_around(node, parts, op, tag)
    ring_all_reduce(peers, parts[mine], op, tag)
    pass_around(node, parts, tag)
    return x


def check_ranks_per_node(what: str, ranks_per_node: int, comm) -> int:
    """Raise unless `ranks_per_node` is an integer, 1 or more; return it as an int."""
    if not isinstance(ranks_per_node, (int, np.integer)) or isinstance(ranks_per_node, bool) or ranks_per_node < 1:
        raise ValueError(f"rank {comm.rank}: {what}: ranks_per_node={ranks_per_node!r}, expected 1 or more")
    return int(ranks_per_node)
