"""What users of a strategy do wrong: it trains as serial training does, or the error says what is wrong."""

import numpy as np
import pytest

from distlearn import nn, parallel
from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, AdamW, Momentum, Optimizer
from distlearn.sim import SimWorld

from .programs import parts

N, P, STEPS = 12, 2, 3
X = np.random.default_rng(0).normal(size=(N, 6))
Y = np.random.default_rng(1).integers(0, 3, N)

SHARDED = {
    "data": (parallel.DataParallel, {}),
    "buckets": (parallel.DataParallel, {"cap_bytes": 64}),
    "accumulate": (parallel.DataParallel, {"accumulate": 2}),
    "late": (parallel.DataParallel, {"overlap": False}),
    "naive": (parallel.NaiveDataParallel, {}),
    "zero1": (parallel.ZeRO, {"stage": 1}),
    "zero2": (parallel.ZeRO, {"stage": 2}),
    "zero3": (parallel.ZeRO, {"stage": 3}),
    "hybrid": (parallel.Hybrid, {"dp": P}),
    "local": (parallel.LocalSGD, {"every": 1}),
}
"""Each rank is given its part of the batch."""
WHOLE = {
    "tensor": (parallel.TensorParallel, {}),
    "pipeline": (parallel.Pipeline, {}),
    "pipedream": (parallel.PipeDream, {"n_microbatches": 1}),
    "hybrid tp": (parallel.Hybrid, {"tp": P}),
    "hybrid pp": (parallel.Hybrid, {"pp": P}),
}
"""Each rank is given all of it."""
ALL = SHARDED | WHOLE


def build(comm, name, *, seed=0, lr=0.1, rule=None, activation="relu", model=None, loss=None, **options):
    if model is None:
        model = MLP((6, 8, 3), seed=seed, activation=activation, dtype="float64")
    optimizer, loss = Optimizer(model.params, rule or SGD(), lr), loss or SoftmaxCrossEntropy()
    if name == "serial":
        strategy = parallel.Serial(None, model, loss, optimizer)
        strategy.given = model, optimizer
        return strategy
    kind, given = ALL[name]
    strategy = kind(comm, model, loss, optimizer, **given | options)
    strategy.given = model, optimizer
    return strategy


def step(comm, strategy, name, *, wrong=None):
    """Take a step on this rank's rows, or with a mistake in what it is given."""
    bounds = slice(0, N) if name in WHOLE or name == "serial" else slice(6 * comm.rank, 6 * comm.rank + 6)
    batch = Batch(X[bounds], Y[bounds].copy(), N)
    if wrong is not None:
        batch = wrong(comm, batch)
    return strategy.step(batch)


BATCHES = {
    "n of the rank's rows": (lambda c, b: Batch(b.x, b.y, len(b.x)), SHARDED),
    "the whole batch everywhere": (lambda c, b: Batch(X, Y, N), SHARDED),
    "n differs by rank": (lambda c, b: Batch(b.x, b.y, N + 4 * c.rank), SHARDED),
    "a rank has lost its rows": (lambda c, b: Batch(b.x[: len(b.x) * c.rank], b.y[: len(b.x) * c.rank], N), SHARDED),
    "parts": (lambda c, b: Batch(b.x[6 * c.rank : 6 * c.rank + 6], b.y[6 * c.rank : 6 * c.rank + 6], N), WHOLE),
    "other rows by rank": (
        lambda c, b: Batch(np.roll(b.x, c.rank, axis=0), b.y, N),
        WHOLE,
    ),
}
ROWS = r"rows together, but n is \d+|expected all of them on every rank|whole batch with checksum"


@pytest.mark.parametrize(("wrong", "name"), [(w, name) for w, (_, names) in BATCHES.items() for name in names])
def test_batches_that_do_not_fit_together_are_named(wrong, name):
    with pytest.raises(RankError, match=ROWS):
        SimWorld(P).run(lambda c: step(c, build(c, name), name, wrong=BATCHES[wrong][0]))


