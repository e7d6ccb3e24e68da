"""Plans: which layout of n ranks trains a model fastest, and how well such predictions match published clusters."""

from .backtest import backtest, published, skill
from .search import Layout, Plan, account, layouts, plan, simulate_layout

__all__ = ["Layout", "Plan", "account", "backtest", "layouts", "plan", "published", "simulate_layout", "skill"]
