"""Training: `fit` drives any strategy over a data set; `train` is the whole SPMD program in one function."""

from .fit import DivergedError, evaluate, fit
from .history import Epoch, History
from .program import MODELS, Result, Settings, build, train
from .strategies import STRATEGIES, Recipe

__all__ = [
    "MODELS",
    "STRATEGIES",
    "DivergedError",
    "Epoch",
    "History",
    "Recipe",
    "Result",
    "Settings",
    "build",
    "evaluate",
    "fit",
    "train",
]
