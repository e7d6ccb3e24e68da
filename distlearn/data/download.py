"""Downloading a published file: resume interrupted transfers, try every mirror, verify the checksum.

Own code around pooch, which checks and places the file: pooch knows one address and starts from nothing when a transfer
breaks off, and a class that shares one slow line needs mirrors and resumption.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path

ROUNDS = 3  # times that all mirrors are tried
RESUMES = 20  # times that an interrupted transfer is resumed, as long as each attempt brings some bytes
PAUSE = 1.0  # seconds before the second round; doubles for each later one
TIMEOUT = (5, 30)  # seconds to connect, and without data in a transfer


class _BrokenError(Exception):
    """A transfer that was interrupted or timed out; asking for the rest may help."""


class _ChecksumError(Exception):
    """A complete transfer whose bytes are not the published ones."""


def fetch(file: str, folder, mirrors, sha256: str) -> Path:
    """Return the path of a published file in a folder, downloading it unless a good copy is there.

    A download is written under another name (`<file>.part`, kept for the next attempt) and gets its own only when its
    checksum is right. Processes that ask for the same file at once wait for the first.

    Parameters
    ----------
    file : str
        Name of the file.
    folder : str or Path
        Made if needed.
    mirrors : sequence of str
        Addresses to which the name is appended, best first.
    sha256 : str
        Checksum in hexadecimal digits.

    Raises
    ------
    ConnectionError
        If all mirrors fail; says what happened at each.
    ValueError
        If the downloaded file has another checksum; names the file, what was expected and what was found.
    """
    path = Path(folder, file)
    if is_good(path, sha256):
        return path
    import pooch
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{file}.lock")), _quiet(pooch.get_logger()):
        downloader = _Downloader(path, tuple(mirrors), sha256)
        pooch.retrieve(mirrors[0] + file, f"sha256:{sha256}", file, path.parent, downloader=downloader)
    return path


def is_good(path: Path, sha256: str) -> bool:
    """Say whether a file is there and has the checksum."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    return _known_checksum(path, stat.st_size, stat.st_mtime_ns, stat.st_ino) == sha256


def _checksum(path: Path) -> str:
    import pooch

    return pooch.file_hash(str(path), alg="sha256")


@functools.lru_cache(maxsize=64)
def _known_checksum(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    """Checksum of a finished file, computed once while it does not change: a thousand simulated ranks may ask."""
    return _checksum(path)


class _Downloader:
    """What `pooch.retrieve` calls to get a file (see "Downloaders" in its manual); pooch checks and places the result.

    pooch's own HTTPDownloader knows one address and starts again from nothing when a transfer breaks off.
    """

    def __init__(self, path: Path, mirrors: tuple[str, ...], sha256: str):
        self.file, self.mirrors, self.sha256 = path.name, mirrors, sha256
        self.part = path.with_name(f"{path.name}.part")

    def __call__(self, url, output_file, pooch):
        """Download to `output_file`; `url` is ignored, since all mirrors are tried."""
        self._try_mirrors()
        os.replace(self.part, output_file)

    def _try_mirrors(self) -> None:
        """Try the mirrors in turn until one succeeds; those with a permanent error are tried once."""
        from requests import HTTPError, RequestException

        mirrors, failures = list(self.mirrors), {}
        for attempt in range(ROUNDS):
            if attempt and mirrors:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            for mirror in tuple(mirrors):
                try:
                    return self._transfer(mirror + self.file)
                except (RequestException, _BrokenError, _ChecksumError) as error:
                    failures[mirror] = error
                    if isinstance(error, HTTPError) and _is_final(error.response.status_code):
                        mirrors.remove(mirror)
        raise self._failure(failures)

    def _failure(self, failures: dict[str, Exception]) -> Exception:
        """Make the error that says what happened at each mirror."""
        from requests import ConnectionError as UnreachableError

        if all(isinstance(error, UnreachableError) for error in failures.values()):
            reason = "no network, or none of the mirrors can be reached"
        else:
            reason = "all mirrors failed"
        bad = any(isinstance(error, _ChecksumError) for error in failures.values())
        lines = "".join(f"\n  {mirror}{self.file}: {_short(error)}" for mirror, error in failures.items())
        return (ValueError if bad else ConnectionError)(f"{self.file}: {reason}{lines}")

    def _transfer(self, url: str) -> None:
        """Get the whole file from one address, resuming as long as every attempt brings some bytes."""
        for left in reversed(range(RESUMES)):
            before = self._size()
            try:
                self._receive(url)
                return self._check()
            except _BrokenError:
                if not left or self._size() <= before:
                    raise

    def _receive(self, url: str) -> None:
        """Request the missing bytes and append them; a server without range requests sends the whole file again."""
        import requests
        from urllib3.exceptions import HTTPError as TransferError

        have = self._size()
        # identity: the bytes as published; otherwise requests would decompress them
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        try:
            with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
                if have and response.status_code == 416:
                    return  # 416: all bytes are here already; the checksum decides whether they are the file
                response.raise_for_status()
                self._store(response, have if response.status_code == 206 else 0)
        except (TransferError, requests.ReadTimeout) as error:
            raise _BrokenError(f"broke off after {self._size()} bytes ({_short(error)})") from error

    def _store(self, response, start: int) -> None:
        """Write the body behind the first `start` bytes, with a progress bar. urllib3 raises if it is too short."""
        from tqdm.auto import tqdm

        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        # disable=None: a bar on a terminal and in a notebook, none in a log file
        bar = {"desc": self.file, "total": total, "initial": start, "unit": "B", "unit_scale": True, "disable": None}
        with open(self.part, "ab" if start else "wb") as out, tqdm(**bar) as progress:
            for piece in response.raw.stream(1 << 16, decode_content=False):
                out.write(piece)
                progress.update(len(piece))

    def _check(self) -> None:
        """Delete a file whose checksum is not the published one, so that the next attempt starts from scratch."""
        found, size = _checksum(self.part), self._size()
        if found != self.sha256:
            self._discard()
            raise _ChecksumError(f"wrong SHA-256: expected {self.sha256}, found {found} ({size} bytes)")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)


def _is_final(status: int) -> bool:
    """Whether retrying is useless: a client error (4xx) other than a timeout or too many requests."""
    return 400 <= status < 500 and status not in (408, 429)


def _short(error: Exception) -> str:
    """The innermost reason of an error, in one line."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return _short(inner)
    return (str(error) or type(error).__name__).splitlines()[0].partition(" for url:")[0]


@contextlib.contextmanager
def _quiet(logger):
    """Silence pooch's log: the progress bar is enough."""
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)
