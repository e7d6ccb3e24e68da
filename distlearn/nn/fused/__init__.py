"""Several layers in one pass over memory, and the fast ways to convolve on a CPU."""

from .fuse import fuse, is_fused
from .layers import Fused, choose_algorithm

__all__ = ["Fused", "choose_algorithm", "fuse", "is_fused"]
