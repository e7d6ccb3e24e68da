"""Limits on a submission while it is graded: memory and output."""

from __future__ import annotations

import contextlib
import threading

import psutil


class MemoryWatch:
    """Kills a process when it and its children use more memory than `limit`.

    Parameters
    ----------
    pid : int
        The process.
    limit : int
        Resident bytes of all together; 0 for no limit.
    every : float
        How often to look [s].

    Attributes
    ----------
    told : str
        What it did, for the report; "" if nothing.
    """

    def __init__(self, pid: int, limit: int, every: float = 0.25):
        self.told = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid, limit, every), daemon=True)
        if limit:
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self, pid, limit, every) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            while not self._stop.wait(every):
                held = process.memory_info().rss
                if held > limit / 8:  # counting the children is slow, so only when it could matter
                    for child in process.children(recursive=True):
                        with contextlib.suppress(psutil.Error):
                            held += child.memory_info().rss
                if held > limit:
                    self.told = f" (it took {held / 2**30:.1f} GiB of memory, {limit / 2**30:.1f} GiB are allowed)"
                    process.kill()
                    return


class Room:
    """Limits the output of one cell; the rest is cut off.

    Parameters
    ----------
    size : int
        Characters.
    strict : bool
        The cell is graded: it fails by an error, and by nothing else that it shows.
    """

    def __init__(self, size: int, strict: bool = False):
        self.size, self.strict = size, strict
        self._left = size

    def admit(self, msg) -> bool:
        """Return whether to show a message of the kernel; shorten it if necessary.

        Parameters
        ----------
        msg : dict
            The message: `stream`, `display_data`, `execute_result` or `error`.
        """
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
