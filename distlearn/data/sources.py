"""Sources of data sets: folders, shards, slow storage, the cache, a download."""

from __future__ import annotations

import functools
import io
import json
import math
import os
import tarfile
import time
from collections import Counter
from hashlib import blake2b
from multiprocessing import RawValue
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..bounds import check_number, check_positive
from ..files import whole_file

# -- catalogue ---------------------------------------------------------------------------------------------------------
# The data sets that are known by name: classes, mirrors, checksums of the official archives.

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
FILES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)


class Known(NamedTuple):
    """A data set that is published as four IDX archives."""

    classes: tuple[str, ...]
    mirrors: tuple[str, ...]  # Addresses, in the order in which they are tried; a file's name is appended.
    sha256: dict[str, str]  # Checksum by file name.


DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
           "Ankle boot")  # fmt: skip

KNOWN = {
    # Y. LeCun, C. Cortes, C. Burges: 60,000 + 10,000 handwritten digits, 28 x 28
    "mnist": Known(
        classes=DIGITS,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        sha256={
            TRAIN_IMAGES: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            TRAIN_LABELS: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            TEST_IMAGES: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            TEST_LABELS: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    # H. Xiao, K. Rasul, R. Vollgraf (2017), Fashion-MNIST, arXiv:1708.07747: 60,000 + 10,000 clothes, 28 x 28
    "fashion-mnist": Known(
        classes=CLOTHES,
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        sha256={
            TRAIN_IMAGES: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            TRAIN_LABELS: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            TEST_IMAGES: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            TEST_LABELS: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
}


# -- download ----------------------------------------------------------------------------------------------------------
# pooch fetches a file, tries again, and checks it; a class that shares one slow line also needs other mirrors.

RETRIES = 2  # of each mirror
TIMEOUT = (5, 30)  # seconds to connect, and without data in a transfer


def fetch(file: str, folder, mirrors, sha256: str) -> Path:
    """Return the path of a published file in a folder, downloading it unless a good copy is there."""
    # Processes that ask for the same file at once wait for the first.
    # mirrors: Addresses to which the name is appended, best first.
    # ConnectionError: If all mirrors fail; says what happened at each. ValueError: If one sent other bytes.
    path = Path(folder, file)
    if _is_good(path, sha256):
        return path
    import pooch
    from filelock import FileLock
    from requests import RequestException
    from tqdm.auto import tqdm

    path.parent.mkdir(parents=True, exist_ok=True)
    failures = {}
    pooch.get_logger().setLevel("WARNING")  # the progress bar is enough
    with FileLock(path.with_name(f"{file}.lock")):
        for mirror in mirrors:
            store = pooch.create(path.parent, mirror, registry={file: f"sha256:{sha256}"}, retry_if_failed=RETRIES)
            # disable=None: a bar on a terminal and in a notebook, none in a log file
            bar = tqdm(desc=file, total=1, unit="B", unit_scale=True, disable=None)  # pooch sets the total
            try:
                store.fetch(file, downloader=pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT))
                return path
            except (RequestException, ValueError) as error:
                failures[mirror] = error
    kind = ValueError if any(isinstance(e, ValueError) for e in failures.values()) else ConnectionError
    lines = "".join(f"\n  {mirror}{file}: {_short(error)}" for mirror, error in failures.items())
    raise kind(f"{file}: all mirrors failed{lines}")


def _is_good(path: Path, sha256: str) -> bool:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    return _checksum(path, stat.st_size, stat.st_mtime_ns, stat.st_ino) == sha256


@functools.lru_cache(maxsize=64)
def _checksum(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    """Checksum of a finished file, computed once while it does not change: a thousand simulated ranks may ask."""
    import pooch

    return pooch.file_hash(str(path), alg="sha256")


def _short(error: Exception) -> str:
    """The innermost reason of an error, in one line."""
    inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(inner, Exception):
        return _short(inner)
    return (str(error) or type(error).__name__).splitlines()[0].partition(" for url:")[0]


# -- sources -----------------------------------------------------------------------------------------------------------
# The source of a data set: a folder of the user, the cache, or a download.

ENV = "DISTLEARN_DATA"


class Files(NamedTuple):
    """The four IDX files of a data set."""

    train_images: Path
    train_labels: Path
    test_images: Path
    test_labels: Path


class Available(NamedTuple):
    """Where `load(name)` would find a data set."""

    name: str
    origin: str  # One of "package", "folder", "cache", "download"; "broken" if `load` would fail.
    where: str  # Package, path or address; the error if broken.


def available() -> list[Available]:
    """List the data sets that `load` knows, with their sources.

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
    """Return the files of a data set, downloading them if needed."""
    folder = _users_folder(name)
    if folder is not None:
        return files_in(folder)
    if name not in KNOWN:
        names = ", ".join(("digits", *KNOWN))
        raise ValueError(f"load: unknown data set {name!r}: known are {names}; {_what_is_held()}; folders end in /")
    known = KNOWN[name]
    try:
        return Files(*(fetch(file, _cache(name), known.mirrors, known.sha256[file]) for file in FILES))
    except (ConnectionError, ValueError) as error:
        raise (ValueError if isinstance(error, ValueError) else ConnectionError)(
            f"load({name!r}): {error}\nWays on: put the four IDX files of {name} into a folder <data>/{name} and set "
            f"{ENV}=<data>; or load('digits'), which needs no network."
        ) from None


def files_in(folder: Path) -> Files:
    """Return the four IDX files that a folder holds, gzipped or plain."""
    chosen = []
    for name in FILES:
        found = _idx_files(folder, name)
        if len({path.name.removesuffix(".gz") for path in found}) != 1:
            here = sorted(entry.name + "/" * entry.is_dir() for entry in found or folder.iterdir())
            what = f"{name}, gzipped or plain{', and no other' * bool(found)}"
            raise FileNotFoundError(f"{folder}: expected {what}, found {', '.join(here) or 'an empty folder'}")
        chosen.append(found[-1])
    return Files(*chosen)


def _root() -> Path | None:
    value = os.environ.get(ENV)
    if not value:
        return None
    root = Path(os.path.abspath(Path(value).expanduser()))
    if not root.is_dir():
        raise NotADirectoryError(f"{ENV} is {value!r}, expected the folder that holds mnist/, fashion-mnist/, ...")
    return root


def _users_folder(name: str) -> Path | None:
    """The folder below DISTLEARN_DATA that holds a data set, or DISTLEARN_DATA itself if it holds the files."""
    # A folder named after one known data set is never used for another.
    root = _root()
    if root is None or not name or Path(name).name != name or name == "..":
        return None
    if (root / name).is_dir():
        return root / name
    itself = _has_idx(root) and (root.name == name or root.name not in KNOWN)
    return root if itself else None


def _has_idx(folder: Path) -> bool:
    return bool(_idx_files(folder, FILES[0]))


def _idx_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a name, gzipped ones last; some programs that unpack them write a dot before "idx"."""
    stem = name.partition("-idx")[0]
    return sorted(path for end in ("", ".gz") for path in folder.glob(f"{stem}[-.]idx?-ubyte{end}") if path.is_file())


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
            return Available(name, "folder", str(files_in(folder).train_images.parent))
    except OSError as error:
        return Available(name, "broken", str(error))
    cache = _cache(name)
    if all((cache / file).is_file() for file in FILES):
        return Available(name, "cache", str(cache))
    return Available(name, "download", KNOWN[name].mirrors[0])


def _cache(name: str) -> Path:
    import pooch

    return Path(pooch.os_cache("distlearn")) / name


# -- storage -----------------------------------------------------------------------------------------------------------
# What reads a file: a `Loader` takes one of these, or any other function with these arguments.


def read_file(path, offset: int = 0, size: int = -1) -> bytes:
    """Read a part of a file; size -1: to its end."""
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


class SlowStorage:
    """Reads local files as slowly as a shared storage.

    Parameters
    ----------
    latency : float
        Seconds that each request takes; those of several workers pass at the same time.
    bandwidth : float
        Bytes/s, which the workers of a loader share.
    """

    def __init__(self, latency: float, bandwidth: float):
        check_number("SlowStorage", least=0, below=math.inf, latency=latency)
        check_number("SlowStorage", above=0, bandwidth=bandwidth)
        self.latency, self.bandwidth = latency, bandwidth
        self._free = RawValue("d", 0.0)  # when the line is free again; a lock would stay with a worker that is killed

    def __call__(self, path: str | Path, offset: int = 0, size: int = -1) -> bytes:
        data = read_file(path, offset, size)
        done = self._free.value = max(self._free.value, time.monotonic()) + len(data) / self.bandwidth
        time.sleep(max(0.0, done + self.latency - time.monotonic()))
        return data


class Cache(NamedTuple):
    """Copies a whole file into a local folder when a part of it is first read; processes wait for one another's copy.

    A file that changes later keeps its old copy.
    """

    folder: str | Path
    storage: object = read_file

    def __call__(self, path: str | Path, offset: int = 0, size: int = -1) -> bytes:
        from filelock import FileLock

        copy = Path(self.folder, blake2b(os.fsencode(os.path.abspath(path)), digest_size=16).hexdigest())
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{copy}.lock"):
                if not copy.exists():
                    part = copy.with_suffix(".part")
                    part.write_bytes(self.storage(path))
                    part.replace(copy)
        return read_file(copy, offset, size)


# -- images ------------------------------------------------------------------------------------------------------------
# Image files in a folder for each class, or the same in tar files.

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
INDEX = "shards.json"
ADVICE = "image_shape=(height, width, 1 or 3) (--image-shape) brings all images of a folder to one"


def find_images(folder: Path) -> tuple[list[str], list[str], list]:
    """Return the files to read, the names of the images ("class/name"), and (file, offset, size) of each."""
    if (folder / INDEX).exists():
        return json.loads((folder / INDEX).read_text(encoding="utf-8"))
    files, found = sorted(path.name for path in folder.glob("*.tar")), []
    for i, file in enumerate(files):
        try:
            with tarfile.open(folder / file, "r:") as tar:
                found += [(m.name.removeprefix("./"), i, m.offset_data, m.size) for m in tar if not m.isdir()]
        except tarfile.ReadError as error:
            raise ValueError(f"{folder / file}: expected a tar file that is not compressed: {error}") from None
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = filter(is_visible, folders)
        inside = Path(here).relative_to(folder)
        found += [((inside / name).as_posix(), len(files) + i, 0, -1) for i, name in enumerate(names)]
        files += [str(inside / name) for name in names]
    found = [row for row in found if row[0].lower().endswith(SUFFIXES) and all(map(is_visible, row[0].split("/")))]
    parts, around = [row[0].split("/") for row in found], 0
    while parts and all(len(p) > around + 2 and p[around] == parts[0][around] for p in parts):
        around += 1  # a folder around those of the classes
    names = ["/".join(p[around:]) for p in parts]
    wrong = [row[0] for row, name in zip(found, names, strict=True) if name.count("/") != 1]
    if wrong or not names:
        wrong = wrong or [f"{name}/" if (folder / name).is_dir() else name for name in sorted(os.listdir(folder))]
        raise ValueError(
            f"{folder}: expected a folder for each class with images ({', '.join(SUFFIXES)}), or tar files of such "
            f"folders; or, for `load`, train/ and test/ (and val/) of them; found {_few(wrong) or 'an empty folder'}"
        )
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ValueError(f"{folder}: holds {_few(twice)} more than once, in a tar file and as a file, or in two")
    return files, names, [row[1:] for row in found]


def is_visible(name: str) -> bool:
    """Say whether an entry is the user's, not one of Jupyter or macOS: .ipynb_checkpoints/, ._1.png, __MACOSX/."""
    return not name.startswith(".") and name != "__MACOSX"


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


def write_shards(folder: str | Path, out: str | Path, per_shard: int) -> None:
    """Write the images of a folder into tar files, in an order that is drawn once, and an index of where each begins.

    Parameters
    ----------
    folder : path
        With a folder for each class.
    out : path
        A new folder: for 00000.tar, 00001.tar, ... and shards.json.
    per_shard : int
        Images of a tar file; the last may have fewer.
    """
    (files, names, where), out = find_images(Path(folder)), Path(out)
    check_positive("write_shards", per_shard=per_shard)
    stored = dict(zip(names, where, strict=True))
    order = np.random.default_rng([0, 0, 1]).permutation(sorted(names)).tolist()  # that of no seed and epoch
    if out.exists():
        raise FileExistsError(f"write_shards: {out} exists, expected the name of a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as fresh:  # some of the tar files would be a data set, too
        fresh.mkdir()
        for start in range(0, len(order), per_shard):
            with tarfile.open(fresh / f"{start // per_shard:05d}.tar", "w") as tar:
                for name in order[start : start + per_shard]:
                    (file, offset, size), info = stored[name], tarfile.TarInfo(name)
                    data = read_file(Path(folder, files[file]), offset, size)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        (fresh / INDEX).write_text(json.dumps(find_images(fresh)), encoding="utf-8")


def decode_image(data: bytes, shape=None, resize: bool = False) -> np.ndarray:
    """Return the pixels of an image file as it is shown, (height, width, channels); `shape` is the expected one."""
    from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise ValueError(f"cannot identify image file ({len(data)} bytes)") from None
    turned = image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8)  # a camera that was held upright
    if image.mode[0] in "FI":  # Pillow would clip them
        raise ValueError(f"has pixels of the kind {image.mode}, expected 8 bits a channel")
    grey = image.mode in ("1", "L", "LA")
    channels = (1 if grey else 3) if shape is None else shape[2]
    size = image.size[::-1] if turned else image.size
    if not grey and channels == 1 and size == shape[1::-1] and not resize:
        raise ValueError(f"is in colour, expected grey as the first image is; {ADVICE}")
    wanted = size if shape is None else (shape[1], shape[0])
    if size != wanted:
        if not resize:
            text = f"has {size[0]} x {size[1]} pixels, expected {wanted[0]} x {wanted[1]}"
            raise ValueError(f"{text}; {ADVICE}")
        # a JPEG is decoded at the size that is just large enough
        image.draft("L" if channels == 1 else "RGB", wanted[::-1] if turned else wanted)
    ImageOps.exif_transpose(image, in_place=True)
    if image.has_transparency_data and image.convert("RGBA").getextrema()[3][0] < 255:
        raise ValueError("has transparent pixels, expected none: lay it on a ground first, black or white")
    image = image.convert("L" if channels == 1 else "RGB")
    return np.asarray(image.resize(wanted)).reshape(*wanted[::-1], channels)
