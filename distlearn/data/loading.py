"""Load a data set by name: images, or text."""

from __future__ import annotations

import gzip
import itertools
import math
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backend import Array
from ..bounds import check_number, check_positive
from .dataset import Dataset
from .loader import Loader
from .sources import DIGITS, KNOWN, Files, find, is_visible

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# -- text --------------------------------------------------------------------------------------------------------------
# Text as a data set that needs no network: the pages that Python's `help()` shows.

N_SYMBOLS = 128  # Symbols are ASCII codes.

_PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "..."})


def load_text(length: int = 64) -> Dataset:
    """Cut the pages of Python's language reference into sequences of characters, each labelled with the next one.

    Parameters
    ----------
    length : int
        Characters of a sequence.

    Returns
    -------
    data : Dataset
        `x_train` is (n, length), ASCII codes; `y_train` is the same, one character later.

    Notes
    -----
    About 460,000 characters, from `pydoc_data.topics`, which every Python has; another version of Python, another text.
    The last tenth is the test split and the tenth before it the validation split: in order and not at random, as
    sentences are repeated within a page.

    Examples
    --------
    >>> data = load_text(32)
    >>> data.x_train.shape[1], data.n_classes
    (32, 128)
    >>> decode(data.x_train[0])[1:] == decode(data.y_train[0])[:-1]
    True
    """
    check_positive("load_text", length=length)
    from pydoc_data.topics import topics

    text = "\n\n\n".join(topics[name].strip() for name in sorted(topics)).translate(_PLAIN)
    codes = encode(text)
    rows = codes[: (len(codes) - 1) // length * length].reshape(-1, length)
    following = codes[1 : rows.size + 1].reshape(-1, length)
    cuts = [round(0.8 * len(rows)), round(0.9 * len(rows))]
    (x_train, x_val, x_test), (y_train, y_val, y_test) = np.split(rows, cuts), np.split(following, cuts)
    classes = tuple(map(chr, range(N_SYMBOLS)))
    return Dataset("python", x_train, y_train, x_val, y_val, x_test, y_test, classes, source="pydoc_data.topics")


def encode(text: str) -> np.ndarray:
    """Return the ASCII codes of a text; other characters are left out."""
    return np.frombuffer(text.encode("ascii", errors="ignore"), np.uint8).astype(np.int64)


def decode(codes: Array) -> str:
    """Return the text of ASCII codes."""
    return "".join(map(chr, codes))


# -- data as they are stored -------------------------------------------------------------------------------------------
# scikit-learn's digits and IDX files, checked, before anything is scaled or split.
#
# The IDX format of the MNIST archives is a tiny header and then the numbers, big-endian:
#
#     byte 0, 1    zero
#     byte 2       type of the numbers: 8 unsigned byte, 9 signed byte, 11 int16, 12 int32, 13 float32, 14 float64
#     byte 3       number of dimensions d
#     4 d bytes    the sizes, each an unsigned 32-bit integer
#     the rest     the numbers, last dimension fastest
#
# Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, section "The IDX file format".

_DIGITS_TEST = 360  # of 1,797: a fifth


class Raw(NamedTuple):
    """Samples as they are stored, and the value that becomes 1."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    source: str
    high: int


def digits() -> Raw:
    """Return the 1,797 digits of 8 x 8 pixels, 0 to 16, of scikit-learn's file."""
    # Source: E. Alpaydin, C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository.
    path = Path(__file__).with_name("digits") / "digits.csv.gz"  # 64 pixels and a label a row
    table = np.loadtxt(path, dtype=np.uint8, delimiter=",", encoding="utf-8")
    # the file is sorted by writer: its last fifth would be handwriting that training has never seen
    order = np.random.default_rng(0).permutation(len(table))
    test, train = np.split(table[order], [_DIGITS_TEST])
    (x_train, y_train), (x_test, y_test) = ((rows[:, :-1].reshape(-1, 8, 8), rows[:, -1]) for rows in (train, test))
    return Raw(x_train, y_train, x_test, y_test, DIGITS, "scikit-learn", 16)


def from_files(name: str, files: Files) -> Raw:
    """Read four IDX files and check that they match."""
    classes = KNOWN[name].classes if name in KNOWN else None
    x_train, y_train = _read_pair(files.train_images, files.train_labels, classes)
    x_test, y_test = _read_pair(files.test_images, files.test_labels, classes)
    if len(x_train) == 0:
        raise ValueError(f"{files.train_images}: found 0 samples, expected at least one")
    if x_train.shape[1:] != x_test.shape[1:]:
        raise ValueError(
            f"{files.test_images}: found samples of shape {x_test.shape[1:]}, "
            f"expected {x_train.shape[1:]} as in {files.train_images.name}"
        )
    if classes is None:
        classes = tuple(str(i) for i in range(max(int(y.max(initial=0)) for y in (y_train, y_test)) + 1))
    return Raw(x_train, y_train, x_test, y_test, classes, str(files.train_images.parent), 255)


def _read_pair(images: Path, labels: Path, classes) -> tuple[np.ndarray, np.ndarray]:
    """Read samples and their labels; with `classes` None any label of 0 or more is accepted."""
    x, y = read_idx(images), read_idx(labels)
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise ValueError(f"{images}: found an array of shape {x.shape}, expected (samples, height, width) or the like")
    if x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] not in (1, 3):
        raise ValueError(f"{images}: has channels first, {x.shape}; expected them last, x.transpose(0, 2, 3, 1)")
    if x.dtype != np.uint8:
        raise ValueError(f"{images}: found {x.dtype}, expected bytes from 0 to 255")
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


def read_idx(path: str | Path) -> np.ndarray:
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
        raise ValueError(f"{path}: {what}: expected {expected} bytes of data ({size} of {dtype.name}), found {found}")
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


