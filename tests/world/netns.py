"""Several hosts on one machine: network namespaces with their own addresses, joined by a bridge. Linux, as root.

                 bridge dl0-br, 10.213.0.1        (this machine)
                 /                       \\
        veth dl0-v1                    veth dl0-v2
             |                              |
    eth0 of dl0-h1, 10.213.0.2     eth0 of dl0-h2, 10.213.0.3

Processes on different hosts share the disk and see each other's process ids, but reach each other through the veth
pairs alone: traffic can be counted, slowed down and cut off.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distlearn.world import Hosts

RSH = """#!/bin/sh
# rsh [options] ADDRESS COMMAND...: run a command on a host, under its own host name, as ssh would
while [ "${{1#-}}" != "$1" ]; do shift; done
host={name}-h$((${{1##*.}} - 1)); shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; exec $*"
"""
REACH = """
import errno, socket, sys, time
deadline = time.monotonic() + 10
while True:
    with socket.socket() as s:
        s.settimeout(1)
        found = s.connect_ex((sys.argv[1], 9))
    if found in (0, errno.ECONNREFUSED):  # somebody answers
        sys.exit(0)
    if time.monotonic() > deadline:
        sys.exit(errno.errorcode.get(found, str(found)))
    time.sleep(0.05)
"""


def why_not() -> str:
    """What keeps this machine from having such hosts; empty if nothing does."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux, and root"
    missing = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"the tool {missing[0]!r} is missing (Debian: iproute2, util-linux)"
    try:
        with Net(1):
            call("unshare --uts true")
    except RuntimeError as error:
        return str(error)
    return ""


class Net:
    """Some hosts on one bridge; leaving the `with` block takes everything down, whatever happened in it."""

    def __init__(self, n: int = 2):
        number = next(i for i in range(256) if not links(f"dl{i}-"))
        self.name, self.here = f"dl{number}", f"10.213.{number}.1"
        self.hosts = [f"{self.name}-h{i + 1}" for i in range(n)]
        self.addresses = [f"10.213.{number}.{i + 2}" for i in range(n)]
        self.folder = Path(tempfile.mkdtemp(prefix=self.name))
        try:
            self._build()
        except BaseException:
            self.down()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.down()

    def _build(self):
        call(f"ip link add {self.name}-br type bridge")
        call(f"ip addr add {self.here}/24 dev {self.name}-br")
        call(f"ip link set {self.name}-br up")
        for host, address in zip(self.hosts, self.addresses, strict=True):
            veth = self.cable(host)
            call(f"ip netns add {host}")
            call(f"ip link add {veth} type veth peer name eth0 netns {host}")
            call(f"ip link set {veth} master {self.name}-br up")
            call(f"ip -n {host} addr add {address}/24 dev eth0")
            call(f"ip -n {host} link set eth0 up")
            call(f"ip -n {host} link set lo up")
        rsh = self.folder / "rsh"
        rsh.write_text(RSH.format(name=self.name), encoding="utf-8")
        rsh.chmod(0o755)

    def for_engines(self) -> Hosts:
        """The hosts as `EngineWorld` takes them; MPICH is told to use TCP, not the memory that they share."""
        settings = {"UCX_TLS": "tcp,self"}
        return Hosts(self.addresses, str(self.here), str(self.folder / "rsh"), settings, one_machine=True)

    def cable(self, host) -> str:
        """The end of a host's cable on this machine."""
        return f"{self.name}-v{self.hosts.index(host) + 1}"

    def unplug(self, host):
        call(f"ip link set {self.cable(host)} down")

    def plug(self, host):
        """Plug a cable in again, and wait until the host is reached."""
        call(f"ip link set {self.cable(host)} up")
        call(f"ip neigh flush dev {self.name}-br")  # who was not found stays unknown for seconds
        call(f"ip -n {host} neigh flush dev eth0")
        subprocess.run(["ip", "netns", "exec", host, sys.executable, "-S", "-c", REACH, self.here], check=True)

    def nbytes(self, host) -> int:
        """Bytes that have gone through a host's cable, in both directions."""
        folder = Path("/sys/class/net", self.cable(host), "statistics")
        return sum(int((folder / f"{way}_bytes").read_text(encoding="ascii")) for way in ("rx", "tx"))

    def shape(self, host, rate: str):
        """Limit what a host receives to a rate such as "200mbit"."""
        call(f"tc qdisc replace dev {self.cable(host)} root tbf rate {rate} burst 256kb latency 100ms")

    def pids(self, host) -> list[int]:
        """Processes that run on a host."""
        done = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False)
        return list(map(int, done.stdout.split()))

    def down(self):
        """End everything that runs on the hosts, and remove them."""
        for host in self.hosts:
            while pids := self.pids(host):
                for pid in pids:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
        for link in links(f"{self.name}-"):  # a veth whose other end is gone goes by itself
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def links(prefix: str) -> list[str]:
    return [name for name in os.listdir("/sys/class/net") if name.startswith(prefix)]


def call(command: str):
    """Run a command; raise with what it complained about."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{command}`: {done.stderr.strip() or done.returncode}")
