"""Which layout trains a model fastest on n ranks: all of them, costed by a model, ranked, one recommended with reasons.

- `layout`: the ways to split n ranks into data, tensor and pipeline parallel ones
- `work`: what a layer takes, computing and sending
- `memory`: what a rank must hold
- `job`: what is trained, and the cost of a layout
- `staged`, `trick`: a layout's training step, composed of these; `buckets`: what overlaps with backward
- `plan`: the answer

`play` times a step's tasks, which is why a plan takes milliseconds. `experiments.check_plan` runs the strategies' own
code in every layout, which takes seconds, and a test compares the two: the recommended layout is within 5 % of
the fastest one simulated, no planned time more than 30 % off.
"""

from .job import Cost
from .layout import Layout, layouts
from .plan import Plan, plan

__all__ = ["Cost", "Layout", "Plan", "layouts", "plan"]
