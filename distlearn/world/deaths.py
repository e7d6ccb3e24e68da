"""Which rank died first.

When one process of an MPI job dies, mpiexec kills the others within a millisecond. The kernel knows the order: the
`pidfd` of a process becomes readable when it dies, and `epoll` returns descriptors in the order in which they became
readable, even for a thread that is scheduled late. mpiexec's exit codes distinguish a crash or an exit from a kill.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import threading


class DeathWatch:
    """Records the order in which processes of this machine die.

    Parameters
    ----------
    pids : list of int
        By rank.

    Attributes
    ----------
    order : list of int
        Ranks in the order of their deaths; empty if the system has no `pidfd`.
    """

    def __init__(self, pids: list[int]):
        self.order: list[int] = []
        self._stop, self._stopped = os.pipe()
        self._ranks: dict[int, int] = {}
        self._poller = select.epoll() if hasattr(select, "epoll") and hasattr(os, "pidfd_open") else None
        if self._poller is not None:
            for rank, pid in enumerate(pids):
                with contextlib.suppress(OSError):
                    self._ranks[os.pidfd_open(pid)] = rank
            for fd in (self._stop, *self._ranks):
                self._poller.register(fd, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="distlearn deaths", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        living = dict(self._ranks)
        while living:
            ready = [fd for fd, _ in self._poller.poll()]
            if self._stop in ready:
                return
            for fd in ready:  # in the order in which they became readable
                self.order.append(living.pop(fd))
                self._poller.unregister(fd)

    def close(self) -> None:
        """End the thread."""
        if self._stopped is None:
            return
        os.close(self._stopped)  # the other end becomes readable
        self._stopped = None
        self._thread.join(5)
        for fd in (self._stop, *self._ranks):
            os.close(fd)
        if self._poller is not None:
            self._poller.close()


def first_to_die(seen: list[int], reported: list[int], statuses: list[int]) -> int:
    """Decide which rank died first.

    Parameters
    ----------
    seen : list of int
        `DeathWatch.order`.
    reported : list of int
        Ranks in the order in which ipyparallel reported their deaths; not empty.
    statuses : list of int
        By rank: mpiexec's wait statuses; may be empty.

    Examples
    --------
    >>> first_to_die([2, 0, 1, 3], [0, 2, 1, 3], [])
    2
    >>> first_to_die([0, 1, 2], [0, 1, 2], [9, 768, 9])    # rank 1 ended with exit code 3, the others were killed
    1
    """
    odd = [rank for rank, status in enumerate(statuses) if status not in (0, signal.SIGKILL)]
    if len(odd) == 1:
        return odd[0]
    return (seen or reported)[0]


def exit_statuses(text: str, size: int) -> list[int]:
    """Read the wait statuses of all ranks from the output of mpiexec; empty if there are none.

    Examples
    --------
    >>> exit_statuses("[mpiexec@vm] Exit codes: [vm] 9,0,768,9", 4)
    [9, 0, 768, 9]
    """
    found = re.findall(r"Exit codes: (.*)", text)
    statuses = [int(code) for code in re.findall(r"(?<![\[\w.-])-?\d+(?=,|\s|$)", found[-1])] if found else []
    return statuses if len(statuses) == size else []


def how_it_ended(status: int | None) -> str:
    """Describe a wait status in words.

    Examples
    --------
    >>> how_it_ended(768), how_it_ended(11), how_it_ended(None)
    ('ended with exit code 3', 'crashed in compiled code (SIGSEGV)', 'died')
    """
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
