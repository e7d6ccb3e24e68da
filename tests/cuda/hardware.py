"""What a card's profiler counts beside what the emulator counts: 50 kernels of library, textbook and corpus.

    python -m tests.cuda.hardware        write what was recorded (recorded_card.json) into course/notes
    pytest -m gpu tests/cuda/test_hardware.py

compares this machine's card with the record; it needs NVIDIA's `ncu` (Nsight Compute, part of the CUDA toolkit), with
leave to read the card's counters (https://developer.nvidia.com/ERR_NVGPUCTRPERM).
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from distcourse import recorded
from distcourse.recorded import Counts

from distlearn.backend import has_gpu, to_device
from distlearn.cuda import RawKernel

from . import cases
from .corpus import fresh
from .corpus.launches import LAUNCHES
from .textbook import CASES

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- written by tests/cuda/hardware.py -->", "<!-- end -->"

METRICS = dict(zip(Counts._fields, (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
), strict=True))  # fmt: skip
"""The profiler's name of each count."""


def launch_of(counted):
    """Return (kernel, grid, block, args, shared_mem) of a recorded launch, None for a kernel that is gone."""
    for case in cases.CASES:
        if counted.source == "library" and str(case).removesuffix("<int>") == f"{counted.file}:{counted.name}":
            return case.variant.raw, *case.variant.launch(*case.arguments())
    for c in CASES:
        if c.title == counted.name:
            return RawKernel(c.source, c.name), c.grid, c.block, fresh(c.args), c.shared_mem
    for c in LAUNCHES:
        if (c.file, c.name) == (counted.file, counted.name) and counted.source == "corpus":
            grid, block, args, _ = c.make()
            return c.kernel(), grid, block, fresh(args), c.shared_mem
    return None


def emulated(counted) -> Counts:
    """Count in the emulator."""
    kernel, grid, block, args, shared_mem = launch_of(counted)
    found = {(space, access): 0 for space in ("global", "shared") for access in ("read", "write")}
    for site in kernel.check(grid, block, args, shared_mem=shared_mem).sites:
        if (site.space, site.access) in found:
            found[site.space, site.access] += site.sectors if site.space == "global" else site.wavefronts
    return Counts(*found.values())


def ncu() -> str | None:
    """Return the profiler, if there are one and a GPU."""
    return shutil.which("ncu") if has_gpu() else None


def measured(counted, profiler: str) -> Counts:
    """Count on the card: one launch in a process of its own, under the profiler."""
    function = launch_of(counted)[0].name.partition("<")[0]
    command = [profiler, "--clock-control", "none", "--csv", "--print-units", "base", "--kernel-name", function]
    command += ["--metrics", ",".join(METRICS.values()), sys.executable]
    command += ["-m", "tests.cuda.hardware", "--launch", counted.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    table = csv.DictReader(io.StringIO(done.stdout[done.stdout.find('"ID"') :]))  # after whatever was printed before
    values = {row.get("Metric Name"): row["Metric Value"] for row in table if "Metric Value" in row}
    if missing := set(METRICS.values()) - values.keys():
        raise RuntimeError(f"{counted.name}: no {', '.join(missing)}; {(done.stdout + done.stderr)[-1000:]}")
    return Counts(*(round(float(values[metric].replace(",", ""))) for metric in METRICS.values()))


def launch(name: str) -> None:
    """Launch one kernel once on the GPU, on the arrays that the emulator is given."""
    kernel, grid, block, args, shared_mem = launch_of(recorded.COUNTED[name])
    args = tuple(to_device(a, "gpu") if isinstance(a, np.ndarray) and a.ndim else a for a in args)
    kernel(grid, block, args, shared_mem=shared_mem)


def table(name: str, heads, rows) -> str:
    """Return a table of the record in Markdown, and how it was made."""
    made = ", ".join(f"{what} {version}" for what, version in recorded.DATA["versions"].items())
    card, date, commit = (recorded.DATA[what] for what in ("card", "date", "commit"))
    made = f"{card}, {date}, commit {commit}; {made}; {recorded.DATA[name]['command']}."
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(shown, row))} |" for row in rows), "", made])


def shown(cell) -> str:
    if isinstance(cell, dict):
        return ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in cell.items() if share >= 0.01)
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def counts() -> str:
    """Return the recorded counts: the emulator's, and in brackets the card's where they differ."""
    rows = []
    for c in recorded.COUNTED.values():
        gone = "" if launch_of(c) else " (no longer in the library)"
        both = zip(c.emulator, c.card, strict=True)
        cells = [shown(ours) + f" (card: {theirs:,})" * (ours != theirs) for ours, theirs in both]
        rows.append([f"`{c.file or c.source}: {c.name}`{gone}", *cells])
    return table("counts", ["kernel", *recorded.DATA["counts"]["columns"]], rows)


def times() -> str:
    """Return the recorded times."""
    found = recorded.DATA
    return "\n\n".join(
        table(name, found[name]["columns"], found[name]["rows"]) for name in ("steps", "kernels", "layers")
    )


PAGES = {ROOT / "course/notes/emulator_and_card.md": counts, ROOT / "course/notes/gpu.md": times}


def page(path) -> str:
    """Return a page as it should be."""
    text = path.read_text(encoding="utf-8")
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{head}{BEGIN}\n\n{PAGES[path]()}\n\n{tail}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:  # for the profiler to watch
        launch(sys.argv[2])
    else:
        for path in PAGES:
            path.write_text(page(path), encoding="utf-8")
