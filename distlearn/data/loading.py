"""Load a data set by name: images, or text."""

from __future__ import annotations

import math

import numpy as np

from .dataset import Dataset, whole
from .raw import Raw, digits, from_files
from .sources import find

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
    whole("load_text", "length", length, 1)
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


def decode(codes) -> str:
    """Return the text of ASCII codes."""
    return "".join(map(chr, codes))


# -- loading -----------------------------------------------------------------------------------------------------------
# `load`: a data set by name, ready for training.

_last: dict[tuple, Dataset] = {}


def load(name: str = "digits", *, dtype=np.float32, val_fraction=0.1, seed=0) -> Dataset:
    """Load images with labels: scikit-learn's digits, MNIST, Fashion-MNIST, or any folder of IDX files.

    Pixels are scaled to 0..1 by the range of their type (0..255 for bytes, 0..16 for the digits), nothing else: no mean
    is taken off, so black stays 0 and a picture can be shown as it is. IDX files of other types are scaled by the range
    of their training images, which the test images may exceed.

    Parameters
    ----------
    name : str
        "digits" (comes with scikit-learn, needs no network), "mnist", "fashion-mnist", or the name of a folder of IDX
        files in DISTLEARN_DATA. Looked for in the folder that DISTLEARN_DATA names (`<name>/` below it, or that folder
        itself if it holds the IDX files), then in the cache, then downloaded.
    dtype : dtype
        Floating-point type of the samples.
    val_fraction : float
        Share of the training samples that becomes the validation split, from 0 to below 1.
    seed : int
        Decides which samples those are, and the order of the training samples. The test split is the published one,
        in its order, whatever the seed (digits has none: a fixed fifth of the samples, chosen once at random).

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
    if not 0 <= val_fraction < 1:
        raise ValueError(f"load: val_fraction is {val_fraction!r}, expected 0 or more and less than 1")
    whole("load", "seed", seed, 0)
    return dtype


def _dataset(name: str, raw: Raw, dtype: np.dtype, val_fraction: float, seed: int) -> Dataset:
    sample = raw.x_train.shape[1:]

    def samples(x):
        return _frozen(_scaled(x, raw.low, raw.high, dtype).reshape(len(x), math.prod(sample)))

    def labels(y):
        return _frozen(y.astype(np.int64))

    n = len(raw.x_train)
    order = np.random.default_rng(seed).permutation(n)
    val, train = np.split(order, [min(round(val_fraction * n), n - 1)])
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
        value_range=(float(raw.low), float(raw.high)),
    )


def _scaled(x: np.ndarray, low: float, high: float, dtype: np.dtype) -> np.ndarray:
    """Map low..high to 0..1; a range of one value becomes 0."""
    if x.dtype == np.uint8:
        return np.divide(x, dtype.type(high), dtype=dtype)
    return ((x.astype(np.float64) - low) / ((high - low) or 1)).astype(dtype)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
