"""Track 1: a trained classifier, its program run alone on images without labels and compared with what was handed in.

Images without labels are given out, and their predictions handed in; what counts are other images, which nobody gets.
A known share of their labels is drawn at random, so a submission that agrees with those has seen the labels.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import zlib
from fractions import Fraction
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .alone import run
from .reading import Refused, csv_rows, files_of, read_bytes, text_of
from .track import Draws, Result, judged, refused

name, file, unit = "classifier", "classifier", "errors"
hidden = True
WORKSPACE = ("train.py", "predict.py", "requirements.txt", "predictions.csv")
REPORTS, READMES = ("report.pdf", "report.md"), ("readme.md", "readme.txt", "readme")
MOST_PAGES, WORDS_A_PAGE, LETTERS_A_PAGE, MOST_REPORT = 4, 600, 6000, 2**23
SECONDS = 60
AGREEMENT = Fraction(99, 100)
"""Share of the predictions that must come out again: another machine may round a close case differently."""
NOISE = 10
"""One in so many labels that count is drawn at random."""
CHANCE = Fraction(1, 10**6)
PATHS = re.compile(
    r"""["'](?:~[/\\]|[A-Za-z]:[/\\]|\\\\|/(?:home|Users|root|kaggle|workspace|tmp|mnt|media|data|content|etc|usr|var|opt|proc|dev|scratch|gpfs|private)\b)"""
)
LEFT_BEHIND = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|__pycache__/)")
REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*(\[[\w,-]+\])?\s*([=<>~!]=?\s*[\w.*]+\s*,?\s*)*)?")