OTHERS = "rank 1 does not train what rank 0 trains: "
DIFFERENT = {
    "lr": (lambda r: {"lr": 0.1 + r}, f"{OTHERS}lr"),
    "rule": (lambda r: {"rule": Momentum(0.9 - r / 2)}, f"{OTHERS}rule"),
    "activation": (lambda r: {"activation": ("relu", "tanh")[r]}, rf"{OTHERS}layers\[\d\]"),
    "model": (
        lambda r: {"model": MLP((6, 8 + r, 3))},
        r"rank 1: ValueError: the model has 0.W \(6, 9\) float32 where that of rank 0 has 0.W \(6, 8\) float32",
    ),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("what", DIFFERENT)
def test_ranks_that_train_something_else_are_named_when_the_strategy_is_made(name, what):
    options, text = DIFFERENT[what]
    with pytest.raises(RankError, match=text):
        SimWorld(P).run(lambda c: build(c, name, **options(c.rank)) and None)


def after(name, change=lambda strategy, number: None, **options):
    """Return the parameters after some steps, before each of which `change(strategy, number)` is called."""

    def program(comm):
        strategy = build(comm, name, **{k: v(comm.rank) for k, v in options.items()})
        losses = []
        for number in range(STEPS):
            change(strategy, number)
            losses.append(step(comm, strategy, name))
        strategy.finish()
        return strategy.gather_params(), losses

    return SimWorld(1 if name == "serial" else P).run(program)[0]


def same(found, wanted):
    for key in wanted[0]:
        np.testing.assert_allclose(found[0][key], wanted[0][key], atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", [name for name in ALL if name != "pipedream"])
def test_another_seed_on_each_rank_is_that_of_rank_0(name):
    same(after(name, seed=lambda rank: rank), after("serial"))


def assign(strategy, number):
    for p in strategy.model.params:
        p.grad = np.full(p.data.shape, 7.0)


@pytest.mark.parametrize("name", [name for name in ALL if name != "pipedream"])
def test_a_gradient_that_was_replaced_is_cleared_as_any(name):
    same(after(name, assign), after("serial", assign))


# -- what is set after the strategy was made ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["serial", *ALL])
def test_settings_of_the_optimizer_cannot_be_changed(name):
    """A strategy may have made copies for parts of the parameters, which would not know."""

    def program(comm):
        strategy = build(comm, name)
        for optimizer in (strategy.given[1], strategy.optimizer):
            for setting, value in {"lr": 0.01, "rule": Momentum(0.5), "clip_norm": 0.01}.items():
                with pytest.raises(AttributeError, match=f"Optimizer: {setting} cannot be changed: give a function"):
                    setattr(optimizer, setting, value)

    SimWorld(1 if name == "serial" else P).run(program)


@pytest.mark.parametrize("name", ["serial", *ALL])
def test_freezing_too_late_is_refused_by_name(name):
    def freeze(strategy, number):
        strategy.given[0].params[1].frozen = number == 1

    with pytest.raises((RankError, ValueError), match=r"'0\.b' was frozen after its optimizer was made"):
        after(name, freeze)

    def thaw(comm):
        model = MLP((6, 8, 3), seed=0, dtype="float64")
        model.params[1].frozen = True
        kind, given = ALL.get(name, (parallel.Serial, {}))
        strategy = kind(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1), **given)
        step(comm, strategy, name)
        model.params[1].frozen = False
        step(comm, strategy, name)

    with pytest.raises(RankError, match=r"'0\.b' is no longer frozen, as it was when its optimizer was made"):
        SimWorld(1 if name == "serial" else P).run(thaw)


def test_freezing_before_the_strategy_is_refused_when_it_is_made():
    model = MLP((6, 8, 3), seed=0)
    optimizer = Optimizer(model.params, SGD(), 0.1)
    model.params[0].frozen = True
    with pytest.raises(ValueError, match=r"'0\.W' was frozen after its optimizer was made: make another one"):
        parallel.Serial(None, model, SoftmaxCrossEntropy(), optimizer)


def replace(strategy, number):
    if number == 1:
        strategy.given[0].params[0].data = np.full((6, 8), 0.25)


def write(strategy, number):
    if number == 1:
        strategy.given[0].params[0].data[...] = 0.25


@pytest.mark.parametrize("change", [replace, write])
@pytest.mark.parametrize("name", ["serial", *ALL])
def test_weights_that_are_set_between_steps_are_used_or_refused_by_name(name, change):
    lost = name in ("zero3", *WHOLE) or (change is replace and name.startswith("zero"))
    if lost:
        with pytest.raises(RankError, match=r"data of '0\.W' (was replaced|is held in shards)"):
            after(name, change)
    else:
        same(after(name, change), after("serial", change))


@pytest.mark.parametrize("name", WHOLE)
def test_the_model_that_was_given_does_not_predict_with_old_weights(name):
    """A rank trains a part of it: the rest would be what it was before."""
    with pytest.raises(RankError, match=r"is held in shards by .*; strategy.gather_params\(\) returns the trained"):
        SimWorld(P).run(lambda comm: build(comm, name).given[0].forward(X))


@pytest.mark.parametrize("name", ["zero3", *WHOLE, "zero3 predicts"])
def test_weights_that_are_replaced_are_refused_where_they_would_be_ignored(name):
    def run(comm):
        strategy = build(comm, name.removesuffix(" predicts"))
        replace(strategy, 1)
        return strategy.predict(X) if "predicts" in name else strategy.gather_params()

    with pytest.raises(RankError, match=r"data of '0\.W' was replaced, .* set it before the strategy is made"):
        SimWorld(P).run(run)


class Assigns(nn.Linear):
    """A layer of a beginner's: it assigns gradients where it should add."""

    def backward(self, dy, saved):
        dx = super().backward(dy, saved)
        for p in self.params:
            p.grad = 2 * p.grad
        return dx


@pytest.mark.parametrize(
    "make", [parallel.DataParallel, lambda *a: parallel.ZeRO(*a, stage=1), lambda *a: parallel.ZeRO(*a, stage=2)]
)
def test_gradients_that_a_layer_assigns_are_summed(make):
    def program(comm, serial=False):
        model = nn.Sequential(Assigns(6, 8, 1, dtype="float64"), nn.ReLU(), Assigns(8, 3, 2, dtype="float64"))
        given = model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1)
        strategy = parallel.Serial(None, *given) if serial else make(comm, *given)
        for _ in range(STEPS):
            step(comm, strategy, "serial" if serial else "data")
        return strategy.gather_params()

    same([SimWorld(P).run(program)[0]], [SimWorld(1).run(program, True)[0]])


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["serial", "data", "zero3", "pipeline", "local"])
def test_a_schedule_that_returns_no_rate_is_named(name, rate):
    with pytest.raises(RankError, match=rf"learning rate of step 1 is {rate}, expected a number of 0 or more"):
        after(name, lr=lambda rank: lambda s: rate if s == 1 else 0.1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("data", {"accumulate": 1.5}, "DataParallel: accumulate is 1.5, expected a whole number of 1 or more"),
        ("data", {"cap_bytes": 0}, "cap_bytes is 0"),
        ("data", {"check_every": 0}, "DataParallel: check_every is 0, expected a whole number of 1 or more"),
        ("data", {"compress": "fp16"}, r"compress is 'fp16', expected a codec, such as FP16\(\)"),
        ("data", {"compress": parallel.FP16}, r"expected a codec, such as FP16\(\)"),
        ("local", {"every": 2.5}, "every is 2.5, expected a whole number of 1 or more"),
        ("hybrid", {"pp": 2}, "on 2 ranks, expected lengths whose product is that"),
        ("pipedream", {"schedule": "F0 I0 W0\nF0 I0 W0"}, "it updates after every backward"),
        ("zero1", {"model": nn.Linear(6, 3, 0)}, "the model is a Linear, expected a Sequential"),
        ("zero1", {"stage": 4}, "stage is 4, expected 1, 2 or 3"),
    ],
)
def test_options_that_make_no_sense_are_named(name, options, message):
    with pytest.raises(RankError, match=message):
        SimWorld(P).run(build, name, **options)


