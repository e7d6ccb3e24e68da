"""A folder of checkpoints: written so that a crash at any moment costs at most the newest one.

A checkpoint is written under another name, forced to the disk, and then renamed: a reader sees the whole file or none.
One that was damaged later is rejected by name, and the one before it is used.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import time
import warnings
from pathlib import Path

from .file import Checkpoint, CheckpointError, read, to_bytes

_NAME = re.compile(r"step-(\d{10})\.safetensors")
_TEMPORARY = re.compile(r"\.step-\d{10}\.safetensors\.(.*)\.(\d+)\.tmp")
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

    Raises
    ------
    NotADirectoryError
        If the folder is a file.

    Examples
    --------
    >>> import tempfile
    >>> store = CheckpointStore(tempfile.mkdtemp(), keep=2)
    >>> for step in (10, 20, 30):
    ...     path = store.save(Checkpoint(step))
    >>> store.steps, store.latest().step
    ([20, 30], 30)
    """

    def __init__(self, folder, keep: int = 3):
        if not isinstance(keep, int) or keep < 1:
            raise ValueError(f"CheckpointStore: keep is {keep!r}, expected a whole number, 1 or more")
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
        """Return the name of the file for a step."""
        return self.folder / f"step-{step:010d}.safetensors"

    def save(self, checkpoint: Checkpoint) -> Path:
        """Save a checkpoint, durably and atomically; remove those beyond `keep`.

        Raises
        ------
        ValueError
            If the step is not a whole number, 0 or more.
        OSError
            If there is no room, or the folder cannot be written; what was saved before is unchanged.
        """
        step = checkpoint.step
        if not (hasattr(step, "__index__") and 0 <= step <= _LARGEST):
            raise ValueError(f"CheckpointStore.save: step is {step!r}, expected a whole number from 0 to {_LARGEST}")
        data = to_bytes(checkpoint)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".step-*.tmp"):
            if _is_left(left):
                left.unlink(missing_ok=True)
        path = self.path(step)
        temporary = self.folder / f".{path.name}.{platform.node()}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self.folder)
        for old in [s for s in self.steps if s <= step][: -self.keep]:
            self.path(old).unlink(missing_ok=True)
        return path

    def load(self, step: int) -> Checkpoint:
        """Read the checkpoint of a step.

        Raises
        ------
        CheckpointError
            If it is truncated, damaged, or missing.
        """
        path = self.path(step)
        if not path.exists():
            raise CheckpointError(path, f"does not exist; there are those of steps {self.steps}")
        checkpoint = read(path)
        if checkpoint.step != step:
            raise CheckpointError(path, f"holds step {checkpoint.step}: the file was renamed")
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """Read the newest intact checkpoint; warn of those that are not. None if there is none at all.

        Raises
        ------
        CheckpointError
            If there are checkpoints, and none of them can be used: silently starting from scratch would lose a run.
        """
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


def _is_left(temporary: Path) -> bool:
    """Say whether the writer of a temporary file has died, as far as this machine can tell; it may still be writing."""
    import psutil

    found = _TEMPORARY.fullmatch(temporary.name)
    if found and found[1] == platform.node() and not psutil.pid_exists(int(found[2])):
        return True
    try:
        return time.time() - temporary.stat().st_mtime > _FORGOTTEN
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
