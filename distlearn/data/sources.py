"""Where a data set comes from: a folder of the user, the cache, or a download."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from .catalogue import FILES, KNOWN
from .download import fetch

ENV = "DISTLEARN_DATA"

_ROLES = {
    "train_images": ("training images", re.compile(r"(.+[-_])?train-images[-.]idx\d+-\w+(\.gz)?")),
    "train_labels": ("training labels", re.compile(r"(.+[-_])?train-labels[-.]idx\d+-\w+(\.gz)?")),
    "test_images": ("test images", re.compile(r"(.+[-_])?(t10k|test)-images[-.]idx\d+-\w+(\.gz)?")),
    "test_labels": ("test labels", re.compile(r"(.+[-_])?(t10k|test)-labels[-.]idx\d+-\w+(\.gz)?")),
}


class Files(NamedTuple):
    """The four IDX files of a data set."""

    train_images: Path
    train_labels: Path
    test_images: Path
    test_labels: Path

    @property
    def folder(self) -> Path:
        """The folder that contains them."""
        return self.train_images.parent


class Available(NamedTuple):
    """Where `load(name)` would find a data set."""

    name: str
    origin: str
    """One of "package", "folder", "cache", "download"; "broken" if `load` would fail."""
    where: str
    """Package, path or address; what is wrong if broken."""


def available() -> list[Available]:
    """List the data sets that `load` knows and where each would come from.

    Nothing is downloaded or read, so a damaged file shows only when it is loaded.

    Returns
    -------
    table : list of Available
        The built-in digits, the published sets, and any others in DISTLEARN_DATA.

    Examples
    --------
    >>> available()[0]
    Available(name='digits', origin='package', where='scikit-learn')
    """
    others = sorted(set(_held()) - {"digits", *KNOWN})
    return [Available("digits", "package", "scikit-learn"), *(_origin(name) for name in (*KNOWN, *others))]


def find(name: str) -> Files:
    """Return the files of a data set, downloading them if needed.

    Raises
    ------
    ValueError
        For a name that is neither known nor in DISTLEARN_DATA, and for a download with a wrong checksum.
    FileNotFoundError, NotADirectoryError
        If DISTLEARN_DATA lacks a file, or is not a folder.
    ConnectionError
        If the files have to be downloaded and the download fails.
    """
    folder = _users_folder(name)
    if folder is not None:
        return files_in(folder)
    if name not in KNOWN:
        names = ", ".join(("digits", *KNOWN))
        raise ValueError(f"load: unknown data set {name!r}: known are {names}; {_what_is_held()}")
    known = KNOWN[name]
    try:
        return Files(*(fetch(file, _cache(name), known.mirrors, known.sha256[file]) for file in FILES))
    except (ConnectionError, ValueError) as error:
        raise (ValueError if isinstance(error, ValueError) else ConnectionError)(
            f"load({name!r}): {error}\nWays on: put the four IDX files of {name} into a folder <data>/{name} and set "
            f"{ENV}=<data>; or load('digits'), which needs no network."
        ) from None


def files_in(folder: Path) -> Files:
    """Return the four IDX files that a folder holds.

    The official names are preferred to others such as `emnist-letters-train-images-idx3-ubyte`, gzipped to plain files.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    chosen = []
    for official, (role, pattern) in zip(FILES, _ROLES.values(), strict=True):
        stem = official.partition("-idx")[0]
        fitting = [name for name in names if pattern.fullmatch(name)]
        fitting = [name for name in fitting if name.startswith(stem)] or fitting
        kinds = {name.removesuffix(".gz") for name in fitting}
        if len(kinds) != 1:
            raise FileNotFoundError(
                f"{folder}: expected one file of {role} ({official}, gzipped or plain), "
                f"found {', '.join(fitting or names) or 'an empty folder'}"
            )
        chosen.append(folder / max(fitting, key=lambda name: name.endswith(".gz")))
    return Files(*chosen)


def _root() -> Path | None:
    """The folder that DISTLEARN_DATA names, if it is set."""
    value = os.environ.get(ENV)
    if not value:
        return None
    root = Path(os.path.abspath(Path(value).expanduser()))
    if not root.is_dir():
        raise NotADirectoryError(f"{ENV} is {value!r}, expected the folder that holds mnist/, fashion-mnist/, ...")
    return root


def _users_folder(name: str) -> Path | None:
    """The folder below DISTLEARN_DATA that holds a data set, or DISTLEARN_DATA itself if it holds the files.

    A folder named after one known data set is never used for another.
    """
    root = _root()
    if root is None or not name or Path(name).name != name or name == "..":
        return None
    if (root / name).is_dir():
        return root / name
    itself = _has_idx(root) and (root.name == name or root.name not in KNOWN)
    return root if itself else None


def _has_idx(folder: Path) -> bool:
    pattern = _ROLES["train_images"][1]
    return any(pattern.fullmatch(entry.name) for entry in folder.iterdir() if entry.is_file())


def _held() -> list[str]:
    """Names of the data sets in DISTLEARN_DATA; empty if it is not set or not a folder."""
    try:
        root = _root()
    except NotADirectoryError:
        return []
    if root is None:
        return []
    names = {entry.name for entry in root.iterdir() if entry.is_dir() and _has_idx(entry)}
    return sorted(names | ({root.name} if _has_idx(root) else set()))


def _what_is_held() -> str:
    if _root() is None:
        return f"{ENV} is not set (it may name a folder that holds <name>/ with IDX files)"
    return f"{ENV} ({_root()}) holds {', '.join(_held()) or 'no IDX files'}"


def _origin(name: str) -> Available:
    try:
        folder = _users_folder(name)
        if folder is not None:
            return Available(name, "folder", str(files_in(folder).folder))
    except OSError as error:
        return Available(name, "broken", str(error))
    cache = _cache(name)
    if all((cache / file).is_file() for file in FILES):
        return Available(name, "cache", str(cache))
    return Available(name, "download", KNOWN[name].mirrors[0])


def _cache(name: str) -> Path:
    """Where downloads of a data set are kept."""
    import pooch

    return Path(pooch.os_cache("distlearn")) / name
