from typing import Any
from distlearn.comm.base import CommError as CommError
from distlearn.comm.base import CommTimeoutError as CommTimeoutError
from distlearn.comm.base import Communicator as Communicator
from distlearn.comm.base import CutOffError as CutOffError
from distlearn.comm.base import DeadlockError as DeadlockError
from distlearn.comm.network.alpha_beta import HierarchicalNetwork as HierarchicalNetwork
from distlearn.comm.network.alpha_beta import Network as Network
from distlearn.comm.base import PeerLostError as PeerLostError
from distlearn.comm.base import RankError as RankError
from distlearn.comm.base import Work as Work
from distlearn.comm import collectives as collectives
from distlearn.comm.network import cost as cost
from distlearn.comm.collectives.rings import ring_all_reduce as ring_all_reduce
from distlearn.shares import shares as shares
ALL_REDUCES: dict[str, Any]
ANY: int
