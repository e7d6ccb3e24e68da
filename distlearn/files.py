"""Files that are whole or not there."""

import os
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path):
    """Give the path of a new file beside `path`, which replaces it once it is written; after an error it is removed."""
    path = Path(path)
    fresh = path.with_name(f".new-{os.getpid()}-{path.name}")  # figures are saved by the end of the name
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
