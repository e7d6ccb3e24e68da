"""Lab 04, kernels: launches on made-up data, and checks that name common mistakes."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FuncFormatter

import distlearn as dl
from distlearn.backend import has_gpu, to_device
from distlearn.cuda import kernels
from distlearn.nn.costs.profile import fewest_seconds
from distlearn.tables import format_time
from distlearn.viz.look import COLORS, INK, MARKERS, MUTED, new_axes, styled, write_title

from . import recorded
from .kernels import in_parallel, no_errors
from .lab05 import measure_gpu


def launch(code, name, grid, block, *args, record=None):
    """Compile a kernel, run it with every check, and return the report."""
    return dl.cuda.RawKernel(code, name).check(grid, block, args, time_limit=3, record=record)


def check_vector_add(check, code, n, grid, block):
    """Add n elements with `grid` blocks, each of which must do its share."""
    rng, i, last = np.random.default_rng(n), np.arange(n), grid - 1
    a, b, c = (rng.normal(size=n).astype("float32") for _ in range(3))
    old, want, what = c.copy(), a + b, f"n = {n}, {grid} x {block} threads"
    report = launch(code, "vector_add", (grid,), (block,), a, b, c, np.int32(n), record=(last,))
    if not no_errors(check, report, f"no errors, {what}"):
        return
    starts = i[:, None] - 256 * np.arange(grid)  # elements that are reached if every block is taken for one of 256
    reached = ((starts >= 0) & (starts % (grid * block) < block)).any(axis=1)
    check.close(f"c, {what}", c, want, suspects={
        "c is unchanged: nothing was written": old,
        "c held something before: write c[i] = ..., not +=": want + old,
        "this is the product: add": a * b,
        "element 0 was not written: start at 0": np.where(i > 0, want, old),
        "a thread takes only one element: go on in steps of gridDim.x * blockDim.x":
            np.where(i < grid * block, want, old),
        "a block has blockDim.x threads, not always 256": np.where(reached, want, old),
    })  # fmt: skip
    check.true("neighbours read neighbours", all(s.coalesced for s in report.sites),
               "thread t of a warp should read the element beside that of thread t + 1")  # fmt: skip
    mine, share = sum(x.kind == "write" for x in report.recorded), int((i // block % grid == last).sum())
    check.true(f"elements that block {last} writes", mine == share,
               f"{mine}, and its share is {share}: all threads of all blocks take turns")  # fmt: skip
    if n >= block:
        in_parallel(check, report, "all threads add")


def product(code, name, m, n, k, block=(32, 8)):
    """Launch a matrix product; return the report, C, what C should be, and what mistakes give."""
    rng, sizes = np.random.default_rng(m + n + k), np.array([m, n, k], np.int32)
    A, B = rng.normal(size=(m, k)).astype("float32"), rng.normal(size=(k, n)).astype("float32")
    C, want, grid = np.full((m, n), 99, np.float32), A @ B, (-(-n // block[0]), -(-m // block[1]))
    report = launch(code, name, grid, block, A, B, C, *sizes, record=(0, 0))
    inside = np.arange(k) % 16
    mistakes = {
        "C is unchanged: nothing was written": np.full_like(C, 99),
        "C held 99 and was added to: write C[...] = sum": want + 99,
        "only the last term is left: add with +=": A[:, -1:] @ B[-1:],
        "the first term is missing: i starts at 0": A[:, 1:] @ B[1:],
        "only the first tile was added": A[:, :16] @ B[:16],
        "each tile has 16 terms: i < 16": A[:, inside < 15] @ B[inside < 15],
        "every pass needs the next tile of A, from `first` on": A[:, inside % k] @ B,
        "every pass needs the next tile of B, from `first` on": A @ B[inside % k],
        "a row of B has n numbers: B[i, col] is B[i * n + col]":
            A @ B.take(np.add.outer(k * np.arange(k), np.arange(n)), mode="clip"),
    }  # fmt: skip
    if m == n == k and k % 16 == 0:
        turned = [M.reshape(-1, 16, k // 16, 16).swapaxes(1, 3).reshape(M.shape) for M in (A, B)]
        mistakes |= {
            "a[i][ty] takes a column of the tile: its row is a[ty][i]": turned[0] @ B,
            "b[tx][i] takes a row of the tile: its column is b[i][tx]": A @ turned[1],
            "this is B A: the operands are swapped": B @ A,
            "this is A times B transposed: B[i, col] is B[i * n + col]": A @ B.T,
            "this is A transposed times B: A[row, i] is A[row * k + i]": A.T @ B,
        }
    return report, C, want, {t: w for t, w in mistakes.items() if w.any() and (w != want).any()}


def check_matmul(check, code, m, n, k, block):
    """A thread computes one element of C."""
    report, C, want, mistakes = product(code, "matmul", m, n, k, block)
    what = f"{m} x {k} times {k} x {n}, blocks {block}"
    if not no_errors(check, report, f"no errors, {what}"):
        return
    check.true("all of C is written", (C != 99).all(), "x counts columns, y rows; any block size")
    check.close(f"C, {what}", C, want, rtol=1e-4, atol=1e-4, suspects=mistakes)
    writes = [(x.thread, x.offset) for x in report.recorded if x.kind != "read"]
    threads = [thread for thread, _ in set(writes)]
    check.true("one thread, one element", len(threads) == len(set(threads)),
               "a thread of block (0, 0) writes more than one element of C")  # fmt: skip
    check.true("C is written once", len(writes) == len(set(writes)),
               "an element of C is written again and again: keep its sum in a variable, a register")  # fmt: skip


def conflicts(report):
    """The worst bank conflict of a launch; 1 means none, 0 that shared memory was not used."""
    return max((s.worst_conflict for s in report.sites if s.space == "shared" and s.requests), default=0)


def check_tiled(check, code, m, n, k):
    """Blocks of 16 x 16 threads, that many elements of A and B at a time in shared memory."""
    report, C, want, mistakes = product(code, "tiled", m, n, k, (16, 16))
    if not no_errors(check, report, f"no errors, {m} x {k} times {k} x {n}"):
        return
    shared = conflicts(report)
    check.true(
        "the tiles are used", shared > 0, "no access to shared memory: both tiles are __shared__, and the loop runs"
    )
    check.true("all of C is written", (C != 99).all(), "one element for each thread inside C")
    private = code.count("__shared__") < 2 and "__shared__ float a[16][16], b" not in code
    hint = {"each thread has tiles of its own: both are __shared__": C} if private and (abs(C - want) > 1).any() else {}
    check.close(f"C, {m} x {k} times {k} x {n}", C, want, rtol=1e-4, atol=1e-4, suspects=mistakes | hint)
    needed = 4 * (-(-n // 16) * m * k + -(-m // 16) * n * k + m * n)
    if min(m, n, k) > 16:
        check.true("bytes requested", needed <= report.bytes_moved < 1.6 * needed,
                   f"{report.bytes_moved:,} bytes, with tiles about {needed:,}")  # fmt: skip
    check.true("no bank conflict", shared < 2,
               f"{shared} words of one bank at a time: neighbours in x read neighbours, b[i][tx]")  # fmt: skip


def check_block_sum(check, code, n, block):
    """Sums of pieces of n numbers, each by one block."""
    blocks, x = -(-n // block), np.random.default_rng(n).normal(size=n).astype("float32")
    out, rows = np.full(blocks, 99, np.float32), np.pad(x, (0, blocks * block - n)).reshape(blocks, block)
    report = launch(code, "block_sum", (blocks,), (block,), x, out, np.int32(n))
    of_block_0 = [x[: min(block, n - first)].sum() for first in range(0, n, block)]
    if not no_errors(check, report, f"no errors, n = {n}, blocks of {block}"):
        return
    check.close(f"sums, blocks of {block}", out, rows.sum(1), rtol=1e-4, atol=1e-4, suspects={
        "out is unchanged: nothing was written": np.full(blocks, 99),
        "every block adds the elements of block 0: load x[i]": of_block_0,
        "out[j] is the first element of block j: nothing was added to it": rows[:, 0],
        "the last step, h = 1, is missing": rows[:, ::2].sum(1),
    })  # fmt: skip
    if n >= block:
        in_parallel(check, report, "all threads load")
    passes = sum(s.wavefronts for s in report.sites if s.space == "shared") / blocks
    check.true("passes over shared memory", passes <= 47,
               f"{passes:.0f} per block; 45 are enough: let the first h threads add s[t + h]")  # fmt: skip


def check_softmax(check, code, z, block, level=0):
    """Softmax of rows of scores, one row for each block."""
    z, p, (rows, k) = z.astype("float32"), np.full(z.shape, 99, np.float32), z.shape
    report = launch(code, "softmax", (rows,), (block,), z, p, np.int32(k))
    if not no_errors(check, report, f"no errors, {rows} rows of {k}, blocks of {block}"):
        return
    softmax = lambda s: np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)  # noqa: E731
    s = z.astype(float) - z.max(axis=1, keepdims=True)
    e, want = np.exp(s), softmax(s)
    parts = np.stack([e[:, j % block :: block].sum(1) for j in range(k)], axis=1)
    own = np.stack([np.maximum(s[:, j % block :: block].max(1), s[:, 0]) for j in range(k)], axis=1)
    suspects = {
        "these are not yet divided by their sum": e,
        "p is unchanged: not written": 99,
        "the largest score of all threads is wanted, not of each: combine": softmax(s - own),
        "a thread keeps only its last term: add with +=": e / e[:, -block:].sum(1)[:, None],
        "each thread divided by its own part of the sum: combine": e / parts,
        "every block reads row 0: a row begins at z + blockIdx.x * k": np.tile(want[0], (rows, 1)),
        "a row may be longer than the block: stride through it when writing, too": np.where(
            np.arange(k) < block, want, 99
        ),
        "the exponential is missing in the last loop": s / e.sum(axis=1, keepdims=True),
    }
    if check.ok and abs(z).max() > 80:
        suspects["exp over- or underflowed: subtract the largest score of the row"] = np.nan
    what = f"{rows} rows of {k}, scores near {level}"
    check.close(f"p, {what}", p, want, rtol=1e-4, atol=1e-7, suspects=suspects)
    if k >= block:
        in_parallel(check, report, "all threads take part")
    read = sum(s.lanes * s.size for s in report.sites if s.array == "z") / (4 * z.size)
    check.true("scores are read three times", read <= 3 + block / k,
               f"{read:.0f} times: the threads of a block share a row, each takes every {block}th score")  # fmt: skip


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
        card, sites = recorded.COUNTED[name].card, report.sites
        rows.append({
            "kernel": kernel, "sectors": sum(s.sectors for s in sites if s.space == "global"),
            "H100": card.sectors // times, "passes": sum(s.wavefronts for s in sites if s.space == "shared"),
            "H100 ": card.wavefronts // times,
        })  # fmt: skip
    return rows


TIMED = {"transpose_naive": "transpose, no tile", "transpose_tiled<0>": "transpose, 32 columns",
         "transpose_tiled<1>": "transpose, 33 columns", "reduce_interleaved": "sum, neighbours",
         "reduce_sequential": "sum, halves", "reduce_shuffle": "sum, in registers", "matmul_naive": "product, no tiles",
         "matmul_tiled": "product, tiles", "matmul_blocked": "product, 4 x 4 a thread"}  # fmt: skip
"""The library's kernels, by what the figure calls them: arrays of 4096 x 4096, products of 2048 x 2048."""


def bounds(card, size: int = 4096) -> dict[str, dict[str, float]]:
    """Return by kernel of `TIMED` the seconds that a card needs at least for what the profiler counted, at this size.

    In a clock a processor of an H100 does 128 multiply-adds and one pass over its shared memory: 256 operations a pass.
    """
    found = {}
    for kernel, title in TIMED.items():
        counts, n = recorded.COUNTED[kernel].card, size // 2
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
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_time(v)))
    ax.grid(visible=False, axis="y")
    ax.legend(loc="upper left", bbox_to_anchor=(-0.2, -0.16), ncols=2, borderaxespad=0)
    write_title(ax, title)
    return ax
