r"""Several hosts on one machine: network namespaces with their own addresses, joined by a bridge.

    sudo python -m distlearn.world.namespaces up 2            # prints the net's name, its hosts and their addresses
    sudo python -m distlearn.world.namespaces exec dl0-h1 ping -c 1 10.213.0.3
    sudo python -m distlearn.world.namespaces link dl0-h2 down
    sudo python -m distlearn.world.namespaces shape dl0-h2 200mbit [2ms]
    sudo python -m distlearn.world.namespaces down            # all of them; does no harm the second time

                 bridge dl0-br, 10.213.0.1        (this machine)
                 /                       \
        veth dl0-v1                    veth dl0-v2
             |                              |
    eth0 of dl0-h1, 10.213.0.2     eth0 of dl0-h2, 10.213.0.3

Processes on different hosts share the disk and see each other's process ids, but reach each other through the veth
pairs alone: traffic can be counted, slowed down and cut off. Linux; needs root and the tools `ip` and `unshare`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from .cluster import Hosts

STATE = Path(tempfile.gettempdir()) / "distlearn-nets"
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
    """Say what keeps this machine from having namespaces; empty if nothing does."""
    if sys.platform != "linux":
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"the tool {missing[0]!r} is missing (Debian: iproute2, util-linux)"
    name = f"dl-try-{os.getpid()}"
    tries = (
        ["unshare", "--uts", "true"],
        ["ip", "netns", "add", name],
        ["ip", "link", "add", f"dlt{os.getpid()}", "type", "bridge"],
    )
    try:
        for words in tries:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"`{' '.join(words[:3])}` is not allowed here: {done.stderr.strip() or done.returncode}"
    finally:
        for words in (["ip", "netns", "del", name], ["ip", "link", "del", f"dlt{os.getpid()}"]):
            subprocess.run(words, capture_output=True, check=False)
    return ""


class Net:
    """Some hosts on one bridge; leaving the `with` block takes everything down, whatever happened in it."""

    def __init__(self, n: int = 2, keep: bool = False):
        if not 1 <= n <= 250:
            raise ValueError(f"Net: n is {n!r}, expected 1 to 250 hosts")
        sweep()
        STATE.mkdir(mode=0o700, exist_ok=True)
        number = next(i for i in range(256) if not (STATE / f"dl{i}").exists() and not _links(f"dl{i}-"))
        self.name = f"dl{number}"
        self.folder = STATE / self.name
        self.folder.mkdir()
        owner = None if keep else {"pid": os.getpid(), "created": psutil.Process().create_time()}
        (self.folder / "net.json").write_text(json.dumps({"n": n, "number": number, "owner": owner}), encoding="utf-8")
        self._n, self._number = n, number
        try:
            self._build()
        except BaseException:
            self.down()
            raise

    @classmethod
    def load(cls, name: str) -> Net:
        """Return a net that is up."""
        path = STATE / name / "net.json"
        if not path.is_file():
            raise ValueError(f"there is no net {name!r}; there are {', '.join(names()) or 'none'}")
        state = json.loads(path.read_text(encoding="utf-8"))
        net = cls.__new__(cls)
        net.name, net.folder, net._n, net._number = name, path.parent, state["n"], state["number"]
        return net

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *exc) -> None:
        self.down()

    def _build(self) -> None:
        """Make the bridge, then host after host."""
        bridge = f"{self.name}-br"
        _ip(f"link add {bridge} type bridge")
        _ip(f"addr add {self.here}/24 dev {bridge}")
        _ip(f"link set {bridge} up")
        for i, (host, address) in enumerate(zip(self.hosts, self.addresses, strict=True), start=1):
            veth = f"{self.name}-v{i}"
            _ip(f"netns add {host}")
            _ip(f"link add {veth} type veth peer name eth0 netns {host}")
            _ip(f"link set {veth} master {bridge} up")
            _ip(f"-n {host} addr add {address}/24 dev eth0")
            _ip(f"-n {host} link set eth0 up")
            _ip(f"-n {host} link set lo up")
        rsh = self.folder / "rsh"
        rsh.write_text(RSH.format(name=self.name), encoding="utf-8")
        rsh.chmod(0o755)

    @property
    def here(self) -> str:
        """The address of this machine."""
        return f"10.213.{self._number}.1"

    @property
    def hosts(self) -> list[str]:
        """Names, which are those of the namespaces."""
        return [f"{self.name}-h{i + 1}" for i in range(self._n)]

    @property
    def addresses(self) -> list[str]:
        """By host."""
        return [f"10.213.{self._number}.{i + 2}" for i in range(self._n)]

    def for_engines(self) -> Hosts:
        """Return the hosts as `EngineWorld` takes them.

        MPICH would see that all processes run on one machine, and send through its memory: so it is told to use TCP.
        """
        rsh, settings = str(self.folder / "rsh"), {"UCX_TLS": "tcp,self"}
        return Hosts(self.addresses, here=self.here, rsh=rsh, environment=settings, one_machine=True)

    # -- links ---------------------------------------------------------------------------------------------------------
    def _veth(self, host: str) -> str:
        """The end of a host's cable on this machine."""
        if host not in self.hosts:
            raise ValueError(f"there is no host {host!r}, expected one of {', '.join(self.hosts)}")
        return f"{self.name}-v{self.hosts.index(host) + 1}"

    def link(self, host: str, state: str) -> None:
        """Pull out a host's cable ("down"), or plug it in again ("up") and wait until the host is reached."""
        if state not in ("up", "down"):
            raise ValueError(f"link: state is {state!r}, expected 'up' or 'down'")
        _ip(f"link set {self._veth(host)} {state}")
        if state == "up":
            _ip(f"neigh flush dev {self.name}-br")  # who was not found stays unknown for seconds
            _ip(f"-n {host} neigh flush dev eth0")
            done = self.run(host, [sys.executable, "-S", "-c", REACH, self.here], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{host} does not reach {self.here} after its cable was plugged in: {done.stderr}")

    def nbytes(self, host: str) -> int:
        """Bytes that have gone through a host's cable, in both directions."""
        folder = Path("/sys/class/net") / self._veth(host) / "statistics"
        return sum(int((folder / f"{way}_bytes").read_text(encoding="ascii")) for way in ("rx", "tx"))

    def shape(self, host: str, rate: str | None, delay: str | None = None, burst: str = "256kb") -> None:
        """Slow down what a host receives: a rate such as "200mbit", a delay such as "2ms" (if the kernel has netem).

        A rate of None lets the cable be as fast as it can. So many bytes (`burst`) may go at once after a pause.
        """
        veth = self._veth(host)
        subprocess.run(["tc", "qdisc", "del", "dev", veth, "root"], capture_output=True, check=False)
        if rate is not None:
            words = f"netem delay {delay} rate {rate}" if delay else f"tbf rate {rate} burst {burst} latency 100ms"
            _run(f"tc qdisc add dev {veth} root {words}")

    def run(self, host: str, command, **options) -> subprocess.CompletedProcess:
        """Run a command on a host, as `subprocess.run` would."""
        self._veth(host)
        return subprocess.run(["ip", "netns", "exec", host, *map(str, command)], check=False, **options)

    def down(self) -> None:
        """End everything that runs on the hosts, and remove them; do nothing if there is nothing."""
        take_down(self.name)


def take_down(name: str) -> None:
    """Remove all that carries a net's name, also what a set-up that was broken off has left."""
    for host in _namespaces(f"{name}-"):
        for _ in range(100):
            pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=False).stdout
            if not pids.split():
                break
            for pid in pids.split():
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.02)
        subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
    for link in _links(f"{name}-"):  # a veth whose other end is gone goes by itself: look again each time
        subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
    shutil.rmtree(STATE / name, ignore_errors=True)


