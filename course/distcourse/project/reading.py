"""What teams hand in, read as data: sizes are bounded, and what cannot be meant is refused with its place."""

from __future__ import annotations

import io
import lzma
import math
import re
import stat
import zipfile
import zlib
from pathlib import Path

import numpy as np

MOST_FILES, MOST_BYTES, MOST_RATIO = 64, 2**25, 100
"""Of an archive or a folder: files, bytes of all, and bytes of a file for each byte it is packed into."""
MOST_TEXT = 2**18
"""Bytes of a file of data or a source."""
BROKEN = (zipfile.BadZipFile, NotImplementedError, OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError)
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
TEAM = re.compile(r"[a-z][a-z0-9-]{1,22}[a-z0-9]")


class Refused(ValueError):
    """What was handed in cannot be read; the message says where and why."""


def team_name(name: str) -> str:
    """Return a team's name if it is one."""
    if not TEAM.fullmatch(name):
        raise Refused(f"team {name!a}: 3 to 24 of a-z, 0-9 and -, beginning with a letter")
    return name


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """Read an ordinary file of limited size."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path.name}: not an ordinary file (links, pipes and devices are refused)")
    if found.st_size > most:
        raise Refused(f"{path.name}: {found.st_size:,} bytes, {most:,} are allowed")
    return path.read_bytes()


def text_of(data: bytes, name: str, ascii_only: bool = True) -> str:
    """Decode a text: UTF-8 without a byte-order mark, for data and sources ASCII alone."""
    if data[:3] == b"\xef\xbb\xbf" or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Refused(f"{name}: begins with a byte-order mark; save it as UTF-8 without one")
    try:
        text = data.decode("ascii" if ascii_only else "utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        what = data[error.start :].decode("utf-8", "replace")[:1]
        where = f"{name}, line {data.count(10, 0, error.start) + 1}"
        told = "not ASCII (does it look like another?)" if ascii_only else "not UTF-8: save the file as UTF-8"
        raise Refused(f"{where}: the character {what!a} is {told}") from None
    if hidden := HIDDEN.search(text):
        raise Refused(
            f"{name}, line {text.count(chr(10), 0, hidden.start()) + 1}: the character {hidden[0]!a}, invisible"
        )
    return text


def files_of(path: Path) -> dict[str, bytes]:
    """Read a folder or a zip archive as bytes by relative path; nothing is written, nothing outside is followed."""
    if path.is_symlink():
        raise Refused(f"{path.name}: a link")
    return _checked_names(_folder(path) if path.is_dir() else _archive(path))


def _folder(path: Path):
    total = 0
    for found in sorted(path.rglob("*")):
        name = found.relative_to(path).as_posix()
        if found.is_symlink() or not (found.is_dir() or found.is_file()):
            raise Refused(f"{name}: not an ordinary file (links, pipes and devices are refused)")
        if found.is_file():
            yield name, read_bytes(found, MOST_BYTES - total)
            total += found.stat().st_size


def _archive(path: Path):
    if path.stat().st_size > MOST_BYTES:
        raise Refused(f"{path.name}: more than {MOST_BYTES:,} bytes")
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                kind, size = stat.S_IFMT(entry.external_attr >> 16), entry.file_size
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or entry.flag_bits & 1:
                    raise Refused(f"{entry.filename!a}: not an ordinary file (links, devices, passwords are refused)")
                if size > MOST_RATIO * max(entry.compress_size, 1000) or total + size > MOST_BYTES:
                    raise Refused(f"{entry.filename!a}: unpacks to {size:,} bytes, a bomb or too large")
                if not entry.orig_filename.endswith("/"):
                    with archive.open(entry) as file:
                        data = file.read(size + 1)
                    total += len(data)
                    yield entry.orig_filename, data
    except BROKEN as error:
        raise Refused(f"{path.name}: not a zip archive that can be read ({error})") from None


def _checked_names(pairs) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, data in pairs:
        parts = name.split("/")
        if not re.fullmatch(r"[\w.,+()& /-]+", name, re.ASCII):
            raise Refused(
                f"{name!a}: names have ASCII letters, digits and . , _ - + ( ) & alone (does one look like another?)"
            )
        if ".." in parts or "" in parts or "." in parts or len(parts) > 6:
            raise Refused(f"{name!a}: leads outside, is absolute or too deep")
        if name.casefold() in map(str.casefold, found):
            raise Refused(f"{name!a}: there twice (upper and lower case are the same on some systems)")
        if data[:4] in (b"PK\3\4", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zX") and not name.endswith((".npz", ".pptx")):
            raise Refused(f"{name!a}: an archive within the archive")
        found[name] = data
        if len(found) > MOST_FILES:
            raise Refused(f"more than {MOST_FILES} files")
    return found


def csv_rows(data: bytes, name: str, cell: str, like: str, most_rows: int, most_columns: int) -> list[list[str]]:
    """Read a table whose cells all have one form; no quotes, no empty cells."""
    lines = text_of(data, name).rstrip("\n").split("\n")
    if len(lines) > most_rows:
        raise Refused(f"{name}: {len(lines):,} rows, at most {most_rows} are expected")
    rows = []
    for number, line in enumerate(lines, 1):
        row = line.split(",")
        if len(row) > most_columns:
            raise Refused(f"{name}, line {number}: {len(row):,} cells, at most {most_columns} are expected")
        for text in row:
            if not re.fullmatch(cell, text, re.ASCII):
                raise Refused(f"{name}, line {number}: the cell {text[:20]!a}, expected one such as {like}")
        rows.append(row)
    return rows


def array_of(data: bytes, name: str, dtype, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Read an array that a submission's process wrote, after checking its header; without a shape, any of one axis."""
    stream, dtype = io.BytesIO(data), np.dtype(dtype)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("expected version 1.0")
        found_shape, _, found = np.lib.format.read_array_header_1_0(stream)
    except ValueError as error:
        raise Refused(f"{name}: not an array of NumPy ({error})") from None
    rest = len(data) - stream.tell()
    if (
        found != dtype
        or found_shape != (shape or (rest // dtype.itemsize,))
        or rest != dtype.itemsize * math.prod(found_shape)
    ):
        raise Refused(f"{name}: {found} {found_shape}, expected {dtype} {shape or 'of one axis'}")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(found_shape)
