"""Sequence parallelism: every rank has some positions of every sequence, which may then be too long for one rank.

Layers that treat every position by itself need no communication. Attention does: `ring` passes keys and values around,
`ulysses` exchanges positions for heads.
"""

from .order import ORDERS, cut, positions
from .ring import RingAttention
from .strategy import SequenceParallel
from .ulysses import UlyssesAttention

__all__ = ["ORDERS", "RingAttention", "SequenceParallel", "UlyssesAttention", "cut", "positions"]
