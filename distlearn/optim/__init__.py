"""Optimizers: one `Rule` per formula on bare arrays, and the `Optimizer` that applies a rule to a model's parameters.

A rule changes arrays in place and keeps its memory in a state that it is handed, so the same rule serves a whole model,
a shard of it, or a parameter server's flat slice.
"""

from .adaptive import Adadelta, Adagrad, Adam, AdamW, RMSprop
from .momentum import LARS, SGD, Momentum, Nesterov
from .optimizer import Optimizer, Rule, clip_by_norm, global_norm
from .schedules import Cosine, WarmUp, scaled_lr

_RULES = (SGD, Momentum, Nesterov, Adagrad, Adadelta, RMSprop, Adam, AdamW, LARS)
RULES = {rule.__name__.lower(): rule for rule in _RULES}  # by name

__all__ = sorted(name for name, value in globals().items() if callable(value) or name == "RULES")
