"""The trace: sums, overlap, and a file that Perfetto reads."""

import json

import pytest

import distlearn as dl
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
    assert again == TRACE
    for text in (path.read_text(encoding="utf-8")[:-9], "{}", "[]"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"trace\.json: no trace, or a part of one"):
            Trace.load(path)


def test_the_file_has_what_the_viewers_need(tmp_path):
    events = json.loads(TRACE.save(tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"}
    assert names == {(1, "rank 0"), (2, "rank 1")}, "process 0 is the idle one"
    complete = [e for e in events if e["ph"] == "X"]
    assert complete[0]["dur"] == pytest.approx(2e6)
    assert {e["ph"] for e in events if e.get("cat") == "message"} == {"s", "f"}


def dropped(events) -> int:
    """Spans that Perfetto leaves out: in nanoseconds, of a thread, those that overlap another in part."""
    threads, found = {}, 0
    for e in events:
        if e["ph"] == "X":
            start = int(e["ts"] * 1000)
            threads.setdefault((e["pid"], e["tid"]), []).append((start, -(start + int(e["dur"] * 1000))))
    for spans in threads.values():
        around = []
        for start, end in sorted(spans):
            while around and around[-1] <= start:
                around.pop()
            if around and -end > around[-1]:
                found += 1
            else:
                around.append(-end)
    return found


def loose(events) -> int:
    """Ends of arrows that lie in no span of their thread."""
    spans, found = {}, 0
    for e in events:
        if e["ph"] == "X":
            start = int(e["ts"] * 1000)
            spans.setdefault((e["pid"], e["tid"]), []).append((start, start + int(e["dur"] * 1000)))
    for e in events:
        if e["ph"] in "sf":
            ns = int(e["ts"] * 1000)
            found += not any(a <= ns < max(b, a + 1) for a, b in spans[e["pid"], e["tid"]])
    return found


LOSS = dl.nn.SoftmaxCrossEntropy()
STRATEGIES = {
    "small buckets": lambda *args: dl.DataParallel(*args, cap_bytes=4000),
    "zero 3": lambda *args: dl.ZeRO(*args, stage=3),
    "pipeline": lambda *args: dl.Pipeline(*args, shape=(100, 64)),
}


def fitted(comm, name):
    model = dl.nn.MLP((64, 32, 10), seed=3)
    strategy = STRATEGIES[name](comm, model, LOSS, dl.optim.Optimizer(model.params, dl.optim.Momentum(), lr=0.05))
    dl.fit(strategy, dl.data.load("digits"), epochs=1, batch_size=100)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("world", ["sim", pytest.param("engines", marks=[pytest.mark.engines, pytest.mark.nightly])])
def test_perfetto_draws_every_span_and_arrow(name, world, request):
    if world == "sim":
        world = dl.SimWorld(2, dl.Network(20e-6, 1e9), dl.Roofline(peak=20e9))
    else:
        world = request.getfixturevalue("engines")
    world.run(fitted, name)
    events = world.trace.to_chrome()["traceEvents"]
    assert len(world.trace) > 100
    assert dropped(events) == 0
    assert loose(events) == 0
    assert min(e["pid"] for e in events) == 1


@pytest.fixture(scope="module")
def engines():
    with dl.EngineWorld(2) as world:
        yield world


def test_a_lane_has_as_many_threads_as_spans_that_overlap_in_part():
    pairs = [(0, 4), (1, 2), (1, 3), (2, 6), (3, 7), (6, 9), (0.1, 0.3), (0.3, 0.4)]
    events = Trace([Span(0, "comm", "x", float(a), float(b)) for a, b in pairs]).to_chrome()["traceEvents"]
    assert dropped(events) == 0
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["comm", "comm 2", "comm 3"]


@pytest.mark.parametrize(
    "trace",
    [Trace([Span(0, "compute", "f", 0.0, float("inf"))]), Trace([Span(0, "compute", "f", 0.0, 1.0, float("nan"))]),
     Trace([], [Message(0, 1, 8, 0.0, float("inf"))])],
)  # fmt: skip
def test_numbers_that_no_viewer_reads_are_named(trace, tmp_path):
    with pytest.raises(ValueError, match=r"trace: (Span|Message)\(.*(inf|nan).* is not finite, and JSON has no such"):
        trace.save(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


def test_wall_clock_records_even_a_block_that_raises():
    clock = WallClock(rank=3)
    with pytest.raises(ZeroDivisionError), clock.span("work", flops=7):
        1 / 0  # noqa: B018
    (span,) = clock.trace
    assert (span.rank, span.name, span.flops) == (3, "work", 7)
    assert 0 <= span.start <= span.end <= clock.now()
