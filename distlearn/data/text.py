"""Text as a data set that needs no network: the pages that Python's `help()` shows."""

from __future__ import annotations

import numpy as np

from .checks import whole
from .dataset import Dataset

N_SYMBOLS = 128
"""Symbols are ASCII codes."""

_PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "..."})


def load_text(length: int = 64, *, test_fraction: float = 0.1, val_fraction: float = 0.1) -> Dataset:
    """Cut the pages of Python's language reference into sequences of characters, each labelled with the next one.

    Parameters
    ----------
    length : int
        Characters of a sequence.
    test_fraction, val_fraction : float
        Shares of the text that become the test and the validation split: its end, and what precedes that.

    Returns
    -------
    data : Dataset
        `x_train` is (n, length), ASCII codes; `y_train` is the same, one character later.

    Notes
    -----
    About 460,000 characters, from `pydoc_data.topics`, which every Python has; another version of Python, another text.
    Split in order, not at random: sentences are repeated within a page.

    Examples
    --------
    >>> data = load_text(32)
    >>> data.x_train.shape[1], data.n_classes
    (32, 128)
    >>> decode(data.x_train[0])[1:] == decode(data.y_train[0])[:-1]
    True
    """
    whole("load_text", "length", length, 1)
    for name, value in (("test_fraction", test_fraction), ("val_fraction", val_fraction)):
        if not 0 <= value < 0.5:
            raise ValueError(f"load_text: {name} is {value!r}, expected 0 or more and less than 0.5")
    from pydoc_data.topics import topics

    text = "\n\n\n".join(topics[name].strip() for name in sorted(topics)).translate(_PLAIN)
    codes = encode(text)
    rows = codes[: (len(codes) - 1) // length * length].reshape(-1, length)
    following = codes[1 : rows.size + 1].reshape(-1, length)
    cuts = [round((1 - test_fraction - val_fraction) * len(rows)), round((1 - test_fraction) * len(rows))]
    (x_train, x_val, x_test), (y_train, y_val, y_test) = np.split(rows, cuts), np.split(following, cuts)
    classes = tuple(map(chr, range(N_SYMBOLS)))
    return Dataset("python", x_train, y_train, x_val, y_val, x_test, y_test, classes, source="pydoc_data.topics")


def encode(text: str) -> np.ndarray:
    """Return the ASCII codes of a text; other characters are left out."""
    return np.frombuffer(text.encode("ascii", errors="ignore"), np.uint8).astype(np.int64)


def decode(codes) -> str:
    """Return the text of ASCII codes."""
    return "".join(map(chr, codes))
