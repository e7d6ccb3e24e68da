"""Space-time diagrams: what the arrows and crosses say is what the run did."""

import pytest
from matplotlib.figure import Figure

from distlearn.comm import DeadlockError
from distlearn.comm.recorder import Record
from distlearn.sim import SimWorld, explore
from distlearn.viz import plot_spacetime

from ..sim.test_explore import first_come, head_to_head


def drawn(what):
    ax = plot_spacetime(what, ax=Figure().subplots())
    texts = [t.get_text() for t in ax.texts]
    arrows = [(t.xyann, t.xy) for t in ax.texts if not t.get_text()]
    return ax, [text for text in texts if text], arrows


def test_the_other_order_shows_messages_that_cross():
    _, texts, arrows = drawn(explore(first_come, 3))
    assert texts == []
    assert sorted((start[1], end) for start, end in arrows) == [(1, (3, 0)), (2, (2, 0))]


def test_a_deadlock_shows_who_waits():
    for what in (explore(head_to_head, 2), failed(head_to_head, 2)):
        _, texts, arrows = drawn(what)
        assert texts == ["waits for send(dest=1, tag=0) of 24 bytes", "waits for send(dest=0, tag=0) of 24 bytes"]
        assert arrows == []


def failed(fn, size):
    world = SimWorld(size)
    with pytest.raises(DeadlockError):
        world.run(fn)
    assert len(world.undelivered) == 2
    return world


def test_a_run_that_ends_shows_every_message():
    world = SimWorld(4)
    world.run(first_come)
    _, texts, arrows = drawn(world)
    assert (len(texts), len(arrows), world.waiting, world.undelivered) == (0, 3, {}, [])
    assert all(start[0] < end[0] and end[1] == 0 for start, end in arrows)


def test_where_a_rank_raised_only_that_one_is_marked():
    """Rank 2 has not been told yet that its message was received, but nothing holds it up."""

    def wants_1(comm):
        if comm.rank == 0:
            assert comm.recv_obj() == 1
            comm.recv_obj()
        else:
            comm.send_obj(comm.rank, 0)

    _, texts, _ = drawn(explore(wants_1, 3))
    assert texts == ["raises AssertionError"]


def test_records_show_who_waits_in_which_call_and_where_the_missing_rank_was():
    def skips(comm):
        for step in range(12):
            if comm.rank != 1 or step < 11:
                comm.barrier()

    world = SimWorld(3)
    with pytest.raises(DeadlockError):
        world.run(skips)
    ax = plot_spacetime(world.records | {3: []}, title="A barrier that one rank does not reach")
    told = [text.get_text() for text in ax.texts]
    waits = "waits in barrier, number 12"
    assert told == [waits, "last seen in barrier, number 11", waits, "nothing is known"]
    joined = [line for line in ax.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
    assert {tuple(line.get_ydata()) for line in joined if line.get_xdata()[0] == 9} == {(0, 2)}
    assert sum(line.get_marker() == "X" for line in ax.lines) == 2


@pytest.mark.timeout(60)
def test_records_of_calls_in_different_orders_are_drawn():
    """Non-blocking calls of two groups need not come in one order on all ranks."""
    a, b = Record((0, 1), 1, "all_reduce()"), Record((1, 0), 1, "all_reduce()")
    ax = plot_spacetime({0: [a, b], 1: [b, a]}, title="Two orders")
    assert [text.get_text() for text in ax.texts] == ["last seen in all_reduce, number 1"] * 2
