"""DelayedComm: the contract, and as many seconds as the formulas of the collectives say."""

import numpy as np
import pytest

from distlearn.comm import Network, cost
from distlearn.comm.point_to_point import DelayedComm
from distlearn.sim import SimWorld

from .contract import CONTRACT

NETWORK = Network(1e-3, 1e6)


def delayed(comm, fn, *args):
    return fn(DelayedComm(comm, NETWORK), *args)


@pytest.mark.parametrize("name", CONTRACT)
def test_it_is_a_communicator(name):
    SimWorld(3).run(delayed, CONTRACT[name])


def seconds(comm, call):
    began = comm.clock.now()
    call(comm)
    return comm.clock.now() - began


@pytest.mark.parametrize("p", [2, 3, 4])
def test_an_all_reduce_takes_what_a_ring_takes(p):
    found = SimWorld(p).run(delayed, seconds, lambda comm: comm.all_reduce(np.zeros(12_000)))
    assert found == pytest.approx([cost.seconds("ring", 96_000, p, NETWORK)] * p)


def test_a_message_takes_alpha_and_its_bytes():
    def there(comm):
        x = np.zeros(5000, np.uint8)
        comm.send(x, 1) if comm.rank == 0 else comm.recv(x, 0)

    assert SimWorld(2).run(delayed, seconds, there) == pytest.approx([6e-3] * 2)


@pytest.mark.parametrize("call", ["send", "isend", "send_recv"])
def test_the_delay_is_communication_on_the_time_line(call):
    def program(comm):
        out, x = np.empty(5000, np.uint8), np.zeros(5000, np.uint8)
        if call == "send_recv":
            comm.send_recv(x, 1 - comm.rank, out, 1 - comm.rank)
        elif comm.rank == 0:
            (comm.send(x, 1) if call == "send" else comm.isend(x, 1).wait())
        else:
            comm.recv(out, 0)

    world = SimWorld(2)
    world.run(delayed, program)
    assert world.trace.exposed(0) == pytest.approx(6e-3)
    assert sum(s.nbytes for s in world.trace.select(rank=0)) == (5000 if call == "send_recv" else 0), "counted once"


def test_tags_of_the_caller_stay_below_those_of_collectives():
    with pytest.raises(Exception, match="tag"):
        SimWorld(2).run(delayed, lambda comm: comm.send(np.zeros(1), 1 - comm.rank, tag=(1 << 20) - 1))
