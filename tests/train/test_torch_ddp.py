"""Training by PyTorch: the same losses and weights as ours, on one process and on two."""

import numpy as np
import pytest

from distlearn import EngineWorld, SimWorld
from distlearn.comm import RankError
from distlearn.comm.point_to_point import LocalComm
from distlearn.data import Batch
from distlearn.nn import SoftmaxCrossEntropy, build
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import DataParallel
from distlearn.train import Settings
from distlearn.train.program import train
from distlearn.train.torch_ddp import TorchDDP

pytest.importorskip("torch", reason="PyTorch is not installed: pip install distlearn[bench]")


def settings(**options):
    return Settings(**{"epochs": 1, "batch_size": 100, "n_train": 500, "evaluate_every": 1, "seed": 3, **options})


CASES = [
    {"optimizer": "sgd", "weight_decay": 0.01},
    {"optimizer": "momentum", "warmup_epochs": 0.5},
    {"optimizer": "nesterov", "activation": "tanh"},
    {"optimizer": "adam", "lr": 0.002, "activation": "sigmoid"},
    {"optimizer": "adamw", "lr": 0.002},
]


def compared(comm, options):
    return [train(comm, settings(trainer=name, **options)) for name in ("distlearn", "torch")]


def equal(ours, theirs):
    assert theirs.history.losses == pytest.approx(ours.history.losses, rel=1e-4)
    assert theirs.history.last.test == pytest.approx(ours.history.last.test, abs=0.01)
    for name, array in ours.params.items():
        np.testing.assert_allclose(theirs.params[name], array, rtol=1e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("options", CASES, ids=lambda options: options["optimizer"])
def test_one_process_trains_as_ours(options):
    equal(*compared(LocalComm(), options))


@pytest.mark.parametrize("name", ["lenet", "cnn"])
def test_convolutions(name):
    """In float64: in single precision another order of a sum may open a ReLU, on one processor and not on another."""
    rng = np.random.default_rng(0)
    x, y = rng.random((20, 784)), rng.integers(10, size=20)
    made = []
    for kind, more in ((DataParallel, ()), (TorchDDP, (x.shape,))):
        model = build(name, seed=2, dtype="float64")
        made.append(kind(LocalComm(), model, SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.05), *more))
    losses = [[strategy.step(Batch(x, y, 20)) for _ in range(4)] for strategy in made]
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    assert losses[0][-1] < losses[0][0]
    for strategy in made:
        strategy.finish()
    ours, theirs = (strategy.gather_params() for strategy in made)
    for key, array in ours.items():
        np.testing.assert_allclose(theirs[key], array, rtol=1e-9, atol=1e-12, err_msg=key)


def test_two_engines_train_as_ours():
    with EngineWorld(2, progress=False) as world:
        equal(*world.run(compared, CASES[1])[0])


def test_what_it_cannot_do_is_said():
    model = build("alexnet28", seed=0)
    with pytest.raises(ValueError, match="no peer for LocalResponseNorm"):
        TorchDDP(LocalComm(), model, SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.1), (1, 784))
    with pytest.raises(RankError, match="not simulated ones"):
        SimWorld(2).run(train, settings(trainer="torch"))
    with pytest.raises(ValueError, match="clip_norm"):
        train(LocalComm(), settings(trainer="torch", clip_norm=1.0))
    with pytest.raises(ValueError, match="not RMSprop"):
        train(LocalComm(), settings(trainer="torch", optimizer="rmsprop"))
