"""Checkpoints: a file with a checksum, and a folder that keeps the newest."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import operator
import os
import platform
import re
import struct
import time
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...bounds import check_number, check_positive
from ...files import whole_file

# -- file --------------------------------------------------------------------------------------------------------------
# One checkpoint as one file that shows whether it is intact: safetensors with checksums.
#
# Any tool that reads safetensors reads the arrays. The metadata hold, as text,
#
#     format, version    "distlearn checkpoint", "2"
#     step               steps done
#     meta               JSON: all other information
#     arrays             JSON: name and CRC-32 of every array, in order
#     sha256             of the whole file, with zeros in place of this checksum
#
# So a file that was cut off, or in which a bit has flipped, is refused, and the message names the damaged array.

FORMAT, VERSION = "distlearn checkpoint", "2"
_ZEROS = "0" * 64
_LENGTH = struct.Struct("<Q")
"""A safetensors file begins with the length of its JSON header; the arrays follow it."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; names the file and the problem."""

    def __init__(self, path: str | Path, problem: str):
        super().__init__(f"checkpoint {path}: {problem}")
        self.path, self.problem = Path(path), problem

    def __reduce__(self):
        return type(self), (self.path, self.problem)


@dataclass
class Checkpoint:
    """All that a training run needs to continue as if it had not been interrupted, on any number of ranks."""

    step: int  # steps that have been done
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # in the shapes of the serial model
    meta: dict[str, Any] = field(default_factory=dict)  # what JSON can hold: settings, history, states of generators

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as the contents of a file."""
    from safetensors.numpy import save

    arrays = {}
    for name, array in checkpoint.arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"checkpoint: array {name!r} has dtype {array.dtype}, expected numbers")
        arrays[name] = np.array(array, array.dtype.newbyteorder("="), order="C", copy=None)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "step": str(operator.index(checkpoint.step)),
        "meta": json.dumps(checkpoint.meta),
        "arrays": json.dumps([[name, zlib.crc32(array.tobytes())] for name, array in arrays.items()]),
        "sha256": _ZEROS,
    }
    data = save(arrays, metadata)
    place = data.index(_ZEROS.encode(), _LENGTH.size)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:place] + digest + data[place + len(digest) :]


def read(path) -> Checkpoint:
    """Read a checkpoint, and verify every byte."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = Path(path).read_bytes()
    try:
        arrays = load(data)
        (n,) = _LENGTH.unpack_from(data)
        metadata = json.loads(data[_LENGTH.size : _LENGTH.size + n]).get("__metadata__", {})
        if metadata.get("format") != FORMAT:
            raise CheckpointError(path, "is not a checkpoint: its header does not say so")
        order, digest = json.loads(metadata["arrays"]), metadata["sha256"].encode()
        if hashlib.sha256(data.replace(digest, _ZEROS.encode(), 1)).hexdigest().encode() != digest:
            bad = [name for name, crc in order if zlib.crc32(arrays[name].tobytes()) != crc]
            where = f" in array {', '.join(map(repr, bad))}" if bad else " in its header"
            raise CheckpointError(path, f"is damaged{where}: its checksum does not match")
        version, step, meta = metadata["version"], int(metadata["step"]), json.loads(metadata["meta"])
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(path, f"is truncated, damaged, or not a checkpoint ({error})") from None
    if version != VERSION:  # trusted only now that the checksum has been verified
        raise CheckpointError(path, f"has format version {version}, this library reads version {VERSION}")
    return Checkpoint(step, {name: arrays[name] for name, _ in order}, meta)


# -- store -------------------------------------------------------------------------------------------------------------
# A folder of checkpoints: written so that a crash at any moment costs at most the newest one.
#
# A checkpoint is written under another name, forced to the disk, and then renamed: a reader sees the whole file or
# none. One that was damaged later is rejected by name, and the one before it is used.

_NAME = re.compile(r"step-(\d{10})\.safetensors")
_UNFINISHED = re.compile(r"\.new-(.*)-(\d+)-step-\d{10}\.safetensors")
_LARGEST = 10**10 - 1
_FORGOTTEN = 3600.0
"""Age after which an unfinished file counts as abandoned [s]."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be used, or could not be written; training continues."""


