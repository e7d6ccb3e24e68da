"""Communication between ranks: the protocol, collectives, the network model, the simulator and MPI.

Nothing here knows of layers, models or optimizers.
"""

from . import collectives, cost
from .collectives import ALL_REDUCES, ring_all_reduce, shares
from .compute import Free, Measured, Roofline
from .failures import Failure, FailureSchedule, Loss
from .fit import Fit
from .mesh import Mesh, mesh
from .network import HierarchicalNetwork, Network
from .phantom import Phantom
from .protocol import (
    ANY,
    CommError,
    CommTimeoutError,
    Communicator,
    CutOffError,
    FaultTolerant,
    PeerLostError,
    RankError,
    RevokedError,
    Work,
)

__all__ = [
    "ALL_REDUCES",
    "ANY",
    "CommError",
    "CommTimeoutError",
    "Communicator",
    "CutOffError",
    "DeadlockError",
    "Failure",
    "FailureSchedule",
    "FaultTolerant",
    "Fit",
    "Free",
    "HierarchicalNetwork",
    "Loss",
    "Measured",
    "Mesh",
    "Network",
    "PeerLostError",
    "Phantom",
    "RankError",
    "RevokedError",
    "Roofline",
    "SimWorld",
    "Work",
    "collectives",
    "cost",
    "mesh",
    "ring_all_reduce",
    "shares",
]


def __getattr__(name):
    if name in ("SimWorld", "DeadlockError"):
        from . import sim

        return getattr(sim, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
