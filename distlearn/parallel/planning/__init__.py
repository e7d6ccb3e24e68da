"""Which layout trains a model fastest on n ranks: all of them, costed by a model, ranked, one recommended with reasons.

- `layout`: the ways to split n ranks into data, tensor and pipeline parallel ones
- `work`: what a layer takes, computing and sending
- `memory`: what a rank must hold
- `cost`: a layout's training step, put together from these
- `plan`: the answer
"""

from .cost import Cost
from .layout import Layout, layouts
from .plan import Plan, plan

__all__ = ["Cost", "Layout", "Plan", "layouts", "plan"]
