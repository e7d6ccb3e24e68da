"""The table of checks: what it collects, what it says, and that it fails when it should."""

import warnings

import distcourse
import numpy as np
import pytest
from distcourse import Check, CheckFailed
from distcourse.check import is_library

import distlearn as dl
from distlearn.comm.base import RankError

X = np.arange(6.0).reshape(2, 3)


def failing(body, title="dense"):
    """Run `body(check)` in a check that must fail; return its text."""
    with pytest.raises(CheckFailed) as info, Check(title) as check:
        body(check)
    return str(info.value), info.value


def test_all_right_shows_a_table_and_raises_nothing(capsys):
    with Check("dense") as check:
        check.close("y", X + 0.0, X)
        check.equal("shape", (2, 3), (2, 3))
        check.true("sorted", np.diff(X.ravel()) > 0)
        check.raises("bad input", ValueError, int, "x", match="invalid literal")
    text = capsys.readouterr().out
    assert "✓ dense: 4 of 4 checks passed" in text
    assert text.count("✓") == 5
    assert "✗" not in text
    assert "Stuck" not in text


def test_one_wrong_tensor_is_told_and_the_others_are_still_checked(capsys):
    text, error = failing(lambda c: (c.close("dW", 4 * X, X, factors={"ranks": 4}), c.close("db", X[0], X[0])))
    assert "✗ dense: 1 of 2 checks passed" in text
    assert "there are 4 ranks: did you divide by the global batch?" in text
    assert "✓ db" in text
    assert "Three hints" in text
    assert text in capsys.readouterr().out
    assert error._render_traceback_() == ["CheckFailed: dense: 1 of 2 checks passed"]


def test_the_failure_takes_the_points_but_shows_no_long_traceback():
    _, error = failing(lambda c: c.true("never", False, "it is false"))
    assert isinstance(error, AssertionError)
    assert len(error._render_traceback_()) == 1
    assert error.__suppress_context__


def untouched(*args):
    raise NotImplementedError


def no_return(x):
    x + 1


def values(n):
    yield from range(n)


def take_apart(check, function):
    _y, _saved = check.call(function, 3)


def fail_on(rank, error):
    raise RankError(rank, f"{type(error).__name__}: {error}", error)