@pytest.mark.parametrize("first", [1, 3])
def test_two_zeros_of_one_model(first):
    def program(comm):
        model = MLP((6, 8, 3), seed=0, dtype="float64")
        made = [parallel.ZeRO(comm, *parts(model), stage=s) for s in (first, 1)]
        step(comm, made[0], "zero1")

    with pytest.raises(RankError, match="'2.b' was replaced" if first == 1 else "belongs to a ZeRO; make an"):
        SimWorld(P).run(program)


def test_sequences_need_a_label_for_every_position():
    def program(comm):
        strategy = parallel.SequenceParallel(comm, *parts(MLP((8, 8, 3), seed=0, dtype="float64")))
        strategy.step(Batch(np.ones((4, 8)), np.zeros(4, int), 4))

    with pytest.raises(RankError, match=r"inputs \(4, 8\), labels \(4,\), expected \(batch, leng"):
        SimWorld(P).run(program)


def test_an_empty_part_takes_the_step_with_a_gradient_of_zero():
    """A rank without rows for some steps: its moments are as old as the step number that corrects their bias."""

    def program(comm):
        model = MLP((6, 8, 3), seed=0, dtype="float64")
        strategy = parallel.LocalSGD(comm, *parts(model, AdamW(), 0.01), every=5)
        for number in range(4):
            rows = slice(0, N) if comm.rank == 0 else slice(0, N * (number == 3))
            n = N * (1 + (number == 3))
            before = model.params[0].data.copy()
            strategy.step(Batch(X[rows], Y[rows], n))
        return strategy.optimizer.steps, abs(model.params[0].data - before).max()

    (steps, _), (others, moved) = SimWorld(P).run(program)
    # after three gradients of zero: (1 - b1) / (1 - b1^4) over the root of (1 - b2) / (1 - b2^4), by hand
    expected = 0.01 * (0.1 / (1 - 0.9**4)) / np.sqrt(0.001 / (1 - 0.999**4))
    assert steps == others == 4
    assert moved == pytest.approx(expected, rel=0.05)


