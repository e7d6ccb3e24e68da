"""The parameter server: what it computes equals what serial SGD would, gradient by gradient, in every world."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.backend import to_device
from distlearn.comm import Network, RankError
from distlearn.data import Batches, Dataset
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.nn.layer import move
from distlearn.optim import LARS, RULES, SGD, Momentum, Optimizer
from distlearn.parallel import Serial
from distlearn.parallel.asynchronous.param_server import (
    ParameterServer,
    Speeds,
    asp,
    backup,
    bsp,
    inverse,
    softsync,
    ssp,
)
from distlearn.sim import SimWorld

from ...programs import assert_same_params

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 7)), RNG.integers(0, 4, 90)
DATA = Dataset("noise", X[:64], Y[:64], X[64:64], Y[64:64], X[64:], Y[64:], tuple("abcd"), "a generator")
POLICIES = [asp(), ssp(0), ssp(2), softsync(2), bsp(), backup(0.6)]


def model_of(frozen=False):
    model = MLP((7, 6, 4), "sigmoid", seed=2, dtype="float64")
    model.params[1].frozen = frozen
    return model


def program(comm, policy, batch=20, steps=9, rule=None, lr=0.3, frozen=False, slow=None, **options):
    """Train; on rank 0 the run, with snapshots of the parameters where `every` asks for them."""
    pace = options.pop("pace", None) or Speeds(comm.size - 1, law="lognormal", shape=0.4, slow=slow, seed=5)
    until = {"steps": steps, "seconds": options.pop("seconds", np.inf)}
    parts = model_of(frozen), options.pop("loss", SoftmaxCrossEntropy()), rule or SGD(), lr, policy
    server = ParameterServer(comm, *parts, pace=pace, **options)
    run = server.train(DATA, batch_size=batch, **until, seed=3)
    if run is not None and server._server.every:
        run.saved = {s.version: s.params for s in server._server.snapshots}
    return run


def serial(batch=20, steps=9, rule=None, lr=0.3, frozen=False):
    """Return what plain training does with the same batches."""
    model = model_of(frozen)
    strategy = Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, rule or SGD(), lr))
    batches, losses, epoch = Batches(DATA.x_train, DATA.y_train, batch, seed=3), [], 0
    while len(losses) < steps:
        losses += [strategy.step(b) for b in list(batches.epoch(epoch))[: steps - len(losses)]]
        epoch += 1
    return SimpleNamespace(params={p.name: p.data for p in model.params}, losses=losses)


# -- equal to serial
@given(
    workers=st.integers(1, 7),
    batch=st.integers(1, 64),
    frozen=st.booleans(),
    rule=st.sampled_from(["sgd", "momentum", "adam"]),
)
@settings(max_examples=50, deadline=None)
def test_bsp_equals_serial(workers, batch, frozen, rule):
    """However uneven the parts are; some are empty."""
    given = {"batch": max(batch, workers), "rule": RULES[rule](), "frozen": frozen, "steps": 9}
    run = SimWorld(1 + workers, Network(1e-2, 1e4)).run(program, bsp(), **given)[0]
    want = serial(**given)
    assert_same_params(run.params, want.params)
    np.testing.assert_allclose(run.losses, want.losses, rtol=0, atol=1e-12)
    assert (run.updates, run.dropped, set(run.staleness)) == (9, 0, {0})
    assert not np.array_equal(run.params["0.W"], model_of().params[0].data)


@pytest.mark.parametrize("rule", ["sgd", "momentum", "nesterov", "adam"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_one_worker_is_serial_bit_for_bit(policy, rule):
    """Staleness is 0, factors are 1: no rounding can differ, whatever the policy and the rate."""
    run = SimWorld(2).run(program, policy, rule=RULES[rule](), rate=inverse)[0]
    want = serial(rule=RULES[rule]())
    for name, value in want.params.items():
        assert run.params[name].tobytes() == value.tobytes(), name
    assert run.losses.tolist() == want.losses


def gradient_at(values, batch):
    """The mean gradient of a batch at given parameters, with nothing of the server's code."""
    model, start = model_of(), 0
    for p in model.params:
        p.data[...] = values[start : start + p.size].reshape(p.data.shape)
        start += p.size
    y, saved = model.forward(batch.x)
    model.backward(SoftmaxCrossEntropy()(y, batch.y, len(batch.x))[1], saved)
    return np.concatenate([p.grad.ravel() for p in model.params])


def assert_made_of_its_gradients(run, momentum=0.0):
    """W(v) = W(v - 1) - lr V, V = mu V + sum_i weight_i dW_i(used_i), recomputed from the run's record alone.

    Staleness makes the gradient smaller and leaves the velocity, which lives on the server, as it is.
    """
    saved = run.saved
    sharded = [Batches(DATA.x_train, DATA.y_train, 25, rank=worker, size=5, seed=3) for worker in range(5)]
    velocity = np.zeros(saved[0].size)
    for version in range(1, run.updates + 1):
        made = run.gradients[run.gradients["version"] == version]
        velocity *= momentum
        for g in made:
            epoch, number = divmod(g["step"], len(sharded[0]))
            batch = list(sharded[g["worker"]].epoch(epoch))[number]
            assert len(batch.x) == g["rows"]
            assert g["staleness"] == version - 1 - g["used"]
            assert g["factor"] == 1 / max(1, g["staleness"])
            velocity += g["rows"] / made["rows"].sum() * g["factor"] * gradient_at(saved[g["used"]], batch)
        np.testing.assert_allclose(saved[version], saved[version - 1] - 0.3 * velocity, rtol=0, atol=1e-14)
    assert run.updates == max(saved)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_update_is_made_of_the_gradients_it_names(policy, momentum):
    given = {"batch": 25, "every": 1, "rate": inverse, "slow": {1: 3.0}, "rule": Momentum(momentum)}
    run = SimWorld(6).run(program, policy, steps=7, **given)[0]
    assert_made_of_its_gradients(run, momentum)
    assert len(run.gradients) == 35


