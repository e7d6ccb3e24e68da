from distlearn.optim.adaptive import Adadelta as Adadelta
from distlearn.optim.adaptive import Adagrad as Adagrad
from distlearn.optim.adaptive import Adam as Adam
from distlearn.optim.adaptive import AdamW as AdamW
from distlearn.optim.schedules import Cosine as Cosine
from distlearn.optim.momentum import LARS as LARS
from distlearn.optim.momentum import Momentum as Momentum
from distlearn.optim.momentum import Nesterov as Nesterov
from distlearn.optim.optimizer import Optimizer as Optimizer
from distlearn.optim.adaptive import RMSprop as RMSprop
from typing import Any
from distlearn.optim.optimizer import Rule as Rule
from distlearn.optim.momentum import SGD as SGD
from distlearn.optim.schedules import WarmUp as WarmUp
from distlearn.optim.optimizer import clip_by_norm as clip_by_norm
from distlearn.optim.optimizer import global_norm as global_norm
from distlearn.optim.schedules import scaled_lr as scaled_lr
RULES: dict[str, Any]