A_GENERATOR = "`yield` makes one: collect the values, and `return` them"
SAID = {
    "not written": (lambda c: c.close("y", c.call(untouched, X), X), "not written yet"),
    "not written, refuses": (lambda c: c.raises("refuses", ValueError, untouched, X), "not written yet"),
    "not written, refuses all": (lambda c: c.raises("refuses", Exception, untouched, match="size"), "not written yet"),
    "not written, on a rank": (lambda c: fail_on(0, NotImplementedError()), "rank 0: not written yet"),
    "raised on a rank": (lambda c: fail_on(2, ValueError("no")), "rank 2: ValueError: no"),
    "no return, unpacked": (lambda c: take_apart(c, no_return), "no_return returned None"),
    "no return, close": (lambda c: c.close("y", c.call(no_return, X), X), "did you forget `return`?"),
    "no return, equal": (lambda c: c.equal("n", c.call(no_return, X), 3), "did you forget `return`?"),
    "None in a list": (lambda c: c.equal("shares", [3, None], [3, 2]), "shares has None: did you forget `return`?"),
    "a generator, equal": (lambda c: c.equal("values", c.call(values, 3), [0, 1, 2]), A_GENERATOR),
    "a generator, close": (lambda c: c.close("values", c.call(values, 3), [0, 1, 2]), A_GENERATOR),
    "a generator, true": (lambda c: c.true("positive", c.call(values, 3) > 0), A_GENERATOR),
    "a generator, unpacked": (lambda c: take_apart(c, values), A_GENERATOR),
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
    text, error = failing(lambda c: c.close("y", c.call(space["bad"], X), X))
    assert "NameError: name 'undefined_name' is not defined" in text
    assert "in bad, line 3" in text
    assert "in bad, line 3" in error._render_traceback_()[1]


OWN = """
class Trainer:
    history = None
    def step(self): return self.history["loss"]
def nothing(): pass
def ranks(n):
    yield n
    yield [][n]
"""


@pytest.mark.parametrize(
    ("body", "text", "advice"),
    [
        (lambda c, own: (c.call(own["nothing"]), own["Trainer"]().step()), "TypeError: 'NoneType'", ""),
        (lambda c, own: (c.call(own["nothing"]), c.call(own["Trainer"]().step)), "TypeError: 'NoneType'", ""),
        (lambda c, own: list(c.call(own["ranks"], 3)), "IndexError: list index out of range", ""),
        (lambda c, own: c.call(own["nothing"]) + 1, "nothing returned None: unsupported", "did you forget `return`?"),
        (lambda c, own: len(c.call(own["ranks"], 3)), "ranks returned a generator: object of type", "`yield` makes"),
    ],
)
def test_what_a_student_raises_comes_first_and_is_not_blamed_on_an_earlier_result(body, text, advice):
    own = {}
    exec(compile(OWN, "<cell>", "exec"), own)
    said = failing(lambda check: body(check, own))[0].splitlines()
    (at,) = (i for i, line in enumerate(said) if "stopped" in line)
    assert said[at].strip().startswith(f"✗ stopped  {text}")
    if advice:
        assert said[at + 1].strip().startswith(f"-> {advice}")
    else:
        assert said[at + 1].strip().startswith("in ")
        assert "->" not in "".join(said)


def test_a_return_that_is_not_always_reached_is_not_called_forgotten():
    def inside_the_loop(numbers):
        for n in numbers:
            return n

    def body(c):
        c.equal("one", c.call(inside_the_loop, [1]), 1)
        c.equal("none", c.call(inside_the_loop, []), 0)

    text, _ = failing(body)
    assert "none is None: no `return` was reached here. Is it inside a loop or an `if`?" in text
    assert "forget" not in text


def test_a_group_is_one_line_where_all_is_right_and_the_first_wrong_ones_elsewhere():
    with Check("groups") as check, check.group("sums"):
        for k in range(5):
            check.equal(f"sum {k}", k, k)
    assert [(line.tone, line.name, line.text) for line in check.lines] == [("good", "sums", "5 checks")]

    def body(c):
        with c.group("sums"):
            for k in range(5):
                c.equal(f"sum {k}", k, 1)
        with c.group("the same mistake again"):
            c.equal("sum 0", 0, 1)
        with c.group("others"):
            c.equal("other", 1, 1)

    text, _ = failing(body)
    for words in ("1 of 3 checks passed", "wanted 1, got 2", "2 more like these"):
        assert words in text
    for words in ("wanted 1, got 3", "the same mistake again"):
        assert words not in text


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
    text, _ = failing(lambda c: [c.true(name, False, "sum over ranks") or c.close(name, 4 * X, X) for name in "ab"])
    assert text.count("✗") == 5
    assert "the same" not in text


def test_a_generator_is_right_where_one_is_asked_for():
    with Check("a generator") as check:
        check.equal("values", list(check.call(values, 3)), [0, 1, 2])
    assert check.ok


@pytest.mark.parametrize(
    ("result", "words"),
    [(1.5, "one float"), (X.T, "one array (3, 2)"), ((X, X, X), "a tuple of 3"), (None, "forget `return`")],
)
def test_too_few_or_too_many_results_are_named(result, words):
    def loss(x):
        return result

    def take_apart(check):
        value, slope = check.call(loss, X)
        check.close("loss", value, slope)

    text, _ = failing(take_apart)
    assert words in text
    if result is not None:
        assert "loss returned" in text
        assert "everything that its docstring lists under Returns" in text


def test_inputs_changed_in_place_are_reported_by_name():
    def step(params, grad, lr=0.1):
        params["W"] -= lr * grad
        return params

    params = {"W": X.copy()}
    text, _ = failing(lambda c: c.close("W", c.call(step, params, X)["W"], X - 0.1 * X))
    assert "step changed its input params['W'] in place" in text
    assert "instead of writing into params['W'] (`a + b`, not `a += b`)" in text
    with Check("in place is asked for") as check:
        params = {"W": X.copy()}
        check.call(step, params, X, inplace=True)
        check.close("W", params["W"], 0.9 * X)


def test_arrays_in_lists_are_watched_and_scalars_may_be_nan():
    def spoil(xs):
        xs[1][0] = np.nan
        return 1.0

    assert "xs[1]" in failing(lambda c: c.close("y", c.call(spoil, [X.copy(), np.ones(2)]), 1.0))[0]
    with Check("nan in, nan out") as check:
        check.close("y", check.call(lambda x: x + 0, np.array([np.nan, 1.0])), np.array([np.nan, 1.0]))


def test_containers_are_compared_tensor_by_tensor():
    want = {"W": X, "b": X[0]}
    text, _ = failing(lambda c: c.close("g", {"W": X, "b": -X[0]}, want))
    assert "✓ g['W']" in text
    assert "g['b'] is the negative of what is wanted" in text
    assert "wanted a dict with 'W', 'b'" in failing(lambda c: c.close("g", {"W": X}, want))[0]
    text, _ = failing(lambda c: c.close("g", [X, 2 * X], [X, X], suspects={"you doubled": [2 * X, 2 * X]}))
    assert "you doubled" in text
    assert "wanted a list of 2, got None" in failing(lambda c: c.close("g", None, [X, X]))[0]


def test_equal_is_exact():
    for got, want in [(True, 1), ([1], (1,)), (1.0000001, 1.0), ("a", "b"), (np.arange(3), np.arange(4)), (None, 0)]:
        failing(lambda c, got=got, want=want: c.equal("v", got, want))
    with Check("right") as check:
        check.equal("array", np.arange(3), [0, 1, 2])
        check.equal("nested", [(0, 1), (1, 2)], [(0, 1), (1, 2)])
        check.equal("numpy scalar", np.int64(3), 3)


class Yes:
    """Equal to everything."""

    dtype = np.dtype(int)
    __hash__ = None

    def __eq__(self, other):
        return True


def test_an_answer_that_equals_everything_is_wrong():
    class Number(int):
        __eq__, __hash__ = Yes.__eq__, None

    for got, want in [(Yes(), 3), ([Yes()], [3]), (Yes(), np.arange(3)), (Number(2), 3), (Yes(), "a"), (Yes(), None)]:
        failing(lambda c, got=got, want=want: c.equal("v", got, want))
        failing(lambda c, got=got, want=want: c.close("v", got, want))
    with Check("right") as check:
        check.equal("a number of its own kind", Number(3), 3)
        check.equal("mixed", [3.0, np.float64(2), None, "a", {"b": 1}], [3, 2, None, "a", {"b": 1}])


def test_raises_wants_the_right_error_and_message():
    def refuse(n):
        raise ValueError(f"size is {n}")

    with pytest.raises(CheckFailed, match="does not say 'rank'"), Check("c") as c:
        c.raises("size", ValueError, refuse, 0, match="rank")
    with pytest.raises(CheckFailed, match="but it returned 3"), Check("c") as c:
        c.raises("size", ValueError, lambda: 3)
    with pytest.raises(CheckFailed, match="ValueError: size is 0"), Check("c") as c:
        c.raises("size", TypeError, refuse, 0)


def test_nothing_reaches_stderr(capsys):
    import sys

    def noisy(check, right):
        warnings.warn("overflow in exp", RuntimeWarning, stacklevel=1)
        warnings.warn("overflow in exp", RuntimeWarning, stacklevel=1)
        print("progress", file=sys.stderr)
        check.true("ok", right)

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


def test_html_says_the_same_and_is_escaped():
    check = Check("a <b> c")
    check.close("dW", -X, X)
    html = check._card()._repr_html_()
    assert "a &lt;b&gt; c" in html
    assert "✗" in html
    assert "dW is the negative of what is wanted" in html


def test_the_library_is_no_answer():
    class Mine(dl.nn.ReLU):
        """Inherits what it should write."""

    x = np.ones(3)
    for layer in (Mine(), dl.nn.ReLU()):
        check = Check("ReLU")
        check.call(layer.forward, x)
        assert not check.ok
        assert "the library's own function" in check.lines[0].text
    check = Check("under another name")
    check.call(dl.nn.nbytes, x)
    assert not check.ok
    check = Check("called")
    check.call(lambda x: dl.nn.nbytes(x), x)
    assert check.ok
    assert "uses the library" in check.lines[0].text
    check = Check("own")
    check.call(lambda x: np.maximum(x, 0), x)
    assert check.ok


def test_an_answer_does_without_what_its_exercise_excludes():
    class Mine(dl.nn.ReLU):
        def forward(self, x):
            return super().forward(x)

    for answer, name in ((Mine().forward, "super"), (lambda x: [np.sum(row) for row in x], "np"), (np.sum, "sum")):
        check = Check("c")
        check.call(answer, np.ones(3))
        assert check.ok, name
        check.call(answer, np.ones(3), without=(name,))
        assert f"this is {name}, or uses it" in check._card().text()
    check.call(lambda x: x.sum(), np.ones(3), without=("sum",))  # an attribute is no global name
    assert check._failures == 1


def test_places_are_the_students_in_whatever_folder_the_course_lies(tmp_path):
    own = tmp_path / "distlearn" / "labs" / "mine.py"
    own.parent.mkdir(parents=True)
    assert not is_library(str(own))
    assert all(is_library(module.__file__) for module in (distcourse, np, warnings, dl.sim))
