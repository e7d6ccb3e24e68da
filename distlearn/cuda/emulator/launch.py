"""Runs built kernels: sends the launch, receives the report and the arrays.

Each launch is a process of its own; `runtime/launch_io.h` is the other end and describes the bytes. Nothing that a
kernel does can harm this process: one that crashes ends its own, and becomes an error here.
"""

from __future__ import annotations

import json
import struct
import subprocess
from typing import NamedTuple

import numpy as np

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
        """Copy the received ranges, those that are not const, into the caller's arrays."""
        begins, at = [], 0
        for begin, end, _, _, const, *_ in self.ranges:
            begins.append(None if const else at)
            at += 0 if const else end - begin
        for array, view, written in self.views(reply, begins):
            if written:
                array[...] = view


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)


def run(path, grid, block, shared_mem, bound, constants, *, statistics, races, time_limit, recorded_block=-1):
    """Run one launch; return the report (None if the program died without one), its output, and the exit code."""
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
