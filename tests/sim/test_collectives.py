"""Collectives of simulated worlds: as messages and by the formula."""

import sys

import numpy as np
import pytest

from distlearn.comm import HierarchicalNetwork, Network, RankError, collectives, ring_all_reduce
from distlearn.sim import Roofline, SimWorld

SLOW = Network(1e-3, 1e6)

CALLS = {
    "all_reduce": lambda c, n: c.all_reduce(np.full(n * c.size, c.rank + 1.0)),
    "reduce_scatter": lambda c, n: c.reduce_scatter(np.full(n * c.size, c.rank + 1.0)),
    "all_gather": lambda c, n: c.all_gather(np.full(n, c.rank + 1.0)),
    "broadcast": lambda c, n: c.broadcast(np.full(n, c.rank + 1.0), c.size - 1),
    "scatter": lambda c, n: c.scatter(np.arange(c.size * n * 1.0).reshape(c.size, n), np.zeros(n), c.size // 2),
    "gather": lambda c, n: c.gather(np.full(n, c.rank + 1.0), c.size // 2),
    "all_to_all": lambda c, n: c.all_to_all(np.full((c.size, n), c.rank + 1.0)),
    "barrier": lambda c, n: c.barrier(),
}


def both(size, program, network=SLOW, **options):
    """The worlds of both kinds after a run, and their results."""
    worlds = [SimWorld(size, network, collectives=kind, **options) for kind in ("messages", "formula")]
    return worlds, [world.run(program) for world in worlds]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 500])
def test_messages_and_formula_give_the_same_numbers_in_the_same_seconds(name, size, n):
    (messages, formula), (found, wanted) = both(size, lambda comm: CALLS[name](comm, n))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)
    if name in ("scatter", "gather") and size & (size - 1):  # the tree of such a size has a branch that ends early
        assert messages.makespan <= formula.makespan
    else:
        assert messages.makespan == pytest.approx(formula.makespan, rel=1e-12)
    assert not formula.trace.messages
    sent = [m.tag for m in messages.trace.messages]
    assert sent == [-1] * len(sent)
    assert bool(sent) == (size > 1)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("size", "ranks_per_node"), [(4, 4), (8, 4), (5, 2)])
def test_collectives_of_nodes_take_what_the_formula_says(name, size, ranks_per_node):
    network = HierarchicalNetwork(Network(1e-5, 1e8), SLOW, ranks_per_node)
    (messages, formula), (found, wanted) = both(size, lambda comm: CALLS[name](comm, 600), network)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)
    if size > ranks_per_node and name in ("broadcast", "scatter", "gather", "all_to_all"):
        assert messages.makespan <= formula.makespan * (1 + 1e-12)  # some of its rounds stay inside nodes
    else:
        assert messages.makespan == pytest.approx(formula.makespan, rel=1e-12)


def test_a_breakpoint_in_the_algorithm_has_the_users_call_below_it(monkeypatch):
    seen = []

    def look(comm, x, op):
        frame, names = sys._getframe(1), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        seen.append("program" in names)
        return ring_all_reduce(comm, x, op)

    monkeypatch.setitem(collectives.ALGORITHMS, "all_reduce", look)

    def program(comm):
        comm.all_reduce(np.ones(3))

    SimWorld(2).run(program)
    assert seen == [True, True]


def test_non_blocking_collectives_go_on_while_the_rank_computes():
    def program(comm):
        work = comm.iall_reduce(np.ones(1000))  # ring of 2: two messages of 1 + 4 ms
        with comm.clock.span("compute", flops=6e6):
            pass
        middle = comm.clock.now()
        work.wait()
        return middle, comm.clock.now()

    (messages, formula), (found, wanted) = both(2, program, compute=Roofline(1e9))
    assert found == wanted == [pytest.approx((6e-3, 10e-3))] * 2
    assert messages.trace.exposed() == pytest.approx(formula.trace.exposed())


def test_several_non_blocking_collectives_run_one_after_another_and_share_the_card():
    def program(comm):
        works = [comm.iall_reduce(np.full(n, comm.rank + 1.0)) for n in (1000, 500, 0, 2000)]
        other = np.zeros(1000)
        comm.send_recv(np.ones(1000), 1 - comm.rank, other, 1 - comm.rank)  # meets the first one at the card
        blocking = comm.all_reduce(np.ones(2))
        return [float(w.wait().sum()) for w in reversed(works)], float(blocking.sum()), float(other.sum())

    (messages, formula), (found, wanted) = both(2, program)
    assert found == wanted == [([6000.0, 0.0, 1500.0, 3000.0], 4.0, 1000.0)] * 2
    assert messages.makespan > formula.makespan  # which has room for the message beside the collective
    again = SimWorld(2, SLOW)
    again.run(program)
    assert again.trace == messages.trace


def test_collectives_of_different_communicators_overlap_in_any_order():
    def program(comm):
        a, b = comm.split(0), comm.split(0)
        first, second = (a, b) if comm.rank else (b, a)
        works = {id(c): c.iall_reduce(np.full(10, comm.rank + 1.0)) for c in (first, second)}
        return [works[id(c)].wait()[0] for c in (a, b)]

    assert SimWorld(3, SLOW).run(program) == [[6.0, 6.0]] * 3


def test_worlds_of_more_than_64_ranks_take_the_formula_unless_asked():
    assert SimWorld(64).collectives == "messages"
    assert SimWorld(65).collectives == "formula"
    world = SimWorld(65, collectives="messages")
    world.run(lambda comm: comm.barrier())
    assert len(world.trace.messages) == 65 * 7
    with pytest.raises(ValueError, match=r"collectives is 'both', expected 'messages' or 'formula'"):
        SimWorld(2, collectives="both")


def test_an_error_in_a_collective_that_is_under_way_names_the_rank():
    def program(comm):
        x = np.ones(3)
        work = comm.iall_reduce(x)
        if comm.rank == 0:
            x[0] = 5.0
        work.wait()

    with pytest.raises(RankError, match=r"rank 0: .*the array given to iall_reduce was changed before wait"):
        SimWorld(2).run(program)
