"""Data as it is stored: scikit-learn's digits and IDX files, checked, before anything is scaled or split.

The IDX format of the MNIST archives is a tiny header and then the numbers, big-endian:

    byte 0, 1    zero
    byte 2       type of the numbers: 8 unsigned byte, 9 signed byte, 11 int16, 12 int32, 13 float32, 14 float64
    byte 3       number of dimensions d
    4 d bytes    the sizes, each an unsigned 32-bit integer
    the rest     the numbers, last dimension fastest

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, section "The IDX file format".
"""

from __future__ import annotations

import gzip
import importlib.util
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .sources import DIGITS, KNOWN, Files

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
    """Return the 1,797 digits of 8 x 8 pixels, 0 to 16, that come with scikit-learn."""
    # Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository.
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
    # bytes have a range to themselves; of other types only the training split's range is known
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


DTYPES = {8: np.uint8, 9: np.int8, 11: np.int16, 12: np.int32, 13: np.float32, 14: np.float64}

_GZIP = b"\x1f\x8b"
_MAX_DIMENSIONS = 64  # of a NumPy array


def read_idx(path) -> np.ndarray:
    """Read an IDX file, gzipped or plain, as an array.

    Parameters
    ----------
    path : str or Path
        Gzip is detected from the first bytes, not from the name: browsers decompress files and keep their names.

    Returns
    -------
    array : array of uint8, int8, int16, int32, float32 or float64
        In the machine's byte order, of the shape that the header gives.
    """
    path = Path(path)
    data = _unpacked(path)
    dtype, shape, header = _header(path, data)
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - header
    if found != expected:
        what = "truncated" if found < expected else "too long"
        size = " x ".join(map(str, shape))
        raise ValueError(
            f"{path}: {what}: expected {expected} bytes after the header ({size} of {dtype.name}), found {found}"
        )
    array = np.frombuffer(data, dtype.newbyteorder(">"), offset=header).reshape(shape)
    return array.astype(dtype)  # a copy, so that the array can be written to


def _unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise ValueError(
            f"{path}: truncated: expected a whole gzip file, found only the first {len(data)} bytes"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged: expected a whole gzip file, found {len(data)} bytes with {error}") from None


def _header(path: Path, data: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    if len(data) < 4:
        raise ValueError(f"{path}: truncated: expected at least 4 bytes of IDX header, found {len(data)}")
    if data[:2] != b"\0\0" or data[2] not in DTYPES or not 1 <= data[3] <= _MAX_DIMENSIONS:
        raise ValueError(
            f"{path}: not an IDX file: expected the bytes 0, 0, a type ({', '.join(map(str, DTYPES))}) and a number of "
            f"dimensions (1 to {_MAX_DIMENSIONS}), found {', '.join(map(str, data[:4]))}"
        )
    header = 4 + 4 * data[3]
    if len(data) < header:
        raise ValueError(f"{path}: truncated: expected {header} bytes of IDX header, found {len(data)}")
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.dtype(DTYPES[data[2]]), tuple(shape.tolist()), header
