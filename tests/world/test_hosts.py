"""Engines on two hosts, each with a network of its own: training across them, and what a pulled cable does."""

import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params
from distlearn.train import train
from distlearn.world import EngineWorld, Hosts, namespaces, reaper
from distlearn.world.launching import find_mpiexec, is_hydra
from distlearn.world.namespaces import Net

from .conftest import living
from .test_same_training import FAST

REASON = namespaces.why_not()
needs_namespaces = pytest.mark.skipif(bool(REASON), reason=f"needs network namespaces: {REASON}")


def is_mpich() -> bool:
    try:
        return is_hydra(find_mpiexec())
    except RuntimeError:
        return False


def test_ranks_are_assigned_to_hosts_in_blocks():
    hosts = Hosts(["node1", "node2", "node3"], here="head")
    assert hosts.share(8) == [3, 3, 2]
    assert hosts.mpiexec_arguments(4)[-1] == "node1:2,node2:1,node3:1"
    assert hosts.rsh == "ssh"
    with pytest.raises(ValueError, match="2 engines for 3 hosts"):
        hosts.share(2)
    with pytest.raises(ValueError, match="expected a list"):
        Hosts("node1", here="head")
    with pytest.raises(ValueError, match=r"need mpi=True and MPICH's mpiexec"):
        EngineWorld(3, mpi=False, hosts=hosts)


@pytest.fixture(scope="module")
def net():
    with Net(2) as net:
        yield net
    assert not left_of(net.name)


def left_of(name) -> list[str]:
    """What a net has left behind."""
    state = [name] if (namespaces.STATE / name).exists() else []
    return [*namespaces._namespaces(f"{name}-"), *namespaces._links(f"{name}-"), *state]


def pids_on(net) -> list[int]:
    """Processes that run on the hosts."""
    found = []
    for host in net.hosts:
        text = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True).stdout
        found += map(int, text.split())
    return living(found)


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


@needs_namespaces
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
        assert len(pids_on(net)) >= 4

        results = world.run(train, FAST)
        assert_same_params(results[0].params, want.params, what="2 hosts of 2 ranks")
        through = [net.nbytes(host) - b - i for host, b, i in zip(net.hosts, before, idle, strict=True)]
        least = 2 * size * len(want.history.losses)  # a host's gradients must get out and the others' in, in every step
        assert min(through) > least > 3 * max(idle), (through, least, idle)

        if shutil.which("tc"):
            net.shape(net.hosts[1], "50mbit")
            slow = world.run(seconds_of_a_message)[0]  # a receiver may look late, and see less
            net.shape(net.hosts[1], None)
            assert slow > (3_000_000 - 262_144) * 8 / 50e6, "what the cable carries; the first 256 KiB go at once"

        pulled = []

        def pull(step, total, **values):
            if step > 20 and not pulled:
                net.link(net.hosts[1], "down")
                pulled.append(time.monotonic())

        world.progress = pull
        with pytest.raises(RankError, match=rf"(?s)rank [23]: .*{net.hosts[1]}.*is the network down\?") as caught:
            world.run(train, FAST.but(epochs=10_000, evaluate_every=0))
        assert caught.value.rank in (2, 3)
        assert "rank 0 waited for " in str(caught.value)
        assert time.monotonic() - pulled[0] < 60, "10 s of missed heartbeats, 3 s of patience, and a slow machine"
        assert not pids_on(net), "the engines were ended, those behind the cut cable, too"

        world.progress = False
        net.link(net.hosts[1], "up")
        assert_same_params(world.run(train, FAST)[0].params, want.params, what="after the cable is back")
        folder = world._cluster.folder
    assert not reaper.marked(folder)
    assert not pids_on(net)


@needs_namespaces
def test_hosts_reach_each_other_through_their_cables_alone():
    with Net(2) as net:
        first, second = net.hosts
        ping = [sys.executable, "-c", PING, net.addresses[1]]
        server = subprocess.Popen(["ip", "netns", "exec", second, sys.executable, "-c", SERVE], stdout=subprocess.PIPE)
        assert server.stdout.readline() == b"ready\n"
        before = [net.nbytes(host) for host in net.hosts]
        assert net.run(first, ping, capture_output=True).stdout == b"pong\n"
        assert all(net.nbytes(host) > b for host, b in zip(net.hosts, before, strict=True))
        net.link(second, "down")
        assert net.run(first, ping, capture_output=True).stdout == b"cut\n"
        net.link(second, "up")
        assert net.run(first, ping, capture_output=True).stdout == b"pong\n"
        with pytest.raises(ValueError, match="there is no host 'h9'"):
            net.link("h9", "down")
        with pytest.raises(ValueError, match="expected 'up' or 'down'"):
            net.link(first, "sideways")
    assert server.wait(30) == -signal.SIGKILL, "taking a net down ends what runs on it"
    server.stdout.close()
    assert not left_of(net.name)
    net.down()


SERVE = """
import socket
s = socket.create_server(("", 7000))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"pong")
    c.close()
"""
PING = """
import socket, sys
try:
    print(socket.create_connection((sys.argv[1], 7000), timeout=1).recv(4).decode())
except OSError:
    print("cut")
"""


@needs_namespaces
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_however_the_owner_ends(how):
    program = "from distlearn.world.namespaces import Net\nimport time\nwith Net(1) as net:\n"
    program += "    print(net.name, flush=True)\n    time.sleep(60)"
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    name = owner.stdout.readline().strip()
    assert name in namespaces.names()
    owner.send_signal(how)
    owner.wait(20)
    owner.stdout.close()
    if how == signal.SIGINT:
        assert not left_of(name)
    namespaces.sweep()  # the next net does that
    assert not left_of(name)


@needs_namespaces
def test_the_command_line():
    def call(*words):
        command = [sys.executable, "-m", "distlearn.world.namespaces", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    up = call("up", "2")
    name = up.stdout.partition(":")[0]
    try:
        assert [line.split()[0] for line in up.stdout.splitlines()[1:]] == [f"{name}-h1", f"{name}-h2"], up.stderr
        namespaces.sweep()
        assert name in call("list").stdout.split(), "it stays without an owner"
        assert "eth0" in call("exec", f"{name}-h1", "ip", "-br", "addr").stdout
        assert call("link", f"{name}-h2", "down").returncode == 0
    finally:
        downs = [call("down", name).returncode for _ in range(2)]
    assert downs == [0, 0]
    assert not left_of(name)
    assert call("fly").returncode == 2
