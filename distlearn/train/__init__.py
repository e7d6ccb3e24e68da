"""Training: `fit` drives any strategy over a data set; `train` is the whole SPMD program in one function."""

from .fit import DivergedError, Epoch, History, evaluate, fit
from .program import MODELS, STRATEGIES, Result, Settings, build, train

__all__ = [
    "MODELS",
    "STRATEGIES",
    "DivergedError",
    "Epoch",
    "History",
    "Result",
    "Settings",
    "build",
    "evaluate",
    "fit",
    "train",
]
