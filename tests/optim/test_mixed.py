"""Half precision with full-precision master weights and a scaled loss."""

import numpy as np
import pytest

from distlearn.data import load
from distlearn.nn import MLP, Param, SoftmaxCrossEntropy, move
from distlearn.optim import SGD, MixedPrecision, Momentum, Optimizer

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
