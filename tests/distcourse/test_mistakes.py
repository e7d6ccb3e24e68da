"""Each common mistake is made on purpose, and `compare` must name that one."""

import re

import numpy as np
import pytest
from distcourse import compare
from distcourse.mistakes import row_mistake
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4))
V = RNG.normal(size=7)
P = np.exp(X) / np.exp(X).sum(1, keepdims=True)
SQUARE = RNG.normal(size=(5, 5))


def last_row_wrong():
    x = X.copy()
    x[-1] += 1
    return x


def tail_wrong():
    v = V.copy()
    v[5:] = 9
    return v


MISTAKES = {
    "did you forget `return`": (None, X),
    "is still Ellipsis": (..., X),
    "did you forget to call it": (np.sum, X),
    "is a dict": ({}, X),
    "wanted an array of numbers": ("0.5", X),
    "is the transpose of what is wanted": (SQUARE.T, SQUARE),
    "T is the transpose of what is wanted": (X.T, X),
    "has the transpose's shape": (X.T + 1, X),
    "leave out keepdims": (V[:, None], V),
    "not summed over axis 0 yet (the batch)": (X, X.sum(0)),
    "not averaged over axis 0 yet (the batch)": (X, X.mean(0)),
    "not summed over axis 1 yet": (X, X.sum(1)),
    "is summed over axis 0, which should be kept": (X.sum(0), X),
    "is averaged over axis 1, which should be kept": (X.mean(1), X),
    "a single number": (3.0, X),
    "axis 0 of T is one shorter": (V[:-1], V),
    "axis 1 of T is one longer": (np.ones((6, 5)), X),
    "axes [0, 1] of T are one shorter": (np.ones((5, 3)), X),
    "2 of 24 elements of T are NaN, the first at [1, 2]": (np.where(np.isin(X, [X[1, 2], X[3, 0]]), np.nan, X), X),
    "are infinite": (np.full(3, np.inf), np.ones(3)),
    "every element of T is 0": (np.zeros_like(X), X),
    "T is the negative of what is wanted": (-X, X),
    "T is 3 times the reference": (3 * X, X),
    "T is 1/3 of the reference": (X / 3, X),
    "axis 0 has length 6: summed where a mean": (6 * X, X),
    "axis 1 has length 4: averaged where a sum": (X / 4, X),
    "with the opposite sign": (-3 * X, X),
    "logarithm": (np.log(P), P),
    "exponential": (np.exp(X), X),
    "the square of": (X**2, np.abs(X)),
    "the square root of": (np.sqrt(np.abs(X)), np.abs(X)),
    "reciprocal": (1 / V, V),
    "one minus": (1 - V, V),
    "too large by 0.5 everywhere": (X + 0.5, X),
    "rounded to whole numbers": (np.array([0, 1, 2, 5]), np.array([0.3, 1.2, 2.9, 5.5])),
    "reverse order": (V[::-1], V),
    "shifted by 2 down": (np.roll(V, 2), V),
    "shifted by 1 up": (np.roll(V, -1), V),
    "another order": (V[[1, 0, 3, 2, 5, 4, 6]], V),
    "only index 5 (the last) of axis 0": (last_row_wrong(), X),
    "right up to index 4 of axis 0": (tail_wrong(), V),
    "digits only: float32 somewhere on the way": (X.astype("float32").astype("float64"), X),
    "or a small constant missing or misplaced": (X + 1e-7 * np.sin(np.arange(24)).reshape(6, 4), X),
    "every element of T is 0.5": (np.full_like(X, 0.5), X),
}


@pytest.mark.parametrize(("words", "case"), MISTAKES.items(), ids=MISTAKES)
def test_names_the_mistake(words, case):
    got, want = case
    finding = compare("T", got, want)
    assert not finding.ok
    assert words in finding.mistake


@pytest.mark.parametrize(
    ("name", "got", "words"),
    [
        ("mean", 4 * X, "mean is 4 times the reference, and there are 4 ranks: did you divide by their number?"),
        ("dW", X / 4, "dW is 1/4 of the reference, and there are 4 ranks: did you divide once too often"),
    ],
)
def test_names_the_factor(name, got, words):
    assert words in compare(name, got, X, factors={"ranks": 4}).mistake


def test_one_number_is_a_multiple_of_any_other():
    assert compare("loss", 3.0, 2.0).mistake == ""
    assert "there are 4 ranks" in compare("loss", 8.0, 2.0, factors={"ranks": 4}).mistake


