"""Runs built kernels: the launch goes in, the report and the arrays come back.

A checked program is a process of its own for each launch; `runtime/launch_io.h` is the other end and describes the
bytes. Kernels of the fast build, for code that is trusted and for timing, run in one process (worker.py) that is kept
for the next launch, with arrays in memory that both share. Nothing that a kernel does can harm this process: one that
crashes ends its own, as it would end a card's context, and becomes an error here.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .source import KernelError

WRAPPER: list[str] = []  # Words before the command of a program; grading runs what students write in a sandbox.
GRACE = 5.0  # seconds that a program has to report its own time-out before it is killed


class Bound(NamedTuple):
    """The arguments of a launch: arrays (for pointers) and bytes (for everything else), with their types and names."""

    # After the kernel's own come a table of the pointers that structs hold (pointers.py), and the arrays they point to.

    values: list
    signature: list[str]
    names: list[str]


class Placement:
    """The arrays of a launch in the program's memory: each memory range once, however many arguments share it."""

    def __init__(self, bound: Bound):
        self.ranges: list[list] = []  # [begin, end, item, align, read_only, names, arrays]
        self.of_argument: list[tuple[int, int]] = []
        arrays = []
        for value, code, name in zip(*bound, strict=True):
            if isinstance(value, np.ndarray):
                begin = value.ctypes.data
                arrays.append((begin, begin + value.nbytes, value, code.startswith("*k"), name))
        for begin, end, array, const, name in sorted(arrays, key=lambda a: a[:2]):
            item = array.dtype.itemsize
            if self.ranges and begin < self.ranges[-1][1]:
                last = self.ranges[-1]
                last[1] = max(last[1], end)
                last[2:5] = [min(last[2], item), min(last[3], item), last[4] and const]
                last[5] += [name] if name not in last[5] else []
                last[6] += [array] if not any(a is array for a in last[6]) else []
            else:
                self.ranges.append([begin, end, item, item, const, [name], [array]])
        for value in bound.values:
            self.of_argument.append(self._find(value) if isinstance(value, np.ndarray) else (-1, 0))

    def _find(self, array):
        begin = array.ctypes.data
        for i, r in enumerate(self.ranges):
            if r[0] <= begin and begin + array.nbytes <= r[1]:
                return i, begin - r[0]
        raise AssertionError("an array lies in no range")

    def phases(self):
        """Return the offset of each range from a multiple of 512 bytes; an array that is not a view begins at one."""
        for begin, *_, arrays in self.ranges:
            base = arrays[0]
            while isinstance(base.base, np.ndarray):
                base = base.base
            yield (begin - base.ctypes.data) % 512

    def describe(self):
        for (begin, end, item, align, const, names, _), phase in zip(self.ranges, self.phases(), strict=True):
            yield struct.pack("<5q64s", end - begin, item, align, int(const), phase, "/".join(names).encode()[:63])

    def views(self, memory, begins):
        """Yield each array, its place in a memory with the ranges at `begins`, and whether the kernel may write it."""
        for at, (begin, _, _, _, const, _, arrays) in zip(begins, self.ranges, strict=True):
            for array in arrays if at is not None else ():
                order = "C" if array.flags.c_contiguous else "F"
                place = at + array.ctypes.data - begin
                view = np.ndarray(array.shape, array.dtype, memory, place, order=order)
                yield array, view, not const and array.flags.writeable

    def contents(self) -> bytearray:
        """Return the bytes of all ranges, each to a multiple of 8."""
        begins, size = [], 0
        for begin, end, *_ in self.ranges:
            begins.append(size)
            size += -(-(end - begin) // 8) * 8
        out = bytearray(size)
        for array, view, _ in self.views(out, begins):
            view[...] = array
        return out

    def store(self, reply: memoryview) -> None:
        """Copy the ranges that came back, those that are not const, into the caller's arrays."""
        begins, at = [], 0
        for begin, end, _, _, const, *_ in self.ranges:
            begins.append(None if const else at)
            at += 0 if const else end - begin
        for array, view, written in self.views(reply, begins):
            if written:
                array[...] = view


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)