class CheckpointStore:
    """The newest checkpoints of one training run, in their own folder.

    Parameters
    ----------
    folder : path
        Made when the first checkpoint is saved.
    keep : int
        Number of the newest checkpoints to keep; more than one, because the newest may turn out damaged. Those of
        later steps than the one that is saved (damaged, or training would have continued from them) do not count, and
        stay.

    Examples
    --------
    >>> import tempfile
    >>> store = CheckpointStore(tempfile.mkdtemp(), keep=2)
    >>> for step in (10, 20, 30):
    ...     path = store.save(Checkpoint(step))
    >>> store.steps, store.latest().step
    ([20, 30], 30)
    """

    def __init__(self, folder: str | Path, keep: int = 3):
        check_positive("CheckpointStore", keep=keep)
        self.folder, self.keep = Path(folder), keep
        if self.folder.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "CheckpointStore: expected a folder, this is a file", str(folder))

    def __repr__(self) -> str:
        return f"CheckpointStore({str(self.folder)!r}, keep={self.keep}): steps {self.steps}"

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(found[1]) for p in self.folder.iterdir() if (found := _NAME.fullmatch(p.name)))

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:010d}.safetensors"

    def save(self, checkpoint: Checkpoint) -> Path:
        """Save a checkpoint, durably and atomically; remove those beyond `keep`."""
        step = checkpoint.step
        check_number("CheckpointStore.save", whole=True, least=0, most=_LARGEST, step=step)
        data = to_bytes(checkpoint)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".new-*"):
            if _is_left(left):
                left.unlink(missing_ok=True)
        path = self.path(step)
        with whole_file(path) as fresh, open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(self.folder)
        for old in [s for s in self.steps if s <= step][: -self.keep]:
            self.path(old).unlink(missing_ok=True)
        return path

    def load(self, step: int) -> Checkpoint:
        """Read the checkpoint of a step; raise if it is truncated, damaged, or missing."""
        path = self.path(step)
        if not path.exists():
            raise CheckpointError(path, f"does not exist; there are those of steps {self.steps}")
        checkpoint = read(path)
        if checkpoint.step != step:
            raise CheckpointError(path, f"holds step {checkpoint.step}: the file was renamed")
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """Read the newest intact checkpoint; warn of those that are not. None if there is none at all."""
        # CheckpointError: If there are checkpoints, and none of them can be used: silently starting from scratch would
        # lose a run.
        problems, steps = [], self.steps
        for step in reversed(steps):
            try:
                return self.load(step)
            except (CheckpointError, OSError) as error:
                problems.append(error)
                instead = "the one before it is used" if step != steps[0] else "there is none before it"
                warnings.warn(f"{error}; {instead}", CheckpointWarning, stacklevel=2)
        if problems:
            found = f"none of the {len(problems)} can be used; the newest {problems[0]}"
            raise CheckpointError(self.folder, f"{found}; to start from scratch, choose another folder")
        return None


def _is_left(unfinished: Path) -> bool:
    """Say whether the writer of an unfinished checkpoint has died, as far as this machine can see."""
    import psutil

    found = _UNFINISHED.fullmatch(unfinished.name)
    if found and found[1] == platform.node() and not psutil.pid_exists(int(found[2])):
        return True
    try:
        return time.time() - unfinished.stat().st_mtime > _FORGOTTEN
    except FileNotFoundError:  # finished since
        return False


def _sync_folder(folder: Path) -> None:
    """Force a folder's list of names to the disk: a rename is durable only then."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# -- how often ---------------------------------------------------------------------------------------------------------


def young_interval(cost: float, mtbf: float) -> float:
    r"""Return the best time of work between two checkpoints, to first order [s].

    .. math:: \tau = \sqrt{2 C M}

    References
    ----------
    J. W. Young (1974), A first order approximation to the optimum checkpoint interval, CACM 17(9).

    Examples
    --------
    >>> young_interval(cost=18.0, mtbf=10_000.0)
    600.0
    """
    check_number("young_interval", above=0, cost=cost, mtbf=mtbf)
    return math.sqrt(2 * cost * mtbf)
