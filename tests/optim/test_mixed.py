"""Half precision with full-precision master weights and a scaled loss."""

import numpy as np
import pytest

from distlearn.data import load
from distlearn.nn import MLP, Layer, Param, Sequential, SoftmaxCrossEntropy, load_torch_state, move, to_torch_state
from distlearn.optim import SGD, Adam, MixedPrecision, Momentum, Optimizer

from ..nn.cases import in_pieces, learn


def halves(*values):
    return Param(np.array(values, "float16"))


def test_small_updates_are_not_rounded_away():
    """1 - 1e-4 is 1 in half precision; the master copy remembers."""
    plain, p = halves(1.0), halves(1.0)
    without, with_master = Optimizer([plain], SGD(), 1.0), MixedPrecision([p], SGD(), 1.0, scale=1.0)
    for _ in range(100):
        plain.grad[...] = p.grad[...] = 1e-4
        without.step()
        with_master.step()
    assert plain.data[0] == 1.0
    assert p.data[0] == pytest.approx(0.99, abs=1e-3)
    assert p.data.dtype == np.float16
    assert with_master.master[0].data.dtype == np.float32


def test_an_overflow_skips_the_step_and_halves_the_scale():
    p = halves(1.0, 2.0)
    optimizer = MixedPrecision([p], Momentum(), 0.1, scale=1024.0)
    optimizer.scaled(SoftmaxCrossEntropy())  # as whoever fills the gradients has done
    p.grad[...] = [np.inf, 1.0]
    optimizer.step()
    np.testing.assert_array_equal(p.data, [1.0, 2.0])
    np.testing.assert_array_equal(optimizer.states[0], 0)
    assert (optimizer.scale, optimizer.skipped, optimizer.steps) == (512.0, 1, 0)


def test_the_scale_grows_after_good_steps():
    p = halves(1.0)
    optimizer = MixedPrecision([p], SGD(), 0.0, scale=8.0, growth_interval=3)
    optimizer.scaled(SoftmaxCrossEntropy())
    for _ in range(6):
        optimizer.step()
    assert optimizer.scale == 32.0


def test_the_loss_scale_rescues_gradients_that_half_precision_would_lose():
    logits, labels = np.array([[20.0, 0.0]], "float16"), np.array([0])
    assert SoftmaxCrossEntropy()(logits, labels)[1][0, 1] == 0
    optimizer = MixedPrecision([halves(0.0)], SGD(), 0.1, scale=2.0**15)
    _, dy = optimizer.scaled(SoftmaxCrossEntropy())(logits, labels)
    assert dy.dtype == np.float16
    assert dy[0, 1] == pytest.approx(2.0**15 * np.exp(-20), rel=0.01)


