"""Backward in halves: a third of the bubble, the same work, and PyTorch's format."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.data import Batch
from distlearn.optim import Momentum
from distlearn.parallel import Pipeline
from distlearn.parallel.pipeline.schedule import Action, make_schedule, simulate
from distlearn.sim import Roofline, SimWorld

from ..programs import parts


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 4), (8, 24)])
def test_the_bubble_is_a_third_of_1f1bs(p, m):
    """With forward and both halves equally long: makespans less the work of a rank, 3 m."""
    one, zero = simulate("1f1b", p, m), simulate("zero_bubble", p, m)
    assert one.makespan - 3 * m == pytest.approx(3 * (p - 1))
    assert zero.makespan - 3 * m == pytest.approx(p - 1)
    assert max(zero.in_flight) <= max(one.in_flight) == min(p, m)


def test_halves_cost_what_backward_costs():
    x = np.zeros((4, 8), np.float32)

    def seconds(schedule):
        world = SimWorld(1, compute=Roofline(peak=1e9))

        def program(comm):
            net = nn.Sequential(nn.Linear(8, 5, 0), nn.Tanh(), nn.Linear(5, 3, 1))
            strategy = Pipeline(comm, *parts(net, Momentum()), schedule=schedule)
            strategy.step(Batch(x, np.zeros(4, int), 4))

        world.run(program)
        return world.makespan, [s.name for s in world.trace.select(rank=0, lane="compute")]

    whole, names = seconds("F0 B0")
    halves, split = seconds("F0 I0 W0")
    assert halves == pytest.approx(whole)
    assert "backward_weights[0.Linear]" in split
    assert "backward_weights[0.Linear]" not in names


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
