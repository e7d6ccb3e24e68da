"""The trace: sums, overlap, and a file that Perfetto reads."""

import json

import pytest

from distlearn.trace import Message, Span, Trace, WallClock

TRACE = Trace(
    [
        Span(0, "compute", "forward[0]", 0.0, 2.0, flops=10),
        Span(0, "comm", "all_reduce", 1.0, 4.0, nbytes=64),
        Span(0, "compute", "backward[0]", 3.0, 3.5),
        Span(1, "compute", "forward[0]", 0.0, 1.0),
    ],
    [Message(0, 1, 128, 0.5, 4.5, tag=3)],
)


def test_sums():
    assert TRACE.makespan == 4.5
    assert TRACE.ranks == [0, 1]
    assert TRACE.bytes_sent == 128
    assert TRACE.total(rank=0, lane="compute") == 2.5
    assert TRACE.total(name="forward") == 3.0
    assert TRACE.exposed(0) == pytest.approx(3.0 - 1.0 - 0.5)
    assert TRACE.exposed(1) == 0
    assert Trace().makespan == 0


def test_a_window_shifts_what_lies_in_it():
    part = TRACE.window(1.0, 4.0)
    assert [(s.name, s.start, s.end) for s in part] == [("all_reduce", 0.0, 3.0), ("backward[0]", 2.0, 2.5)]
    assert part.messages == []


def test_a_saved_trace_comes_back(tmp_path):
    path = TRACE.save(tmp_path / "trace.json")
    again = Trace.load(path)
    for a, b in zip(TRACE, again, strict=True):
        assert a[:3] == b[:3]
        assert a[3:] == pytest.approx(b[3:])
    assert again.messages[0] == pytest.approx(TRACE.messages[0])


def test_the_file_has_what_the_viewers_need(tmp_path):
    events = json.loads(TRACE.save(tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"}
    assert names == {(0, "rank 0"), (1, "rank 1")}
    complete = [e for e in events if e["ph"] == "X"]
    assert complete[0]["dur"] == pytest.approx(2e6)
    assert {e["ph"] for e in events if e.get("cat") == "message"} == {"s", "f"}


def test_wall_clock_records_even_a_block_that_raises():
    clock = WallClock(rank=3)
    with pytest.raises(ZeroDivisionError), clock.span("work", flops=7):
        1 / 0  # noqa: B018
    (span,) = clock.trace
    assert (span.rank, span.name, span.flops) == (3, "work", 7)
    assert 0 <= span.start <= span.end <= clock.now()
