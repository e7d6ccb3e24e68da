"""The first layers, the loss, and what containers do with parameters."""

import numpy as np
import pytest

from distlearn.nn import MLP, Linear, Param, ReLU, Sequential, Sigmoid, SoftmaxCrossEntropy, Tanh
from distlearn.sim import Roofline, SimWorld
from distlearn.testing import gradient_check, numeric_gradient


def x_of(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def test_the_gradient_check_finds_a_wrong_gradient():
    class Wrong(Linear):
        def backward(self, dy, saved):
            dx = super().backward(dy, saved)
            self.b.grad *= 2
            return dx

    with pytest.raises(AssertionError, match=r"b\[\d\]: backward says"):
        gradient_check(Wrong(3, 2, dtype="float64"), x_of(4, 3))


def test_sigmoid_does_not_overflow():
    with np.errstate(all="raise"):
        y, _ = Sigmoid().forward(np.array([-1e4, 0.0, 1e4]))
    np.testing.assert_array_equal(y, [0.0, 0.5, 1.0])


@pytest.mark.parametrize("n", [None, 20])
def test_loss_against_its_definition(n):
    z, labels = x_of(5, 4), np.array([0, 3, 1, 1, 2])
    loss, dz = SoftmaxCrossEntropy()(z.copy(), labels, n)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert loss == pytest.approx(-np.log(p[np.arange(5), labels]).sum() / (n or 5))
    np.testing.assert_allclose(dz, numeric_gradient(lambda: SoftmaxCrossEntropy()(z, labels, n)[0], z), atol=1e-8)


def test_loss_of_huge_logits_is_finite():
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, dz = SoftmaxCrossEntropy()(np.array([[0.0, 0.0, 4000.0], [3.0, 3.0, 3.0]]), np.array([0, 1]))
    assert loss == pytest.approx((4000 + np.log(3)) / 2)
    assert np.isfinite(dz).all()


def test_loss_of_no_rows_is_nothing():
    with pytest.raises(ValueError, match="n is 0, expected at least 1: no rows were given"):
        SoftmaxCrossEntropy()(np.zeros((0, 3)), np.zeros(0, int))
    loss, dz = SoftmaxCrossEntropy()(np.zeros((0, 3)), np.zeros(0, int), 8)
    assert loss == 0
    assert dz.shape == (0, 3)


@pytest.mark.parametrize(
    ("labels", "n", "error"),
    [
        (np.array([0, 3]), None, "labels run from 0 to 3, expected class indices from 0 to 2"),
        (np.array([-1, 1]), None, "labels run from -1 to 1"),
        (np.array([0, 1, 2]), None, r"labels have shape \(3,\), expected \(2,\)"),
        (np.array([0.0, 1.0]), None, "labels have dtype float64"),
        (np.array([0, 1]), 1, "n is 1, expected at least the 2 rows"),
    ],
)
def test_loss_names_bad_labels(labels, n, error):
    with pytest.raises((ValueError, TypeError), match=error):
        SoftmaxCrossEntropy()(np.zeros((2, 3)), labels, n)


def test_a_shape_that_does_not_fit_names_the_layer():
    with pytest.raises(ValueError, match=r"Linear\(5, 3\) \(layer 2.Linear\): expected .* \(batch, 5\), got \(4, 6\)"):
        Sequential(Linear(4, 6), ReLU(), Linear(5, 3)).forward(np.zeros((4, 4), "float32"))
    with pytest.raises(ValueError, match=r"got \(4,\)"):
        Linear(4, 2).forward(np.zeros(4, "float32"))
    with pytest.raises(ValueError, match="d_out is 0"):
        Linear(4, 0)
    with pytest.raises(ValueError, match="activation is 'swish'"):
        MLP((3, 4, 2), "swish")


def test_a_tied_parameter_is_one_and_complete_after_its_last_use():
    first = Linear(3, 3, 0, dtype="float64")
    model = Sequential(first, Tanh(), first)
    assert len(model.params) == 2
    y, saved = model.forward(x_of(2, 3))
    seen = []
    model.backward(np.ones_like(y), saved, on_grad=lambda p: seen.append((p.name, p.grad.copy())))
    assert [name for name, _ in seen] == ["0.b", "0.W"]
    np.testing.assert_array_equal(seen[1][1], first.W.grad)
    later = []
    first.W.grad[...] = first.b.grad[...] = 0
    model.backward(np.ones_like(y), model.forward(x_of(2, 3))[1], later)
    assert not first.W.grad.any()
    for add, *about in later:
        add(*about)
    for name, grad in seen:
        np.testing.assert_allclose(getattr(first, name[-1]).grad, grad, rtol=1e-12)
    gradient_check(model, x_of(2, 3))


def test_flops_count_multiply_adds_twice_and_fill_spans():
    model = MLP((10, 20, 5))
    assert model.flops((8, 10)) == 2 * 8 * 10 * 20 + 8 * 20 + 2 * 8 * 20 * 5

    def program(comm):
        model.forward(np.zeros((8, 10), "float32"), clock=comm.clock)

    world = SimWorld(1, compute=Roofline(1e6))
    world.run(program)
    assert [s.name for s in world.trace] == ["forward[0.Linear]", "forward[1.ReLU]", "forward[2.Linear]"]
    assert world.makespan == pytest.approx(model.flops((8, 10)) / 1e6)


def test_a_param_taken_for_an_array_says_where_its_numbers_are():
    p = Param(np.ones((2, 3)), "W")
    for use in (lambda: np.ones((4, 2)) @ p, lambda: p - 0.1 * p.grad, lambda: np.asarray(p)):
        with pytest.raises(TypeError, match=r"the Param 'W' is not an array: its values are in \.data"):
            use()
    with pytest.raises(TypeError, match="a Param is not an array"):
        np.ones(3) + Param(np.ones(3))
