"""Writes IDX files: the tests' own, so that the reader is not checked against itself."""

import gzip
import struct

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
LETTERS = {"uint8": "B", "int8": "b", "int16": "h", "int32": "i", "float32": "f", "float64": "d"}


def idx_bytes(array) -> bytes:
    kind = array.dtype.name
    header = bytes([0, 0, CODES[kind], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + struct.pack(f">{array.size}{LETTERS[kind]}", *array.ravel().tolist())


def write_idx(path, array):
    data = idx_bytes(array)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path
