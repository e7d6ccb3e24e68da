"""Which layout trains a model fastest on n ranks: all of them, costed by a model, ranked, one recommended with reasons.

- `layout`: the ways to split n ranks into data, tensor and pipeline parallel ones
- `work`: what a layer takes, computing and sending
- `memory`: what a rank must hold
- `job`: what is to be trained, and the form of an answer
- `staged`, `trick`: a layout's training step, put together from these; `timeline` and `buckets` say what waits for what
- `plan`: the answer
"""

from .job import Cost
from .layout import Layout, layouts
from .plan import Plan, plan

__all__ = ["Cost", "Layout", "Plan", "layouts", "plan"]
