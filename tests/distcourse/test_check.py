"""The table of a check: what it collects, what it says, and that it fails when it should."""

import sys
import warnings

import distcourse
import numpy as np
import pytest
from distcourse import Check, CheckFailed
from distcourse.check import call_watched, is_library
from distcourse.mesh import Partial

import distlearn as dl
from distlearn.comm.base import RankError
from distlearn.optim import SGD

X = np.arange(6.0).reshape(2, 3)


def failing(body, title="dense"):
    """Run `body(check)` in a check that must fail; return its text."""
    with pytest.raises(CheckFailed) as info, Check(title) as check:
        body(check)
    return str(info.value), info.value


def test_all_right_shows_a_table_and_raises_nothing(capsys):
    with Check("dense") as check:
        check.close("y", X + 0.0, X)
        check.line(True, "sorted")
    text = capsys.readouterr().out
    assert "✓ dense: 2 of 2 checks passed" in text
    assert text.count("✓") == 3
    assert "✗" not in text
    assert "Stuck" not in text


def test_one_wrong_tensor_is_told_and_the_others_are_still_checked(capsys):
    text, error = failing(lambda c: (c.close("dW", 4 * X, X, factors={"ranks": 4}), c.close("db", X[0], X[0])))
    assert "✗ dense: 1 of 2 checks passed" in text
    assert "there are 4 ranks: did you divide by their number?" in text
    assert "✓ db" in text
    assert "Three hints" in text
    assert text in capsys.readouterr().out
    assert error._render_traceback_() == ["CheckFailed: dense: 1 of 2 checks passed"]
    assert isinstance(error, AssertionError)
    assert error.__suppress_context__


def fail_on(rank, error):
    raise RankError(rank, f"{type(error).__name__}: {error}", error)


def untouched(*args):
    raise NotImplementedError


SAID = {
    "not written": (lambda c: untouched(X), "not written yet"),
    "not written, on a rank": (lambda c: fail_on(0, NotImplementedError()), "rank 0: not written yet"),
    "raised on a rank": (lambda c: fail_on(2, ValueError("no")), "rank 2: ValueError: no"),
    "empty": (lambda c: None, "checks nothing"),
}


@pytest.mark.parametrize("what", SAID)
def test_what_is_said(what):
    body, words = SAID[what]
    assert words in failing(body)[0]


def test_what_the_student_raises_is_a_line_with_its_place():
    source = "def bad(x):\n    y = x + 1\n    return y / undefined_name\n"
    space = {}
    exec(compile(source, "<cell>", "exec"), space)
    text, error = failing(lambda c: space["bad"](X))
    assert "NameError: name 'undefined_name' is not defined" in text
    assert "in bad, line 3" in text
    assert "in bad, line 3" in error._render_traceback_()[1]


def test_what_fails_alike_on_every_rank_is_told_once():
    def body(check):
        for rank in range(4):
            check.close(f"mean on rank {rank} of 4", 4 * (X + rank), X + rank, factors={"ranks": 4})
        check.close("x", X + 1, X)

    text, _ = failing(body)
    assert "0 of 5 checks passed" in text
    assert text.count("did you divide") == 1
    told = text.splitlines()
    assert told[1].startswith("  ✗ mean on rank 0 of 4 ")
    assert "-> mean on rank 0 of 4 is 4 times the reference" in told[2]
    assert told[3].split("the same: ")[1] == "mean on rank 1 of 4; mean on rank 2 of 4; mean on rank 3 of 4"
    assert told[4].startswith("  ✗ x ")


def test_two_failures_with_one_advice_are_both_shown():
    text, _ = failing(lambda c: [c.line(False, name, "is wrong", "sum over ranks") for name in "ab"])
    assert text.count("✗") == 3
    assert "the same" not in text


def test_arrays_and_containers_that_are_changed_are_named():
    def step(params, xs, lr=0.1):
        params["W"] -= lr * params["W"]
        xs[1][0] = np.nan
        xs.pop(0)
        return params

    xs = [X.copy(), np.ones(2)]
    assert [name for name, _ in call_watched(step, ({"W": X.copy()}, xs), {})[1]] == ["params['W']", "xs[1]", "xs"]
    assert call_watched(lambda x: x + 0, (np.array([np.nan, 1.0]),), {})[1] == []


def test_nothing_reaches_stderr(capsys):
    def noisy(check, right):
        warnings.warn("overflow in exp", RuntimeWarning, stacklevel=1)
        warnings.warn("overflow in exp", RuntimeWarning, stacklevel=1)
        print("progress", file=sys.stderr)
        check.line(right, "ok")

    with Check("noisy") as check:
        noisy(check, True)
    seen = capsys.readouterr()
    assert seen.err == ""
    assert "Warning" not in seen.out, "what is right needs no warning"
    assert "progress" in seen.out
    assert "1 of 1 checks passed" in seen.out
    assert failing(lambda check: noisy(check, False))[0].count("RuntimeWarning: overflow in exp") == 1


def test_an_interrupt_is_not_an_answer():
    with pytest.raises(KeyboardInterrupt), Check("c"):
        raise KeyboardInterrupt


def vetted(answer, without=()):
    check = Check("c")
    check.vet(answer, getattr(answer, "__name__", "answer"), without)
    return check


def test_the_library_is_no_answer():
    class Mine(dl.nn.ReLU):
        """Inherits what it should write."""

    for answer in (Mine().forward, dl.nn.ReLU().forward, dl.nn.nbytes):
        assert "the library's own function" in vetted(answer).lines[0].text
        assert not vetted(answer).ok
    called = vetted(lambda x: dl.nn.nbytes(x))
    assert called.ok
    assert "uses the library" in called.lines[0].text
    assert vetted(lambda x: np.maximum(x, 0)).lines == []
    assert vetted(lambda x: x == Partial()).lines == [], "a type of a layout computes nothing"
    assert "uses the library" in vetted(lambda x: SGD().update(x)).lines[0].text


def test_an_answer_does_without_what_its_exercise_excludes():
    class Mine(dl.nn.ReLU):
        def forward(self, x):
            return super().forward(x)

    for answer, name in ((Mine().forward, "super"), (lambda x: [np.sum(row) for row in x], "np"), (np.sum, "sum")):
        assert vetted(answer).ok, name
        assert f"this is {name}, or uses it" in vetted(answer, (name,))._card().text()
    assert vetted(lambda x: x.sum(), ("sum",)).ok, "an attribute is no global name"


def test_places_are_the_students_in_whatever_folder_the_course_lies(tmp_path):
    own = tmp_path / "distlearn" / "labs" / "mine.py"
    own.parent.mkdir(parents=True)
    assert not is_library(str(own))
    assert all(is_library(module.__file__) for module in (distcourse, np, warnings, dl.sim))
