"""One state for every strategy: arrays of each rank with their specs, put together and taken again, or not touched."""

from functools import cache

import numpy as np
import pytest

from distlearn.data import Batch
from distlearn.nn import MockDeviceArray, SoftmaxCrossEntropy
from distlearn.optim import Adam, Cosine, Optimizer
from distlearn.parallel.checkpoint.state import capture, restore
from distlearn.parallel.sharding import Shard, ShardSpec
from distlearn.sim import SimWorld

from .programs import assert_same_params
from .test_optimizers import STRATEGIES, X, Y, model_of

ADAM = {name: make for name, make in STRATEGIES.items() if name not in ("local", "pipedream")}


def adam(params):
    return Optimizer(params, Adam(weight_decay=0.1), Cosine(0.05, 5))


def train(comm, make, make_optimizer=adam, state=None, steps=2, first=0, spoil=None):
    """Train on; return the parameters, the state, and whether a state that was spoilt changed anything."""
    model = model_of()
    strategy = make(comm, model, SoftmaxCrossEntropy(), make_optimizer(model.params))
    if state is not None:
        restore(strategy, *state)
    part = slice(0, 12)
    if strategy.size > 1:
        part = np.array_split(np.arange(12), strategy.size)[strategy.rank]
    for step in range(first, first + steps):
        strategy.step(Batch(np.roll(X, step, 0)[part], np.roll(Y, step)[part], 12))
    found = comm.broadcast_obj(capture(strategy))
    refused = None
    if spoil is not None:
        arrays, scalars = dict(found[0]), found[1]
        spoil(arrays)
        with pytest.raises(ValueError, match="the state is of another model") as caught:
            restore(strategy, arrays, scalars | {"optimizer": {"steps": 99}})
        again = comm.broadcast_obj(capture(strategy))
        assert again[1] == found[1]
        assert_same_params(again[0], found[0], tol=0)
        refused = str(caught.value)
    return strategy.gather_params(), found, refused


@cache
def state_of(name):
    """What a strategy saves after two steps."""
    return SimWorld(2).run(train, ADAM[name])[0][1]


@cache
def trained():
    """What four steps without interruption give."""
    return SimWorld(2).run(train, ADAM["data"], steps=4)[0][0]


@pytest.mark.parametrize("after", ADAM)
@pytest.mark.parametrize("before", ["data", "zero2", "zero3", "tensor", "trick", "pipeline", "hybrid_pp"])
def test_any_strategy_goes_on_from_the_state_of_any_other(before, after):
    got, _, _ = SimWorld(2).run(train, ADAM[after], adam, state_of(before), 2, 2)[0]
    assert_same_params(got, trained(), tol=1e-11)


SPOIL = {
    "lacks": lambda arrays: arrays.pop("param/6.b"),
    "optimizer": lambda arrays: arrays.pop("optimizer/1.W/1"),
    "more": lambda arrays: arrays.update({"optimizer/1.W/2": arrays["optimizer/1.W/1"]}),
    "shape": lambda arrays: arrays.update({"param/4.W": arrays["param/4.W"].T.copy()}),
    "dtype": lambda arrays: arrays.update({"optimizer/6.W/0": arrays["optimizer/6.W/0"].astype("float32")}),
}


@pytest.mark.parametrize("name", ADAM)
def test_nothing_is_changed_if_a_state_does_not_fit(name):
    """On no rank, not even one that holds nothing of what is wrong."""
    for spoil in SPOIL.values():
        for _, _, refused in SimWorld(2).run(train, ADAM[name], adam, None, 1, 0, spoil):
            assert refused


# -- specs -------------------------------------------------------------------------------------------------------------


def test_scattered_places_are_taken_where_the_array_lives():
    """CuPy takes no NumPy array as an index."""
    whole = np.arange(12.0).reshape(3, 4)
    taken = ShardSpec((3, 4), Shard(1, np.array([0, 3]))).take(MockDeviceArray(whole))
    assert isinstance(taken, MockDeviceArray)
    np.testing.assert_array_equal(taken.get(), whole[:, [0, 3]])
