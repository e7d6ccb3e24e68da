"""Optimizer state of 8 bits: its bytes, its values, and that it trains like 32."""

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import Batch, load
from distlearn.nn import MLP, MockDeviceArray, Param, SoftmaxCrossEntropy
from distlearn.optim import SGD, Adam, EightBit, Momentum, Optimizer
from distlearn.optim.eight_bit import CODES
from distlearn.optim.optimizer import state_arrays
from distlearn.parallel import Serial
from distlearn.parallel.checkpoint.state import capture, restore
from distlearn.sim import MetaArray
from distlearn.testing import assert_same_params

from ..parallel.test_optimizers import STAGED, STRATEGIES, compare

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("rule", "arrays"), [(SGD(), 0), (Momentum(), 1), (Adam(), 2)])
def test_bytes(rule, arrays):
    """One a value, and four a block of 256; the same without data. 2.03 instead of 8 for Adam."""
    for data in (np.ones((37, 20), "float32"), MetaArray((37, 20))):
        state = EightBit(rule).init(data)
        assert sum(a.nbytes for a in state_arrays(state)) == arrays * (37 * 20 + 3 * 4)
    p = Param(np.ones((37, 20), "float32"))
    assert Optimizer([p], EightBit(rule), 0.1).cost()[1] == 3 * p.nbytes + 2 * arrays * (37 * 20 + 3 * 4)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("block", [256, 2048])
def test_every_value_becomes_the_nearest_of_its_block(signed, block):
    x = (RNG.normal(size=(31, 83)) * 10.0 ** RNG.uniform(-6, 0, (31, 83))).astype("float32")
    x = x if signed else abs(x)
    rule = EightBit(Momentum(), block)
    codes, scales = rule._encode([x])
    got, flat = rule._decode(codes, scales), x.ravel()
    for i in range(0, x.size, block):
        part, values = flat[i : i + block], CODES[signed] * abs(flat[i : i + block]).max()
        nearest = abs(part[:, None] - values).min(axis=1)
        np.testing.assert_allclose(abs(got.ravel()[i : i + block] - part), nearest, rtol=1e-3, atol=1e-7 * values[-1])
    assert (len(CODES[signed]), codes.dtype, len(np.unique(codes)) > 150) == (255 + signed, np.uint8, True)
    assert (got > 0).all() or signed
    device = rule._decode(*rule._encode([MockDeviceArray(x)]))
    np.testing.assert_array_equal(device.get(), got)
    np.testing.assert_array_equal(rule._decode(*rule._encode([0 * x])), 0)


DIGITS = load("digits", dtype="float32")


def trainer(rule, lr, seed):
    model = MLP((64, 64, 32, 10), seed=seed)
    return Serial(model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, lr))


def train(strategy, seed, steps=200):
    rng, x = np.random.default_rng(seed), DIGITS.x_train.reshape(-1, 64)
    for _ in range(steps):
        rows = rng.integers(len(x), size=64)
        strategy.step(Batch(x[rows], DIGITS.y_train[rows], 64))
    return strategy.loss(strategy.predict(x), DIGITS.y_train)[0]


@pytest.mark.parametrize(("rule", "lr"), [(Adam(), 3e-3), (Momentum(), 0.05)], ids=["adam", "momentum"])
def test_it_trains_to_the_same_loss(rule, lr):
    """The mean of five seeds within 10 %; single seeds differ by 30 %."""
    losses = np.array([[train(trainer(r, lr, s), s) for s in range(5)] for r in (rule, EightBit(rule))])
    assert losses.max() < 0.15
    assert abs(losses[1].mean() / losses[0].mean() - 1) < 0.1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_code_with_a_zero_would_not_train_adam(monkeypatch):
    """A second moment far below its block's largest becomes 0, and the step m / eps."""
    monkeypatch.setattr("distlearn.optim.eight_bit.CODES", (np.arange(256, dtype="float32") / 255, CODES[1]))
    assert not train(trainer(EightBit(Adam()), 3e-3, 0), 0) < 1


def test_a_checkpoint_goes_on_bit_for_bit():
    first, second = trainer(EightBit(Adam()), 3e-3, 1), trainer(EightBit(Adam()), 3e-3, 2)
    train(first, 0, 4)
    restore(second, *capture(first))
    train(first, 1, 4)
    train(second, 1, 4)
    assert_same_params(second.gather_params(), first.gather_params(), tol=0)


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_take_it_or_refuse_it(name):
    def optimizer(params):
        return Optimizer(params, EightBit(Momentum()), 0.1)

    if name in ("data", "naive", "elastic", *STAGED):
        compare(name, optimizer)
    elif name != "local":  # averages weights, each rank with a state of its own
        with pytest.raises(RankError, match="EightBit needs every parameter as a whole"):
            compare(name, optimizer)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="EightBit: block is 0, expected a whole number of 1 or more"):
        EightBit(Adam(), 0)
    with pytest.raises(TypeError, match=r"EightBit: rule is <class .*Adam'>, expected a rule"):
        EightBit(Adam)
