"""Limits on a submission while it is graded: memory and output."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
from pathlib import Path

import psutil


class MemoryWatch:
    """Kills a process when it and what it started use too much memory, too many processes, or too much disk."""

    def __init__(self, pid: int, limit: int, folder=None, every: float = 0.25):
        self.told = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid, limit, folder, every), daemon=True)
        if limit:
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self, pid, limit, folder, every) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            while not self._stop.wait(every):
                held, children = process.memory_info().rss, _children(pid)
                for child in children:
                    with contextlib.suppress(psutil.Error):
                        held += child.memory_info().rss
                written = _bytes_in(folder) if folder else 0
                if held > limit:
                    self.told = f" (it took {held / 2**30:.1f} GiB of memory, {limit / 2**30:.1f} GiB are allowed)"
                elif len(children) > PROCESSES:
                    self.told = f" (it started {len(children)} processes, {PROCESSES} are allowed)"
                elif written > DISK:
                    self.told = f" (it wrote {written / 2**20:.0f} MiB, {DISK / 2**20:.0f} MiB are allowed)"
                if self.told:
                    process.kill()
                    return


PROCESSES = 150
"""Processes that a submission may have at once."""
DISK = 2**25
"""Bytes that it may write to the folder of its sockets, the only one on a disk."""


def stretch(most: float) -> float:
    """Return how many times longer a cell may run: programs that want to run for each core, from 1 to `most`.

    A check that takes two seconds must not lose its points because ten other programs run beside it.
    """
    waiting = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return min(most, max(1.0, waiting / (os.cpu_count() or 1)))


def _children(pid: int) -> list[psutil.Process]:
    """All descendants of a process; by the kernel's own lists where it has them."""
    if not os.path.exists("/proc/self/task"):
        return psutil.Process(pid).children(recursive=True)
    found, todo = [], [pid]
    while todo and len(found) <= 10 * PROCESSES:
        for path in glob.glob(f"/proc/{todo.pop()}/task/*/children"):
            with contextlib.suppress(OSError, psutil.Error):
                pids = [int(word) for word in Path(path).read_text(encoding="ascii").split()]
                todo += pids
                found += map(psutil.Process, pids)
    return found


def _bytes_in(folder) -> int:
    """Bytes of the files in a folder and below."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


class Room:
    """Limits the output of one cell; the rest is cut off."""

    def __init__(self, size: int, strict: bool = False):
        self.size, self.strict = size, strict
        self._left = size

    def admit(self, msg) -> bool:
        """Return whether to show a message of the kernel; shorten it if necessary."""
        kind, content = msg["header"]["msg_type"], msg["content"]
        if self.strict and kind == "execute_result":  # nbgrader would read a number as points
            msg["header"]["msg_type"] = msg["msg_type"] = "display_data"
        full = self._left <= 0
        if kind == "stream":
            if full:
                return False
            if self.strict:  # nbgrader would deduct all points for a library's warning
                content["name"] = "stdout"
            text, room = content["text"], self._left
            self._left -= len(text)
            content["text"] = text[:room] + (self._cut() if self._left <= 0 else "")
        elif kind == "error":
            content["evalue"] = content["evalue"][: self.size]
            content["traceback"] = [line[: self.size] for line in content["traceback"]]
        elif "data" in content:
            size = sum(len(text) for text in content["data"].values() if isinstance(text, str))
            if full:
                return False
            self._left -= size
            if self._left <= 0:
                content["data"] = {"text/plain": f"[output of {size:,} characters left out]{self._cut()}"}
        return True

    def _cut(self) -> str:
        return f"\n[... cut: a cell may show {self.size:,} characters ...]\n"
