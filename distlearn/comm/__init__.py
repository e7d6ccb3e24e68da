"""Communication between ranks: the protocol, collectives, the network model, MPI and NCCL.

Nothing here knows about layers, models or optimizers.
"""

from . import collectives
from .base import (
    ANY,
    CommError,
    CommTimeoutError,
    Communicator,
    CutOffError,
    DeadlockError,
    FaultTolerant,
    PeerLostError,
    RankError,
    RevokedError,
    Work,
)
from .collectives import ALL_REDUCES, ring_all_reduce, shares
from .mesh import Mesh, mesh
from .network import HierarchicalNetwork, Network, cost
from .network.fit import Fit

__all__ = [
    "ALL_REDUCES",
    "ANY",
    "CommError",
    "CommTimeoutError",
    "Communicator",
    "CutOffError",
    "DeadlockError",
    "FaultTolerant",
    "Fit",
    "HierarchicalNetwork",
    "Mesh",
    "Network",
    "PeerLostError",
    "RankError",
    "RevokedError",
    "Work",
    "collectives",
    "cost",
    "mesh",
    "ring_all_reduce",
    "shares",
]
