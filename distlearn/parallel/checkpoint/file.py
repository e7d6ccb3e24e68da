"""One checkpoint as one file that shows whether it is intact: safetensors with checksums.

Any tool that reads safetensors reads the arrays. The metadata hold, as text,

    format, version    "distlearn checkpoint", "2"
    step               steps done
    meta               JSON: all other information
    arrays             JSON: name and CRC-32 of every array, in order
    sha256             of the whole file, with zeros in place of this checksum

So a file that was cut off, or in which a bit has flipped, is refused, and the message names the damaged array.
"""

from __future__ import annotations

import hashlib
import json
import operator
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FORMAT, VERSION = "distlearn checkpoint", "2"
_ZEROS = "0" * 64
_LENGTH = struct.Struct("<Q")
"""A safetensors file begins with the length of its JSON header; the arrays follow it."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; says which file, and what is wrong with it."""

    def __init__(self, path, problem: str):
        super().__init__(f"checkpoint {path}: {problem}")
        self.path, self.problem = Path(path), problem

    def __reduce__(self):
        return type(self), (self.path, self.problem)


@dataclass
class Checkpoint:
    """All that a training run needs to continue as if it had not been interrupted.

    Parameters
    ----------
    step : int
        Steps that have been done.
    arrays : dict of str to array
        Parameters and optimizer state in the shapes of the serial model, so that any number of ranks can continue.
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


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as the contents of a file."""
    from safetensors.numpy import save

    arrays = {}
    for name, array in checkpoint.arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"checkpoint: array {name!r} has dtype {array.dtype}, expected numbers")
        arrays[name] = np.array(array, array.dtype.newbyteorder("="), order="C", copy=None)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "step": str(operator.index(checkpoint.step)),
        "meta": json.dumps(checkpoint.meta),
        "arrays": json.dumps([[name, zlib.crc32(array.tobytes())] for name, array in arrays.items()]),
        "sha256": _ZEROS,
    }
    data = save(arrays, metadata)
    place = data.index(_ZEROS.encode(), _LENGTH.size)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:place] + digest + data[place + len(digest) :]


def from_bytes(data: bytes, path) -> Checkpoint:
    """Make a checkpoint from the contents of a file, and verify every byte."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header, total = _header(data, path)
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise CheckpointError(path, "is not a checkpoint: its header does not say so")
    if len(data) != total:
        what = "truncated" if len(data) < total else "damaged"
        raise CheckpointError(path, f"is {what}: it has {len(data)} bytes of {total}")
    digest = metadata.get("sha256", "").encode()
    zeroed = data.replace(digest, _ZEROS.encode(), 1) if digest else b""
    try:
        arrays = load(data)
        order = json.loads(metadata["arrays"])
        if hashlib.sha256(zeroed).hexdigest().encode() != digest:
            bad = [name for name, crc in order if zlib.crc32(arrays[name].tobytes()) != crc]
            where = f" in array {', '.join(map(repr, bad))}" if bad else " in its header"
            raise CheckpointError(path, f"is damaged{where}: its checksum does not match")
        version, step, meta = metadata["version"], int(metadata["step"]), json.loads(metadata["meta"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(path, f"is damaged in its header: {error}") from None
    if version != VERSION:  # trusted only now that the checksum has been verified
        raise CheckpointError(path, f"has format version {version}, this library reads version {VERSION}")
    return Checkpoint(step, {name: arrays[name] for name, _ in order}, meta)


def _header(data: bytes, path) -> tuple[dict, int]:
    """Return the header of a safetensors file, and how many bytes the file should have."""
    if len(data) < _LENGTH.size:
        raise CheckpointError(path, f"is truncated: {len(data)} bytes are less than a header")
    (n,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + n
    if data[_LENGTH.size : _LENGTH.size + 1] not in (b"{", b""):
        raise CheckpointError(path, f"is not a checkpoint (it begins with {data[:9]!r})")
    if len(data) < start:
        raise CheckpointError(path, f"is truncated: {len(data)} bytes, and its header alone has {n}")
    try:
        header = json.loads(data[_LENGTH.size : start])
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return header, start + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(path, f"is damaged in its header: {error}") from None


def read(path) -> Checkpoint:
    """Read a checkpoint, and verify every byte; see `from_bytes`."""
    return from_bytes(Path(path).read_bytes(), path)
