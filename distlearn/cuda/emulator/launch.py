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


class Range(NamedTuple):
    """A piece of memory that arguments share."""

    nbytes: int
    item: int  # bytes of an item, and what its address is a multiple of
    const: bool
    phase: int  # its distance from a multiple of 512 bytes, at which an array that is not a view begins
    names: str
    parts: list[tuple[int, np.ndarray]]  # where each array begins in it


class Placement:
    """The arrays of a launch in the program's memory: each memory range once, however many arguments share it."""

    def __init__(self, bound: Bound):
        begin = {i: value.ctypes.data for i, value in enumerate(bound.values) if isinstance(value, np.ndarray)}
        end = {i: at + bound.values[i].nbytes for i, at in begin.items()}
        shared: list[list[int]] = []  # arguments whose arrays overlap
        reached = 0
        for i in sorted(begin, key=lambda i: (begin[i], end[i])):
            if not shared or begin[i] >= reached:
                shared.append([])
            shared[-1].append(i)
            reached = max(reached, end[i])
        self.ranges: list[Range] = []
        self.of_argument = [(-1, 0)] * len(bound.values)
        for n, these in enumerate(shared):
            first = begin[these[0]]
            for i in these:
                self.of_argument[i] = n, begin[i] - first
            arrays = [bound.values[i] for i in these]
            base = arrays[0]
            while isinstance(base.base, np.ndarray):
                base = base.base
            self.ranges.append(Range(
                nbytes=max(end[i] for i in these) - first,
                item=min(a.itemsize for a in arrays),
                const=all(bound.signature[i].startswith("*k") for i in these),
                phase=(first - base.ctypes.data) % 512,
                names="/".join(dict.fromkeys(bound.names[i] for i in these)),
                parts=[(begin[i] - first, bound.values[i]) for i in these],
            ))  # fmt: skip

    def describe(self):
        for r in self.ranges:
            yield struct.pack("<5q64s", r.nbytes, r.item, r.item, r.const, r.phase, r.names.encode()[:63])

    def contents(self):
        """Yield the bytes of each range, filled up to a multiple of 8."""
        for r in self.ranges:
            data = np.zeros(-(-r.nbytes // 8) * 8, np.uint8)
            for at, array in r.parts:
                data[at : at + array.nbytes] = _bytes_of(array)
            yield data

    def store(self, reply: memoryview) -> None:
        """Copy the received ranges, those that are not const, into the caller's arrays."""
        begin = 0
        for r in self.ranges:
            for at, array in () if r.const else r.parts:
                if array.flags.writeable:
                    _bytes_of(array)[:] = reply[begin + at : begin + at + array.nbytes]
            begin += 0 if r.const else r.nbytes


def _bytes_of(array) -> np.ndarray:
    return np.asarray(array).ravel("K").view(np.uint8)


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
    parts += place.contents()
    command, seconds = [*WRAPPER, str(path)], time_limit + GRACE
    try:
        done = subprocess.run(command, input=b"".join(parts), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        return None, (error.stderr or b"").decode(errors="replace"), -1
    out, printed = done.stdout, done.stderr.decode(errors="replace")
    if len(out) < 8:
        return None, printed, done.returncode
    (length,) = struct.unpack_from("<q", out)
    report = json.loads(out[8 : 8 + length].decode(errors="replace"))
    place.store(memoryview(out)[8 + length :])
    return report, printed, done.returncode
