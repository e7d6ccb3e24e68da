"""Which layout trains a model fastest on n ranks: every layout simulated, ranked, one recommended with reasons.

- `layout`: the ways to split n ranks into data, tensor and pipeline parallel ones
- `simulate`: the cost of a layout, by a step of the strategies' own code on meta arrays
- `plan`: the answer
- `account`: what each layer of a tensor-parallel model sends
"""

from .account import Account, account
from .layout import Layout, layouts
from .plan import Plan, plan
from .simulate import Cost, simulate_layout

__all__ = ["Account", "Cost", "Layout", "Plan", "account", "layouts", "plan", "simulate_layout"]
