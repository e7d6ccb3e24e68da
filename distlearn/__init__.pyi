from distlearn.parallel.checkpoint.store import CheckpointStore as CheckpointStore
from distlearn.comm.base import CommError as CommError
from distlearn.comm.base import CommTimeoutError as CommTimeoutError
from distlearn.parallel.data.data_parallel import DataParallel as DataParallel
from distlearn.comm.base import DeadlockError as DeadlockError
from distlearn.world.engines import EngineWorld as EngineWorld
from distlearn.sim.failures import Failure as Failure
from distlearn.sim.clock import Free as Free
from distlearn.comm.network.alpha_beta import HierarchicalNetwork as HierarchicalNetwork
from distlearn.parallel.hybrid import Hybrid as Hybrid
from distlearn.world.engines import LimitedWorld as LimitedWorld
from distlearn.parallel.data.local_sgd import LocalSGD as LocalSGD
from distlearn.world.local import LocalWorld as LocalWorld
from distlearn.world.mpi import MPIWorld as MPIWorld
from distlearn.sim.clock import Measured as Measured
from distlearn.sim.meta import MetaArray as MetaArray
from distlearn.comm.network.alpha_beta import Network as Network
from distlearn.parallel.tensor.strategy import OneWeirdTrick as OneWeirdTrick
from distlearn.parallel.asynchronous.param_server.training import ParameterServer as ParameterServer
from distlearn.parallel.pipeline.pipedream import PipeDream as PipeDream
from distlearn.parallel.pipeline.strategy import Pipeline as Pipeline
from distlearn.parallel.asynchronous.param_server.training import QuorumDiLoCo as QuorumDiLoCo
from distlearn.comm.base import RankError as RankError
from distlearn.sim.clock import Roofline as Roofline
from distlearn.parallel.sequence import SequenceParallel as SequenceParallel
from distlearn.parallel.strategy import Serial as Serial
from distlearn.train.settings import Settings as Settings
from distlearn.sim.world import SimWorld as SimWorld
from distlearn.trace import Span as Span
from distlearn.parallel.tensor.strategy import TensorParallel as TensorParallel
from distlearn.trace import Trace as Trace
from distlearn.parallel.zero import ZeRO as ZeRO
from distlearn.parallel.asynchronous.param_server.policy import ASP as ASP
from distlearn import backend as backend
from distlearn.parallel.asynchronous.param_server.policy import Backup as Backup
from distlearn.parallel.asynchronous.param_server.policy import BSP as BSP
from distlearn.parallel.pipeline.schedule.check import check_schedule as check_schedule
from distlearn import comm as comm
from distlearn import cuda as cuda
from distlearn import data as data
from distlearn.train.fit import evaluate as evaluate
from distlearn.train.fit import fit as fit
from distlearn.train.weights import load as load
from distlearn.train.weights import load_weights as load_weights
from distlearn import nn as nn
from distlearn import optim as optim
from distlearn import parallel as parallel
from distlearn.parallel.tensor.rewrite import parallelize as parallelize
from distlearn.parallel.planning.search import plan as plan
from distlearn.parallel.memory import record_memory as record_memory
from distlearn.sim.what_if import record_run as record_run
from distlearn.sim.what_if import replay as replay
from distlearn.comm.collectives.rings import ring_all_reduce as ring_all_reduce
from distlearn.train.weights import save_weights as save_weights
from distlearn import sim as sim
from distlearn.parallel.asynchronous.param_server.policy import SoftSync as SoftSync
from distlearn.parallel.asynchronous.param_server.policy import SSP as SSP
from distlearn import testing as testing
from distlearn import trace as trace
from distlearn import train as train
from distlearn.world.elastic import train_through_failures as train_through_failures
from distlearn import viz as viz
from distlearn import world as world
ANY: int
__version__: str
asp = ASP
backup = Backup
bsp = BSP
def lazy(package: str, homes: dict[str, str]): ...
def need(module: str, extra: str): ...
softsync = SoftSync
ssp = SSP
