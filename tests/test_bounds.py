"""Numbers that would train, simulate or plan something wrong without a word are refused by their names."""

import math

import numpy as np
import pytest

import distlearn as dl
from distlearn import data, nn, optim, sim
from distlearn.bounds import expected_number
from distlearn.parallel.asynchronous.param_server import Speeds
from distlearn.parallel.pipeline.schedule import simulate

NO_RATE = (math.nan, -1, "2", [2], np.array([2.0]), True)
NO_SIZE = (*NO_RATE, 1.5, math.inf)


@pytest.fixture(scope="module")
def recorded():
    def program(comm):
        with comm.clock.span("forward", flops=1.0):
            pass
        comm.barrier()

    return dl.record_run(dl.SimWorld(2, compute=dl.Roofline(1.0)), program)[1]


@pytest.mark.parametrize(
    ("call", "name", "wrong"),
    [
        (lambda v: nn.BatchNorm(4, momentum=v), "momentum", (*NO_RATE, 1.5)),
        (lambda v: nn.LayerNorm(4, eps=v), "eps", (*NO_RATE, 0, math.inf)),
        (lambda v: nn.LocalResponseNorm(5, alpha=v), "alpha", NO_RATE),
        (lambda v: nn.Linear(4, 3, gain=v), "gain", (*NO_RATE, math.inf)),
        (lambda v: nn.Dropout(v), "p", (*NO_RATE, 1)),
        (lambda v: optim.Adam(eps=v), "eps", (*NO_RATE, 0, math.inf)),
        (lambda v: optim.Cosine(0.1, v), "steps", (*NO_RATE, 0, math.inf)),
        (lambda v: dl.Network(alpha=v), "alpha", (*NO_RATE, math.inf)),
        (lambda v: dl.Failure(v, 1.0), "rank", NO_SIZE),
        (lambda v: dl.SimWorld(2, slowdown={1: v}), "factor", (*NO_RATE, 0, math.inf)),
        (lambda v: dl.SimWorld(2, seed=v), "seed", NO_SIZE),
        (lambda v: sim.explore(print, 2, max_runs=v), "max_runs", NO_SIZE),
        (lambda v: data.SlowStorage(v, 1e9), "latency", (*NO_RATE, math.inf)),
        (lambda v: data.SlowStorage(0.1, v), "bandwidth", (*NO_RATE, 0)),
        (lambda v: Speeds(3, shape=v), "shape", NO_RATE),
        (lambda v: simulate("gpipe", 2, 4, transfer=v), "transfer", (*NO_RATE, math.inf)),
        (lambda v: nn.best_plan([1.0], [4], [8], v), "budget", (*NO_RATE, math.inf)),
    ],
)  # fmt: skip
def test_numbers_out_of_their_range_are_named(call, name, wrong):
    for value in wrong:
        with pytest.raises(ValueError, match=rf"{name} is .*, expected a (whole )?number "):
            call(value)


def test_fit_refuses_before_it_trains():
    model = nn.MLP((64, 10))
    strategy = dl.Serial(None, model, nn.SoftmaxCrossEntropy(), optim.Optimizer(model.params, optim.SGD(), 0.1))
    for value in NO_SIZE:
        with pytest.raises(ValueError, match=r"evaluate_every is .*, expected a whole number of 0 or more"):
            dl.fit(strategy, data.load("digits"), epochs=1, batch_size=50, evaluate_every=value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute": -1}, "compute is -1, expected a number of 0 or more and finite"),
        ({"compute": {"forward": math.nan}}, "forward is nan"),
        ({"compute": {"forwards": 0.5}}, r"no span or rank is called \{'forwards'\}"),
        ({"slowdown": {0: -2.0}}, "0 is -2.0"),
        ({"slowdown": {9: 2.0}}, r"no span or rank is called \{9\}"),
        ({"recorded_on": "ethernet-10g"}, "recorded_on is given without network"),
    ],
)
def test_a_replay_of_what_is_not_there_is_refused(recorded, options, message):
    """Each of these gave the recording's own makespan, or 0 s."""
    with pytest.raises(ValueError, match=message):
        dl.replay(recorded, **options)


def test_numbers_of_numpy_are_numbers():
    for value in (np.int8(3), np.int64(3), np.uint16(3)):
        assert expected_number(value, whole=True, least=1) is None
    for value in (np.float16(3), np.float32(3), np.longdouble(3), 3):
        assert expected_number(value, least=1, most=3) is None
    assert expected_number(np.bool_(True), least=0) == "a number of 0 or more"