# -- what policies promise
def leads(run):
    """By how much each step's worker was ahead of the slowest one when it started, from the record of arrivals."""
    clocks, found = np.zeros(run.workers, int), []
    for worker in run.gradients["worker"]:
        clocks[worker] += 1
        found.append(clocks.max() - clocks.min())
    return found


def test_time_can_end_a_run():
    run = SimWorld(4).run(program, asp(), steps=None, seconds=6.0, pace=Speeds(3))[0]
    assert 6 < run.seconds < 10
    assert run.gradients["time"].max() == run.seconds


def test_curve_and_record():
    run = SimWorld(4).run(program, asp(), every=5)[0]
    assert run.curve["version"].tolist() == [0, 5, 10, 15, 20, 25]
    assert run.curve["time"][0] == 0
    assert (np.diff(run.curve["time"]) > 0).all()
    assert run.curve["loss"][-1] < run.curve["loss"][0]
    assert (run.curve["test_accuracy"] <= 1).all()
    assert run.histogram().sum() == run.updates == len(run.times) == len(run.losses) == 27
    assert "27 updates" in repr(run)


# -- what goes wrong
def test_divergence_ends_the_run():
    with np.errstate(all="ignore"):
        run = SimWorld(4).run(program, asp(), lr=1e308, steps=50)[0]
    assert run.diverged
    assert len(run.gradients) < 30
    assert "diverged" in repr(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": LARS()}, "LARS needs whole parameters"),
        ({"steps": None}, "give steps, seconds, or both"),
        ({"steps": 0}, "steps is 0"),
        ({"lr": -0.1}, r"ParameterServer: lr is -0\.1"),
        ({"policy": "asp"}, r"policy is 'asp', expected an object such as asp\(\)"),
        ({"policy": ssp}, r"expected an object such as asp\(\) or ssp\(4\): write ssp\("),
        ({"rule": Optimizer(model_of().params, SGD(), 0.1)}, r"rule is Optimizer\(.*, expected a rule, such as"),
        ({"rate": "inverse"}, "rate is 'inverse', expected a function of staleness and step"),
        ({"every": -1}, "every is -1, expected a whole number of 0 or more"),
        ({"pace": Speeds(1)}, "there is no worker 1, expected 0 to 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(RankError, match=message):
        SimWorld(3).run(program, **{"policy": asp(), **options})


def test_a_loss_that_is_no_loss_is_named():
    """Here n is the worker's rows, and a mean of its own rows is right by chance; elsewhere it would not be."""
    with pytest.raises(RankError, match=r"loss <lambda>: with n = 10 its value is .*, not half of it"):
        SimWorld(3).run(program, bsp(), loss=lambda y, t, n: SoftmaxCrossEntropy()(y, t))
    own = SimWorld(3).run(program, bsp(), loss=lambda y, t, n: SoftmaxCrossEntropy()(y, t, n))[0]
    assert own.losses.tolist() == SimWorld(3).run(program, bsp())[0].losses.tolist()


def test_training_twice_is_refused():
    def twice(comm):
        server = ParameterServer(comm, model_of(), SoftmaxCrossEntropy(), SGD(), 0.1, asp())
        for _ in range(2):
            server.train(DATA, batch_size=12, steps=1)

    with pytest.raises(RankError, match="this one has trained"):
        SimWorld(3).run(twice)


@pytest.mark.gpu
@pytest.mark.parametrize("policy", [bsp(), ssp(1)], ids=str)
def test_workers_on_a_gpu_and_a_server_beside_them(policy):
    """Models and data of the workers are CuPy arrays, those of the server NumPy's; the numbers are the same."""

    def mixed(comm):
        model, data = model_of(), DATA
        if comm.rank >= 1:
            model, data = move(model, lambda array: to_device(array, "gpu")), DATA.on("gpu")
        server = ParameterServer(comm, model, SoftmaxCrossEntropy(), SGD(), 0.3, policy, every=3)
        return server.train(data, batch_size=20, steps=6, seed=3)

    run = SimWorld(4).run(mixed)[0]
    if policy == bsp():
        assert_same_params(run.params, serial(steps=6).params)
    assert run.curve["loss"][-1] < run.curve["loss"][0]


@pytest.mark.parametrize(("change", "what"), [("frozen", "was frozen"), ("data", "was given other data")])
def test_parameters_that_are_changed_too_late_are_named(change, what):
    def program(comm):
        model = model_of()
        server = ParameterServer(comm, model, SoftmaxCrossEntropy(), SGD(), 0.1)
        setattr(model.params[0], change, True if change == "frozen" else model.params[0].data.copy())
        server.train(DATA, batch_size=8, steps=1)

    with pytest.raises(RankError, match=f"parameter server: '0.W' {what} after the server was made; change it before"):
        SimWorld(2).run(program)
