"""Communication between GPUs, over NCCL."""

from .communicator import NCCLComm

__all__ = ["NCCLComm"]
