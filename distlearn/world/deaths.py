"""Which rank died first.

When one process of an MPI job dies, mpiexec sees its connection close and kills the others within a millisecond, often
before the first one has ended: memory and threads of a dying process take time. What has an order is the closing of its
files: Linux releases those of a dying process last opened first (`exit_task_work`, a stack). So every engine holds a
connection to `DeathWatch` above the descriptor that mpiexec watches; and `epoll` returns descriptors in the order in
which they became readable, even for a thread that is scheduled late. mpiexec's exit codes distinguish a crash or an
exit from a kill.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import select
import signal
import socket
import sys
import threading
import uuid

# The connection's descriptor or a higher one: above those of a starting engine, below the limit of open files.
HIGH = 512
CAN_WATCH = sys.platform == "linux"


class DeathWatch:
    """Records the order in which processes of this machine die."""

    def __init__(self):
        self.order: list[int] = []
        self.address = ""
        self._ranks: dict[int, int] = {}
        self._connections: list[socket.socket] = []
        self._thread = None
        if CAN_WATCH:
            self.address = f"distlearn-{uuid.uuid4().hex}"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind("\0" + self.address)  # an abstract address: no file to remove
            self._listener.listen(4096)

    def start(self, size: int) -> None:
        """Begin to watch the `size` processes that hold a connection."""
        if not self.address:
            return
        self._poller = select.epoll()
        self._stop, self._stopped = socket.socketpair()
        self._poller.register(self._stop, select.EPOLLIN)
        self._listener.settimeout(0)
        with self._listener, contextlib.suppress(BlockingIOError):  # raised where an engine could not connect
            for _ in range(size):
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self._ranks[connection.fileno()] = int.from_bytes(connection.recv(8), "little")
        for fd in self._ranks:
            self._poller.register(fd, select.EPOLLHUP)
        self._thread = threading.Thread(target=self._watch, name="distlearn deaths", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        living = dict(self._ranks)
        while living:
            ready = [fd for fd, _ in self._poller.poll()]
            if self._stop.fileno() in ready:
                return
            for fd in ready:  # in the order in which they became readable
                self.order.append(living.pop(fd))
                self._poller.unregister(fd)

    def close(self) -> None:
        if self._thread is None:
            return
        self._stopped.close()  # the other end becomes readable
        self._thread.join(5)
        self._thread = None
        self._poller.close()
        for connection in (self._stop, *self._connections):
            connection.close()


def hold_connection(address: str, rank: int) -> None:
    """Connect this process to the `DeathWatch` at an address, as long as it lives."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + address)
        connection.sendall(rank.to_bytes(8, "little"))
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # 1,024 mostly, 256 where somebody has set it
        fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, min(HIGH, limit // 2))


def first_to_die(seen: list[int], reported: list[int], statuses: list[int]) -> int:
    """Decide which rank died first."""
    odd = [rank for rank, status in enumerate(statuses) if status not in (0, signal.SIGKILL)]
    if len(odd) == 1:
        return odd[0]
    return (seen or reported)[0]


def exit_statuses(text: str, size: int) -> list[int]:
    """Read the wait statuses of all ranks from the output of mpiexec; empty if there are none."""
    found = re.findall(r"Exit codes: (.*)", text)
    statuses = [int(code) for code in re.findall(r"(?<![\[\w.-])-?\d+(?=,|\s|$)", found[-1])] if found else []
    return statuses if len(statuses) == size else []


def how_it_ended(status: int | None) -> str:
    """Describe a wait status in words."""
    if status is None:
        return "died"
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
    if number == signal.SIGKILL:
        return f"was killed ({name}): by kill -9, or because the machine ran out of memory"
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT):
        return f"crashed in compiled code ({name})"
    return f"was ended by {name}"
