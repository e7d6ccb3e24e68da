"""Model parallelism, for lab 09: training with bugs of real frameworks, one's own layers, which layout sends least."""

from .bugs import BUGS, train_with_bug
from .judge import judge_assign, judge_layers, judge_move, judge_product_type, judge_rule, judge_typed
from .layers import train_layers
from .paths import inception_costs
from .rules import TEN, LayoutCase, LayoutFacts, RuleScore, layout_facts, score_rule

__all__ = [
    "BUGS",
    "TEN",
    "LayoutCase",
    "LayoutFacts",
    "RuleScore",
    "inception_costs",
    "judge_assign",
    "judge_layers",
    "judge_move",
    "judge_product_type",
    "judge_rule",
    "judge_typed",
    "layout_facts",
    "score_rule",
    "train_layers",
    "train_with_bug",
]
