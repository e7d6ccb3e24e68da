"""What a card's profiler counts beside what the emulator counts: 50 kernels of the library, the textbook and the corpus.

    python -m tests.cuda.hardware                print the table of the recorded card (distcourse/recorded_card.json)
    python -m tests.cuda.hardware --write        write it into course/notes/emulator_and_card.md
    python -m tests.cuda.hardware --measure      count on this machine's card, and print what differs from the record

--measure needs a GPU and NVIDIA's `ncu` (Nsight Compute, part of the CUDA toolkit), with leave to read the card's
counters (https://developer.nvidia.com/ERR_NVGPUCTRPERM).
"""

from __future__ import annotations

import argparse
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
from distlearn.cuda import RawKernel, kernels

from . import test_corpus  # noqa: F401  registers the launches
from .corpus import LAUNCHES, fresh
from .textbook import CASES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "course" / "notes" / "emulator_and_card.md"
BEGIN, END = "<!-- written by tests/cuda/hardware.py -->", "<!-- end -->"

METRICS = dict(zip(Counts._fields, (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
), strict=True))  # fmt: skip
"""The profiler's name of each count."""


def launch_of(counted):
    """Return (kernel, grid, block, args, shared_mem) of a recorded launch, None for a kernel that is no longer there."""
    for v in kernels.VARIANTS:
        if counted.source == "library" and f"{v}" in (f"{counted.file}:{counted.name}{kind}" for kind in ("", "<int>")):
            grid, block, args, shared_mem = v.launch(*v.example(np.random.default_rng(0)))
            return v.raw, grid, block, args, shared_mem
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
    """Count on the card: one launch in a process of its own, under the profiler.

    Raises
    ------
    RuntimeError
        With what the profiler said.
    """
    function = launch_of(counted)[0].name.partition("<")[0]
    command = [profiler, "--clock-control", "none", "--csv", "--print-units", "base"]  # counts ask for no fixed clocks
    command += ["--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name", function, sys.executable, "-m", "tests.cuda.hardware", "--launch", counted.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    try:
        return parse(done.stdout)
    except LookupError as error:
        raise RuntimeError(f"{counted.name}: {error}; {(done.stdout + done.stderr)[-1000:]}") from error


def parse(text: str) -> Counts:
    """Read the profiler's table: a row for each launch and metric, after whatever was printed before."""
    start = text.find('"ID"')
    if start < 0:
        raise LookupError("the profiler wrote no table")
    values = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO(text[start:]))}
    missing = [metric for metric in METRICS.values() if metric not in values]
    if missing:
        raise LookupError(f"the profiler's table lacks {', '.join(missing)}")
    return Counts(*(round(float(values[metric].replace(",", ""))) for metric in METRICS.values()))


def launch(name: str) -> None:
    """Launch one kernel once on the GPU, on the arrays that the emulator is given."""
    kernel, grid, block, args, shared_mem = launch_of(recorded.COUNTED[name])
    args = tuple(to_device(a, "gpu") if isinstance(a, np.ndarray) and a.ndim else a for a in args)
    kernel(grid, block, args, shared_mem=shared_mem)


def table() -> str:
    """Return the recorded counts in Markdown: the emulator's, and in brackets the card's where they differ."""
    heads = ["sectors read", "sectors written", "wavefronts read", "wavefronts written"]
    lines = [f"| kernel | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for c in recorded.COUNTED.values():
        gone = "" if launch_of(c) else " (no longer in the library)"
        where = c.file or c.source
        both = zip(c.emulator, c.card, strict=True)
        cells = [f"{ours:,}" + f" (card: {theirs:,})" * (ours != theirs) for ours, theirs in both]
        lines.append(f"| `{where}: {c.name}`{gone} | {' | '.join(cells)} |")
    versions = ", ".join(f"{name} {version}" for name, version in recorded.DATA["versions"].items())
    return "\n".join([*lines, "", f"{recorded.CARD}, commit {recorded.DATA['commit']}; {versions}; profiler: "
                                  f"{recorded.DATA['counts']['command']}."])  # fmt: skip


def page() -> str:
    """Return the page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{head}{BEGIN}\n\n{table()}\n\n{tail}"


def main() -> None:
    """Print the table, write it into the page, or count on a card."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--measure", action="store_true", help="count on this machine's card")
    parser.add_argument("--launch", metavar="KERNEL", help="launch one kernel, for the profiler to watch")
    args = parser.parse_args()
    if args.launch:
        launch(args.launch)
    elif args.write:
        PAGE.write_text(page(), encoding="utf-8")
    elif args.measure:
        for c in filter(launch_of, recorded.COUNTED.values()):
            found = measured(c, ncu() or "ncu")
            print(c.name, found, "" if found == c.card else f"differs from the record: {c.card}")
    else:
        print(table())


if __name__ == "__main__":
    main()
