"""How a run ended on each rank, and the one error that reports a failure to the user.

An engine returns an `Outcome`; the client makes one for a rank that cannot (its process died or does not answer).
`first_failure` reads the outcomes of all ranks and says which rank failed first, why, and where the others were.
"""

from __future__ import annotations

import linecache
import pickle
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..comm.base import CommTimeoutError, DeadlockError, RankError
from ..comm.recorder import who_is_missing
from ..sim.copies import INSTALLED

# Frames of these are not shown to users: the line that called them says more.
OWN_MODULES = ("distlearn.comm", "distlearn.sim", "distlearn.world", "distlearn.trace")


class RankTimeoutError(RankError, CommTimeoutError):
    """Some ranks did not return in time; `rank` is the first of them."""


class RankDeadlockError(RankError, DeadlockError):
    """All ranks wait for each other; `rank` is the first of them."""


class Frame(NamedTuple):
    """A line of code that a rank was executing."""

    filename: str
    line: int
    function: str
    source: str
    own: bool  # Whether it belongs to `OWN_MODULES`.


@dataclass
class Outcome:
    """How one rank's call of the user's function ended."""

    rank: int
    status: str = "returned"
    ended: float = 0.0
    error: str = ""
    frames: list[Frame] = field(default_factory=list)
    waits_for: str = ""
    original: bytes = b""
    spans: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)  # The rank's last calls, if it did not return.
    progress: tuple[Any, ...] | None = None
    position: int = 0  # Position in the order in which the client heard of the ranks' ends.


# -- looking at frames -------------------------------------------------------------------------------------------------


def frames_of(walk) -> list[Frame]:
    """Turn (frame, line number) pairs, outermost first, into `Frame`s."""
    # The line number is None where a signal arrived between two lines; the function's first line is used then.
    found = []
    for frame, lineno in walk:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        lineno = code.co_firstlineno if lineno is None else lineno
        source = linecache.getline(code.co_filename, lineno, frame.f_globals).strip()
        found.append(Frame(code.co_filename, lineno, code.co_name, source, module.startswith(OWN_MODULES)))
    return found


def frames_of_error(error: BaseException) -> list[Frame]:
    """Return the frames of an exception's traceback."""
    return frames_of(traceback.walk_tb(error.__traceback__))


def frames_of_stack(frame) -> list[Frame]:
    """Return the frames of a running function and its callers."""
    return frames_of(reversed(list(traceback.walk_stack(frame))))


def text_of_error(error: BaseException, rank: int) -> str:
    """Format type, text and notes of an exception."""
    text = str(error).removeprefix(f"rank {rank}: ")
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + notes


def pickled(error: BaseException) -> bytes:
    """Pickle an exception; return b"" if that, or reading it back, is impossible."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return b""
    return data


def user_frames(frames: list[Frame]) -> list[Frame]:
    """Keep the frames of the user's code: below the package's first frame, without the package's own."""
    first = next((i for i, frame in enumerate(frames) if frame.own), 0)
    return [frame for frame in frames[first:] if not frame.own]


def _location(frame: Frame) -> tuple[str, str]:
    name = frame.filename.replace("\\", "/").rpartition("/")[2]
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        label = shell.compile.format_code_name(frame.filename)
        if label and label[0] == "Cell":
            name = " ".join(label)
    return name, frame.source or linecache.getline(frame.filename, frame.line).strip()


def where(outcome: Outcome) -> str:
    """Describe where a rank was and the call in which it waited."""
    if outcome.status == "unresponsive" and outcome.error:
        return outcome.error
    mine = user_frames(outcome.frames)
    place = ""
    if mine:
        frame = next((frame for frame in reversed(mine) if not INSTALLED.search(frame.filename)), mine[-1])
        place = f"{_location(frame)[0]}, line {frame.line}, in {frame.function}"
    if outcome.waits_for:
        waits = "waits" if outcome.status == "waiting" else "waited"
        return f"{waits} for {outcome.waits_for}" + (f" ({place})" if place else "")
    if outcome.status == "running":
        return f"is at {place}" if place else "is running"
    return f"was at {place}" if place else "was starting or ending"


