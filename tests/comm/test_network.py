"""The network model: what a message costs between whom, who waits for whom, and what luck does."""

import numpy as np
import pytest

from distlearn.comm import HierarchicalNetwork, Network
from distlearn.sim import SimWorld

FAST, SLOW = Network(1e-6, 1e9), Network(1e-4, 1e7)
NODES = HierarchicalNetwork(FAST, SLOW, ranks_per_node=2)


def arrivals(network, size, sends, nbytes=1000):
    """When the messages (source, dest) arrive that all leave at 0, in the order in which they are given."""

    def program(comm):
        works = [comm.isend(np.zeros(nbytes, "u1"), d, i) for i, (s, d) in enumerate(sends) if s == comm.rank]
        works += [comm.irecv(np.zeros(nbytes, "u1"), s, i) for i, (s, d) in enumerate(sends) if d == comm.rank]
        for work in works:
            work.wait()

    world = SimWorld(size, network)
    world.run(program)
    found = {(m.source, m.dest): m.arrived for m in world.trace.messages}
    return [found[send] for send in sends]


def test_many_senders_to_one_rank_share_its_card():
    star = [(1, 0), (2, 0), (3, 0)]
    one, wire = SLOW.message(1000), 1000 / SLOW.beta
    assert arrivals(SLOW, 4, star) == pytest.approx([one, one, one])
    ports = Network(SLOW.alpha, SLOW.beta, contention="ports")
    assert arrivals(ports, 4, star) == pytest.approx([one, one + wire, one + 2 * wire])
    assert arrivals(ports, 4, [(0, 1), (1, 2), (2, 0)]) == pytest.approx([one] * 3)  # both directions at once


def test_a_shared_card_serves_in_the_order_of_time():
    """A rank that computes long posts its message late, though the simulator runs it first."""

    def program(comm):
        if comm.rank < 2:
            with comm.clock.span("compute", flops=1.0 if comm.rank == 0 else 0.0):
                pass
            comm.send(np.zeros(1000, "u1"), 2)
            return comm.clock.now()
        comm.recv(np.zeros(1000, "u1"), 1)
        comm.recv(np.zeros(1000, "u1"), 0)

    class Second:
        measures = False

        def seconds(self, flops, nbytes, wall):
            return flops

    ends = SimWorld(3, Network(SLOW.alpha, SLOW.beta, contention="ports"), Second()).run(program)
    assert ends[:2] == pytest.approx([1 + SLOW.message(1000), SLOW.message(1000)])


def test_messages_inside_a_node_are_faster():
    assert arrivals(NODES, 4, [(0, 1), (1, 2), (2, 3), (3, 0)]) == pytest.approx(
        [FAST.message(1000), SLOW.message(1000), FAST.message(1000), SLOW.message(1000)]
    )


def test_every_rank_of_a_node_has_its_own_card():
    assert arrivals(NODES, 4, [(0, 2), (1, 3)]) == pytest.approx([SLOW.message(1000)] * 2)


def test_native_collectives_know_who_sits_where():
    def program(comm):
        part = comm.split(comm.rank // 2)  # the two ranks of a node
        began = comm.clock.now()
        part.all_reduce(np.ones(1000))
        middle = comm.clock.now()
        comm.split(comm.rank % 2).all_reduce(np.ones(1000))  # one rank of each node
        return began, middle

    world = SimWorld(4, NODES)
    world.run(program)
    inside, between = (s for s in world.trace.select(rank=0, name="all_reduce"))

    def seconds(network, name, n, size):
        return network.collective(name, n, range(size))

    assert inside.seconds == pytest.approx(seconds(FAST, "all_reduce", 8000, 2))
    assert between.seconds == pytest.approx(seconds(SLOW, "all_reduce", 8000, 2))
    for name in ("all_reduce", "all_gather", "broadcast", "barrier"):
        assert seconds(NODES, name, 8000, 2) == seconds(FAST, name, 8000, 2)
        assert seconds(NODES, name, 8000, 4) == seconds(SLOW, name, 8000, 4)


def test_the_simple_network_shows_and_compares_as_before():
    for alpha in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a number of 0 or more and finite"):
            Network(alpha, 1e9)
    assert repr(Network(1e-6, 1e9)) == "Network(alpha=1e-06, beta=1000000000.0)"
    assert repr(Network(0.0, 1.0, contention="ports")) == "Network(alpha=0.0, beta=1.0, contention='ports')"
    assert Network(1, 2) == Network(1, 2) != Network(1, 2, contention="ports")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Network(contention="bus"), "contention is 'bus', expected one of sender, ports"),
        (lambda: HierarchicalNetwork(FAST, SLOW, 0), "ranks_per_node is 0"),
    ],
)
def test_bad_parameters_are_named(make, match):
    with pytest.raises(ValueError, match=match):
        make()
