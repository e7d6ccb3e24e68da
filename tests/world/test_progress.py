import sys

import numpy as np
import pytest

from distlearn.world.progress import Bar, Output, Reporter


def test_reports_are_thinned_but_the_last_one_comes():
    sent = []
    report = Reporter(sent.append)
    for step in range(1, 1001):
        report(step, 1000, loss=np.float32(1 / step), samples=step * 8)
    assert sent[0][:2] == (1, 1000)
    assert sent[-1][:2] == (1000, 1000)
    assert len(sent) < 50
    assert type(sent[0][2]["loss"]) is float
    assert report.last == sent[-1]


def test_last_report_is_kept_when_training_stops_early():
    report = Reporter(lambda last: None)
    for step in range(1, 8):
        report(step, 1000, loss=1.0)
    assert report.last == (7, 1000, {"loss": 1.0})


@pytest.mark.parametrize("terminal", [True, False])
def test_bar_shows_steps_and_values_in_a_terminal_alone(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    bar = Bar("training")
    bar(1, 4, loss=0.5, samples=100)
    bar(1, 4, loss=0.5, samples=100)  # the same again changes nothing
    bar(4, 4, loss=0.25, samples=400, epoch=2)
    bar.close()
    bar.close()
    text = capsys.readouterr().err
    if not terminal:  # carriage returns would fill a log file
        assert text == ""
        return
    assert "4/4" in text
    assert "loss=0.25" in text
    assert "samples/s=" in text
    assert "epoch=2" in text


def test_bar_that_was_never_fed_shows_nothing(capsys):
    Bar().close()
    assert capsys.readouterr() == ("", "")


def streams(*texts):
    return [{"stdout": out, "stderr": err} for out, err in texts]


def test_output_is_in_the_order_of_ranks_and_live(capsys):
    output = Output(2)
    output.show(streams(("a\nb", ""), ("x\n", "")), ended=set())
    assert capsys.readouterr().out == "[rank 0] a\n"  # whole lines of the first rank at once, the second waits
    output.show(streams(("a\nbc\n", ""), ("x\n", "")), ended={1})
    assert capsys.readouterr().out == "[rank 0] bc\n"
    output.show(streams(("a\nbc\nd", "oh"), ("x\n", "")), ended={0, 1})
    assert capsys.readouterr() == ("[rank 0] d\n[rank 1] x\n", "[rank 0] oh\n")
    output.show(streams(("a\nbc\nd", "oh"), ("x\n", "")), ended={0, 1})
    assert capsys.readouterr() == ("", "")


def test_empty_lines_stay(capsys):
    Output(1).show(streams(("a\n\nb\n", None)), ended={0})
    assert capsys.readouterr().out == "[rank 0] a\n[rank 0] \n[rank 0] b\n"
