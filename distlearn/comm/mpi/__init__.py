"""Communication between processes, over MPI."""

from .communicator import Exhaustion, MPIComm, release_shared_memory_names, world_comm

__all__ = ["Exhaustion", "MPIComm", "release_shared_memory_names", "world_comm"]