def traceback_text(outcome: Outcome) -> str:
    """Format the user's part of a traceback."""
    lines = []
    for frame in user_frames(outcome.frames):
        name, source = _location(frame)
        lines.append(f"  {name}, line {frame.line}, in {frame.function}")
        if source:
            lines.append(f"    {source}")
    return "\n".join(lines)


# -- the one error -----------------------------------------------------------------------------------------------------


def first_failure(outcomes: list[Outcome], reason: str = "", seconds: float = 0.0, note: str = "") -> RankError:
    """Make the error of a run that failed."""
    failed = [o for o in outcomes if o.status in ("raised", "died")]
    unresponsive = [o for o in outcomes if o.status == "unresponsive"]
    late = [o for o in outcomes if o.status in ("interrupted", "unresponsive")]
    early = [o for o in outcomes if o.status == "early"]
    original, kind, lost = None, RankError, True
    if failed and min(failed, key=lambda o: o.position).status == "died":
        first = min((o for o in failed if o.status == "died"), key=lambda o: o.ended)
        text = first.error
    elif failed:
        first, text = _first_raised([o for o in failed if o.status == "raised"])
        original, lost = pickle.loads(first.original) if first.original else None, False
    elif reason:
        kind, lost = RankTimeoutError, reason == "no progress"
        if lost:
            late.sort(key=lambda o: bool(o.waits_for))
        stuck = late or early
        first = stuck[0]
        if reason == "deadlock":
            kind, stuck = RankDeadlockError, late + early
            text = f"deadlock: all ranks wait, and have waited for {seconds:g} s:"
        elif reason == "timeout":
            text = _too_late(stuck, outcomes, seconds)
        else:
            text = f"{where(first)}; there was no progress for {seconds:g} s:"
        text = "\n".join([text, *(f"  rank {o.rank} {where(o)}" for o in stuck), *_missing(outcomes)])
    elif unresponsive:
        first = unresponsive[0]
        text = f"no longer responds: it {where(first)}"
    else:
        first = (late or early)[0]
        text = f"was interrupted from outside (SIGINT): it {where(first)}"
    others = [f"rank {o.rank} {where(o)}" for o in late if o not in (*unresponsive, first) and kind is RankError]
    text += f"\nMeanwhile {'; '.join(others)}." if others else ""
    if unresponsive:
        text += f"\n{_ranks(unresponsive)} could not be interrupted."
    return kind(first.rank, text + (f"\n{note}" if note else ""), original, lost)


def _missing(outcomes) -> list[str]:
    """Name the rank that the others wait for, by the calls that all of them made."""
    verdict = who_is_missing({o.rank: o.records for o in outcomes if o.records})
    return [verdict.text] if verdict.kind in ("missing", "mismatch") else []


def _first_raised(raised: list[Outcome]) -> tuple[Outcome, str]:
    """Return the rank that raised first (of several with the same error the lowest) and the error's text."""
    first = min(raised, key=lambda o: o.ended)
    same = [o for o in raised if o.error == first.error]
    first = min(same, key=lambda o: o.rank)
    others = [o for o in same if o is not first]
    also = f" ({_ranks(others).lower()} raised the same error)" if others else ""
    steps = traceback_text(first)
    return first, first.error + also + (f"\n\nOn rank {first.rank}:\n{steps}" if steps else "")


def _ranks(outcomes) -> str:
    numbers = ", ".join(str(o.rank) for o in outcomes)
    return f"{'Ranks' if len(outcomes) > 1 else 'Rank'} {numbers}"


def _too_late(late, outcomes, seconds) -> str:
    head = f"has not returned after {seconds:g} s"
    if len(late) > 1:
        head += f", nor {'has' if len(late) == 2 else 'have'} {_ranks(late[1:]).lower()}"
    if back := [o for o in outcomes if o not in late]:
        head += f"; {_ranks(back).lower()} had returned"
    return f"{head}:"
