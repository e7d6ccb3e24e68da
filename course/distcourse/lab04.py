"""Lab 04, kernels: launches on made-up data, what they give for the checks, and counts beside those of a card."""

from __future__ import annotations

from collections import Counter

import numpy as np

import distlearn as dl
from distlearn.backend import has_gpu, to_device
from distlearn.cuda import kernels
from distlearn.nn.costs.profile import fewest_seconds
from distlearn.tables import format_time
from distlearn.viz.look import COLORS, INK, MARKERS, MUTED, new_axes, styled, write_title

from . import recorded
from .kernels import in_parallel, launched
from .lab05 import measure_gpu


def launch(code, name, grid, block, *args, record=None):
    """Compile a kernel, run it with every check, and return the report."""
    return dl.cuda.RawKernel(code, name).check(grid, block, args, time_limit=3, record=record)


def run_vector_add(vector_add, n, grid, block, seed=0):
    """The last block must do its share of the elements, and no more."""
    a, b, c = np.random.default_rng(seed).normal(size=(3, n)).astype(np.float32)
    args = a, b, c, np.int32(n)
    results, report = launched(vector_add, "vector_add", (grid,), (block,), args, record=(grid - 1,))
    if report:
        results |= {"c": c, "reads": _neighbours(report)}
        results["elements that the last block writes"] = sum(x.kind == "write" for x in report.recorded)
        if n >= block:
            results["warps"] = in_parallel(report)
    return results


def _neighbours(report) -> str:
    return f"neighbours take {'neighbours' if all(s.coalesced for s in report.sites) else 'elements that lie apart'}"


