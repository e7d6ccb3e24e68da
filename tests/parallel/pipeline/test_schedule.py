"""Schedules: what the generators give, what text means, what the checker finds, how long they take."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.parallel.pipeline.schedule import (
    Action,
    actions_of,
    check_schedule,
    format,
    gpipe,
    ideal_bubble,
    interleaved,
    make_schedule,
    measured_bubble,
    one_f_one_b,
    parse,
    simulate,
)
from distlearn.parallel.pipeline.schedule.check import needs
from distlearn.trace import Span, Trace

sizes = st.integers(1, 7)
names = st.sampled_from(["gpipe", "1f1b", "pipedream"])


# -- text ------------------------------------------------------------------------------------------------------------
@given(
    name=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble"]), p=st.integers(1, 5), groups=st.integers(1, 3)
)
@settings(max_examples=30)
def test_a_whole_schedule_reads_back(name, p, groups):
    made = make_schedule(name, p, p * groups)
    assert make_schedule(made.text) == make_schedule(made.text.lower().replace(" ", ", ")) == made
    assert parse(format(made.orders[-1])) == list(made.orders[-1])
    assert make_schedule(made.text.splitlines()) == made
    assert make_schedule(made) is made


def test_texts_may_have_labels_comments_and_idle_words():
    text = """
        # two stages
        rank 0: F0 F1 . .. B0 B1   # and so on
        1:      -- F0, B0, F1, B1
    """
    assert make_schedule(text) == make_schedule(["F0 F1 B0 B1", "F0 B0 F1 B1"])


def test_an_action_may_be_written_in_three_ways():
    mixed = [["F0", ("B", 0)], [Action("F", 0), Action("B", np.int64(0), 1)]]
    assert make_schedule(mixed) == make_schedule("gpipe", 2, 1)
    assert make_schedule("F0 B0\nF0 B0") == make_schedule("0F0 0B0\n1F0 1B0")


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        ("F0 X1 B0", {}, "line of rank 0: parse: word 1 is 'X1', expected an action such as F0"),
        ("F0 B0\nF-1 B0", {}, "line of rank 1: parse: word 0 is 'F-1'"),
        ("1f1d", {}, "schedules with a name: gpipe, 1f1b, interleaved, zero_bubble, pipedream"),
        ("# nothing", {}, "no actions in '# nothing', expected a line for each rank"),
        ([], {}, "the schedule is empty"),
        ([["F0", 3]], {}, "rank 0, position 1: 3 is not an action"),
        ([[("F", -1)]], {}, "rank 0, position 0: ('F', -1) is not an action"),
        ([["F0 B0"]], {}, "'F0 B0' is not an action"),
        ("gpipe", {}, "needs to know n_ranks and n_microbatches"),
        ("gpipe", {"n_ranks": 2, "n_microbatches": 2.5}, "n_microbatches is 2.5, expected a whole number of 1 or more"),
        ("rank 1: F0 B0\nrank 0: F0 B0", {}, "line of rank 0: it says 'rank 1:', expected ranks in order from 0"),
        ("F0 B0", {"n_ranks": 2}, "the schedule's number of ranks is 1, expected 2"),
        (make_schedule("F0 B0"), {"n_microbatches": 2}, "the schedule's number of micro-batches is 1, expected 2"),
        (lambda rank, p, m: iter(lambda: "F0", None), {"n_ranks": 1, "n_microbatches": 1}, "does it end?"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(schedule, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_schedule(schedule, **options)


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        (None, {}, "None is not a schedule, expected a name, text"),
        (["F0 B0", 3], {}, "rank 1: 3 is not a list of actions, expected for example ['F0', 'B0']"),
        (lambda rank, p, m: None, {"n_ranks": 1, "n_microbatches": 1}, "rank 0: None is not a list of actions"),
        ("F0 B0", {"foward": 2}, "foward are for a generator, but this schedule is written out"),
    ],
)
def test_what_is_no_schedule_at_all_is_refused(schedule, options, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        make_schedule(schedule, **options)


def test_a_generator_may_return_a_text():
    want = make_schedule("gpipe", 2, 3)
    assert make_schedule(lambda rank, p, m: format(gpipe(rank, p, m)), 2, 3) == want


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: list(gpipe(2, 2, 1)), "gpipe: stage is 2, expected 0 to 1"),
        (lambda: list(one_f_one_b(0, 2, 0)), "one_f_one_b: n_microbatches is 0"),
        (lambda: list(interleaved(0, 2, 3)), "n_microbatches is 3, expected a multiple of the 2 ranks"),
        (lambda: list(interleaved(0, 2, 2, 0)), "n_virtual is 0"),
        (lambda: ideal_bubble(0, 4), "ideal_bubble: n_ranks is 0, expected a whole number of 1 or more"),
    ],
)
def test_generators_say_what_they_need(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


# -- the schedules of the literature -----------------------------------------------------------------------------------
def test_the_schedules_of_the_papers():
    """Figures 3 and 4 of Narayanan et al. (2021): four ranks, eight micro-batches."""
    assert format(gpipe(3, 4, 8)) == "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"
    assert format(one_f_one_b(0, 4, 8)) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert format(one_f_one_b(3, 4, 8)) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"
    assert format(interleaved(0, 4, 8)) == (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 "
        "0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    )
    assert format(interleaved(3, 4, 8)) == (
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 "
        "7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"
    )


@given(name=names, p=sizes, m=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_generated_schedules_are_right_and_have_the_papers_bubble(name, p, m):
    report = check_schedule(name, p, m)
    assert report.ok, str(report)
    bound = [m] * p if name == "gpipe" else [min(p - stage, m) for stage in range(p)]
    assert report.in_flight == bound
    run = simulate(name, p, m)
    assert run.makespan == pytest.approx(3 * (m + p - 1))
    assert run.bubbles == pytest.approx([ideal_bubble(p, m)] * p)
    assert ideal_bubble(p, m) == pytest.approx((p - 1) / (m + p - 1))


@given(p=st.integers(1, 5), groups=st.integers(1, 3), v=st.integers(1, 3), ratio=st.floats(0.1, 10))
@settings(max_examples=60, deadline=None)
def test_interleaving_divides_the_bubble(p, groups, v, ratio):
    m = p * groups
    assert check_schedule(interleaved, p, m, n_virtual=v).ok
    run = simulate(interleaved, p, m, n_virtual=v, backward=ratio)
    assert run.bubbles == pytest.approx([(p - 1) / (v * m + p - 1)] * p)
    for rank in range(p):  # in stages' activations; a rank's share of the model is v of them
        assert run.in_flight[rank] == min(2 * (p - rank - 1) + (v - 1) * p + 1, v * m)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 4), (8, 24)])
def test_the_bubble_is_a_third_of_1f1bs(p, m):
    """With forward and both halves equally long: makespans less the work of a rank, 3 m."""
    one, zero = simulate("1f1b", p, m), simulate("zero_bubble", p, m)
    assert one.makespan - 3 * m == pytest.approx(3 * (p - 1))
    assert zero.makespan - 3 * m == pytest.approx(p - 1)
    assert max(zero.in_flight) <= max(one.in_flight) == min(p, m)


@pytest.mark.parametrize(
    ("name", "options"), [("gpipe", {}), ("1f1b", {}), ("interleaved", {"n_virtual": 2}), ("zero_bubble", {})]
)
def test_csv_is_pytorchs(name, options):
    made = make_schedule(name, 4, 8, **options)
    assert make_schedule(made.csv) == made
    schedules = pytest.importorskip(
        "torch.distributed.pipelining.schedules", reason="the peer is an extra: pip install -e '.[bench]'"
    )
    rows = {
        rank: [schedules._Action.from_str(cell) for cell in row.split(",")]
        for rank, row in enumerate(made.csv.splitlines())
    }
    stages = {stage: made.rank_of(stage) for stage in range(made.n_stages)}
    assert all(stages[a.stage_index] == rank for rank, row in rows.items() for a in row)
    schedules._validate_schedule(rows, 4, made.n_stages, 8)  # raises if it is not one that PyTorch runs


def test_an_empty_cell_of_a_csv_file_is_idle_time():
    made = make_schedule("0F0,,0I0,0W0\n,1F0,1B0,")
    assert made.orders == (
        (Action("F", 0, 0), Action("I", 0, 0), Action("W", 0, 0)),
        (Action("F", 0, 1), Action("B", 0, 1)),
    )


# -- the checker -------------------------------------------------------------------------------------------------------
WRONG = {
    "backward before forward": (
        "F0 F1 B0 B1\nB0 F0 F1 B1",
        "order",
        "rank 1, position 0 (B0): backward before forward, F0 is at position 1; broken: 1F0 -> 1B0",
    ),
    "missing": ("F0 F1 B0 B1\nF0 B0 F1", "missing", "rank 1, stage 1: B1 missing"),
    "many missing": (["F9"], "missing", "F0, F1, F2, F3, F4, F5 and 3 more missing"),
    "a rank without actions": (["F0 B0", ""], "missing", "rank 1, stage 1: F0 missing"),
    "a rank whose stage another one has": (
        ["0F0 1F0 1B0 0B0", ""],
        "placement",
        "rank 1 has no actions, and stage 1 is on rank 0",
    ),
    "a label without actions": ("rank 0: F0 B0\nrank 1:\nrank 2: F0 B0", "missing", "rank 1, stage 1: F0 missing"),
    "a stage of nine digits": ("F0 B0\n123456789F0 123456789B0", "placement", "stages 1 to 123456788 are on no rank"),
    "a micro-batch of nine": ("F123456789", "missing", "F0, F1, F2, F3, F4, F5 and 123456783 more missing"),
    "twice": ("F0 F0 B0\nF0 B0", "twice", "rank 0, position 1 (F0): is already at position 0"),
    "in one and in halves": (
        "F0 B0 I0 W0\nF0 B0",
        "twice",
        "rank 0, position 1 (B0): backward in one, beside one of its halves, I0 at position 2",
    ),
    "half of a backward": ("F0 I0", "missing", "W0 missing"),
    "the other half": ("F0 W0", "missing", "I0 missing"),
    "halves the wrong way round": (
        "F0 W0 I0",
        "order",
        "the weights' gradient before the input's, I0 is at position 2",
    ),
    "a half before forward": ("I0 F0 W0", "order", "backward before forward"),
    "a half twice": ("F0 I0 W0 W0", "twice", "is already at position 2"),
    "in one and one half": ("F0 I0 W0 F1 W1 B1", "twice", "(B1): backward in one, beside one of its halves, W1 at"),
    "on two ranks": ("0F0 0B0\n0F0 0B0", "placement", "stage 0 is on ranks 0, 1, expected it on one"),
    "on no rank": ("0F0 0B0\n2F0 2B0", "placement", "stage 1 is on no rank, expected it on one"),
    "they wait for each other": (
        "F0 B0 F1 B1\nF0 F1 B0 B1",
        "deadlock",
        "deadlock: rank 0 at position 1 (B0) waits for B0, which is rank 1's position 2, behind F1; "
        "rank 1 at position 1 (F1) waits for F1, which is rank 0's position 2, behind B0; "
        "broken: 1B0 -> 0B0, 0F1 -> 1F1",
    ),
    "a rank waits for itself": (
        "0F0 0B0 1F0 1B0",
        "deadlock",
        "deadlock: rank 0 at position 1 (0B0) waits for 1B0, which is its own position 3, behind 0B0",
    ),
    "two wait, a third waits for them": (
        "F0 F1 B1 B0\nF0 B0 F1 B1\nF0 F1 B0 B1",
        "deadlock",
        "deadlock: rank 1 at position 1 (B0) waits for B0, which is rank 2's position 2, behind F1; "
        "rank 2 at position 1 (F1) waits for F1, which is rank 1's position 2, behind B0; "
        "broken: 2B0 -> 1B0, 1F1 -> 2F1",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place(what):
    schedule, problem, message = WRONG[what]
    report = check_schedule(schedule)
    assert not report.ok
    assert problem in {f.problem for f in report.findings}
    assert message in str(report)
    with pytest.raises(ValueError, match=re.escape(message)):
        report.require()
    with pytest.raises(ValueError, match="wrong schedule"):
        simulate(schedule)


def test_a_finding_says_where():
    (finding,) = check_schedule("F0 F1 B0 B1\nF0 B1 F1 B0").findings
    assert (finding.rank, finding.position, finding.action) == (1, 1, Action("B", 1, 1))
    report = check_schedule("F0 F3 B0\nF0 B0", n_microbatches=1)
    assert "rank 0, position 1 (F3): there are micro-batches 0 to 0" in str(report)


@st.composite
def shuffled(draw):
    """Orders in which every micro-batch goes forward before it goes backward, and nothing else is sure."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    orders = []
    for _ in range(p):
        order = draw(st.permutations([Action(kind, i) for i in range(m) for kind in "FB"]))
        for i in range(m):  # swap where backward came first
            a, b = order.index(Action("F", i)), order.index(Action("B", i))
            if b < a:
                order[a], order[b] = order[b], order[a]
        orders.append(order)
    return orders