# -- loading -----------------------------------------------------------------------------------------------------------
# `load`: a data set by name, ready for training.

_last: dict[tuple, Dataset] = {}


def load(
    name: str = "digits",
    *,
    dtype: DTypeLike = np.float32,
    val_fraction: float = 0.1,
    seed: int = 0,
    workers: int = 0,
    image_shape: tuple[int, int, int] | None = None,
) -> Dataset:
    """Load images with labels: scikit-learn's digits, MNIST, Fashion-MNIST, a folder of IDX files, or one of images.

    Pixels are scaled to 0..1 by the range of their type (0..255 for bytes, 0..16 for the digits), nothing else: no mean
    is taken off, so black stays 0 and a picture can be shown as it is. IDX files of images hold bytes.

    Parameters
    ----------
    name : str
        "digits" (scikit-learn's, comes with the package), "mnist", "fashion-mnist", or the name of a folder of IDX
        files in DISTLEARN_DATA. Looked for in the folder that DISTLEARN_DATA names (`<name>/` below it, or that folder
        itself if it holds the IDX files), then in the cache, then downloaded.
        A name with a slash ("photos/") is a folder of images, as a `Loader` takes it, or has such folders train/ and
        test/, and perhaps val/; these images are not loaded, but read when they are used.
    dtype : dtype
        Floating-point type of the samples.
    val_fraction : float
        Share of the training samples that becomes the validation split, from 0 to below 1; not where there is a val/.
    seed : int
        Decides which samples those are, and the order of the training samples. The test split is the published one,
        in its order, whatever the seed. Digits, and a folder without test/, have none: a fixed fifth of the samples,
        chosen once at random.
    workers, image_shape
        Of a `Loader`.

    Returns
    -------
    data : Dataset
        Its arrays are read-only and cached in memory for the next call, so that the ranks of a simulated world share
        them.

    Examples
    --------
    >>> load("digits", val_fraction=0.2)
    Dataset('digits', train (1150, 64), val (287, 64), test (360, 64), float32, 10 classes, from scikit-learn)
    """
    dtype = _check(name, dtype, val_fraction, seed)
    if "/" in name or os.sep in name:
        return _from_folder(Path(name), val_fraction, seed, dtype=dtype, workers=workers, image_shape=image_shape)
    for option, value in (("workers", workers), ("image_shape", image_shape)):
        if value:
            raise ValueError(f"load: {option} is {value!r}, but {name!r} is read at once; it is for folders of images")
    files = None if name == "digits" else find(name)
    stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files or ())
    key = (name, dtype, float(val_fraction), int(seed), stamps)
    if key not in _last:
        _last.clear()  # first, or two data sets would be in memory at once
        raw = digits() if files is None else from_files(name, files)
        _last[key] = _dataset(name, raw, dtype, val_fraction, seed)
    return _last[key]


def _check(name, dtype, val_fraction, seed) -> np.dtype:
    if not isinstance(name, str):
        raise ValueError(f"load: name is {name!r}, expected the name of a data set")
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        raise ValueError(f"load: dtype is {dtype}, expected a floating-point type")
    check_number("load", least=0, below=1, val_fraction=val_fraction)
    check_number("load", whole=True, least=0, seed=seed)
    return dtype


def _dataset(name: str, raw: Raw, dtype: np.dtype, val_fraction: float, seed: int) -> Dataset:
    sample = raw.x_train.shape[1:]

    def samples(x):
        return _frozen(np.divide(x, dtype.type(raw.high), dtype=dtype).reshape(len(x), math.prod(sample)))

    def labels(y):
        return _frozen(y.astype(np.int64))

    val, train = _split(np.arange(len(raw.x_train)), val_fraction, seed)
    return Dataset(
        name,
        samples(raw.x_train[train]),
        labels(raw.y_train[train]),
        samples(raw.x_train[val]),
        labels(raw.y_train[val]),
        samples(raw.x_test),
        labels(raw.y_test),
        classes=raw.classes,
        source=raw.source,
        image_shape={2: (*sample, 1), 3: sample}.get(len(sample)),
        value_range=(0.0, float(raw.high)),
    )


def _split(rows: np.ndarray, fraction: float, seed: int) -> list[np.ndarray]:
    """Draw a share of the rows, but never all; return these and the others."""
    order = np.random.default_rng(seed).permutation(rows)
    return np.split(order, [min(round(fraction * len(rows)), len(rows) - 1)])


def _from_folder(folder: Path, val_fraction: float, seed: int, **options) -> Dataset:
    inside = {path.name for path in folder.iterdir() if path.is_dir() and is_visible(path.name)}
    if {"train", "test"} <= inside:
        if others := sorted(inside - {"train", "val", "test"}):
            raise ValueError(f"{folder}: found {', '.join(others)} beside train/ and test/, expected val/ at most")
        x, test = (Loader(folder / part, **options) for part in ("train", "test"))
        val = Loader(folder / "val", **options) if "val" in inside else None
        for part, other in (("test", test), ("val", val or x)):
            for what in ("classes", "image_shape"):
                found, expected = getattr(other, what), getattr(x, what)
                if found != expected:
                    raise ValueError(f"{folder}: {part}/ has {what} {found}, expected those of train/: {expected}")
        rows = np.arange(len(x))
    else:
        x, val = Loader(folder, **options), None
        test_rows, rows = _split(np.arange(len(x)), 0.2, 0)
        test = x[test_rows]
    val_rows, train = _split(rows, 0 if val else val_fraction, seed)
    chosen = [(part, part.labels) for part in (x[train], val or x[val_rows], test)]
    return Dataset(folder.resolve().name, *itertools.chain(*chosen), x.classes, str(folder), x.image_shape, (0, 255))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