# -- own losses and layers ---------------------------------------------------------------------------------------------

CROSS_ENTROPY = SoftmaxCrossEntropy()


def mean_of_its_rows(y, t, n=None):
    return CROSS_ENTROPY(y, t)


def sum_over_n(y, t, n=None):
    return CROSS_ENTROPY(y, t, n)


def in_place(y, t, n=None):
    y -= y.dtype.type(1)
    return CROSS_ENTROPY(y, t, n)


def same_memory(y, t, n=None):
    return 0.5 * float((y * y).sum()) / n, y


def in_the_targets(y, t, n=None):
    t[:] = (t + 1) % 3
    return CROSS_ENTROPY(y, t, n)


def noisy(y, t, n=None):
    """What it returns is random, so it cannot be told from one that ignores n."""
    value, dy = CROSS_ENTROPY(y, t, n)
    factor = np.random.default_rng().random()
    return value * factor, dy * factor


OWN = {
    mean_of_its_rows: r"loss mean_of_its_rows: with n = 12 its value is .*, not half of it.*\(\.\.\.\)\.sum\(\) / n",
    in_place: "loss in_place: writes into the outputs, .*use a new array",
    in_the_targets: "loss in_the_targets: writes into the targets",
    same_memory: r"loss same_memory: its gradient is in the memory of the outputs: return a new array, dy\.copy",
    lambda y, t, n: (
        CROSS_ENTROPY(y, t, n)[0],
        None,
    ): r"returned \(.*, None\), expected \(value, gradient\), the gradient as the outputs",
    lambda y, t, n: (0.0, y[:, :1] * 1): r"returned a gradient of float64, shape \(\d+, 1\)",
    lambda y, t, n: (0.0, y.astype("float32")): r"returned a gradient of float32.* float64, .*: dy\.astype\(y\.dtype\)",
    lambda y, t: CROSS_ENTROPY(y, t): r"too many positional arguments; expected loss\(outputs, targets, n\) -> ",
    lambda y, t, *, n: CROSS_ENTROPY(y, t, n): r"; expected loss\(outputs, targets, n\) -> ",
    lambda y, t, n: CROSS_ENTROPY(y, t, n)[0]: r"returned \d.*, expected \(value, gradient\)",
}


