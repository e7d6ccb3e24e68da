"""Engines on two hosts, each with a network of its own: training across them, and what a pulled cable does."""

import time

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.sim import SimWorld
from distlearn.train import train
from distlearn.world import EngineWorld, Hosts, reaper
from distlearn.world.launching import find_mpiexec, is_hydra

from ..parallel.programs import assert_same_params
from . import netns
from .conftest import living
from .test_same_training import FAST


def is_mpich() -> bool:
    try:
        return is_hydra(find_mpiexec())
    except RuntimeError:
        return False


def test_ranks_are_assigned_to_hosts_in_blocks(monkeypatch):
    hosts = Hosts(["node1", "node2", "node3"], here="head")
    assert hosts.share(8) == [3, 3, 2]
    assert hosts.mpiexec_arguments(4)[-1] == "node1:2,node2:1,node3:1"
    assert hosts.rsh == "ssh"
    with pytest.raises(ValueError, match="2 engines for 3 hosts"):
        hosts.share(2)
    with pytest.raises(ValueError, match="expected a list"):
        Hosts("node1", here="head")
    monkeypatch.setattr("distlearn.world.cluster.is_hydra", lambda mpiexec: False)
    with pytest.raises(ValueError, match="need MPICH's mpiexec"):
        EngineWorld(3, hosts=hosts)


@pytest.fixture(scope="module")
def net():
    if reason := netns.why_not():
        pytest.skip(f"needs network namespaces: {reason}")
    with netns.Net(2) as net:
        yield net


def net_pids(net):
    return living([pid for host in net.hosts for pid in net.pids(host)])


def where_am_i(comm):
    """The name of the host, and nothing sent."""
    import platform

    return platform.node()


def seconds_of_a_message(comm):
    """Send 3 MB from the first host to the second, and wait for the answer: the whole way lies in between."""
    x, answer = np.ones(3_000_000, np.uint8), np.zeros(1)
    comm.barrier()
    began = comm.clock.now()
    if comm.rank == 0:
        comm.send(x, 3)
        comm.recv(answer, 3)
    elif comm.rank == 3:
        comm.recv(x, 0)
        comm.send(answer, 0)
    return comm.clock.now() - began


@pytest.mark.nightly
@pytest.mark.mpi
@pytest.mark.engines
@pytest.mark.skipif(not is_mpich(), reason="needs MPICH's mpiexec, which is told how to reach the hosts")
def test_training_across_hosts_and_through_a_pulled_cable(net):
    want = SimWorld(1).run(train, FAST)[0]
    size = sum(p.nbytes for p in want.params.values())
    with EngineWorld(4, hosts=net.for_engines(), progress=False, timeout=100) as world:
        before = [net.nbytes(host) for host in net.hosts]
        assert world.run(where_am_i) == [net.hosts[0]] * 2 + [net.hosts[1]] * 2
        idle = [net.nbytes(host) - b for host, b in zip(net.hosts, before, strict=True)]
        assert len(net_pids(net)) >= 4

        results = world.run(train, FAST)
        assert_same_params(results[0].params, want.params, what="2 hosts of 2 ranks")
        through = [net.nbytes(host) - b - i for host, b, i in zip(net.hosts, before, idle, strict=True)]
        least = 2 * size * len(want.history.losses)  # a host's gradients must get out and the others' in, in every step
        assert min(through) > least > 3 * max(idle), (through, least, idle)

        net.shape(net.hosts[1], "50mbit")
        slow = world.run(seconds_of_a_message)[0]  # a receiver may look late, and see less
        net.shape(net.hosts[1], "1000mbit")
        assert slow > (3_000_000 - 262_144) * 8 / 50e6, "what the cable carries; the first 256 KiB go at once"

        pulled = []

        def pull(step, total, **values):
            if step > 20 and not pulled:
                net.unplug(net.hosts[1])
                pulled.append(time.monotonic())

        world.progress = pull
        with pytest.raises(RankError, match=rf"(?s)rank [23]: .*{net.hosts[1]}.*is the network down\?") as caught:
            world.run(train, FAST.but(epochs=10_000, evaluate_every=0))
        assert caught.value.rank in (2, 3)
        assert "rank 0 waited for " in str(caught.value)
        assert time.monotonic() - pulled[0] < 60, "10 s of missed heartbeats, 3 s of patience, and a slow machine"
        assert not net_pids(net), "the engines were ended, those behind the cut cable, too"

        world.progress = False
        net.plug(net.hosts[1])
        assert_same_params(world.run(train, FAST)[0].params, want.params, what="after the cable is back")
        folder = world._cluster.folder
    assert not reaper.marked(folder)
    assert not net_pids(net)
