"""The process that runs kernels of the fast build; launch.py starts it and talks to it.

A request is a length of 8 bytes and JSON, so is the answer. Arrays are in memory that both processes share. Only the
standard library is imported, so that the process starts in a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import queue
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

STACK = 16 << 20  # bytes, for kernels without barriers, whose threads run on the stack of a Python thread


class _Launch(ctypes.Structure):  # emu::Launch of runtime/types.h
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("args", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
    ]


@functools.cache
def _workers() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), thread_name_prefix="cuda-block")


@functools.cache
def _load(path):
    library = ctypes.CDLL(path)
    library.emu_run.argtypes = [ctypes.c_void_p]
    return library


def describe(path):
    """Return a library's description of its kernel's parameters and variables."""
    library = ctypes.CDLL(path)
    library.emu_signature.restype = ctypes.c_char_p
    text = library.emu_signature().decode()
    import _ctypes

    close = getattr(_ctypes, "FreeLibrary", None) or _ctypes.dlclose  # the file is about to be moved
    close(library._handle)
    return text


class Arena:
    """The memory that is shared with the process that launches: a file, on Windows a name."""

    def __init__(self, file):
        self._file, self._size, self._map, self._first = file, 0, None, None

    def address(self, size, name):
        """Return its address in this process; map it again if it has grown to `size` bytes or is another one."""
        if size != self._size:
            self._first = self._map = None
            self._map = mmap.mmap(-1, size, tagname=name) if sys.platform == "win32" else mmap.mmap(self._file, size)
            self._first, self._size = ctypes.c_char.from_buffer(self._map), size
        return ctypes.addressof(self._first)


def run(arena, path, grid, block, shared_mem, args, constants, threads):
    """Run a launch; return whether some threads of a block wait forever."""
    library = _load(path)
    for name, value in constants:
        address = getattr(library, f"emu_address_of_{name}")
        address.restype = ctypes.c_void_p
        data = bytes.fromhex(value)
        ctypes.memmove(address(), data, len(data))
    base = arena() if arena else 0
    cells = [
        ctypes.c_void_p(base + a) if isinstance(a, int) else ctypes.create_string_buffer(bytes.fromhex(a), len(a) // 2)
        for a in args
    ]
    pointers = (ctypes.c_void_p * max(1, len(cells)))(*[ctypes.addressof(c) for c in cells])

    def part(first, last):
        launch = _Launch((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared_mem,
                         ctypes.cast(pointers, ctypes.c_void_p), first, last)  # fmt: skip
        return library.emu_run(ctypes.byref(launch))

    blocks = grid[0] * grid[1] * grid[2]
    workers = min(threads or _workers(), blocks)
    if workers == 1:  # without waking another thread
        return bool(part(0, blocks))
    step = -(-blocks // (4 * workers))
    return bool(max(_pool().map(lambda first: part(first, min(first + step, blocks)), range(0, blocks, step))))


def answer_all(requests: queue.SimpleQueue, replies, shared) -> None:
    """Answer one request after the other."""
    memory = Arena(shared)
    with os.fdopen(replies, "wb") as pipe:
        while True:
            request = requests.get()
            if "describe" in request:
                answer = describe(request["describe"])
            else:
                size, name = request.pop("arena")
                answer = run(functools.partial(memory.address, size, name) if size else None, **request)
            text = json.dumps(answer).encode()
            pipe.write(struct.pack("<q", len(text)) + text)
            pipe.flush()


def main(shared) -> None:
    """Read requests until the other process closes the pipe, or is gone; a kernel may be running forever then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that launches: it ends this one
    threading.stack_size(STACK)
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    todo: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=answer_all, args=(todo, replies, shared), daemon=True).start()
    with os.fdopen(requests, "rb") as pipe:
        while len(head := pipe.read(8)) == 8:
            todo.put(json.loads(pipe.read(struct.unpack("<q", head)[0])))
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
