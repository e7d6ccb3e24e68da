"""Attention: every position of a sequence takes a weighted mean of the values of others.

x --> query, key, value --> scores q k / sqrt(d) --> softmax over the keys --> weighted sum of values --> output

`dot_product` computes it with the whole matrix of scores; `online` has the parts of it for some keys at a time.
"""

from .dot_product import attend, attend_backward
from .multi_head import MultiHeadAttention
from .online import Partial, finish, merge, partial

__all__ = sorted(name for name, value in globals().items() if callable(value))
