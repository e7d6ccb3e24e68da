"""A round: what everybody gets (tasks, images, terms), and what staff keep (a seed, labels)."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from functools import cached_property
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from . import classifier, kernel, schedule
from .track import Draws, Result

TRACKS = {track.name: track for track in (classifier, schedule, kernel)}
PRACTICE = "practice-1"
"""Folder of the practice round; another number when tasks are drawn differently."""
TIME = r"\d{4}-\d\d-\d\dT\d{4}"
"""The form of a time, such as 2026-11-03T1405."""
TERMS = {"per_day": 3, "deadline": "2026-12-18T2359", "late_days": 2}
"""Submissions of a team to a track on one day; work after the deadline is late, and after some days not scored."""


def read_json(path: Path):
    """Read a file that staff may have edited."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None


class Round:
    """The folder of a round, with or without what staff keep."""

    def __init__(self, public: Path, secret: Path | None = None):
        self.public, self.secret = Path(public), secret and Path(secret)
        file = self.public / "round.json"
        if not file.is_file():
            raise FileNotFoundError(f"{self.public} has no round.json, expected `public` of a `distlearn project make`")
        self.tasks = read_json(file)
        if missing := {*TRACKS, "terms"} - {*self.tasks}:
            raise ValueError(f"{file}: {sorted(missing)[0]!r} is missing")
        self.terms = self.tasks["terms"]
        for name, example in TERMS.items():
            value = self.terms.get(name)
            if type(value) is not type(example) or not re.fullmatch(rf"\d+|{TIME}", str(value), re.ASCII):
                raise ValueError(f"{file}: {name} is {value!r}, expected a value such as {example!r}")

    @cached_property
    def draws(self) -> Draws | None:
        """What follows from staff's seed."""
        return self.secret and Draws(read_json(self.secret / "secret.json")["seed"])

    @cached_property
    def data(self) -> dict:
        return dict(np.load(self.public / "images.npz"))

    @cached_property
    def labels(self) -> dict | None:
        return self.secret and dict(np.load(self.secret / "labels.npz"))

    def score(self, track: str, path: Path, team: str, *, unsafe: bool = False) -> Result:
        """Score one file or folder: the public part, and with staff's seed the private one."""
        options = {"unsafe": unsafe, "team": team, "secret": self.draws and self.draws.of(track)}
        if track == "classifier":
            options |= {"public": self.data, "private": self.labels}
        return TRACKS[track].score(path, self.tasks[track], **options)


def make(folder: Path, data="digits", *, practice: bool = False) -> Round:
    """Make a round from labelled data: `public` is given out, `secret` is not.

    Parameters
    ----------
    folder : Path
        New; unless it is for practice not in a git repository, where labels and the seed could be published.
    data : str
        Name of a data set of the library, or a `.npz` file with arrays `x` and `y`.
    practice : bool
        Take a seed that everybody knows, so that a class can try everything beforehand.
    """
    folder = Path(folder).absolute()
    inside = next((p for p in folder.parents if (p / ".git").exists()), None)
    if inside and not practice:
        raise ValueError(f"{folder} is in the git repository {inside}: keep the seed and the labels outside")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty")
    seed = "practice" if practice else secrets.token_hex(32)
    draws = Draws(seed)
    x, y = _labelled(data)
    given, kept = classifier.make(x, y, draws.of("data"))
    tasks = {name: TRACKS[name].draw(draws.of("task", name)) for name in TRACKS if name != "classifier"}
    tasks |= {"classifier": {"classes": int(y.max()) + 1, "rows": len(given["x_private"])}, "terms": TERMS}
    for name in ("public", "secret"):
        (folder / name).mkdir(parents=True)
    (folder / "public/round.json").write_text(json.dumps(tasks, indent=1) + "\n", encoding="utf-8")
    np.savez(folder / "public/images.npz", **given)
    (folder / "secret/secret.json").write_text(json.dumps({"seed": seed}) + "\n", encoding="utf-8")
    np.savez(folder / "secret/labels.npz", **kept)
    return Round(folder / "public", folder / "secret")


def _labelled(data) -> tuple[np.ndarray, np.ndarray]:
    if str(data).endswith(".npz"):
        with np.load(data, allow_pickle=False) as found:
            if not {"x", "y"} <= {*found} or not len(found["x"]) == len(found["y"]) >= 60:
                raise ValueError(f"{data}: expected arrays x and y of 60 or more samples")
            x, y = found["x"], found["y"]
        if y.dtype.kind not in "iu" or not np.array_equal(np.unique(y), np.arange(y.max() + 1)):
            raise ValueError(f"{data}: y is {y.dtype}, {y[:3]}..., expected whole numbers from 0, each class there")
        if x.dtype.kind not in "fiu" or not np.isfinite(x).all():
            raise ValueError(f"{data}: x is {x.dtype}, expected finite numbers")
        return x, y.astype(np.int64)
    from distlearn.data import load

    found = load(str(data))
    x = np.concatenate([found.x_train, found.x_test]).astype(np.float32)
    return x, np.concatenate([found.y_train, found.y_test]).astype(np.int64)


def practice() -> Round:
    """Return the practice round as students see it, made on first use."""
    folder = Path(os.environ.get("DISTLEARN_CACHE") or user_cache_path("distlearn")) / "project" / PRACTICE
    if not (folder / "public/round.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as new:
            made = make(Path(new) / "round", practice=True)
            made.public.parent.rename(folder)
    return Round(folder / "public")
