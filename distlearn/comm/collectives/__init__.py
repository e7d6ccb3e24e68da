"""Collectives written with send and receive, as in the textbooks.

Each works on any communicator, any number of ranks (not only powers of two) and any length (including 0, or fewer
elements than ranks). Each states what it sends and how long that takes, where n is the size in bytes of the array that
a rank passes and p the number of ranks; `distlearn.comm.network.cost` has the same formulas as functions. T(n, p) holds
where a rank sends one message and receives one message at a time, and the arithmetic takes no time.

================================  ===========================  ==================================================
all-reduce                        messages one after another   suits
================================  ===========================  ==================================================
`naive_all_reduce`                2 (p - 1) of n bytes         nothing; it shows why the others exist
`tree_all_reduce`                 2 log2 p of n bytes          short arrays
`doubling_all_reduce`             log2 p of n bytes            short arrays
`ring_all_reduce`                 2 (p - 1) of n / p bytes     long arrays, few ranks
`halving_doubling_all_reduce`     2 log2 p, 2 n bytes in sum   long arrays, many ranks
================================  ===========================  ==================================================

All but `doubling_all_reduce`, which sends more, send 2 n (p - 1) bytes in all: what differs is how many messages, and
how much goes through the busiest rank.
"""

from ...shares import shares
from .butterflies import dissemination_barrier, doubling_all_reduce, halving_doubling_all_reduce, pairwise_all_to_all
from .rings import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from .stars import flat_broadcast, flat_reduce, naive_all_reduce
from .trees import tree_all_reduce, tree_broadcast, tree_gather, tree_reduce, tree_scatter

# All-reduces by a short name.
ALL_REDUCES = {
    "naive": naive_all_reduce,
    "tree": tree_all_reduce,
    "doubling": doubling_all_reduce,
    "ring": ring_all_reduce,
    "halving-doubling": halving_doubling_all_reduce,
}

ALGORITHMS = {
    "all_reduce": ring_all_reduce,
    "reduce_scatter": ring_reduce_scatter,
    "all_gather": ring_all_gather,
    "broadcast": tree_broadcast,
    "scatter": tree_scatter,
    "gather": tree_gather,
    "all_to_all": pairwise_all_to_all,
    "barrier": dissemination_barrier,
}
"""The algorithm of each collective of a communicator: its messages are sent, and its cost is planned with."""

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
