"""Communication between ranks: the protocol, collectives, the network model, MPI and NCCL.

Nothing here knows about layers, models or optimizers.
"""

from . import collectives
from .base import CommError, CommTimeoutError, Communicator, CutOffError, DeadlockError, PeerLostError, RankError, Work
from .calls import ANY
from .collectives import ALL_REDUCES, ring_all_reduce, shares
from .network import HierarchicalNetwork, Network, cost

__all__ = sorted(
    {name for name, value in globals().items() if callable(value)} | {"ALL_REDUCES", "ANY", "collectives", "cost"}
)