def test_training_in_half_precision_reaches_what_single_precision_reaches():
    data = load("digits", dtype="float32")

    def accuracy(half):
        model = MLP((data.n_features, 32, data.n_classes), seed=1)
        x, y = data.x_train.reshape(len(data.x_train), -1), data.y_train
        if half:
            move(model, lambda a: a.astype("float16"))
            x = x.astype("float16")
        optimizer = (MixedPrecision if half else Optimizer)(model.params, Momentum(), 0.05)
        learn(model, SoftmaxCrossEntropy(), optimizer, in_pieces(x, y, 150))
        out = model.forward(x)[0]
        assert out.dtype == x.dtype
        return (out.argmax(axis=1) == y).mean()

    single, half = accuracy(False), accuracy(True)
    assert single > 0.9
    assert half == pytest.approx(single, abs=0.02)


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity times zero, where a layer overflows, not the loss
def test_a_scaled_loss_that_overflows_skips_steps():
    """Overflows themselves are no news: pytest makes a RuntimeWarning from the library an error."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 8)).astype("float16"), rng.integers(4, size=32)
    model = move(MLP((8, 16, 4)), lambda a: a.astype("float16"))
    optimizer = MixedPrecision(model.params, SGD(), 0.1, scale=2.0**30)
    learn(model, SoftmaxCrossEntropy(), optimizer, [(x, y)] * 30)
    assert 8 <= optimizer.skipped <= 15
    assert optimizer.steps == 30 - optimizer.skipped
    assert all(np.isfinite(p.data).all() for p in model.params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "MixedPrecision: scale is 0"),
        ({"growth_interval": 0}, "MixedPrecision: growth_interval is 0"),
        ({"clip_norm": -1}, "MixedPrecision: clip_norm is -1"),
        ({"lr": -0.1}, "MixedPrecision: lr is -0.1"),
    ],
)
def test_errors_name_the_value(options, message):
    with pytest.raises(ValueError, match=message):
        MixedPrecision([halves(1.0)], SGD(), **{"lr": 0.1, **options})


def test_gradients_that_nobody_scaled_are_refused():
    """Divided by a scale of 32,768 they would train next to nothing, in silence."""
    p = halves(1.0)
    optimizer = MixedPrecision([p], SGD(), 0.1)
    p.grad[...] = 1
    with pytest.raises(RuntimeError, match=r"not scaled; train with optimizer\.scaled\(loss\)"):
        optimizer.step()
    assert p.data[0] == 1.0


def test_groups_have_masters_of_their_own():
    a, b = halves(1.0), halves(1.0)
    optimizer = MixedPrecision([{"params": [a], "lr": 0.5}, {"params": [b]}], SGD(), 0.25, scale=1.0)
    a.grad[...] = b.grad[...] = 1
    optimizer.step()
    assert (a.data[0], b.data[0]) == (0.5, 0.75)
    assert optimizer.master[1].data[0] == 0.75


# -- masters follow the weights ----------------------------------------------------------------------------------------


def small_half(seed=0):
    return move(MLP((6, 5, 3), seed=seed), lambda a: a.astype("float16"))


def assign(model):
    for p in model.params:
        p.data[...] = 0.5


CHANGES = {
    "assigned": assign,
    "replaced": lambda model: [setattr(p, "data", np.full_like(p.data, 0.5)) for p in model.params],
    "loaded": lambda model: load_torch_state(model, to_torch_state(small_half(7))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_masters_go_on_from_weights_that_were_changed(change):
    """They were undone at the next step, even with a rate of 0."""
    model = small_half()
    optimizer = MixedPrecision(model.params, SGD(), lambda step: 0.0 if step == 0 else 0.25, scale=1.0)
    CHANGES[change](model)
    wanted = [p.data.copy() for p in model.params]
    optimizer.step()
    for p, want in zip(model.params, wanted, strict=True):
        np.testing.assert_array_equal(p.data, want)
        p.grad[...] = 1
    optimizer.step()
    for m, want in zip(optimizer.master, wanted, strict=True):
        np.testing.assert_array_equal(m.data, want.astype("float32") - 0.25)


def test_masters_keep_what_rounding_hides_where_nothing_was_changed():
    p = halves(1.0, 1.0)
    optimizer = MixedPrecision([p], SGD(), 1.0, scale=1.0)
    for _ in range(2):
        p.grad[...] = 1e-4
        optimizer.step()
    p.data[0] = 3
    optimizer.step()
    assert optimizer.master[0].data.tolist() == pytest.approx([3 - 1e-4, 1 - 3e-4], abs=1e-6)


# -- what no scale mends -----------------------------------------------------------------------------------------------


class Overflows(Layer):
    def forward(self, x):
        return x, None

    def backward(self, dy, saved):
        return dy * dy.dtype.type(np.inf)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    ("at", "message"),
    [
        (1, "the gradient of '0.b' is not finite, while that of '2.W' is: look at the layers between"),
        (3, "the gradient of '2.b' is not finite: look at the outputs"),
    ],
)
def test_a_scale_that_falls_for_ever_ends_and_names_the_place(at, message):
    layers = MLP((8, 16, 4)).layers
    layers.insert(at, Overflows())
    model = move(Sequential(*layers), lambda a: a.astype("float16"))
    names = [p.name for p in model.params]
    optimizer = MixedPrecision(model.params, SGD(), 0.1)
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(32, 8)).astype("float16"), rng.integers(4, size=32))] * 100
    with pytest.raises(FloatingPointError, match=f"after 29 skipped steps, {message}".replace("2.W", names[2])):
        learn(model, SoftmaxCrossEntropy(), optimizer, batches)


def test_an_eps_that_is_0_is_refused_and_mixed_precision_trains():
    data = load("digits", dtype="float16")
    x, y = data.x_train.reshape(len(data.x_train), -1), data.y_train

    def accuracy(make):
        model = move(MLP((data.n_features, 32, data.n_classes), seed=1), lambda a: a.astype("float16"))
        learn(model, SoftmaxCrossEntropy(), make(model.params), [*in_pieces(x, y, 150)] * 3)
        return (model.forward(x)[0].argmax(axis=1) == y).mean()

    with pytest.raises(ValueError, match=r"Adam: eps is 1e-08, which is 0 in float16, .* use MixedPrecision"):
        accuracy(lambda params: Optimizer(params, Adam(), 0.003))
    assert accuracy(lambda params: MixedPrecision(params, Adam(), 0.003)) > 0.85
    assert accuracy(lambda params: Optimizer(params, Adam(eps=1e-4), 0.003)) > 0.85
