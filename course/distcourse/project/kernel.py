"""Track 3: one CUDA kernel, right and free of races on secret shapes, scored by the emulator's counts.

For x of r rows and c columns, out (c x r) holds x's rows, each divided by its root mean square, as columns:

    out[j][i] = x[i][j] / sqrt(mean of x[i][k]^2 over k + 1e-6)

A block has 32 x 8 threads, and there is one for every 32 rows. The work of a warp is 384 for each sector of 32 bytes of
global memory and 128 for each pass over the banks of shared memory; that of a launch as if all warps did as much as the
busiest, since they run side by side and idle ones are paid for, and 1 for each floating-point operation: 128ths of a
cycle of one multiprocessor of an A100, if nothing overlapped. Nobody can move less than x once in and out once out, nor
compute less than 3 r c - r operations: that is the floor. The cost is thousandths of it, the mean over the shapes.
"""

from __future__ import annotations

import io
import math
import re
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from .alone import MOST_OUTPUT, run
from .cuda_source import SUFFIX, check_source
from .reading import Refused, array_of, read_bytes
from .track import Draws, Result, judged, mean, refused

name, file, unit = "kernel", "kernel.cu", "thousandths of the floor"
hidden = True
KERNEL, BLOCK, SECONDS = "rms_transposed", (32, 8), 10
SECTOR_COST, PASS_COST = 384, 128
MOST_SECONDS = 90
UNIT_ROUNDOFF, WHOLE = 2.0**-24, 1000


def draw(draws: Draws) -> dict:
    """Return the shapes that everyone may know."""
    return {"shapes": [[draws(40, 100, "rows", i), draws(60, 200, "columns", i)] for i in range(2)]}


def secret_shapes(draws: Draws, n: int) -> list[list[int]]:
    """Draw shapes that nobody knows: 32 to 128 rows, 60 to 320 columns, about 10,000 numbers."""
    rows = [draws(33, 120, "rows", i) for i in range(n)]
    return [[r, min(320, max(60, draws(9000, 11000, "numbers", i) // r))] for i, r in enumerate(rows)]


def reference(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float64) / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6)).T


def tolerance(cols: int) -> float:
    """Return the largest relative error in float32 of any order of summation (Higham 2002, section 3.1)."""
    n = cols + 8  # the sum and its squares count half, in the root; then a division, a root, and a product
    return n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)


def bound(rows: int, cols: int) -> tuple[int, int]:
    """Return sectors that must move, and operations that must be done."""
    return 2 * -(-rows * cols // 8), 3 * rows * cols - rows


def launch(source: str, inputs: list[np.ndarray], *, unsafe: bool) -> dict[str, bytes]:
    """Run a kernel in a process of its own, in the sandbox; return the arrays that came back, still packed."""
    packed = io.BytesIO()
    np.savez(packed, source=source, kernel=KERNEL, block=BLOCK, seconds=SECONDS, n=len(inputs),
             **{f"x{i}": x for i, x in enumerate(inputs)})  # fmt: skip
    command = [sys.executable, "-m", "distcourse.project.emulate"]
    with tempfile.TemporaryDirectory(prefix="dl-") as shared:
        ended = run(command, Path(shared), MOST_SECONDS, given=packed.getvalue(), unsafe=unsafe)
    try:
        with zipfile.ZipFile(io.BytesIO(ended.out)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_OUTPUT:
                raise Refused("its result is too large")
            return {entry.filename.removesuffix(".npy"): archive.read(entry) for entry in archive.infolist()}
    except (zipfile.BadZipFile, OSError, EOFError):
        raise Refused(f"its process ended without a result: {ended.last}") from None


class Wrong(ValueError):
    """The kernel runs and does not do what it should."""


def case(i: int, x: np.ndarray, back: dict[str, bytes]) -> tuple[int, float]:
    """Check one launch; return its cost, and the bits that its worst number lost."""
    rows, cols = x.shape
    what = f"{rows} x {cols}"
    if f"counts{i}" not in back:
        raise Wrong(f"{what}: no result")
    sectors, passes, flops, errors, truncated = array_of(back[f"counts{i}"], "counts", np.int64, (5,)).tolist()
    if errors or truncated:
        raise Wrong(f"{what}: {'too much between two barriers to be counted' if truncated else 'it went wrong'}")
    if array_of(back[f"x{i}"], "x", np.float32, x.shape).tobytes() != x.tobytes():
        raise Wrong(f"{what}: its input was changed")
    got, want = array_of(back[f"y{i}"], "out", np.float32, (cols, rows)), reference(x)
    if not np.isfinite(got).all():
        raise Wrong(f"{what}: {int((~np.isfinite(got)).sum())} numbers of out were not written, or are not finite")
    error = float(np.max(np.abs(got - want) / np.abs(want)))
    lost = max(0.0, math.log2(max(error, UNIT_ROUNDOFF) / UNIT_ROUNDOFF))
    if error > tolerance(cols):
        raise Wrong(
            f"{what}: relative error {error:.2g}, {lost:.1f} bits lost; {tolerance(cols):.2g} is float32's most"
        )
    least = bound(rows, cols)
    if sectors < least[0] or flops < least[1]:
        told = f"{sectors:,} sectors and {flops:,} operations, at least {least[0]:,} and {least[1]:,} are needed"
        raise Impossible(f"{what}: {told}")
    work = SECTOR_COST * sectors + PASS_COST * passes + flops
    return -(-WHOLE * work // (SECTOR_COST * least[0] + least[1])), lost


class Impossible(ValueError):
    """The counts are below what the task needs."""


def read(path: Path) -> str:
    return check_source(read_bytes(path), path.name, KERNEL)


def score(path: Path, task: dict, *, team="", secret: Draws | None = None, unsafe=False, **_) -> Result:
    """Check a source; run it on public shapes, on secret ones that count, and on one of the team's, to be right."""
    draws = secret.of(team) if secret else Draws("public")
    shapes = task["shapes"] + (secret_shapes(secret, 3) + secret_shapes(draws, 1) if secret else [])
    inputs = [draws.heavy_tailed(r * c, "x", r, c).reshape(r, c) for r, c in shapes]
    try:
        source = read(path)
        back = launch(source, inputs, unsafe=unsafe)
        if "error" in back:
            told = array_of(back["error"], "error", np.uint8).tobytes().decode("ascii", "replace")
            return refused(re.sub(rf"{SUFFIX}\b", "", told.strip()), "wrong")
        costs, lost = zip(*(case(i, x, back) for i, x in enumerate(inputs)), strict=True)
    except Refused as error:
        return refused(error)
    except Wrong as error:
        return refused(error, "wrong")
    except Impossible as error:
        return refused(f"impossible: below the physical floor ({error})", "impossible")
    n = len(task["shapes"])
    public, private = list(costs[:n]), list(costs[n:-1])
    notes = [f"{max(lost):.0f} bits lost"]
    return judged(mean(private or public), WHOLE, notes=notes, public=mean(public), cases=private)


def beat_this(task: dict | None = None) -> bytes:
    """Return the library's kernel: a warp for each row, a padded tile for the transposition."""
    return Path(__file__).with_name("beat_this.cu").read_bytes()
