"""Pipelines: schedules as puzzles with a score, on real ranks, without a flush, and with normalisation."""

from .engines import Measured, StandIn, measure_schedule, run_stand_ins
from .judge import judge_orders, judge_puzzle, judge_stage, judge_training
from .normalisation import Normalised, normalisation_study
from .puzzles import PUZZLES, Puzzle, Score, score
from .stashing import StashRun, stash_study

__all__ = [
    "PUZZLES",
    "Measured",
    "Normalised",
    "Puzzle",
    "Score",
    "StandIn",
    "StashRun",
    "judge_orders",
    "judge_puzzle",
    "judge_stage",
    "judge_training",
    "measure_schedule",
    "normalisation_study",
    "run_stand_ins",
    "score",
    "stash_study",
]
