"""The cost of messages and collectives: the alpha-beta model, real networks, and fitting."""

from . import cost
from .alpha_beta import CONTENTION, HierarchicalNetwork, Network

__all__ = ["CONTENTION", "HierarchicalNetwork", "Network", "cost"]
