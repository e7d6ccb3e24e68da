"""What the emulator counts beside what a card's profiler counts, for five kernels.

    python -m tests.cuda.hardware              print the table
    python -m tests.cuda.hardware --write      write it into course/notes/emulator_and_card.md

Needs a GPU and NVIDIA's `ncu` (Nsight Compute, part of the CUDA toolkit), with leave to read the card's counters
(https://developer.nvidia.com/ERR_NVGPUCTRPERM); without them the card's columns stay empty.
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

from distlearn.backend import has_gpu, to_device
from distlearn.cuda import kernels

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "course" / "notes" / "emulator_and_card.md"
BEGIN, END = "<!-- written by tests/cuda/hardware.py -->", "<!-- end -->"

KERNELS = (
    kernels.transpose.NAIVE, kernels.transpose.TILED, kernels.transpose.PADDED, kernels.matmul.TILED,
    kernels.reduce.INTERLEAVED,
)  # fmt: skip

METRICS = {
    "global read, sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global write, sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared read, wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared write, wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
"""What is compared, and the profiler's name for it."""


def emulated(variant) -> dict[str, int]:
    """Count in the emulator."""
    found = dict.fromkeys(METRICS, 0)
    for site in variant.check(*variant.example(np.random.default_rng(0))).sites:
        what = "sectors" if site.space == "global" else "wavefronts"
        found[f"{site.space} {site.access}, {what}"] += getattr(site, what)
    return found


def ncu() -> str | None:
    """Return the profiler, if there are one and a GPU."""
    return shutil.which("ncu") if has_gpu() else None


def measured(variant, profiler: str) -> dict[str, int]:
    """Count on the card: one launch in a process of its own, under the profiler.

    Raises
    ------
    RuntimeError
        With what the profiler said.
    """
    function = variant.kernel.partition("<")[0]
    command = [profiler, "--clock-control", "none", "--csv", "--print-units", "base"]  # counts ask for no fixed clocks
    command += ["--metrics", ",".join(METRICS.values())]
    command += ["--kernel-name", function, sys.executable, "-m", "tests.cuda.hardware", "--launch", str(variant)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    try:
        return parse(done.stdout)
    except LookupError as error:
        raise RuntimeError(f"{variant}: {error}; {(done.stdout + done.stderr)[-1000:]}") from error


def parse(text: str) -> dict[str, int]:
    """Read the profiler's table: a row for each launch and metric, after whatever was printed before."""
    start = text.find('"ID"')
    if start < 0:
        raise LookupError("the profiler wrote no table")
    values = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO(text[start:]))}
    missing = [metric for metric in METRICS.values() if metric not in values]
    if missing:
        raise LookupError(f"the profiler's table lacks {', '.join(missing)}")
    return {name: round(float(values[metric].replace(",", ""))) for name, metric in METRICS.items()}


def launch(name: str) -> None:
    """Launch one kernel once on the GPU, on the arrays that the emulator is given."""
    (variant,) = (v for v in KERNELS if str(v) == name)
    args = variant.example(np.random.default_rng(0))
    variant(*(to_device(a, "gpu") if isinstance(a, np.ndarray) else a for a in args))


def table(profiler: str | None) -> str:
    """Return the comparison in Markdown."""
    lines = ["| kernel | count | emulator | card |", "| --- | --- | ---: | ---: |"]
    for variant in KERNELS:
        card = measured(variant, profiler) if profiler else {}
        for name, count in emulated(variant).items():
            if count or card.get(name):
                lines.append(f"| {variant.kernel} | {name} | {count:,} | {_shown(card.get(name))} |")
    return "\n".join([*lines, "", f"Card: {_card() if profiler else 'none was at hand; these columns wait for one.'}"])


def _shown(count) -> str:
    return "" if count is None else f"{count:,}"


def _card() -> str:
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--launch", metavar="KERNEL", help="launch one kernel, for the profiler to watch")
    args = parser.parse_args()
    if args.launch:
        return launch(args.launch)
    found = table(ncu())
    if not args.write:
        return print(found)
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    return PAGE.write_text(f"{head}{BEGIN}\n\n{found}\n\n{tail}", encoding="utf-8") and None


if __name__ == "__main__":
    main()
