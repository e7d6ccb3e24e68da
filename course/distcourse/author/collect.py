"""Whose notebook is this? File names as learning platforms write them; course/nbgrader_config.py names `Collect`.

| platform | what it hands over |
| --- | --- |
| Canvas | `schmidtanna_LATE_12345_67890_lab00-2.ipynb` |
| Moodle | `Anna Schmidt_123456_assignsubmission_file/lab00.ipynb`, in folders or with `_` for `/` |
| Blackboard | `Lab 00_as123_attempt_2027-01-15-23-59-00_lab00.ipynb` |
| by hand | `anna_lab00.ipynb` |
"""

from __future__ import annotations

import re
import unicodedata

from nbgrader.plugins import FileNameCollectorPlugin

_LAB = r"(?P<file_id>lab\d\d)"
FORMS = (
    (
        "Moodle",
        r"[/\\](?P<name>[^/\\]+?)_(?P<number>\d+)_assignsubmission_file(?:_?[/\\]|_)(?:.*[/\\])?[^/\\]*?" + _LAB,
    ),
    ("Blackboard", r"[/\\][^/\\]*?_(?P<student_id>[^/\\_]+)_attempt_(?P<timestamp>[\d-]+)_[^/\\]*?" + _LAB),
    ("Canvas", r"[/\\](?P<student_id>[^/\\_ ]+)(?P<late>_LATE)?_(?P<number>\d+)_\d+_[^/\\]*?" + _LAB),
    ("by hand", r"[/\\](?P<student_id>[^/\\_ ]+)[_ ][^/\\]*?" + _LAB),
)
"""Platforms and their names of files; the first that fits counts."""


def recognise(path: str) -> dict | None:
    """Return student, lab and time of hand-in for the path of a file, or None if no platform writes such a name.

    Examples
    --------
    >>> recognise("/x/Anna Schmidt_123456_assignsubmission_file/lab00.ipynb")
    {'student_id': 'anna-schmidt-123456', 'file_id': 'lab00'}
    >>> recognise("/x/schmidtanna_12345_67890_lab00.ipynb")
    {'student_id': 'schmidtanna-12345', 'file_id': 'lab00'}
    """
    for _, form in FORMS:
        match = re.search(form + r"[^/\\]*\.ipynb$", path, re.IGNORECASE)
        if match is None or not match["file_id"]:
            continue
        found = match.groupdict()
        student = found.get("student_id") or found["name"]
        if found.get("number"):  # two may have one name, and both platforms import grades by the number
            student += f" {found['number']}"
        told = {"student_id": _plain(student), "file_id": found["file_id"].lower()}
        if found.get("timestamp"):
            day, time = found["timestamp"][:10], found["timestamp"][11:].replace("-", ":")
            told["timestamp"] = f"{day} {time}".strip()
        return told
    return None


class Collect(FileNameCollectorPlugin):
    """Collects what Canvas, Moodle and Blackboard hand over."""

    def _match(self, filename: str) -> dict | None:
        found = recognise(filename)
        if found is None:
            self.log.warning("Skipped, because its name gives neither student nor lab: %s", filename)
        return found


def _plain(name: str) -> str:
    """A name that is the same on every file system, and safe in a path."""
    plain = unicodedata.normalize("NFKC", name).strip()
    if re.search(r"\s", plain):
        plain = re.sub(r"[\s_]+", "-", plain.lower())
    return re.sub(r"[^\w.@-]", "", plain).lstrip(".-")