@pytest.mark.parametrize(
    ("got", "want"), [(-50.0, 0.0), (1.0, 0.0), (800.0, np.inf), (32, 1024), (np.full(3, -60.0), np.zeros(3))]
)
def test_what_zero_or_a_count_is_a_function_of_says_nothing(got, want):
    assert not re.search("logarithm|square|one minus", compare("bandwidth", got, want).mistake)


def test_one_number_is_called_infinite_without_counting():
    assert compare("bandwidth", np.inf, 2.0).mistake == "bandwidth is infinite"


def test_a_few_whole_numbers_are_shown_and_their_order_or_mean_says_nothing():
    assert compare("late", [2, 1, 0], [0, 1, 2]) == (False, "wanted [0, 1, 2], got [2, 1, 0]", "")
    assert compare("staleness", [2, 2, 2, 1, 0], [0, 1, 2, 2, 2]).mistake == ""
    assert compare("number", [5, 1], 3).mistake == ""
    assert compare("held", [3, 2], [3, 2, 1]).seen == "wanted [3, 2, 1], got [3, 2]"


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ("F0 F1 B1 B0", "F0 F1 B0 B1", "right up to position 2, where B0 is due, not B1"),
        ("0F0 0B0", "0F0 0B0 2F0", "right up to position 2, where 2F0 is due, not the end"),
        ("rank 0 waits", "nothing", ""),
        ("[3] []", "[] [3]", ""),
    ],
)
def test_where_a_row_of_actions_leaves_the_right_one_is_said(got, want, said):
    assert row_mistake(got, want) == said


def test_what_is_no_array_is_told_in_few_words():
    assert compare("dx", (X, X[0], 3), X).mistake == "dx is a tuple of 3, wanted one array"
    assert "forget `return`" in compare("plan", [None, None], np.ones(2)).mistake


def test_right_answers_pass_and_an_unknown_mistake_is_not_guessed():
    assert compare("T", X * (1 + 1e-12), X).ok
    assert compare("T", X.astype(np.float32), X).ok is True, "the tolerance follows the less precise dtype"
    assert compare("T", [[1.0, 2.0]], np.array([[1.0, 2.0]])).ok
    assert compare("T", np.array([1.0, np.nan]), np.array([1.0, np.nan])).ok
    assert compare("T", np.zeros((0, 3)), np.zeros((0, 3))).ok
    assert compare("T", 1e-17, 0.0).ok
    assert compare("T", RNG.normal(size=(6, 4)), X).mistake == ""


def test_says_what_and_where():
    wrong = X.copy()
    wrong[2, 3] += 10
    seen = compare("T", wrong, X).seen
    assert "largest difference 10" in seen
    assert "[2, 3]" in seen
    assert f"{X[2, 3]:.6g}" in seen
    assert compare("T", X[:2], X).seen == "wanted shape (6, 4), got shape (2, 4)".replace("got shape", "got")
    assert compare("loss", 1.5, 2.5).seen == "wanted 2.5, got 1.5"


def test_dtype_only_where_it_is_asked_for():
    assert compare("T", X.astype(np.float32), X.astype(np.float32), dtype=np.float32).ok
    finding = compare("T", X, X, dtype=np.float32)
    assert "its dtype is not: float64, wanted an array of float32" in finding.mistake


def test_empty_and_integer_inputs_do_not_break_it():
    assert not compare("T", np.zeros((0,)), X).ok
    assert not compare("T", np.zeros((0, 4)), np.zeros((0, 3))).ok
    assert not compare("T", np.arange(4), np.arange(4) + 1).ok
    assert not compare("T", np.array([True, False]), np.array([True, True])).ok
    assert not compare("T", np.array([1j, 2]), np.array([1, 2])).ok
    assert not compare("T", [[1], [2, 3]], X).ok


ANY_ARRAY = st.one_of(
    *(
        hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        for dtype in (np.float64, np.float32, np.int64, np.bool_, np.complex128, np.uint8)
    )
)


@settings(max_examples=300, deadline=None)
@given(ANY_ARRAY, ANY_ARRAY)
def test_never_breaks_whatever_comes(got, want):
    finding = compare("T", got, want, factors={"ranks": 3})
    same = got.shape == want.shape and np.array_equal(got, want) and (got.dtype.kind != "c" or want.dtype.kind == "c")
    assert finding.ok or not same
    assert finding.seen
    assert compare("T", want, want).ok
