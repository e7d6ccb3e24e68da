"""How many launches a training step takes on a GPU, counted without one: operations on arrays, and kernels.

What the library launches is counted, not run: values are arbitrary, shapes are right. The numbers may only fall.
"""

from collections import Counter

import numpy as np
import pytest

from distlearn import nn, optim
from distlearn.comm.point_to_point import LocalComm
from distlearn.cuda.kernels import Variant
from distlearn.data import Batch
from distlearn.nn.costs import count
from distlearn.nn.costs.count import MockDeviceArray, strict
from distlearn.parallel import DataParallel, Serial

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
MODELS = {"mlp": 18, "cnn": 30, "lenet": 40, "siamese": 36, "gru": 558, "gpt": 620, "alexnet28": 317,
          "googlenet28": 220, "squeezenet28": 213}  # fmt: skip
"""With SGD. AlexNet, GoogLeNet and SqueezeNet for larger images have the same layers."""
RULES = {optim.SGD(): 18, optim.SGD(0.1): 20, optim.Momentum(): 18, optim.Nesterov(): 23, optim.LARS(): 53,
         optim.Adagrad(): 24, optim.RMSprop(): 26, optim.Adadelta(): 32, optim.Adam(): 18,
         optim.AdamW(): 19}  # fmt: skip
"""With the MLP."""


@pytest.fixture
def launches(monkeypatch):
    """A function that counts the launches of the second step."""
    kernels = []
    monkeypatch.setattr(strict, "RawModule", None, raising=False)

    def launch(variant, *args):
        kernels.append(variant)
        for a in args:
            if isinstance(a, MockDeviceArray) and a.dtype.kind == "f":
                np.nan_to_num(a._array, copy=False)  # memory that no kernel wrote: a NaN would be looked into

    monkeypatch.setattr(Variant, "__call__", launch)

    def of_step(name, rule, make=Serial):
        known, rng = nn.MODELS[name], np.random.default_rng(0)
        model = nn.fuse(nn.move(known.build(), lambda a: MockDeviceArray(a.copy())))
        text = name in ("gru", "gpt")
        x = rng.integers(20, size=(2, *known.sample)) if text else rng.random((2, *known.sample), dtype="float32")
        y, loss = x if text else rng.integers(10, size=2), nn.SoftmaxCrossEntropy()
        if name == "siamese":
            y, loss = rng.random((2, 2, 8), dtype="float32"), nn.MeanSquaredError()
        trainer = make(None, model, loss, optim.Optimizer(model.params, rule, 0.01))
        for _ in range(2):
            kernels.clear()
            counter = Counter()
            monkeypatch.setattr(count, "_counters", [counter])
            trainer.step(Batch(MockDeviceArray(x), MockDeviceArray(y), 2))
        return counter["calls"] + len(kernels)

    return of_step


@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_a_model(name, launches):
    assert launches(name, optim.SGD()) == MODELS[name]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_step_of_a_rule(rule, launches):
    assert launches("mlp", rule) == RULES[rule]


@pytest.mark.parametrize(("cap_bytes", "buckets"), [(1 << 20, 1), (200_000, 2)])
def test_data_parallel_launches_an_update_for_each_bucket(cap_bytes, buckets, launches):
    made = lambda _, *parts: DataParallel(LocalComm(), *parts, cap_bytes=cap_bytes)  # noqa: E731
    assert launches("mlp", optim.Adam(), made) == MODELS["mlp"] - 1 + buckets


def test_every_model_is_counted():
    assert {name.removesuffix("28") for name in MODELS} == {name.removesuffix("28") for name in nn.MODELS}
