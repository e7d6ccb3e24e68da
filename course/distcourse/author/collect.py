"""Whose notebook is this? File names as learning platforms write them; course/nbgrader_config.py names `Collect`."""

from __future__ import annotations

import codecs
import io
import re
import tarfile
import unicodedata
import zipfile
import zlib
from pathlib import Path

from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

# What platforms call files; the first that fits counts.
FORMS = (
    # Moodle: Anna Schmidt_123456_assignsubmission_file/lab00.ipynb, in folders or with `_` for `/`
    r"[/\\](?P<name>[^/\\]+?)_(?P<number>\d+)_assignsubmission_file(?:_?[/\\]|_)(?:.*[/\\])?[^/\\]*?",
    # Blackboard: Lab 00_as123_attempt_2027-01-15-23-59-00_lab00.ipynb
    r"[/\\][^/\\]*?_(?P<student_id>[^/\\_]+)_attempt_(?P<timestamp>[\d-]+)_[^/\\]*?",
    # Canvas: schmidtanna_LATE_12345_67890_lab00-2.ipynb
    r"[/\\](?P<student_id>[^/\\_ ]+)(?P<late>_LATE)?_(?P<number>\d+)_\d+_[^/\\]*?",
    # by hand: anna_lab00.ipynb, anna smith_lab00.ipynb, lab00 anna_lab00.ipynb
    r"[/\\](?:lab\d\d[ _-]+)?(?P<student_id>[^/\\_]+?)(?:_[^/\\]*?| +)",
)
BY_LAB = r"[/\\](?P<file_id>lab\d\d)[ _](?P<student_id>[^\W\d][^/\\]*)\.ipynb$"  # by hand: lab00_anna.ipynb
ZIP, ARCHIVE = re.compile(r"\.zip$", re.IGNORECASE), re.compile(r"\.(zip|tar\.gz|tgz)$", re.IGNORECASE)
NOTEBOOK, COLLECTED = 2**26, 2**31  # Bytes that a notebook, and all of a platform's archive, may have unpacked.


def recognise(path: str) -> dict | None:
    """Return student, lab and time of hand-in for the path of a file, or None if no platform writes such a name."""
    if re.search(r"[/\\](\.ipynb_checkpoints|__MACOSX)[/\\]", path):
        return None  # an editor's copies
    for form in (*(form + r"(?P<file_id>lab\d\d)[^/\\]*\.ipynb$" for form in FORMS), BY_LAB):
        match = re.search(form, path, re.IGNORECASE)
        if match is None:
            continue
        found = match.groupdict()
        student = found.get("student_id") or found["name"]
        if found.get("number"):  # two may have one name, and both platforms import grades by the number
            student += f" {found['number']}"
        told = {"student_id": _plain(student), "file_id": found["file_id"].lower()}
        if found.get("late"):
            told["late"] = True
        if found.get("timestamp"):
            day, time = found["timestamp"][:10], found["timestamp"][11:].replace("-", ":")
            told["timestamp"] = f"{day} {time}".strip()
        return told
    return None


class Extract(ExtractorPlugin):
    """Unpacks notebooks of the size that a notebook may have, also from an archive within an archive."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack or copy all files of a folder to another one."""
        for path in sorted(Path(archive_path).rglob("*")):
            target = Path(extracted_path, path.relative_to(archive_path))
            if path.is_file() and ARCHIVE.search(path.name):
                self._unpack(path.open("rb"), path.name, _without_ending(target), COLLECTED)
            elif path.is_file():
                _write(target, path.read_bytes())

    def _unpack(self, archive, name: str, folder: Path, room: int) -> None:
        left, is_zip = room, ZIP.search(name)
        try:
            with archive:
                for inside, size, read in _members(archive, name):
                    parts = [part for part in re.split(r"[/\\]", inside) if part not in ("", ".", "..")]
                    kept = inside.lower().endswith(".ipynb") or ARCHIVE.search(inside)
                    fits = size <= min(NOTEBOOK, left)
                    if kept and not fits:
                        self.log.warning("Skipped, because it has %d MB: %s in %s", size // 10**6, inside, name)
                    elif kept and ARCHIVE.search(inside):
                        self._unpack(io.BytesIO(read()), inside, _without_ending(folder.joinpath(*parts)), NOTEBOOK)
                    elif kept:
                        _write(folder.joinpath(*parts), read())
                    left -= size if (kept and fits) or not is_zip else 0  # a tar is read past what is not kept
                    if left < 0:
                        self.log.warning("Skipped the rest, after %d MB: %s", room // 10**6, name)
                        return
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, OSError) as error:
            self.log.warning("Skipped, because it cannot be unpacked (%s): %s", error, name)  # or it wants a password


def _members(archive, name: str):
    if ZIP.search(name):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, lambda info=info: file.read(info)
    else:
        with tarfile.open(fileobj=archive, mode="r:gz") as file:
            for info in file:
                if info.isreg():
                    yield info.name, info.size, lambda info=info: file.extractfile(info).read()


def _without_ending(path: Path) -> Path:
    return path.with_name(ARCHIVE.sub("", path.name))


def _write(path: Path, data: bytes) -> None:
    """Write a file; a second one of the same name goes to a folder below, so that `Collect` names both."""
    while path.exists():
        path = path.parent / "again" / path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.removeprefix(codecs.BOM_UTF8))  # editors of Windows write one


class Collect(FileNameCollectorPlugin):
    """Collects what Canvas, Moodle and Blackboard hand over."""

    def _match(self, filename: str) -> dict | None:
        found = recognise(filename)
        if found is None and ".ipynb_checkpoints" not in filename:
            self.log.warning("Skipped, because its name gives neither student nor lab: %s", filename)
        elif found and "timestamp" not in found:
            self._seen = getattr(self, "_seen", {})
            first = self._seen.setdefault((found["student_id"], found["file_id"]), filename)
            if first != filename:  # nbgrader ends here, and names no file
                self.log.error("%s has handed in twice: %s and %s", found["student_id"], first, filename)
        return found


def _plain(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).strip()
    if re.search(r"\s", plain):
        plain = re.sub(r"[\s_]+", "-", plain.lower())
    return re.sub(r"[^\w.@-]", "", plain).lstrip(".-@")