@given(data=st.data(), name=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble"]), p=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_any_costs_are_simulated_as_the_longest_path(data, name, p):
    """Against a relaxation over all dependencies and all neighbours in an order, which knows nothing of queues."""
    made = make_schedule(name, p, 2 * p)
    forward, backward = (
        data.draw(st.lists(st.integers(1, 9), min_size=made.n_stages, max_size=made.n_stages)) for _ in range(2)
    )
    transfer = data.draw(st.integers(0, 3))
    seconds = {"F": lambda s: forward[s], "B": lambda s: backward[s]}
    seconds |= {"I": lambda s: backward[s] / 2, "W": lambda s: backward[s] / 2}
    actions = [a for order in made.orders for a in order]
    before = {
        a: [(b, transfer * (made.rank_of(b.stage) != made.rank_of(a.stage))) for b in needs(made, a)] for a in actions
    }
    for first, second in (pair for order in made.orders for pair in pairwise(order)):
        before[second].append((first, 0))
    end = dict.fromkeys(actions, 0.0)
    for _ in actions:
        for a in actions:
            end[a] = seconds[a.kind](a.stage) + max((end[b] + late for b, late in before[a]), default=0.0)
    run = simulate(made, forward=forward, backward=backward, transfer=transfer)
    assert run.makespan == pytest.approx(max(end.values()))


@given(shuffled())
@settings(max_examples=150, deadline=None)
def test_the_checker_agrees_with_a_search_for_a_circle(orders):
    """Some order of all actions exists if and only if "must come after" has no circle."""
    made = make_schedule(orders)
    after = {}
    for order in made.orders:
        for a, b in pairwise(order):
            after.setdefault(b, []).append(a)
        for kind, i, stage in order:
            if kind == "F" and stage:
                after.setdefault(Action("F", i, stage), []).append(Action("F", i, stage - 1))
            if kind == "B" and stage + 1 < made.n_stages:
                after.setdefault(Action("B", i, stage), []).append(Action("B", i, stage + 1))
    left = {a for order in made.orders for a in order}
    while ready := {a for a in left if not any(b in left for b in after.get(a, ()))}:
        left -= ready
    report = check_schedule(made)
    assert report.ok == (not left), str(report)
    if left:
        (finding,) = report.findings
        assert finding.action in left


# -- times -------------------------------------------------------------------------------------------------------------
def test_a_trace_has_a_span_for_every_action_and_a_message_for_every_array():
    run = simulate("1f1b", 2, 2, forward=1, backward=2, transfer=0.5)
    spans = {(s.rank, s.name): (s.start, s.end) for s in run.trace}
    assert spans[0, "F[0]"] == (0, 1)
    assert spans[1, "F[0]"] == (1.5, 2.5)
    assert spans[1, "B[0]"] == (2.5, 4.5)
    assert spans[0, "B[0]"] == (5, 7)
    assert len(spans) == 8
    assert sorted((m.source, m.dest, m.sent, m.arrived) for m in run.trace.messages)[0] == (0, 1, 1, 1.5)
    assert len(run.trace.messages) == 4
    assert run.trace.makespan == run.makespan == 10
    assert str(run) == "makespan 10 s, bubble 40.0% (by rank: 40.0%, 40.0%)"


def test_a_trace_is_read_back():
    run = simulate("interleaved", 2, 4, transfer=0.5)
    actions = actions_of(run.trace)
    assert len(actions) == 2 * 2 * 2 * 4
    for rank in range(2):
        mine = sorted((a for a in actions if a.rank == rank), key=lambda a: a.start)
        assert tuple(a.action for a in mine) == run.schedule.orders[rank]
    assert measured_bubble(run.trace) == pytest.approx(run.bubble)
    late = Trace([s._replace(start=s.start + 7, end=s.end + 7) for s in run.trace])
    assert measured_bubble(late) == pytest.approx(run.bubble)
    with pytest.raises(ValueError, match="no action of a pipeline"):
        measured_bubble(Trace([Span(0, "compute", "F[0]", 0, 1)]))


def test_a_deadlock_can_be_simulated_as_far_as_it_goes():
    run = simulate("F0 B0 F1 B1\nF0 F1 B0 B1", allow_deadlock=True)
    assert [w.rank for w in run.deadlock.waiting] == [0, 1]
    assert run.deadlock.cycle == [0, 1]
    assert (run.makespan, run.busy) == (2, [1, 1])
    assert str(run).startswith("deadlock after 2 s: rank 0 at position 1 (B0) waits for B0")
    nothing = simulate(["B0 F0"], allow_deadlock=True)
    assert (nothing.makespan, nothing.bubble) == (0, 0)
    assert simulate("gpipe", 2, 2, allow_deadlock=True).deadlock is None
    with pytest.raises(ValueError, match="missing"):
        simulate("F0 B0\nF0", allow_deadlock=True)


def test_stages_may_cost_what_they_like():
    run = simulate("gpipe", 3, 5, forward=[1, 3, 2], backward=[2, 6, 4])
    assert run.busy == [15, 45, 30]
    assert run.makespan == 45 + 1 + 2 + 2 + 4  # the slowest never waits but for the first and the last
    assert run.bubbles == pytest.approx([1 - 15 / 54, 1 - 45 / 54, 1 - 30 / 54])
    named = simulate("interleaved", 2, 2, forward=[1, 1, 1, 1], backward=[1, 1, 1, 1])
    assert {s.name for s in named.trace if s.rank == 1} == {
        f"{kind}[{i} of stage {s}]" for kind in "FB" for i in range(2) for s in (1, 3)
    }


@pytest.mark.parametrize("options", [{"forward": [1, 1, 1]}, {"forward": 0}, {"backward": [-1, 1]}, {"transfer": -1}])
def test_costs_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="simulate: "):
        simulate("gpipe", 2, 2, **options)
