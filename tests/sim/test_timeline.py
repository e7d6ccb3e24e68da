"""A lane of collectives: no two at a time, and none later than it must be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.comm import Network
from distlearn.sim import Roofline, SimWorld
from distlearn.sim.scheduler import CommTimeline, first_common


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=20))
def test_the_earliest_room(jobs):
    lane, taken = CommTimeline(), set()
    for start, length in jobs:
        found = lane.next_free(float(start), float(length))
        want = start
        while any(second in taken for second in range(want, want + length)):
            want += 1
        if length:
            assert found == want
            assert lane.last_end(found) == max((s + 1 for s in taken if s < found), default=0)
        lane.take(found, found + length)
        taken |= set(range(want, want + length))


def test_all_lanes_must_have_room():
    lanes = [CommTimeline(), CommTimeline()]
    lanes[0].take(1.0, 2.0)
    lanes[1].take(3.0, 4.0)
    assert first_common(lanes, 0.5, 0.5) == 0.5
    assert first_common(lanes, 0.5, 1.0) == 2.0
    assert first_common(lanes, 0.5, 1.5) == 4.0


def program(comm):
    """An all-reduce along one axis goes on while ranks compute; then one along the other."""
    a, b = comm.split(comm.rank % 2), comm.split(comm.rank // 2)
    comm.barrier()
    began = comm.clock.now()
    work = a.iall_reduce(np.zeros(1000, np.uint8))
    with comm.clock.span("think", flops=1):
        pass
    b.all_reduce(np.zeros(2, np.uint8))
    work.wait()
    return comm.clock.now() - began


def test_ranks_that_run_ahead_in_virtual_time_delay_nobody():
    """The collective begun first is carried first on all ranks, though its last rank joins when others have gone on."""
    world = SimWorld(4, Network(0.0, 100.0), Roofline(1.0))
    first, second = 1000 / 100, 2 / 100  # on two ranks a ring sends n bytes in all
    assert world.run(program) == pytest.approx([first + second] * 4)
