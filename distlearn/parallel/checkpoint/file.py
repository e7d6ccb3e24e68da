"""One checkpoint as one file, which says by itself whether it is whole.

    magic (8) | format version (4) | length of the header (8) | length of the file (8)
    header: JSON with the step, what else there is to know, and name, dtype, shape, offset and CRC-32 of every array
    the arrays, one after the other
    SHA-256 of everything before it (32)

So a file that was cut off, or in which a bit has turned, is refused, and the message says which array is hit.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MAGIC = b"\x89DLCKPT\n"
VERSION = 1
_PREAMBLE = struct.Struct("<8sIQQ")
_DIGEST = hashlib.sha256().digest_size


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; says which file, and what is wrong with it."""

    def __init__(self, path, problem: str):
        super().__init__(f"checkpoint {path}: {problem}")
        self.path, self.problem = Path(path), problem

    def __reduce__(self):
        return type(self), (self.path, self.problem)


@dataclass
class Checkpoint:
    """All that a training run needs to go on as if nothing had happened.

    Parameters
    ----------
    step : int
        Steps that have been done.
    arrays : dict of str to array
        Parameters and optimizer state in the shapes of the serial model, so that any number of ranks can go on.
    meta : dict
        What JSON can hold: the run's settings, its history, the states of random number generators.
    """

    step: int
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Size of the arrays [bytes]."""
        return sum(array.nbytes for array in self.arrays.values())


def write(file, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a binary file.

    Raises
    ------
    TypeError
        For a step that is no whole number, arrays of objects, and `meta` that is no JSON: before anything is written.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
    entries, offset = [], 0
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"checkpoint: array {name!r} has dtype {array.dtype}, expected numbers")
        crc = zlib.crc32(_bytes_of(array))
        shape = list(checkpoint.arrays[name].shape)  # ascontiguousarray makes a vector of a scalar
        entries.append({"name": name, "dtype": array.dtype.str, "shape": shape, "offset": offset, "crc32": crc})
        offset += array.nbytes
    step = operator.index(checkpoint.step)  # JSON has no word for NumPy's integers
    header = json.dumps({"step": step, "meta": checkpoint.meta, "arrays": entries}).encode()
    total = _PREAMBLE.size + len(header) + offset + _DIGEST
    digest = hashlib.sha256()
    for part in (_PREAMBLE.pack(MAGIC, VERSION, len(header), total), header, *map(_bytes_of, arrays.values())):
        digest.update(part)
        file.write(part)
    file.write(digest.digest())


def read(path) -> Checkpoint:
    """Read a checkpoint, and make sure of every byte.

    Raises
    ------
    CheckpointError
        If the file is torn, damaged, of another format version, or no checkpoint.
    FileNotFoundError
    """
    data = memoryview(Path(path).read_bytes())
    if bytes(data[:8]) != MAGIC[: len(data)]:
        raise CheckpointError(path, f"is no checkpoint (it begins with {bytes(data[:8])!r})")
    if len(data) < _PREAMBLE.size:
        raise CheckpointError(path, f"is torn: {len(data)} bytes are not even its beginning")
    _, version, n_header, total = _PREAMBLE.unpack_from(data)
    if len(data) < total:
        raise CheckpointError(path, f"is torn: {len(data)} of {total} bytes are there")
    if len(data) > total:
        raise CheckpointError(path, f"is damaged: it has {len(data)} bytes and should have {total}")
    body, digest = data[:-_DIGEST], bytes(data[-_DIGEST:])
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError(path, f"is damaged{_where(body, n_header)}: its checksum does not fit")
    if version != VERSION:
        raise CheckpointError(path, f"has format version {version}, this library reads version {VERSION}")
    header = json.loads(bytes(body[_PREAMBLE.size : _PREAMBLE.size + n_header]))
    blob = body[_PREAMBLE.size + n_header :]
    return Checkpoint(header["step"], {e["name"]: _array(blob, e) for e in header["arrays"]}, header["meta"])


def _bytes_of(array) -> memoryview:
    """Look at a contiguous array as bytes."""
    return memoryview(array.reshape(-1).view(np.uint8))


def _part(blob, entry) -> memoryview:
    """Return the bytes of one array."""
    n = math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
    return blob[entry["offset"] : entry["offset"] + n]


def _array(blob, entry) -> np.ndarray:
    """Make one array; a copy, so that it can be written to."""
    return np.frombuffer(_part(blob, entry), entry["dtype"]).reshape(entry["shape"]).copy()


def _where(body, n_header: int) -> str:
    """Say in which array a damaged file is hit, as far as its header can be read."""
    try:
        entries = json.loads(bytes(body[_PREAMBLE.size : _PREAMBLE.size + n_header]))["arrays"]
        blob = body[_PREAMBLE.size + n_header :]
        bad = [e["name"] for e in entries if zlib.crc32(_part(blob, e)) != e["crc32"]]
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError):  # the last from a dtype that is none
        return " in its header"
    return f" in array {', '.join(map(repr, bad))}" if bad else " in its header or its end"
