import pickle
import sys

import pytest

from distlearn.world.outcome import (
    Frame,
    Outcome,
    RankTimeoutError,
    first_failure,
    frames_of,
    frames_of_error,
    pickled,
    text_of_error,
    traceback_text,
    where,
)

MINE = Frame("/home/me/step.py", 12, "step", "comm.recv(out, 0)", False)
OURS = Frame("/lib/distlearn/comm/waiting.py", 40, "poll", "while not done():", True)


def raised(rank, text="ValueError: boom", ended=1.0, position=1):
    return Outcome(
        rank, "raised", ended, text, [OURS, MINE, OURS], original=pickled(ValueError("boom")), position=position
    )


def waiting(rank):
    return Outcome(rank, "interrupted", 2.0, frames=[OURS, MINE, OURS], waits_for="recv(source=0, tag=0) of 8 bytes")


def test_the_earliest_counts():
    assert first_failure([raised(0, "KeyError: 'a'", ended=3.0), raised(1, ended=2.0), Outcome(2)]).rank == 1


def test_one_late_rank():
    assert str(first_failure([Outcome(0), waiting(1)], reason="timeout", seconds=1)).startswith(
        "rank 1: has not returned after 1 s; rank 0 had returned:"
    )
    text = str(first_failure([Outcome(0, "early"), waiting(1), Outcome(2, "early")], reason="timeout", seconds=1))
    assert text.startswith("rank 1: has not returned after 1 s; ranks 0, 2 had returned:")
    assert "nor has rank 1:" in str(first_failure([waiting(0), waiting(1)], reason="timeout", seconds=1))


def test_ranks_that_were_interrupted_while_they_waited_for_the_others_to_return():
    early = [Outcome(rank, "early", waits_for="all ranks to return") for rank in range(2)]
    error = first_failure(early, reason="timeout", seconds=3)
    assert type(error) is RankTimeoutError
    assert str(error).splitlines()[1:] == [f"  rank {rank} waited for all ranks to return" for rank in range(2)]


def test_an_interrupt_from_outside():
    text = str(first_failure([Outcome(0, "early"), waiting(1)]))
    assert text.startswith("rank 1: was interrupted from outside (SIGINT): it waited for recv(source=0")


def test_death():
    outcomes = [
        Outcome(0, "died", 1.0, "its process died", position=1),
        Outcome(1, "died", 0.0, "its process (7) was killed", position=2),
    ]
    error = first_failure(outcomes, note="They come again.")
    assert str(error) == "rank 1: its process (7) was killed\nThey come again."


def test_what_came_first_counts():
    death, error = Outcome(0, "died", 0.0, "its process died", position=2), raised(1, position=1)
    assert first_failure([death, error]).rank == 1
    death.place, error.position = 1, 2
    assert first_failure([death, error]).rank == 0


def test_unresponsive_rank():
    unresponsive = Outcome(1, "unresponsive", error="is stopped (process 7, SIGSTOP)")
    text = str(first_failure([waiting(0), unresponsive]))
    assert text.startswith("rank 1: no longer responds: it is stopped (process 7, SIGSTOP)\nMeanwhile rank 0 waited")
    assert "Rank 1 could not be interrupted." in text
    assert "  rank 1 is stopped (process 7, SIGSTOP)" in str(
        first_failure([waiting(0), unresponsive], reason="timeout", seconds=1)
    )


def test_where_words():
    assert where(Outcome(0, "waiting", frames=[OURS, MINE], waits_for="barrier")) == (
        "waits for barrier (step.py, line 12, in step)"
    )
    assert where(Outcome(0, "running", frames=[OURS, MINE])) == "is at step.py, line 12, in step"
    assert where(Outcome(0, "interrupted", frames=[OURS, MINE])) == "was at step.py, line 12, in step"
    assert where(Outcome(0, "interrupted", frames=[OURS])) == "was starting or ending"


def test_a_frame_on_no_line_is_shown_by_its_functions_first():
    """A signal may strike where Python's own code has no line: `frame.f_lineno` is None there."""
    here = sys._getframe()
    [frame] = frames_of([(here, None)])
    assert frame.line == here.f_code.co_firstlineno
    assert "def test_a_frame_on_no_line" in frame.source


def test_frames_of_an_error_show_its_source():
    try:
        {}["missing"]
    except KeyError as error:
        text = traceback_text(Outcome(0, "raised", frames=frames_of_error(error)))
    assert text.splitlines()[-1] == '    {}["missing"]'
    assert "test_outcome.py, line " in text


def test_error_texts():
    error = ValueError("rank 3: bad")
    error.add_note("by the way")
    assert text_of_error(error, 3) == "ValueError: bad\nby the way"
    assert text_of_error(KeyboardInterrupt(), 0) == "KeyboardInterrupt"


class Awkward(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def test_error_that_cannot_be_sent():
    assert pickled(Awkward(1, 2)) == b""
    assert isinstance(pickle.loads(pickled(KeyError("x"))), KeyError)
    lost = Outcome(0, "raised", 1.0, "Awkward: 1", position=1)
    assert first_failure([lost]).original is None


def test_without_progress_the_rank_that_waits_for_nobody_is_to_blame():
    stuck = Outcome(2, "interrupted", frames=[Frame("user.py", 7, "step", "while True: pass", False)])
    error = first_failure([waiting(0), waiting(1), stuck], reason="no progress", seconds=3)
    assert type(error) is RankTimeoutError
    assert (error.rank, error.lost) == (2, True)
    assert str(error).startswith(
        "rank 2: was at user.py, line 7, in step; there was no progress for 3 s:\n  rank 2 was"
    )
    assert not first_failure([waiting(0), waiting(1)], reason="timeout", seconds=3).lost
    assert first_failure([Outcome(0, "died", error="its process died", position=1), waiting(1)]).lost
    assert not first_failure([Outcome(0, "raised", error="ValueError: no", position=1), waiting(1)]).lost


@pytest.mark.parametrize("folder", ["/venv/lib/python3.11/site-packages/numpy/_core", "/usr/lib/python3.11"])
def test_a_rank_inside_another_package_is_placed_at_the_line_of_its_program(folder):
    theirs = Frame(f"{folder}/multiarray.py", 1085, "copyto", "", False)
    assert where(Outcome(2, "running", frames=[OURS, MINE, theirs])) == "is at step.py, line 12, in step"
    assert where(Outcome(2, "running", frames=[OURS, theirs])) == "is at multiarray.py, line 1085, in copyto"
