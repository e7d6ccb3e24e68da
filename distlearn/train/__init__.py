"""Training: `fit` drives any strategy over a data set; `train` is the whole SPMD program in one function."""

from .fit import DivergedError, evaluate, fit
from .history import Epoch, History
from .program import Result, build, train
from .settings import MODELS, Settings
from .strategies import STRATEGIES
from .weights import Trained, WeightsError, load, load_weights, save_weights

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
