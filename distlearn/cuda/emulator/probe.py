"""Tests once for each compiler that its kernels are counted correctly, with a small kernel of known counts.

Operations and the order of basic blocks are read from the compiler's assembly (sites.py, flow.py, COUNTING.md). One
that writes it in another way would be miscounted silently; so before the first kernel of a compiler is checked,
this one is, and if anything differs from what was counted by hand the compiler is refused.
"""

from __future__ import annotations

import numpy as np

from distlearn.cuda.emulator import program
from distlearn.cuda.emulator.compilers import Compiler
from distlearn.cuda.errors import KernelError

SOURCE = """__device__ __noinline__ float twice(float v) { return v + v; }
extern "C" __global__ void probe(const float* x, const double* d, float* y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = x[t] * 3.0f + 1.0f;
    for (int i = 0; i < n; i++)
        sum -= x[2 * t + i] / 5.0f;
    if (t % 2)
        sum = sqrtf(sum * sum) + twice(sum);
    else
        sum = fmaf(sum, sum, expf(sum));
    s[2 * t] = sum;
    __syncthreads();
    y[t] = s[2 * (31 - t)] + (float)(d[t] * 0.5);
}"""
TURNS = 7
FLOPS = 32 * (2 + 2 * TURNS + 1 + 1) + 16 * (3 + 1) + 16 * 3
# By line: the array, bytes of an access, requests of the warp, lanes, sectors of 32 bytes or wavefronts of 32 banks.
ACCESSES = {
    (5, "x"): (4, 1, 32, 4),
    (7, "x"): (4, TURNS, 32 * TURNS, 16 + 9 * (TURNS - 2)),
    (12, "s"): (4, 1, 32, 2),
    (14, "s"): (4, 1, 32, 2),
    (14, "d"): (8, 1, 32, 8),
    (14, "y"): (4, 1, 32, 4),
}


def counts(made) -> dict:
    """Run the probe; return flops, accesses and the share of lanes that the arms of the branch had."""
    x, d, y = np.ones(62 + TURNS, np.float32), np.ones(32), np.zeros(32, np.float32)
    no_pointers = np.int64(0).tobytes()  # in structs: what cuda_emu.h calls put_pointers
    bound = [x, d, y, np.int32(TURNS).tobytes(), no_pointers]
    report, _, _ = program.run(
        made.path, (1, 1, 1), (32, 1, 1), 0, bound, [*made.signature, "s8"],
        ["x", "d", "y", "n", "pointers"],
        constants={}, statistics=True, races=True, time_limit=20.0,
    )  # fmt: skip
    if report is None or report["findings"]:
        return {"findings": report and report["findings"]}
    names = [r["name"] for r in report["regions"]]
    accesses = {
        (made.sites[a["site"]].line, names[a["region"]]): (
            a["size"], a["requests"], a["lanes"], a["cost"])
        for a in report["traffic"]
    }  # fmt: skip
    lines: dict = {}
    for site, issued, active, _ in report["blocks"]:
        lines.setdefault(made.sites[site].line, set()).add((issued, active))
    return {
        "flops": sum(active * made.sites[site].flops for site, _, active, _ in report["blocks"]),
        "accesses": accesses,
        "half of the lanes in each arm": all((1, 16) in lines.get(line, ()) for line in (9, 11)),
    }


WANTED = {"flops": FLOPS, "accesses": ACCESSES, "half of the lanes in each arm": True}


def examine(compiler: Compiler, made) -> None:
    """Compare the probe's counts with those made by hand."""
    got = counts(made)
    for what, wanted in WANTED.items():
        if got.get(what) != wanted:
            raise KernelError(
                f"{compiler.name} writes assembly that the emulator does not count correctly: {what} of the probe are "
                f"{got.get(what)}, expected {wanted}. Set DISTLEARN_CXX to another compiler, or launch with "
                "checked=False"
            )