def names() -> list[str]:
    """Nets that are up, or that left something behind."""
    found = [path.name for path in STATE.glob("dl*")] if STATE.is_dir() else []
    found += [word.partition("-")[0] for word in (*_namespaces("dl"), *_links("dl")) if word[2:3].isdigit()]
    return sorted(set(found))


def sweep() -> None:
    """Take down nets whose owner has died."""
    for name in names():
        try:
            owner = json.loads((STATE / name / "net.json").read_text(encoding="utf-8"))["owner"]
        except (OSError, ValueError):
            continue  # being made
        if owner is not None and not _lives(owner):
            take_down(name)


def _lives(owner: dict) -> bool:
    try:
        return abs(psutil.Process(owner["pid"]).create_time() - owner["created"]) < 1
    except psutil.Error:
        return False


def _namespaces(prefix: str) -> list[str]:
    folder = Path("/var/run/netns")
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(prefix)) if folder.is_dir() else []


def _links(prefix: str) -> list[str]:
    folder = Path("/sys/class/net")
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(prefix)) if folder.is_dir() else []


def _run(command: str) -> None:
    """Run a command; raise with what it complained about."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{command}`: {done.stderr.strip() or done.returncode}")


def _ip(words: str) -> None:
    _run(f"ip {words}")


def main(words: list[str]) -> int:
    """Do what the command line says."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    verb, *rest = words
    if verb == "up":
        net = Net(int(rest[0]) if rest else 2, keep=True)
        print(f"{net.name}: this machine is {net.here}")
        print("\n".join(f"{h}  {a}" for h, a in zip(net.hosts, net.addresses, strict=True)))
    elif verb == "down":
        for name in rest or names():
            take_down(name)
    elif verb == "list":
        print("\n".join(names()))
    elif verb in ("link", "shape", "exec") and len(rest) >= 2:
        net = Net.load(rest[0].partition("-")[0])
        if verb == "exec":
            return net.run(rest[0], rest[1:]).returncode
        getattr(net, verb)(*rest)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