def make(x: np.ndarray, y: np.ndarray, draws: Draws) -> tuple[dict, dict]:
    """Split any labelled data: (what is given out, what staff keep)."""
    n, classes = len(x), int(y.max()) + 1
    order, part = draws.order(n, "split"), n // 6
    rows = {"public": order[:part], "private": order[part : 2 * part], "held": order[2 * part : 3 * part]}
    rows["train"] = order[3 * part :]
    drawn = draws.order(part, "held", "noise")[: part // NOISE]
    labels = y[rows["held"]].astype(np.int64)
    labels[drawn] += [draws(1, classes - 1, "held", "other", i) for i in drawn]
    kept = {"x_held": x[rows["held"]], "y_held": labels % classes, "drawn": drawn}
    public = {f"x_{k}": x[rows[k]] for k in ("train", "public", "private")}
    public |= {f"y_{k}": y[rows[k]] for k in ("train", "public")}
    return public, kept


def most_by_chance(n: int, classes: int) -> int:
    """Return how many of n labels drawn among the wrong ones can be guessed: more has a chance below a millionth."""
    p, total, q = Fraction(1, classes - 1), Fraction(0), -1
    while total < 1 - CHANCE and q < n:
        q += 1
        total += math.comb(n, q) * p**q * (1 - p) ** (n - q)
    return q


def pages_of(data: bytes) -> int:
    """Count the pages of a PDF, also of one whose objects are packed."""
    parts, whole = [data], memoryview(data)
    for match in islice(re.finditer(rb"stream\r?\n", data), 2000):
        with contextlib.suppress(zlib.error):
            parts.append(zlib.decompressobj().decompress(whole[match.end() : match.end() + 2**18], 2**20))
    # a name may have its characters as numbers
    text = re.sub(rb"#([0-9A-Fa-f]{2})", lambda m: bytes.fromhex(m[1].decode()), b"\n".join(parts))
    counts = [int(n) for n in re.findall(rb"/Type\s*/Pages\b[^>]{0,500}?/Count\s+(\d{1,6})", text)]
    return max([len(re.findall(rb"/Type\s*/Page\b(?!s)", text)), *counts]) if data[:5] == b"%PDF-" else 0


def read(path: Path, rows: int, classes: int) -> tuple[dict[str, bytes], np.ndarray]:
    """Check the layout; return the files of the workspace, and the predictions."""
    files = {name: data for name, data in files_of(path).items() if not LEFT_BEHIND.search(name)}
    tops = {name.partition("/")[0] for name in files}
    if len(tops) == 1 and tops != {"workspace"}:  # the folder itself was packed
        files = {name.partition("/")[2]: data for name, data in files.items()}
    report, *more = [name for name in REPORTS if name in files] or [""]
    if more or not report:
        raise Refused(f"expected one of {' and '.join(REPORTS)}, found {2 if more else 'none'}")
    if len(files[report]) > MOST_REPORT:
        raise Refused(f"{report}: more than {MOST_REPORT:,} bytes")
    if report.endswith(".md"):
        text = text_of(files[report], report, ascii_only=False).strip()
        pages = max(-(-len(text.split()) // WORDS_A_PAGE), -(-len(text) // LETTERS_A_PAGE))
    else:
        pages = pages_of(files[report])
    if not 1 <= pages <= MOST_PAGES:
        raise Refused(f"{report}: {pages} pages, 1 to {MOST_PAGES} are expected")
    work = {name.removeprefix("workspace/"): data for name, data in files.items() if name != report}
    if strange := [name for name in files if name != report and not name.startswith("workspace/")]:
        raise Refused(f"{strange[0]}: expected {report} and workspace/ alone")
    if missing := [name for name in WORKSPACE if name not in work]:
        raise Refused(f"missing: workspace/{missing[0]}")
    if not any(name.lower() in READMES for name in work):
        raise Refused("missing: workspace/readme.md")
    for name in sorted(work):
        if name.endswith((".py", ".txt", ".md", ".json", ".sh", ".cfg", ".toml", ".yaml")):
            for number, line in enumerate(text_of(work[name], f"workspace/{name}", ascii_only=False).split("\n"), 1):
                if match := PATHS.search(line):
                    raise Refused(f"workspace/{name}, line {number}: the absolute path {match[0]!a}...")
    for number, line in enumerate(text_of(work["requirements.txt"], "requirements.txt").split("\n"), 1):
        if not REQUIREMENT.fullmatch(line.partition("#")[0].strip()):
            raise Refused(f"requirements.txt, line {number}: {line[:40]!a}, expected a package and versions")
    return work, labels_of(work.pop("predictions.csv"), "predictions.csv", rows, classes)


def labels_of(data: bytes, name: str, rows: int, classes: int) -> np.ndarray:
    """Read one label a line."""
    table = csv_rows(data, name, r"[0-9]{1,4}", "7, a whole number", rows, 1)
    labels = np.array([int(row[0]) for row in table])
    if len(labels) != rows or labels.max() >= classes:
        told = f"{len(labels)} rows up to {labels.max()}, expected {rows} labels from 0 to {classes - 1}"
        raise Refused(f"{name}: {told}")
    return labels


def predict(workspace: dict[str, bytes], images: np.ndarray, classes: int, *, unsafe: bool) -> np.ndarray:
    """Run predict.py by itself on images; return what it writes."""
    with (
        TemporaryDirectory(prefix="dl-", ignore_cleanup_errors=True) as name,
        TemporaryDirectory(prefix="dl-", ignore_cleanup_errors=True) as shared,
    ):
        folder, shared = Path(name), Path(shared)
        for file, data in workspace.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(data)
        np.save(shared / "images.npy", images)
        written = shared / "predictions.csv"
        command = [sys.executable, "predict.py", str(shared / "images.npy"), str(written)]
        ended = run(command, shared, SECONDS, work=folder, hidden=_data_sets(), unsafe=unsafe)
        if ended.code:
            raise Refused(f"predict.py ended with code {ended.code}: {ended.last or 'no message'}")
        if not os.path.lexists(written):
            told = f": {ended.last}" * bool(ended.last)
            raise Refused(f"predict.py wrote no file of the name that is its second argument{told}")
        return labels_of(read_bytes(written), "what predict.py wrote", len(images), classes)


def _data_sets() -> list[Path | str]:
    """Folders of this machine that hold labels of well-known images."""
    packages = {"distlearn": "data/digits", "sklearn": "datasets/data"}
    found = [Path(at.origin).parent / inside for name, inside in packages.items() if (at := find_spec(name))]
    return [*found, *filter(None, [os.environ.get("DISTLEARN_DATA")])]


def score(path: Path, task: dict, *, public: dict, private: dict | None = None, team="", secret: Draws | None = None,
          unsafe: bool = False, **_) -> Result:  # fmt: skip
    """Check the layout, run predict.py on shuffled images, and count its errors in both halves."""
    classes, n = task["classes"], len(public["x_private"])
    secret = secret or Draws("public")
    try:
        workspace, handed_in = read(path, n, classes)
        parts = [public["x_private"], public["x_public"], *([private["x_held"]] if private else [])]
        images = np.concatenate(parts)
        order = secret.order(len(images), "shuffle", team)
        found = np.empty(len(images), np.int64)
        found[order] = predict(workspace, images[order], classes, unsafe=unsafe)
    except Refused as error:
        return refused(error)
    mine, on_public, held = np.split(found, [n, n + len(public["x_public"])])
    same = int((mine == handed_in).sum())
    errors = int((on_public != public["y_public"]).sum())
    if same < AGREEMENT * n:
        told = f"predict.py gives {same} of the {n} predictions in predictions.csv, expected {float(AGREEMENT):.0%}"
        return refused(f"{told}: write the file anew, and look at one image at a time", "wrong")
    if private is None:
        return Result("scored", errors, 0, public=errors, notes=["the public half; private labels are with staff"])
    cases, drawn = (held != private["y_held"]).astype(int), private["drawn"]
    more, wrong = {"public": errors, "cases": cases.tolist()}, int(cases[drawn].sum())
    floor = len(drawn) - most_by_chance(len(drawn), classes)
    if wrong < floor:
        told = f"impossible: right in {len(drawn) - wrong} of {len(drawn)} rows whose labels were drawn at random"
        return refused(told, "impossible", **more)
    return judged(int(cases.sum()), floor, **more)