@pytest.mark.parametrize("name", ["serial", *ALL])
@pytest.mark.parametrize("loss", OWN, ids=lambda loss: loss.__name__)
def test_a_loss_that_is_no_loss_is_named_at_the_first_step(name, loss):
    message = OWN[loss].replace("n = 12", r"n = \d+")
    with pytest.raises(RankError, match=message):
        SimWorld(1 if name == "serial" else P).run(lambda c: step(c, build(c, name, loss=loss), name))


@pytest.mark.parametrize("name", ["serial", *ALL])
def test_a_class_in_place_of_a_loss_is_named(name):
    with pytest.raises(RankError, match=r"the loss is <class .*SoftmaxCrossEntropy'>, expected an instance"):
        SimWorld(1 if name == "serial" else P).run(lambda c: build(c, name, loss=SoftmaxCrossEntropy))


@pytest.mark.parametrize("name", ["serial", *ALL])
def test_a_loss_that_does_as_the_error_says_trains_as_that_of_the_library(name):
    same(after(name, loss=lambda rank: sum_over_n), after(name))
    after(name, loss=lambda rank: noisy)


class Forgets(nn.Layer):
    def forward(self, x):
        return x * 2, None

    def backward(self, dy, saved):
        dy * 2


class Shortens(Forgets):
    def backward(self, dy, saved):
        return dy[:, :1]


def around(layer, wrap):
    model = MLP((6, 8, 8, 3), seed=0, dtype="float64")
    return nn.Sequential(*model.layers[:2], wrap(layer), *model.layers[2:])


WRAPS = {
    "alone": lambda layer: layer,
    "nested": lambda layer: nn.Sequential(layer, nn.Tanh()),
    "residual": nn.Residual,
    "parallel": lambda layer: nn.Sequential(nn.Parallel(nn.Identity(), layer), nn.Linear(16, 8, dtype="float64")),
    "recompute": nn.Recompute,
    "planned": lambda layer: nn.Planned(nn.Tanh(), layer, nn.Tanh(), plan=([0], [1, 2])),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("name", ["serial", "data", "zero3", "pipeline", "tensor"])
def test_a_layer_that_forgets_its_gradient_is_named(name, wrap):
    if name == "tensor" and wrap != "alone":
        pytest.skip("takes models of known layers apart")
    for layer, message in ((Forgets(), "None, expected .*`return dx`"), (Shortens(), r"an array of shape \(\d+, 1\)")):
        message = rf"{layer!r}.*backward returned {message}".replace("()", r"\(\)", 1)
        with pytest.raises(RankError, match=message):
            SimWorld(1 if name == "serial" else P).run(
                lambda c, layer=layer: step(c, build(c, name, model=around(layer, WRAPS[wrap])), name)
            )


@pytest.mark.parametrize("name", ["serial", *ALL])
def test_parameters_that_no_gradient_reaches_are_named(name):
    """`MLP` has no gradient of its input, so what is put before it would never be trained."""

    def model(first_frozen=False):
        first, second = MLP((6, 8), seed=0, dtype="float64"), MLP((8, 8), seed=1, dtype="float64")
        made = nn.Sequential(first, nn.ReLU(), second, nn.Linear(8, 3, 2, dtype="float64"))
        for p in made.params[:2]:
            p.frozen = first_frozen
        return made

    message = r"'0\.0\.W' would learn nothing: Linear\(8, 8\) .*input_gradient=True, or freeze the parameters before"
    with pytest.raises(RankError, match=message):
        SimWorld(P).run(lambda c: build(c, name, model=model()) and None)
    SimWorld(1 if name == "serial" else P).run(lambda c: step(c, build(c, name, model=model(True)), name))


def test_an_optimizer_with_nothing_to_train_is_an_error():
    model = MLP((6, 8, 3))
    for p in model.params:
        p.frozen = True
    with pytest.raises(ValueError, match="Optimizer: nothing would be trained"):
        Optimizer(model.params, SGD(), 0.1)


def test_layers_of_one_seed_are_named():
    """Two of the same shape would start equal, each as the default seed has it."""
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    with pytest.warns(UserWarning, match="parameters '0.W' and '2.W' start equal, as from one seed"):
        parallel.Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.1))
