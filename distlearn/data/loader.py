"""Samples that stay on disk: images in files or tar shards, which worker processes read and decode ahead.

A `Loader` takes the place of an array of samples in `Batches`, `Dataset`, `fit` and `evaluate`:

    photos/cat/1.jpg      a folder for each class
    shards/00000.tar      the same files in few large ones (`write_shards`)

Rows are numbered by name, wherever they are stored: files and shards of one folder give the same batches.
"""

from __future__ import annotations

import copy
import math
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, to_device
from ..bounds import check_number, check_positive, expected_number
from .sources import decode_image, find_images, read_file

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ..trace import Clock


def expected_image_shape(value) -> str | None:
    """Return what a shape of images should be; None if it is that, or empty."""
    whole = not any(expected_number(n, whole=True, least=1) for n in value)
    right = not value or (whole and len(value) == 3 and value[2] in (1, 3))
    return None if right else "height, width, and 1 or 3 channels, such as (64, 64, 3)"


class Loader:
    """Images in files, as rows of an array that is read part by part.

    Parameters
    ----------
    folder : path
        With a folder for each class, or with tar files (see `write_shards`). Names that begin with a dot, and
        __MACOSX, are ignored; an image elsewhere than in the folder of a class is an error.
    image_shape : (int, int, int), optional
        Height, width, and 1 or 3 channels to which images are brought; by default all must be as large as the first,
        and grey if it is. They are turned as they are shown (EXIF); transparent pixels are an error.
    dtype : dtype
        Of the rows: a floating-point type, to which bytes are scaled from 0 to 1, or "uint8", which keeps them.
    buffer : int
        0: an epoch visits the rows at random. Else it visits the shards at random and their records as stored, through
        a shuffle buffer of this size: few shards are in use at a time. `shuffle_quality` measures its cost.
    workers : int
        Processes that read and decode; 0: this one, when a batch is asked for.
    depth : int, optional
        Number of batches that are read ahead; 2 a worker by default.
    timeout : float
        Seconds that one image may take before its worker is said to hang.
    storage : callable
        `storage(path, offset, size)` returns bytes: `read_file`, a `SlowStorage`, a `Cache`.

    Raises
    ------
    OSError, ValueError
        If an image cannot be read; the text begins with its file.
    TimeoutError, ChildProcessError
        If a worker hangs or has died; the text names it, and the file that it was reading.

    Examples
    --------
    >>> x = Loader("photos/train", workers=2)                                             # doctest: +SKIP
    >>> for batch in Batches(x, x.labels, 64, rank=1, size=4).epoch(3, start=17): ...     # doctest: +SKIP
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        image_shape: tuple[int, int, int] | None = None,
        dtype: DTypeLike = np.float32,
        buffer: int = 0,
        workers: int = 0,
        depth: int | None = None,
        timeout: float = 60.0,
        storage: Callable[..., bytes] = read_file,
    ):
        self.folder, self.image_shape, self.resize = os.fspath(folder), image_shape, image_shape is not None
        self.dtype, self.timeout = np.dtype(dtype), timeout
        if self.dtype.kind != "f" and self.dtype != np.uint8:
            raise ValueError(f"Loader: dtype is {self.dtype}, expected a floating-point type or uint8")
        if wanted := expected_image_shape(image_shape or ()):
            raise ValueError(f"Loader: image_shape is {image_shape!r}, expected {wanted}")
        self.storage, self.device = storage, "cpu"
        check_number("Loader", whole=True, least=0, buffer=buffer, workers=workers)
        check_positive("Loader", depth=1 if depth is None else depth)
        check_number("Loader", above=0, timeout=timeout)
        self.buffer, self.workers, self.depth = buffer, workers, depth
        # arrays: counting references to a million strings would copy their pages into every worker
        files, names, where = find_images(Path(folder))
        self._files, names = (np.array([os.fsencode(name) for name in some]) for some in (files, names))
        rows = np.argsort(names, kind="stable")
        self._names, self._where = names[rows], np.array(where, np.int64)[rows]
        classes, self.labels = np.unique([n.partition(b"/")[0] for n in self._names.tolist()], return_inverse=True)
        self.classes = tuple(map(os.fsdecode, classes.tolist()))
        if image_shape is None:
            self.image_shape = self._image(0).shape

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array of all rows."""
        return len(self), math.prod(self.image_shape)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, rows: Any) -> Loader | np.ndarray:
        """Choose rows by a slice or an array, of which nothing is read; or read the sample of a number."""
        if isinstance(rows, (int, np.integer)):
            return np.asarray(self[[range(len(self))[rows]]])[0]
        return self.but(_names=self._names[rows], _where=self._where[rows], labels=self.labels[rows])

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return next(self.stream([slice(None)])).astype(dtype or self.dtype, copy=False)

    def but(self, **changes: Any) -> Loader:
        """Return the same loader with some attributes changed: `workers`, `depth`, `device`, `storage`, ..."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    @property
    def identity(self) -> np.ndarray:
        """Bytes that are equal where a seed gives the same samples: such a loader can resume the other's run."""
        stored = (self.buffer, *self._where.ravel().tolist()) if self.buffer else ()
        return np.frombuffer(self._names.tobytes() + repr((self.image_shape, stored)).encode(), np.uint8)

    # -- order ---------------------------------------------------------------------------------------------------------
    def _stored(self) -> np.ndarray:
        return np.lexsort(self._where.T[1::-1])  # rows by file, then by offset

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the order of an epoch."""
        if not self.buffer:
            return rng.permutation(len(self))
        stored = self._stored()
        shards = np.split(stored, np.flatnonzero(np.diff(self._where[stored, 0])) + 1)
        coming = np.concatenate([shards[i] for i in rng.permutation(len(shards))]).tolist()
        held, delivered = coming[: self.buffer], []
        for row, i in zip(coming[self.buffer :], rng.integers(len(held), size=len(coming)).tolist(), strict=False):
            delivered.append(held[i])
            held[i] = row
        return np.array(delivered + rng.permutation(held).tolist())

    def shuffle_quality(self, order: Array) -> float:
        """Mean distance in storage of samples that are delivered one after another, over that of a full shuffle.

        About 1 for a full shuffle, whose distance is n / 3; 0 as stored; 3 B / n through a buffer of B in one shard.
        """
        place = np.argsort(self._stored())[order]
        return float((np.abs(np.diff(place)).mean() - 1) / ((len(order) + 1) / 3 - 1))

    # -- one image -----------------------------------------------------------------------------------------------------
    def source(self, row: int) -> str:
        """Name the file of a row, and the record in it."""
        if row < 0:
            return "its first image"
        file, _, size = self._where[row]
        path = os.path.join(self.folder, os.fsdecode(self._files[file]))
        return path if size < 0 else f"{path}: {os.fsdecode(self._names[row])}"

    def read(self, row: int) -> bytes:
        """Read the file or the record of a row."""
        file, offset, size = self._where[row].tolist()
        return self.storage(os.path.join(self.folder, os.fsdecode(self._files[file])), offset, size)

    def _image(self, row) -> np.ndarray:
        """Read and decode one image."""
        try:
            x = decode_image(self.read(row), self.image_shape, self.resize)
            return np.divide(x, 255, dtype=self.dtype) if self.dtype.kind == "f" else x
        except Exception as error:
            kind = OSError if isinstance(error, OSError) else ValueError
            raise kind(f"{self.source(row)}: {str(error) or type(error).__name__}") from error

    def _fill(self, x, rows, note=lambda row: None) -> np.ndarray:
        """Read rows into an array; call `note(row)` before each."""
        x = x.reshape(len(rows), self.shape[1])
        for place, row in enumerate(rows.tolist()):
            note(row)
            x[place] = self._image(row).reshape(-1)
        return x

    # -- many ----------------------------------------------------------------------------------------------------------
    def stream(self, parts: Any, clock: Clock | None = None) -> Iterator[Any]:
        """Yield the rows of each part (a slice, or numbers of rows), in this order; waiting is a span "load"."""
        every = np.arange(len(self))
        parts = [every[part] for part in parts]
        width = self.shape[1]
        arrays = (self._fill(np.empty(len(part) * width, self.dtype), part) for part in parts)
        found = self._from_workers(parts) if self.workers else arrays
        for _ in parts:
            with nullcontext() if clock is None else clock.span("load", lane="disk"):
                x = next(found)
            yield to_device(x, self.device)

    def _from_workers(self, parts):
        # Memory without a name, so nothing is left in /dev/shm however the processes end; and a pipe for each worker:
        # a queue that several share has a lock, which a worker that dies would keep.
        context = get_context("fork" if sys.platform == "linux" else None)
        nbytes = max(map(len, parts), default=0) * self.shape[1] * self.dtype.itemsize
        depth = self.depth or 2 * self.workers
        slots = [context.RawArray("B", nbytes + 1) for _ in range(depth + 2)]
        reading, free, sent, workers = context.RawArray("q", [-1] * self.workers), [*range(len(slots))], [], []
        try:
            for i in range(self.workers):
                pipe, theirs = context.Pipe()
                arguments = (self, parts, slots, reading, i, theirs, pipe)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                workers.append((process, pipe))
                theirs.close()
            for k, part in enumerate(parts):
                while len(sent) < min(k + depth, len(parts)):
                    with suppress(ConnectionError):  # a worker that has died is named when its batch is due
                        workers[len(sent) % self.workers][1].send((len(sent), free[-1]))
                    sent.append(free.pop())
                self._wait(k % self.workers, *workers[k % self.workers], reading)
                x = np.frombuffer(slots[sent[k]], self.dtype, part.size * self.shape[1])
                if len(slots) - len(free) - (len(sent) - k) < 2:  # batches that the consumer still holds
                    weakref.finalize(x, free.append, sent[k])  # called when the last view of the slot is gone
                else:
                    x = x.copy()
                    free.append(sent[k])
                yield x.reshape(len(part), self.shape[1])
        finally:
            for process, _ in workers:
                process.kill()
            for process, pipe in workers:
                process.join(5)  # not for ever: one that hangs in the kernel cannot be killed
                pipe.close()

    def _wait(self, i, process, pipe, reading) -> None:
        """Wait until worker i has read a batch; raise its error, or that it hangs or has died."""
        about, before = f"loader worker {i} (process {process.pid})", reading[i]
        try:
            while not pipe.poll(self.timeout):
                if reading[i] == before:
                    raise TimeoutError(f"{about} hangs: more than {self.timeout:g} s for {self.source(before)}")
                before = reading[i]
            error = pipe.recv()
        except (EOFError, ConnectionError):
            process.join(5)
            what = f"exit code {process.exitcode} while it read {self.source(reading[i])}"
            raise ChildProcessError(f"{about} died with {what}") from None
        if error is not None:
            raise error


def _work(loader: Loader, parts, slots, reading, i: int, pipe, far) -> None:
    """Run worker i: read parts into slots on request through the pipe, until it is closed."""
    far.close()  # its copy here, or the pipe would outlive the first process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to every process of a terminal; the first ends the rest
    with suppress(EOFError, ConnectionError):
        while True:
            (k, slot), error = pipe.recv(), None
            x = np.frombuffer(slots[slot], loader.dtype, parts[k].size * loader.shape[1])
            try:
                loader._fill(x, parts[k], lambda row: reading.__setitem__(i, row))
            except (OSError, ValueError) as failure:
                error = failure
            pipe.send(error)
