"""Make a release: `make release VERSION=1.0.0` runs python .ci/release.py 1.0.0.

Writes the version, the changelog from the commits since the last one, and dist/: wheel, sdist, the students' labs,
the book and their checksums. The wheel is installed into a fresh environment and grades lab 01; only then is the
release committed and tagged. Nothing is pushed: a pushed tag makes .github/workflows/release.yml publish.

Without a version it fills and tries dist/ for the one that stands in distlearn/__init__.py.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TODAY = datetime.date.today().isoformat()


def run(*command, **options) -> str:
    """Run a command in the checkout, which must end well."""
    print("$", *command, flush=True)
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=True, text=True, **options)
    return done.stdout or ""


def set_version(version: str) -> None:
    """Check that a version can be made, and write it and the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version!r} is no version such as 1.0.0")
    if run("git", "status", "--porcelain", stdout=subprocess.PIPE):
        sys.exit("the checkout has changes: commit them first")
    earlier = run("git", "tag", "--list", "v*", stdout=subprocess.PIPE).split()
    if f"v{version}" in earlier:
        sys.exit(f"version {version} exists")
    for name, pattern, text in (
        ("distlearn/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"'),
        ("CITATION.cff", r"^version: .*$", f"version: {version}"),
        ("CITATION.cff", r"^date-released: .*$", f'date-released: "{TODAY}"'),
    ):
        path = ROOT / name
        path.write_text(re.sub(pattern, text, path.read_text(encoding="utf-8"), count=1, flags=re.M), encoding="utf-8")
    if earlier:
        run("git-cliff", "--unreleased", "--tag", f"v{version}", "--prepend", "CHANGELOG.md")
        return
    changelog = ROOT / "CHANGELOG.md"  # that of the first release is written by hand
    changelog.write_text(changelog.read_text("utf-8").replace("## Unreleased", f"## {version}, {TODAY}"), "utf-8")


def build() -> str:
    """Fill dist/, try it, and return its version."""
    (version,) = re.findall(r'^__version__ = "(.*)"$', (ROOT / "distlearn/__init__.py").read_text("utf-8"), re.M)
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build")  # the wheel is made from the sdist, which is so shown to be whole
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    run("distlearn", "course", "bundle", DIST / f"labs-{version}.zip")
    run("make", "book")
    shutil.make_archive(str(DIST / f"book-{version}"), "zip", ROOT / "build" / "book")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    run(".ci/check_wheel", DIST)
    return version


def main(version: str = "") -> None:
    """Make a version, or build the one that stands."""
    if version:
        set_version(version)
    built = build()
    if version:
        run("git", "commit", "--all", "--message", f"Release {version}")
        run("git", "tag", "--annotate", f"v{version}", "--message", f"distlearn {version}")
    print(f"dist/ holds {built}" + (", to be published with: git push --follow-tags" if version else ""))


if __name__ == "__main__":
    main(*sys.argv[1:2])
