"""Several layers in one pass over memory, and the fast ways to convolve on a CPU."""

from .layers import Fused, choose_algorithm, fuse, is_fused

__all__ = ["Fused", "choose_algorithm", "fuse", "is_fused"]
