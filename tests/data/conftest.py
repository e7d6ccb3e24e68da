import numpy as np
import pytest

from .idx_writer import write_idx


@pytest.fixture(autouse=True)
def own_world(monkeypatch, tmp_path):
    """No data, no cache and no proxy of the machine's reach these tests; nothing is remembered between them."""
    from distlearn.data import loading

    monkeypatch.delenv("DISTLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    loading._last.clear()


@pytest.fixture
def write_set():
    """Write a small data set of four IDX files into a folder; return its arrays."""

    def write(folder, n=(30, 8), shape=(5, 4), dtype=np.uint8, suffix=".gz", prefix="", seed=0, n_classes=10):
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        arrays = {}
        for split, count in zip(("train", "t10k"), n, strict=True):
            if np.dtype(dtype).kind == "f":
                x = rng.normal(size=(count, *shape)).astype(dtype)
            else:
                x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (count, *shape), dtype, endpoint=True)
            y = (np.arange(count) % n_classes).astype(np.uint8)
            ndim = 1 + len(shape)
            write_idx(folder / f"{prefix}{split}-images-idx{ndim}-ubyte{suffix}", x)
            write_idx(folder / f"{prefix}{split}-labels-idx1-ubyte{suffix}", y)
            arrays[split] = x, y
        return arrays

    return write
