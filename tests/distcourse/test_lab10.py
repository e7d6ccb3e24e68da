"""The puzzles of lab 10 can be solved as well as they say, and nothing else counts as a solution; the studies hold."""

import numpy as np
import pytest
from distcourse import lab10

from distlearn.parallel.pipeline.schedule import make_schedule, simulate

from ..course.submissions import answered

SOLUTIONS = answered("lab10", "halved")
ANSWERS = "half_the_memory", "slow_links", "uneven_stages", "less_of_both"
BEST = {number: SOLUTIONS[name]() for number, name in enumerate(ANSWERS, 1)}


@pytest.mark.parametrize("number", lab10.PUZZLES)
def test_the_best_time_is_reached_and_no_target_is_below_it(number):
    found = lab10.score(lab10.PUZZLES[number], BEST[number])
    assert found.ok
    assert found.points == 100
    assert found.run.makespan == lab10.PUZZLES[number].best <= lab10.PUZZLES[number].target
    assert f"best {lab10.PUZZLES[number].best}" in str(found)


@pytest.mark.parametrize("number", lab10.PUZZLES)
def test_pytorch_loads_the_file_of_a_solution(number, tmp_path):
    """Its runtime reads the CSV, validates it, and finds sends and receives for it; no process group is needed."""
    schedules = pytest.importorskip(
        "torch.distributed.pipelining.schedules", reason="the peer is an extra: pip install -e '.[bench]'"
    )
    made = make_schedule(BEST[number])
    path = tmp_path / "schedule.csv"
    path.write_text(made.csv, encoding="utf-8")
    runtime = object.__new__(schedules._PipelineScheduleRuntime)
    runtime.pipeline_order, runtime._stages, runtime._defer_pp_recv = {}, [], False
    runtime.pp_group_size, runtime._num_stages, runtime._n_microbatches = (
        made.n_ranks,
        made.n_stages,
        made.n_microbatches,
    )
    runtime._load_csv(path)
    assert [" ".join(map(str, row)) for row in runtime.pipeline_order.values()] == [
        " ".join(map(str, order)) for order in made.orders
    ]
    assert runtime.stage_index_to_group_rank == {s: made.rank_of(s) for s in range(made.n_stages)}
    assert all(runtime.pipeline_order_with_comms.values())


def test_1f1b_misses_the_targets():
    """What it takes and holds is computed by the lab's claims."""
    assert (lab10.PUZZLES[2].target < 34, lab10.PUZZLES[4].target < 36, max(lab10.PUZZLES[4].room) < 6) == (True,) * 3


@pytest.mark.parametrize("cut", [lambda s: int(s > 0), lambda s: int(s > 1)])
def test_a_cut_of_uneven_stages_into_neighbours_misses_the_target(cut):
    puzzle = lab10.PUZZLES[3]
    rows = [[], []]
    for i in range(puzzle.n_microbatches):  # one micro-batch after another is slow; a bound holds for any order
        for kind, stages in (("F", (0, 1, 2)), ("B", (2, 1, 0))):
            for s in stages:
                rows[cut(s)].append(f"{s}{kind}{i}")
    busy = lab10.score(puzzle, [" ".join(row) for row in rows]).run.busy
    assert max(busy) > puzzle.target


@pytest.mark.parametrize(
    ("number", "schedule", "problem"),
    [
        (1, "gpipe", "rank 2 holds 4 activations, there is room for 1"),
        (1, BEST[1].replace("B1 F3", "F3 B1"), "rank 1 holds 3 activations, there is room for 2"),
        (1, BEST[1].replace("F0 B0 F1 B1 F2", "F0 B0 B1 F1 F2"), "backward before forward"),
        (1, "\n".join("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3" for _ in range(3)), "backward is one action, B"),
        (3, "1f1b", "it has 2 stages, expected 3"),
        (4, BEST[4].replace(" 0W3", "", 1), "rank 0, stage 0: 0W3 missing"),
    ],
)
def test_what_breaks_a_rule_is_no_solution(number, schedule, problem):
    found = lab10.score(lab10.PUZZLES[number], schedule)
    assert not found.ok
    assert found.points == 0
    assert any(problem in p for p in found.problems)


def test_ranks_may_not_be_exchanged_where_stages_are_placed():
    puzzle = lab10.PUZZLES[1]
    rows = [" ".join(map(str, order)) for order in make_schedule(BEST[1]).orders]
    assert lab10.score(puzzle, rows).ok
    assert "rank r has stage r" in str(lab10.score(puzzle, rows[::-1]))


def test_a_deadlock_is_simulated_as_far_as_it_goes():
    stuck = lab10.score(lab10.PUZZLES[1], "F0 B0 F1 B1 F2 B2 F3 B3\nF0 F1 B0 B1 F2 B2 F3 B3\nF0 B0 F1 B1 F2 B2 F3 B3")
    assert stuck.run.deadlock is not None
    assert "broken: 1B0 -> 0B0, 0F1 -> 1F1" in str(stuck)


def test_what_is_no_solution_of_a_puzzle_is_said():
    for number, text, said in (
        (
            2,
            str(make_schedule("1f1b", 3, 6)),
            "the target is 29; rank 0 waits longest after F2: 8 for B0 of rank 1",
        ),
        (1, None, "a NoneType, not a text with one line per rank"),
        (1, "1f1b", "'1f1b' is the name of a schedule of the library"),
        (4, BEST[4].replace("0F2 0I0 0W0", "0F2 0B0 0I0 0W0"), "backward in one, beside one of its halves"),
        (1, "F0 B0", "number of ranks"),
        (1, "hello", "expected an action such as"),
    ):
        assert said in lab10._solved(number, text, 1)[f"puzzle {number}"]


def test_solutions_train_as_serial_training_does():
    for made in map(make_schedule, BEST.values()):
        forward = [f"{s}F0" for s in range(made.n_stages)]
        serial = make_schedule(" ".join([*forward, *(f.replace("F", "B") for f in reversed(forward))]))
        np.testing.assert_allclose(lab10.losses_by(made, 1), lab10.losses_by(serial, 1), rtol=1e-9)


@pytest.mark.parametrize(("p", "m", "v"), [(3, 4, 1), (4, 8, 2), (5, 10, 3), (1, 7, 1)])
def test_the_formulas_of_the_solution_are_the_simulators(p, m, v):
    name, more = ("interleaved", {"n_virtual": v}) if v > 1 else ("1f1b", {})
    run = simulate(name, p, m, forward=0.3, backward=1.1, **more)
    assert SOLUTIONS["predicted"](p, m, v, 0.3, 1.1) == pytest.approx((run.makespan, run.bubble))
    assert SOLUTIONS["held_by_1f1b"](p, m) == simulate("1f1b", p, m).in_flight
