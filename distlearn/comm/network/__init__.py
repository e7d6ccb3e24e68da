"""What messages cost: the alpha-beta model, networks that exist, fitting, and what each collective costs."""

from . import cost
from .alpha_beta import CONTENTION, HierarchicalNetwork, Network

__all__ = ["CONTENTION", "HierarchicalNetwork", "Network", "cost"]
