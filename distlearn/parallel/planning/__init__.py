"""Plans: which layout of n ranks trains a model fastest."""

from .search import Layout, Plan, account, layouts, plan, simulate_layout

__all__ = ["Layout", "Plan", "account", "layouts", "plan", "simulate_layout"]