def run_checked(path, grid, block, shared_mem, bound, constants, *, statistics, races, time_limit, recorded_block=-1):
    """Run one launch; return the report (None if the program died without one), what was printed, the exit code."""
    place = Placement(bound)
    header = [1, *grid, *block, shared_mem, int(statistics), int(races), int(time_limit * 1000)]
    header += [len(place.ranges), len(bound.values), len(constants), recorded_block, 0]
    parts = [struct.pack("<16q", *header), *place.describe()]
    for value, (index, offset) in zip(bound.values, place.of_argument, strict=True):
        data = b"\0" * 8 if index >= 0 else value
        parts += [struct.pack("<3q", index, offset, len(data)), _padded(data)]
    for name, value in constants.items():
        parts += [struct.pack("<64sq", name.encode(), value.nbytes), _padded(value.tobytes())]
    parts.append(place.contents())
    process = subprocess.Popen(
        [*WRAPPER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = process.communicate(b"".join(parts), timeout=time_limit + GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        return None, err.decode(errors="replace"), -1
    except BaseException:  # Ctrl-C: leave nothing running
        process.kill()
        process.communicate()
        raise
    printed = err.decode(errors="replace")
    if len(out) < 8:
        return None, printed, process.returncode
    (length,) = struct.unpack_from("<q", out)
    report = json.loads(out[8 : 8 + length].decode(errors="replace"))
    place.store(memoryview(out)[8 + length :])
    return report, printed, process.returncode


KEPT = 256 << 20  # bytes of shared memory that are kept for the next launch
BETWEEN = 4096  # bytes at least between two arrays


class _Died(Exception):
    """The process ended in the middle of a request, with this exit code."""


def _anonymous_file():
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("distlearn-kernels"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


class Worker:
    """The process, its memory, and what it prints."""

    def __init__(self):
        self._shared = _anonymous_file()
        self._said = _anonymous_file()
        self._memory, self.size, self._name = None, 0, ""
        shared = [] if sys.platform == "win32" else [self._shared.fileno()]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker.py")), str(self._shared.fileno())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, pass_fds=shared,
            start_new_session=True,
        )  # fmt: skip

    def memory(self, size: int) -> mmap.mmap:
        if size > self.size:
            self._memory = None
            self.size = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            if sys.platform == "win32":
                self._name = f"distlearn-{os.getpid()}-{id(self)}-{self.size}"
                self._memory = mmap.mmap(-1, self.size, tagname=self._name)
            else:
                os.ftruncate(self._shared.fileno(), self.size)
                self._memory = mmap.mmap(self._shared.fileno(), self.size)
        return self._memory

    def ask(self, **request):
        text = json.dumps(request).encode()
        try:
            self._process.stdin.write(struct.pack("<q", len(text)) + text)
            self._process.stdin.flush()
            head = self._process.stdout.read(8)
            answer = self._process.stdout.read(struct.unpack("<q", head)[0]) if len(head) == 8 else b""
        except OSError:
            answer = b""
        if not answer:
            raise _Died(self._process.wait())
        return json.loads(answer)

    def run(self, path, grid, block, shared_mem, bound, place, constants, threads) -> bool:
        """Run a launch in the process; return whether some threads wait forever."""
        begins, end = [], 0
        for (first, last, *_), phase in zip(place.ranges, place.phases(), strict=True):
            begins.append(-(-(end + BETWEEN) // 512) * 512 + phase)
            end = begins[-1] + last - first
        memory = self.memory(end) if end else None
        views = list(place.views(memory, begins))
        for array, view, _ in views:
            view[...] = array
        args = [
            begins[index] + offset if index >= 0 else value.hex()
            for value, (index, offset) in zip(bound, place.of_argument, strict=True)
        ]
        given = [(name, value.tobytes().hex()) for name, value in constants.items()]
        stuck = self.ask(
            arena=(self.size if end else 0, self._name), path=str(path), grid=grid, block=block,
            shared_mem=shared_mem, args=args, constants=given, threads=threads,
        )  # fmt: skip
        for array, view, written in views:
            if written:
                array[...] = view
        return stuck

    def said(self) -> str:
        """Return what kernels printed since the last call, and how the process ended, if it has."""
        self._said.seek(0)
        text = self._said.read().decode(errors="replace")
        self._said.seek(0)
        self._said.truncate()
        return text

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close its files in this process only: after a fork the other process still uses them."""
        for file in (self._process.stdin, self._process.stdout, self._shared, self._said):
            with contextlib.suppress(OSError):
                file.close()


_worker: Worker | None = None
_lock = threading.Lock()  # one launch at a time: its blocks take all cores
LAST_WORDS = "\x1e"  # emu::END_OF_KERNEL of runtime/faults.h: what follows is why the process ends


def _end_worker() -> None:
    global _worker
    if _worker:
        _worker.end()
    _worker = None


def _forget_worker() -> None:
    global _worker, _lock
    if _worker:
        _worker.forget()
    _worker, _lock = None, threading.Lock()


atexit.register(_end_worker)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_worker)


def _ask(question):
    """Send a request to the process; start it if necessary."""
    global _worker
    with _lock:
        while True:
            fresh = _worker is None  # else a kernel that ran before may have damaged the process: a new one is tried
            _worker = _worker or Worker()
            try:
                answer = question(_worker)
            except _Died as died:
                said = _worker.said()
                _end_worker()
                if fresh:
                    printed, _, why = said.partition(LAST_WORDS)
                    sys.stdout.write(printed)
                    why = why or f"its process ended with code {died}"
                    raise KernelError(f"the kernel crashed: {why}; .check() says where") from None
            except BaseException:  # Ctrl-C: leave nothing running
                _end_worker()
                raise
            else:
                if printed := _worker.said():
                    sys.stdout.write(printed)
                if _worker.size > KEPT:
                    _end_worker()
                return answer


def describe(path) -> str:
    """Describe a library's kernel: a line with its parameters' types, and one for each variable."""
    return _ask(lambda worker: worker.ask(describe=str(path)))


def run_fast(path, grid, block, shared_mem, bound, constants, *, threads=None) -> None:
    """Run one launch, its blocks on all cores; raise KernelError if it crashes or some threads wait forever."""
    place = Placement(bound)
    if _ask(lambda worker: worker.run(path, grid, block, shared_mem, bound.values, place, constants, threads)):
        raise KernelError("some threads of a block wait forever at a barrier or a warp operation; .check() says where")
