"""Files that are whole or not there."""

import os
import platform
import shutil
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path):
    """Give the path of a new file or folder beside `path`, which takes its place once written, or is removed."""
    path = Path(path)
    # several machines may share a disk, and figures are saved by the end of the name
    fresh = path.with_name(f".new-{platform.node()}-{os.getpid()}-{path.name}")
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.unlink(missing_ok=True)
