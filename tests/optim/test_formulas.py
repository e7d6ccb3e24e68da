"""Every rule for 100 steps against its paper's formula, written out for one number, in both precisions."""

import math

import numpy as np
import pytest

from distlearn.nn import Param
from distlearn.optim import LARS, RULES, SGD, Adadelta, Adagrad, Adam, AdamW, Momentum, Nesterov, Optimizer, RMSprop
from distlearn.testing import check_rule

LR, STEPS, START = 0.05, 100, np.array([[1.5, -2.0, 0.3], [0.1, 4.0, -0.7]])


def gradients():
    """Of very different sizes, some zero."""
    rng = np.random.default_rng(3)
    g = rng.normal(size=(STEPS, *START.shape)) * np.array([1, 0.01, 10])
    g[5:9, 0] = 0
    return g


def sgd(w, g, m, t, decay):
    return w - LR * (g + decay * w)


def momentum(w, g, m, t, decay):
    m["v"] = 0.9 * m.get("v", 0) + g + decay * w
    return w - LR * m["v"]


def nesterov(w, g, m, t, decay):
    g = g + decay * w
    m["v"] = 0.9 * m.get("v", 0) + g
    return w - LR * (g + 0.9 * m["v"])


def adagrad(w, g, m, t, decay):
    g = g + decay * w
    m["s"] = m.get("s", 0) + g**2
    return w - LR * g / (math.sqrt(m["s"]) + 1e-10)


def rmsprop(w, g, m, t, decay):
    g = g + decay * w
    m["s"] = 0.99 * m.get("s", 0) + 0.01 * g**2
    return w - LR * g / (math.sqrt(m["s"]) + 1e-8)


def adadelta(w, g, m, t, decay):
    g = g + decay * w
    m["s"] = 0.9 * m.get("s", 0) + 0.1 * g**2
    d = math.sqrt(m.get("u", 0) + 1e-6) / math.sqrt(m["s"] + 1e-6) * g
    m["u"] = 0.9 * m.get("u", 0) + 0.1 * d**2
    return w - LR * d


def adam(w, g, m, t, decay):
    g = g + decay * w
    m["m"] = 0.9 * m.get("m", 0) + 0.1 * g
    m["s"] = 0.999 * m.get("s", 0) + 0.001 * g**2
    return w - LR * (m["m"] / (1 - 0.9**t)) / (math.sqrt(m["s"] / (1 - 0.999**t)) + 1e-8)


def adamw(w, g, m, t, decay):
    return adam(w - LR * decay * w, g, m, t, 0)


CASES = {
    "sgd": (SGD, sgd),
    "momentum": (Momentum, momentum),
    "nesterov": (Nesterov, nesterov),
    "adagrad": (Adagrad, adagrad),
    "rmsprop": (RMSprop, rmsprop),
    "adadelta": (Adadelta, adadelta),
    "adam": (Adam, adam),
    "adamw": (AdamW, adamw),
}


def ours(rule, dtype="float64"):
    """The weights after every step."""
    p = Param(START.astype(dtype))
    optimizer, history = Optimizer([p], rule, LR), []
    for g in gradients():
        p.grad[...] = g.astype(dtype)
        optimizer.step()
        history.append(p.data.copy())
    return history


@pytest.mark.parametrize(("dtype", "tol", "least"), [("float64", 1e-9, 1e-12), ("float32", 1e-5, 1e-5)])
@pytest.mark.parametrize("decay", [0.0, 0.03])
@pytest.mark.parametrize("name", CASES)
def test_against_the_paper(name, decay, dtype, tol, least):
    rule, formula = CASES[name]
    memories = [{} for _ in START.flat]
    want = START.ravel().tolist()
    for t, (g, got) in enumerate(zip(gradients(), ours(rule(weight_decay=decay), dtype), strict=True), start=1):
        want = [formula(w, float(x), m, t, decay) for w, x, m in zip(want, g.flat, memories, strict=True)]
        np.testing.assert_allclose(got.ravel(), want, rtol=tol, atol=least, err_msg=f"step {t}")


def test_lars_against_the_paper():
    """Algorithm 1: the local rate from the norms of the whole layer."""
    w, v, eta, beta = START.copy(), np.zeros_like(START), 0.02, 0.03
    for t, (g, got) in enumerate(zip(gradients(), ours(LARS(0.9, beta, trust=eta)), strict=True)):
        local = eta * np.linalg.norm(w) / (np.linalg.norm(g) + beta * np.linalg.norm(w))
        v = 0.9 * v + LR * local * (g + beta * w)
        w = w - v
        np.testing.assert_allclose(got, w, rtol=1e-10, err_msg=f"step {t}")


def test_lars_leaves_vectors_and_dead_layers_at_rate_one():
    bias, dead = Param(np.array([1.0, 2.0])), Param(np.zeros((2, 2)))
    bias.grad[...], dead.grad[...] = 1.0, 1.0
    Optimizer([bias, dead], LARS(weight_decay=0.1), 0.5).step()
    np.testing.assert_allclose(bias.data, [0.5, 1.5])
    np.testing.assert_allclose(dead.data, -0.5)


@pytest.mark.parametrize("name", RULES)
def test_every_rule(name):
    check_rule(RULES[name](weight_decay=0.01))


class Grabs(SGD):
    def update(self, data, grad, state, lr, step):
        grad *= lr
        data -= grad


class Centres(SGD):
    def update(self, data, grad, state, lr, step):
        data -= lr * (grad - grad.mean())


class Scalar(Momentum):
    def init(self, data):
        return np.zeros(1, data.dtype)


class Wide(Momentum):
    def init(self, data):
        return np.zeros(data.shape)


class Shared(SGD):
    memory = []  # noqa: RUF012

    def update(self, data, grad, state, lr, step):
        self.memory.append(float(grad.sum()))
        data -= lr * grad * len(self.memory)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Grabs, "'gradients are left alone'"),
        (Centres, "'element by element'.*whole = True"),
        (Scalar, r"\(1,\) for a parameter \(4, 3\)"),
        (Wide, "'dtypes': float64 for float32"),
        (Shared, "'no state on self'"),
    ],
)
def test_a_broken_rule_is_told_which_rule_it_breaks(kind, message):
    with pytest.raises(AssertionError, match=message):
        check_rule(kind())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Momentum(1.0), r"Momentum: momentum is 1.0, expected a number of 0 or more and below 1"),
        (lambda: Nesterov(-0.1), "Nesterov: momentum is -0.1"),
        (lambda: Adam(beta2=1.0), "Adam: beta2 is 1.0"),
        (lambda: RMSprop(rho=2), "RMSprop: rho is 2"),
        (lambda: Adadelta(eps=-1), "Adadelta: eps is -1"),
        (lambda: SGD(weight_decay=-1), "SGD: weight_decay is -1"),
    ],
)
def test_errors_name_the_value(build, message):
    with pytest.raises(ValueError, match=message):
        build()
