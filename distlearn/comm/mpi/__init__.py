"""Communication between processes, over MPI."""

from .communicator import MPIComm, release_shared_memory_names, world_comm

__all__ = ["MPIComm", "release_shared_memory_names", "world_comm"]
