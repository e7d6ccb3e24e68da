"""Where built kernels are kept: the user's cache directory (DISTLEARN_CACHE names another), or a temporary one."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import shutil
import tempfile
import time
from pathlib import Path

import platformdirs
from filelock import FileLock


@functools.cache
def cache_directory() -> Path:
    """Return the directory of built kernels; create it if necessary."""
    root = os.environ.get("DISTLEARN_CACHE") or platformdirs.user_cache_dir("distlearn", appauthor=False)
    path = Path(root) / "cuda"
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    return path if writable else _temporary_cache()


def _temporary_cache() -> Path:
    """Return a temporary directory, for a home that cannot be written; it lasts until the machine restarts."""
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    path = Path(tempfile.gettempdir()) / f"distlearn-cuda-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and (path.is_symlink() or path.stat().st_uid != user):  # its files are executed
        return Path(tempfile.mkdtemp(prefix="distlearn-cuda-"))
    return path


@contextlib.contextmanager
def scratch_directory():
    """Provide a directory to build in, on the disk of the cache; remove those that killed processes have left."""
    for old in cache_directory().glob("building-*"):
        with contextlib.suppress(OSError):  # another process may be removing it, too
            if time.time() - old.stat().st_mtime > 3600:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache_directory(), prefix="building-") as scratch:
        yield Path(scratch)


def one_at_a_time(name: str) -> FileLock:
    """Return a lock with which one process at a time builds: the others then find the result."""
    return FileLock(cache_directory() / name)


def put(made: Path, path: Path) -> None:
    """Move a file into the cache: another process may have been faster, and on Windows be using the file."""
    try:
        os.replace(made, path)
    except PermissionError:
        if not path.exists():
            raise
