"""Predictions: asked first, locked when revealed, never in the way of grading."""

import numpy as np
import pytest
from distcourse import Lab, NothingFailed, PredictionInvalid, PredictionMissing


@pytest.fixture
def lab(monkeypatch, capsys):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.setattr("distcourse.lab._GUESSES", {})
    lab = Lab("99")
    capsys.readouterr()
    return lab


def test_no_guess_no_result(lab, capsys):
    with pytest.raises(PredictionMissing, match="run the cell that asks"):
        lab.require("speedup")
    lab.predict("speedup", "How many times faster?", unit="times", low=0, high=8)
    assert "Replace ... with your guess, a number [times] from 0 to 8, and run" in capsys.readouterr().out
    with pytest.raises(PredictionMissing, match="How many times faster") as info:
        lab.require("speedup")
    assert len(info.value._render_traceback_()) == 1
    with pytest.raises(PredictionMissing):
        lab.reveal("speedup", 1.9)


def test_guess_then_result(lab, capsys):
    lab.predict("speedup", "How many times faster?", unit="times", answer=3)
    assert "locked once the result" in capsys.readouterr().out
    lab.require("speedup")
    lab.reveal("speedup", np.float64(1.9))
    text = capsys.readouterr().out
    assert "3 times" in text
    assert "1.9 times" in text
    assert "58 % too high" in text


def test_a_guess_may_change_until_the_result_and_stays_after(lab, capsys):
    lab.predict("n", "How many?", answer=3)
    lab.predict("n", "How many?", answer=4)
    lab.reveal("n", 10)
    lab.predict("n", "How many?", answer=10)
    text = capsys.readouterr().out
    assert "first guess  4 (it stays)" in text
    lab.reveal("n", 10)
    text = capsys.readouterr().out
    assert "you predicted  4" in text
    assert "later          10" in text
    assert "factor of 2.5 too low" in text
    Lab("99").reveal("n", 10)
    assert "you predicted  4" in capsys.readouterr().out, "the setup cell run again must not unlock"


def test_taking_the_guess_back_keeps_it(lab, capsys):
    lab.predict("n", "How many?", answer=3)
    lab.predict("n", "How many?")
    lab.require("n")
    assert "your guess  3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("guess", "actual", "words"),
    [
        (3, 3, "exactly"),
        (1.05, 1, "5 % too high"),
        (0.8, 1, "20 % too low"),
        (0, 5, "5 away"),
        (2, 0, "2 away"),
        (-1, 2, "3 away"),
        (-3, -1, "factor of 3 too high"),
        (7, 7.0000000001, "almost exactly"),
        (6, 3485, "factor of 580 too low"),
        (1e-10, 1e-5, "factor of 100,000 too low"),
        (1e-6, 3e-6, "factor of 3 too low"),
        (1, float("inf"), "away"),
        (40, 39, "you were 1 point too high"),
        (80, 82, "you were 2 points too low"),
        (80, 0, "you were 80 points too high"),
    ],
)
def test_verdicts(lab, capsys, guess, actual, words):
    """Per cents are off by points."""
    lab.predict("v", "?", unit="%" * ("point" in words), answer=guess)
    lab.reveal("v", actual)
    assert words in capsys.readouterr().out


def test_choices_shapes_and_booleans(lab, capsys):
    lab.predict("winner", "Which?", choices=["ring", "tree"], answer="tree")
    lab.predict("shape", "Which shape has dW?", kind=tuple, answer=(3, 4))
    lab.predict("same", "Is it the same?", kind=bool, answer=True)
    lab.predict("why", "In a word?", kind=str, answer="latency")
    capsys.readouterr()
    lab.reveal("winner", "ring")
    assert "worth a second look" in capsys.readouterr().out
    lab.reveal("shape", (3, 4))
    lab.reveal("same", True)
    assert capsys.readouterr().out.count("as you said") == 2


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        (9, {"high": 8}, "is above 8"),
        (-1, {"low": 0}, "is below 0"),
        (float("nan"), {}, "is not a number"),
        ("3", {}, "is not a number"),
        (True, {}, "is not a number"),
        ([1, 2], {}, "is not a number"),
        ("star", {"choices": ("ring", "tree")}, "is not one of the choices"),
        ([3, 4], {"kind": tuple}, "is not a tuple"),
        (1, {"kind": bool}, "is not True or False"),
    ],
)
def test_guesses_that_cannot_be_meant(lab, answer, options, words):
    with pytest.raises(PredictionInvalid, match=words) as info:
        lab.predict("v", "?", answer=answer, **options)
    assert len(info.value._render_traceback_()) == 1
    with pytest.raises(PredictionMissing):
        lab.require("v")


def test_a_question_that_changes_starts_anew(lab):
    lab.predict("v", "How many?", answer=3)
    lab.predict("v", "How many bytes?")
    with pytest.raises(PredictionMissing):
        lab.require("v")


def test_while_grading_a_missing_guess_stops_nothing(lab, monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert lab.grading
    lab.require("never asked")
    lab.predict("n", "How many?")
    lab.require("n")
    lab.reveal("n", 4)
    assert "it was  4" in capsys.readouterr().out


def test_expect_shows_the_failure_and_goes_on(lab, capsys):
    with lab.expect(ZeroDivisionError, match="division") as failure:
        1 / 0  # noqa: B018
    assert "It failed, as it should." in capsys.readouterr().out
    assert isinstance(failure.error, ZeroDivisionError)
    with pytest.raises(NothingFailed, match="ValueError or TypeError"), lab.expect((ValueError, TypeError)):
        pass
    with pytest.raises(KeyError), lab.expect(ValueError):
        {}["x"]
    with pytest.raises(ValueError, match="other"), lab.expect(ValueError, match="mine"):
        raise ValueError("other")
