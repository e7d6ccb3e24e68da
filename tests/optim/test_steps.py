"""What the optimizer and `Param` do for speed changes no number."""

import numpy as np
import pytest

from distlearn.nn import Linear, Param
from distlearn.optim import LARS, RULES, SGD, Adadelta, Adam, AdamW, Momentum, Nesterov, Optimizer, RMSprop
from distlearn.optim.optimizer import PIECE, flush_subnormals


@pytest.mark.parametrize("name", RULES)
def test_large_arrays_are_updated_piece_by_piece_with_the_same_result(name, monkeypatch):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(3, PIECE)), rng.normal(size=(4, 3, PIECE))

    def run(piece):
        monkeypatch.setattr("distlearn.optim.optimizer.PIECE", piece)
        p = Param(start.copy())
        optimizer = Optimizer([p], RULES[name](weight_decay=0.01), 0.01)
        for g in gradients:
            p.grad[...] = g
            optimizer.step()
        return p.data

    np.testing.assert_array_equal(run(1000), run(10**9))


def test_a_product_overwrites_a_cleared_gradient_and_adds_to_any_other():
    a, p = np.arange(4.0).reshape(2, 2), Param(np.ones((2, 2)))
    home = p.grad
    p.grad[...] = 5
    p.zero_grad()
    p.add_product(a, a)
    np.testing.assert_array_equal(p.grad, a @ a)
    p.add_product(a, a)
    np.testing.assert_array_equal(p.grad, 2 * (a @ a))
    assert p.grad is home


def test_a_parameter_that_took_no_part_has_no_gradient_after_clearing():
    used, unused = Linear(2, 2, dtype="float64"), Param(np.ones(3))
    unused.grad[...] = 7
    optimizer = Optimizer([*used.params, unused], RULES["sgd"](), 0.1)
    optimizer.zero_grad()
    y, saved = used.forward(np.ones((1, 2)))
    used.backward(np.ones_like(y), saved)
    optimizer.step()
    np.testing.assert_array_equal(unused.data, 1)


def test_a_gradient_that_is_replaced_by_a_view_stays_what_it_is():
    p, flat = Param(np.ones((2, 2))), np.full(4, 3.0)
    p.zero_grad()
    p.grad = flat.reshape(2, 2)
    np.testing.assert_array_equal(p.grad, 3)
    p.zero_grad()
    p.add_product(np.eye(2), np.eye(2))
    np.testing.assert_array_equal(flat, [1, 0, 0, 1])


@pytest.mark.parametrize("rule", [Momentum(), Nesterov(), LARS(), RMSprop(0.9), Adadelta(), Adam(), AdamW()], ids=str)
def test_states_of_weights_without_gradients_never_become_subnormal(rule):
    """A processor takes a hundred times as long for such numbers, and rounding keeps them from zero forever."""
    p, tiny = Param(np.ones((3, 3), "float32")), np.finfo("float32").tiny
    optimizer = Optimizer([p], rule, 0.01)
    p.grad[...] = 0.1
    for step in range(1200):
        optimizer.step()
        p.grad[...] = 0
        states = optimizer.states[0] if isinstance(optimizer.states[0], tuple) else (optimizer.states[0],)
        assert not any(((s != 0) & (abs(s) < tiny)).any() for s in states), f"step {step}"
    assert any((s == 0).all() for s in states)


def test_settling_leaves_all_that_counts():
    values = np.array([1e-3, -1e-30, 1e-32, -1e-40, 0, np.inf, np.nan], "float32")
    state = (values.copy(), values.astype("float64"), np.array([6e-8, 1e-4], "float16"))
    flush_subnormals(state)
    np.testing.assert_array_equal(state[0], values * [1, 1, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(state[1], values.astype("float64"))
    assert state[2].all()
    flush_subnormals(None)
    flush_subnormals(state[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(0, 3), (1,), (37,), (301, 217)])
def test_plain_sgd_changes_the_weights_in_place_whatever_their_layout(shape, dtype):
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(2, *shape)).astype(dtype)
    want = w - 0.1 * g
    wide = np.repeat(w[..., None], 2, axis=-1)
    for data in (w.copy(), w.copy(order="F"), wide[..., 0]):
        p = Param(data)
        p.grad[...] = g
        Optimizer([p], SGD(), 0.1).step()
        np.testing.assert_allclose(data, want, rtol=1e-6 if dtype == "float32" else 1e-15, atol=1e-7)
        np.testing.assert_array_equal(p.grad, g)
    np.testing.assert_array_equal(wide[..., 1], w)


def test_plain_sgd_gives_the_same_bits_for_a_shard_as_for_the_whole():
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(2, 1003)).astype("float32")
    whole = w.copy()
    SGD().update(whole, g, None, 0.1, 0)
    for start, stop in ((0, 1), (3, 20), (17, 900), (500, 1003)):
        part = w[start:stop].copy()
        SGD().update(part, g[start:stop], None, 0.1, 0)
        np.testing.assert_array_equal(part, whole[start:stop])


def test_weights_that_must_not_change_do_not():
    w = np.ones(3, "float32")
    w.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        SGD().update(w, w, None, 0.1, 0)
