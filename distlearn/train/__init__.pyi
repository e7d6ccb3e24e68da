from distlearn.train.fit import DivergedError as DivergedError
from distlearn.train.history import Epoch as Epoch
from distlearn.train.history import History as History
from distlearn.train.program import Result as Result
from typing import Any
from distlearn.train.settings import Settings as Settings
from distlearn.train.weights import Trained as Trained
from distlearn.train.weights import WeightsError as WeightsError
from distlearn.train.program import build as build
from distlearn.train.fit import evaluate as evaluate
from distlearn.train.fit import fit as fit
from distlearn.train.weights import load as load
from distlearn.train.weights import load_weights as load_weights
from distlearn.train.weights import save_weights as save_weights
from distlearn.train.program import train as train
MODELS: tuple[str, ...]
STRATEGIES: dict[str, Any]
