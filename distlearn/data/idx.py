"""The IDX format of the MNIST archives: a tiny header and then the numbers, big-endian.

    byte 0, 1    zero
    byte 2       type of the numbers: 8 unsigned byte, 9 signed byte, 11 int16, 12 int32, 13 float32, 14 float64
    byte 3       number of dimensions d
    4 d bytes    the sizes, each an unsigned 32-bit integer
    the rest     the numbers, last dimension fastest

Source: Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, section "The IDX file format".
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

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

    Raises
    ------
    ValueError
        If the file is truncated, damaged, not an IDX file, or longer than its header says; names the file, what was
        expected and what was found.
    OSError
        If the file cannot be opened.
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
    """Read the file's bytes, decompressed if it is gzipped."""
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
    """Parse the header: type, shape, and its own length in bytes."""
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