def _product(m, n, k, block, seed=0):
    """The grid and the arguments of a product; float32 holds every sum, in whatever order it is added."""
    rng = np.random.default_rng(seed)
    A, B = (np.round(4 * rng.normal(size=shape)).astype(np.float32) / 4 for shape in ((m, k), (k, n)))
    grid, sizes = (-(-n // block[0]), -(-m // block[1])), np.array([m, n, k], np.int32)
    return grid, block, (A, B, np.full((m, n), 99, np.float32), *sizes)


def product(code, name, m, n, k, block=(32, 8)):
    """Launch a product of matrices (m, k) and (k, n), and return the report."""
    grid, block, args = _product(m, n, k, block)
    return launch(code, name, grid, block, *args)


def run_matmul(matmul, m, n, k, block, seed=0):
    grid, block, args = _product(m, n, k, tuple(block), seed)
    results, report = launched(matmul, "matmul", grid, block, args, record=(0, 0))
    if report:
        writes = [(x.thread, x.offset) for x in report.recorded if x.kind != "read"]
        of = Counter(thread for thread, _ in set(writes))
        results |= {"C": args[2], "elements of C that a thread writes": max(of.values(), default=0)}
        results["times that an element of C is written"] = max(Counter(writes).values(), default=0)
        if block[0] >= 32 and n >= 32:
            results["reads"] = _neighbours(report)
    return results


def conflicts(report):
    """The worst bank conflict of a launch; 1 means none."""
    return max(s.worst_conflict for s in report.sites if s.space == "shared")


def passes(report) -> int:
    """Passes over shared memory."""
    return sum(s.wavefronts for s in report.sites if s.space == "shared")


def _few(passes: float, enough: int) -> str:
    """A fifth more is another style: a tile that is set to 0 first, or padded."""
    return "few" if passes <= 1.2 * enough else f"more than needed\n{passes:.0f}, where {enough} are enough"


def run_tiled(tiled, m, n, k, seed=0):
    grid, block, args = _product(m, n, k, (16, 16), seed)
    results, report = launched(tiled, "tiled", grid, block, args)
    if report:
        needed = 4 * (-(-n // 16) * m * k + -(-m // 16) * n * k + m * n)
        few = min(m, n, k) <= 16 or report.bytes_moved < 1.6 * needed
        results |= {
            "C": args[2],
            "bytes moved": "few" if few else f"more\n{report.bytes_moved:,}, with tiles {needed:,}",
        }
        results["passes over shared memory per tile"] = _few(passes(report) / (np.prod(grid) * -(-k // 16)), 272)
    return results


def run_block_sum(block_sum, n, block, seed=0):
    blocks = -(-n // block)
    x = np.round(64 * np.random.default_rng(seed).normal(size=n)).astype(np.float32) / 64
    out = np.full(blocks, 99, np.float32)
    results, report = launched(block_sum, "block_sum", (blocks,), (block,), (x, out, np.int32(n)))
    if report:
        results |= {"out": out, "passes over shared memory per block": _few(passes(report) / blocks, 45)}
        if n >= block:
            results["warps"] = in_parallel(report)
    return results


def run_softmax(softmax, rows, k, block, level=0, wide=1.0, seed=0):
    rng = np.random.default_rng(seed)
    z = np.round(64 * (np.resize(level, (rows, 1)) + wide * rng.normal(size=(rows, k)))).astype(np.float32) / 64
    p = np.full(z.shape, 99, np.float32)
    results, report = launched(softmax, "softmax", (rows,), (block,), (z, p, np.int32(k)))
    if report:
        read = sum(s.lanes * s.size for s in report.sites if s.array == "z") / (4 * z.size)
        results |= {
            "p": p,
            "scores are read": "three times" if read <= 3 + block / k else f"more often\n{read:.0f} times",
        }
        if k >= 3 * block:
            results |= {"warps": in_parallel(report), "reads": _neighbours(report)}
    return results


# -- Beside a card: what an H100's profiler counted for the same launches, and how long kernels took.

SAME = {"vector add": ("saxpy", 1), "product, x counts rows": ("naive matmul, threads along columns", 1),
        "product, x counts columns": ("naive matmul, threads along rows", 1), "product, tiles": ("tiled matmul", 1),
        "sums of blocks": ("reduction", 1), "transpose, 32 columns": ("transpose_tiled<0>", 12),
        "transpose, 33 columns": ("transpose_tiled<1>", 12)}  # fmt: skip
"""By launch of the lab: the recorded one with the same accesses, and how many times as many tiles it has."""


def beside(reports: dict) -> list[dict]:
    """Put the counts of launches of the lab, by name in `SAME`, beside those of an H100's profiler."""
    rows = []
    for kernel, report in reports.items():
        name, times = SAME[kernel]
        card = recorded.COUNTED[name].card
        rows.append({
            "kernel": kernel, "sectors": sum(s.sectors for s in report.sites if s.space == "global"),
            "H100": card.sectors // times, "passes": passes(report),
            "H100 ": card.wavefronts // times,
        })  # fmt: skip
    return rows


TIMED = {"transpose_naive": "transpose, no tile", "transpose_tiled<0>": "transpose, 32 columns",
         "transpose_tiled<1>": "transpose, 33 columns", "reduce_interleaved": "sum, neighbours",
         "reduce_sequential": "sum, halves", "reduce_shuffle": "sum, in registers", "matmul_naive": "product, no tiles",
         "matmul_tiled": "product, tiles", "matmul_blocked": "product, 4 x 4 a thread"}  # fmt: skip
"""The library's kernels, by what the figure calls them: arrays of 4096 x 4096, products of 2048 x 2048."""


def bounds(card) -> dict[str, dict[str, float]]:
    """Return by kernel of `TIMED` the seconds that a card needs at least for what the profiler counted.

    In a clock a processor of an H100 does 128 multiply-adds and one pass over its shared memory: 256 operations a pass.
    """
    found, size, n = {}, 4096, 2048
    for kernel, title in TIMED.items():
        counts = recorded.COUNTED[kernel].card
        if "matmul" in kernel:  # counted for 128 x 64 times 64 x 192
            work, outputs = n**3 / (128 * 64 * 192), n**2 / (128 * 192)
        else:
            work = outputs = size**2 / (2048 if "reduce" in kernel else 128 * 96)
        moving = 32 * (work * counts.read + outputs * counts.written) / card.bandwidth
        found[title] = {"memory": moving, "shared memory": 256 * work * counts.wavefronts / card.peak}
        if "matmul" in kernel:
            found[title]["arithmetic"] = 2 * n**3 / card.peak
    return found


def kernel_times(xp=None, size: int = 4096):
    """Return a card, and by kernel of `TIMED` its seconds and those of CuPy's own operation.

    They are measured where there is a GPU (or `xp` stands in for CuPy), and recorded ones elsewhere.
    """
    if xp is None and not has_gpu():
        return dl.cuda.CARDS[recorded.DATA["name"]], {
            title: tuple(ms / 1e3 for ms in recorded.KERNELS[kernel]) for kernel, title in TIMED.items()
        }
    if xp is None:
        xp = dl.backend.get_xp(to_device(np.zeros(1), "gpu"))
    square, half = (np.ones((n, n), np.float32) for n in (size, size // 2))
    work = {
        "transpose": (square, square.copy(), lambda x, y: xp.copyto(y, x.T)),
        "reduce": (square.reshape(-1), square.reshape(-1)[: size * size // 256].copy(),
                   lambda x, y: x.reshape(-1, 256).sum(1, out=y)),
        "matmul": (half, half.copy(), half.copy(), lambda a, b, c: xp.matmul(a, b, out=c)),
    }  # fmt: skip
    found = {}
    for variant in kernels.VARIANTS:
        if variant.kernel in TIMED:
            *arrays, peer = work[variant.kernel.partition("_")[0]]
            arrays = [xp.asarray(a) for a in arrays]
            found[TIMED[variant.kernel]] = tuple(
                fewest_seconds(lambda f=f, arrays=arrays: [f(*arrays) for _ in range(20)], xp=xp) / 20
                for f in (variant, peer)
            )
    return measure_gpu(), {title: found[title] for title in TIMED.values()}


@styled
def plot_times(card, times, least, title=""):
    """Draw for every kernel the seconds that its counts need at least, those that it took, and those of CuPy."""
    ax = new_axes(figsize=(7.2, 4.2))[0]
    rows = range(len(times))
    for i, what in enumerate(("memory", "shared memory", "arithmetic")):
        points = [(bound[what], y) for y, bound in zip(rows, (least[name] for name in times), strict=True)
                  if bound.get(what)]  # fmt: skip
        ax.plot(*zip(*points, strict=True), linestyle="", marker=MARKERS[i + 1], color=COLORS[i + 1], mfc="white",
                markersize=8, label=f"at least, by {what}" + ", without caches" * (what == "memory"))  # fmt: skip
    ours, theirs = zip(*times.values(), strict=True)
    ax.plot(ours, rows, linestyle="", marker=MARKERS[0], color=INK, markersize=7, label="took")
    ax.plot(theirs, rows, linestyle="", marker="|", color=MUTED, markersize=14, markeredgewidth=2.5,
            label="CuPy's own (a product: cuBLAS)")  # fmt: skip
    ax.set_yticks(rows, list(times))
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel=f"time on {card.name}")
    ax.xaxis.set_major_formatter(lambda v, _: format_time(v))
    ax.grid(visible=False, axis="y")
    ax.legend(loc="upper left", bbox_to_anchor=(-0.2, -0.16), ncols=2, borderaxespad=0)
    write_title(ax, title)
    return ax
