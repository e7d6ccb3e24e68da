"""CUDA C without a GPU: how long a student waits for a kernel to build, to run and to be checked.

The matrix product is the library's tiled kernel. Where there are several
compilers each has its rows. Times are processor times, of this process and of those it started: on a core of its own
the same as wall time, and less disturbed where other programs share the cores.
"""

from __future__ import annotations

import os
import time
from statistics import median

try:
    import resource
except ImportError:  # Windows
    resource = None

import numpy as np

from distlearn.cuda import RawKernel, kernels
from distlearn.cuda.emulator import build
from distlearn.cuda.emulator.compilers import find_compilers
from tests.cuda.corpus import HERE

from . import load_note, quick, record

ADD = """extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}"""


def seconds(call) -> float:
    """Processor time of a call, in this process and in those that it waited for [s]."""

    def used():
        if resource is None:
            return time.perf_counter()
        whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, whose))

    began = used()
    call()
    return used() - began


def matrices(n):
    """Two random matrices and room for their product."""
    rng = np.random.default_rng(0)
    return rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32), np.zeros((n, n), np.float32)


def attention(n, d):
    """Launch of one head of flash attention, 32 rows at a time: grid, block, arguments and bytes of shared memory."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.random((n, d), dtype=np.float32) for _ in range(3))
    sizes = map(np.int32, (n, d, n // 32, n // 32, 32, 32))
    out = np.zeros(n, np.float32), np.full(n, -np.inf, np.float32), np.zeros((n, d), np.float32)
    return (1, 1), (32,), (q, k, v, *sizes, np.float32(d**-0.5), *out), 4 * (3 * 32 * d + 32 * 32)


def compile_time(compiler, turn) -> float:
    """Seconds from a source that nobody has seen to its first report, the checker itself being built already."""
    kernel = RawKernel(f"{ADD}\n// {os.getpid()} {turn} {compiler.name}", "add", compiler=compiler)
    x = np.zeros(64, np.float32)
    return seconds(lambda: kernel.check((1,), (64,), (x, x, x.copy(), np.int32(64))))


def of_compiler(compiler) -> list[dict]:
    """Measure one compiler."""
    repeats = 3 if quick() else 9
    tiled = kernels.matmul.TILED
    source = kernels.variant.source(tiled.file)
    grid, block, args, _ = tiled.launch(*matrices(256))
    small = tiled.launch(*matrices(64))
    checked = RawKernel(source, tiled.kernel, compiler=compiler)
    flash = RawKernel(
        (HERE / "nn.cu").read_text(encoding="utf-8"), "flash_attention", (f"-I{HERE}",), compiler=compiler
    )
    *head, shared_mem = attention(64, 64)

    note = load_note()

    def ms(call):
        call()  # builds, and warms up
        return median(seconds(call) for _ in range(repeats)) * 1e3

    compile_time(compiler, "warm-up")
    rows = [
        ("tiled matmul 256 x 256, every check", "ours < 600", ms(lambda: checked.check(grid, block, args))),
        ("tiled matmul 64 x 64, every check", "ours < 100", ms(lambda: checked.check(*small[:3]))),
        ("flash attention 64 x 64, every check", "ours < 30", ms(lambda: flash.check(*head, shared_mem=shared_mem))),
        (
            "build and check a new kernel",
            "ours < 1000",
            median(compile_time(compiler, i) for i in range(repeats)) * 1e3,
        ),
    ]
    return [
        record(f"{name} ({compiler.name}, one core)", "ms", ours, goal=goal, note=note) for name, goal, ours in rows
    ]


def records():
    """Every compiler but zig, whose very first build takes half a minute for its C library."""
    build.cache_directory()
    return [row for compiler in find_compilers() if compiler.kind != "zig" for row in of_compiler(compiler)]
