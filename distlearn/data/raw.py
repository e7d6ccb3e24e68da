"""Data as it is stored: scikit-learn's digits and IDX files, checked, before anything is scaled or split."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .catalogue import DIGITS, KNOWN
from .idx import read_idx
from .sources import Files

_DIGITS_TEST = 360  # of 1,797: a fifth


class Raw(NamedTuple):
    """Samples as they are stored, and the values that become 0 and 1."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    source: str
    low: float
    high: float


def digits() -> Raw:
    """Return the 1,797 digits of 8 x 8 pixels, 0 to 16, that come with scikit-learn.

    Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository.
    """
    table = _digits_table()
    # the file is sorted by writer: its last fifth would be handwriting that training has never seen
    order = np.random.default_rng(0).permutation(len(table))
    test, train = np.split(table[order], [_DIGITS_TEST])
    (x_train, y_train), (x_test, y_test) = ((rows[:, :-1].reshape(-1, 8, 8), rows[:, -1]) for rows in (train, test))
    return Raw(x_train, y_train, x_test, y_test, DIGITS, "scikit-learn", 0, 16)


def _digits_table() -> np.ndarray:
    """Rows of 64 pixels and a label, as bytes; read from the package's file, since importing the package takes 1 s."""
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise ModuleNotFoundError("load('digits'): these images come with scikit-learn; run: pip install scikit-learn")
    path = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    if path.is_file():
        return np.loadtxt(path, dtype=np.uint8, delimiter=",", encoding="utf-8")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.uint8)


def from_files(name: str, files: Files) -> Raw:
    """Read four IDX files and check that they match."""
    classes = KNOWN[name].classes if name in KNOWN else None
    x_train, y_train = _read_pair(files.train_images, files.train_labels, classes)
    x_test, y_test = _read_pair(files.test_images, files.test_labels, classes)
    if len(x_train) == 0:
        raise ValueError(f"{files.train_images}: found 0 samples, expected at least one")
    if (x_train.dtype, x_train.shape[1:]) != (x_test.dtype, x_test.shape[1:]):
        raise ValueError(
            f"{files.test_images}: found samples of {x_test.dtype} and shape {x_test.shape[1:]}, "
            f"expected {x_train.dtype} and {x_train.shape[1:]} as in {files.train_images.name}"
        )
    if classes is None:
        classes = tuple(str(i) for i in range(max(int(y.max(initial=0)) for y in (y_train, y_test)) + 1))
    # bytes have a range of their own; of other types only the training split's range is known
    low, high = (0, 255) if x_train.dtype == np.uint8 else (float(x_train.min()), float(x_train.max()))
    return Raw(x_train, y_train, x_test, y_test, classes, str(files.folder), low, high)


def _read_pair(images: Path, labels: Path, classes) -> tuple[np.ndarray, np.ndarray]:
    """Read samples and their labels; with `classes` None any label of 0 or more is accepted."""
    x, y = read_idx(images), read_idx(labels)
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise ValueError(f"{images}: found an array of shape {x.shape}, expected (samples, height, width) or the like")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ValueError(f"{images}: found {np.count_nonzero(~np.isfinite(x))} values that are not finite, expected 0")
    if y.ndim != 1 or y.dtype.kind == "f":
        raise ValueError(f"{labels}: found {y.dtype} of shape {y.shape}, expected labels: whole numbers in 1 dimension")
    if len(x) != len(y):
        raise ValueError(f"{labels}: found {len(y)} labels, expected {len(x)}, as many as samples in {images.name}")
    if len(y) and (y.min() < 0 or (classes and y.max() >= len(classes))):
        expected = f"0 to {len(classes) - 1}" if classes else "0 or more"
        raise ValueError(f"{labels}: found labels from {y.min()} to {y.max()}, expected {expected}")
    return x, y
