"""Plant the faults one by one in a copy of the library, and run the tests that must find them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .table import MUTANTS

ROOT = Path(__file__).parents[2]


def survives(mutant, root: Path) -> bool:
    """Whether the tests stay green with a fault."""
    path = next(p for p in where(mutant.old, root / "distlearn"))
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    folder, *options = mutant.tests.split()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not engines and not mpi and not notebook"]
    command += ["-p", "no:cacheprovider", f"tests/{folder}", *options]
    try:
        done = subprocess.run(
            command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, timeout=900
        )
    except subprocess.TimeoutExpired:
        return False  # a program that hangs is found
    finally:
        path.write_text(before, encoding="utf-8")
    if done.returncode > 1:
        sys.exit(f"{mutant.name}: pytest ended with {done.returncode}\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def where(text: str, folder: Path) -> list[Path]:
    """Find the files with a text, once for each place."""
    files = [p for p in sorted(folder.rglob("*")) if p.suffix in (".py", ".cu")]
    return [p for p in files for _ in range(p.read_text(encoding="utf-8").count(text))]


def main() -> int:
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(w.lower() in m.name.lower() for w in words)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("distlearn", "course", "tests", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        alive = []
        for i, mutant in enumerate(chosen, 1):
            found = not survives(mutant, root)
            print(f"{i:2} of {len(chosen)}  {'found' if found else 'SURVIVES'}  {mutant.name}", flush=True)
            alive += [] if found else [mutant.name]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} faults found")
    return len(alive)


if __name__ == "__main__":
    sys.exit(main())
