"""Attention: every position of a sequence takes a weighted mean of the values of others.

x --> query, key, value --> scores q k / sqrt(d) --> softmax over the keys --> weighted sum of values --> output

`dot_product` computes it with the whole matrix of scores; `online` block by block, in memory linear in the length.
"""

from .dot_product import attend, attend_backward
from .multi_head import MultiHeadAttention
from .online import Partial, finish, merge, online_attend, online_attend_backward, partial

__all__ = sorted(name for name, value in globals().items() if callable(value))
