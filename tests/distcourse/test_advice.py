"""What a check says about exceptions: the name that was meant, the cell to run, the shapes that met."""

import linecache

import numpy as np
import pytest
from distcourse import Check, CheckFailed

from distlearn.nn import Layer


def cell(source, name="<cell>", **known):
    """Run a cell of a notebook and return its namespace."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space = {"__name__": "__main__", "np": np, "Layer": Layer} | known
    exec(compile(source, name, "exec"), space)
    return space


def said(source, call, **known):
    """Run an answer in one cell and its check in another; return what the check says."""
    space = cell(source, "<answer>", **known)
    with pytest.raises(CheckFailed) as caught:
        cell(f"with Check('f') as check:\n    {call}\n", "<check>", **space | {"Check": Check})
    return str(caught.value)


def test_python_says_what_was_meant():
    assert "did you mean 'total'?" in said("def f(x):\n    total = x\n    return totl\n", "f(1)")
    assert "did you mean 'maximum'?" in said("def f(x):\n    return np.maximun(x, 0)\n", "f(1)")
    unknown = said("def f(x):\n    return nothing_like_it\n", "f(1)")
    assert "did you mean" not in unknown
    assert "is nothing_like_it defined in a cell that has not been run?" in unknown
    assert "import itertools" in said("def f(x):\n    return next(itertools.count(x))\n", "f(1)")


@pytest.mark.parametrize("call", ["f(1)", "(lambda: f(1))()"])
def test_a_cell_that_was_not_run(call):
    text = said("", call)
    assert "run the cell above that defines f, then this one again" in text
    assert "in <lambda>" not in text


def test_a_class_that_lost_its_later_methods():
    first = "class Dense(Layer):\n    def forward(self, x):\n        return x, x\n"
    text = said(first, "Dense().backward(1, 1)")
    assert "Dense has no backward: run the cell that defines it, again if" in text
    assert "not written" not in text
    text = said("class Thing:\n    pass\n", "Thing().step()")
    assert "Thing has no step: run the cell that defines it" in text


def test_shapes_of_a_product_that_does_not_fit():
    text = said("def f(x, w):\n    return w.T @ x + 1\n", "f(np.ones((5, 3)), np.ones((3, 4)))")
    assert "w.T is (4, 3), x is (5, 3)" in text
    assert "in f, line 2: return w.T @ x + 1" in text
    text = said("def f(x, w):\n    w += x\n", "f(np.ones((5, 3)), np.ones(3))")
    assert "w is (3,), x is (5, 3)" in text


def test_nothing_is_called_again():
    calls = []
    text = said("def f(x, g):\n    return x @ g()\n", "f(np.ones((5, 3)), g)",
                g=lambda: calls.append(1) or np.ones((5, 3)))  # fmt: skip
    assert "ValueError" in text
    assert calls == [1]


def test_a_count_in_a_nested_function():
    source = "def f(n):\n    left = n\n    def g():\n        left -= 1\n    g()\n"
    assert "g assigns to left, so it has a left of its own: write `nonlocal left` in g" in said(source, "f(2)")
    source = "def f(n):\n    total += n\n    return total\n"
    assert "f assigns to total further down, and reads it before" in said(source, "f(2)")


def test_a_sum_over_columns_that_is_read_as_a_row():
    source = "def f(x, s):\n    return x / s\n"
    text = said(source, "f(np.ones((6, 4)), np.ones(6))")
    assert "x is (6, 4), s is (6,); NumPy takes (6,) for one row: [:, None], or keepdims=True" in text
    assert "one row" not in said(source, "f(np.ones((6, 4)), np.ones(5))")
