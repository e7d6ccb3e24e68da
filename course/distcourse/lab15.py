"""Lab 15, attention: results of answers for its checks, and the bytes of three kernels."""

from __future__ import annotations

import numpy as np

import distlearn as dl
from distlearn.nn.attention import Partial, merge

from .exercise import named
from .kernels import launched


def run_attend(attend, shape, causal, keys=None, scale=1.0, below=False, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    q = scale * rng.normal(size=shape)
    k, v = scale * rng.normal(size=(2, *shape[:-2], keys or shape[-2], shape[-1]))
    if below:  # all scores are less than 0
        q, k = -abs(q), abs(k)
    return named(attend(*(a.astype(dtype) for a in (q, k, v)), *[True] * causal), "y", "p")


def run_attend_backward(attend_backward, shape, keys, causal, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    dy, q = rng.normal(size=(2, *shape))
    k, v = rng.normal(size=(2, *shape[:-2], keys, shape[-1]))
    p = np.exp(q @ k.swapaxes(-1, -2) / shape[-1] ** 0.5) * (np.tri(shape[-2], keys) if causal else 1)
    p /= p.sum(axis=-1, keepdims=True)
    return named(attend_backward(*(a.astype(dtype) for a in (dy, q, k, v, p))), "dq", "dk", "dv")


def run_merge(merge, queries, width, keys, spread=1.0, near=(0,), blind=(), dtype="float64", seed=0):
    """`keys` are those of either side; `blind` holds (side, query) for those who have seen nothing of it."""
    rng, near = np.random.default_rng(seed), np.resize(near, (queries, 1))
    seen = []
    for side, count in enumerate(keys):
        s, v = near + spread * rng.normal(size=(queries, count)), rng.normal(size=(count, width))
        s[[query for of, query in blind if of == side]] = -np.inf
        top = s.max(axis=1, keepdims=True)
        e = np.exp(s - np.where(np.isfinite(top), top, 0))
        seen.append(tuple(a.astype(dtype) for a in (top, e.sum(axis=1, keepdims=True), e @ v)))
    return named(merge(*seen), "m", "l", "o")


def run_flash(flash, queries, keys, scale=1, shift=0, seed=0):
    """A shift puts all scores at -shift^2 / 4; q and k are such that float32 holds the scores."""
    rng = np.random.default_rng(seed)
    q, k = (np.round(2 * rng.normal(size=(n, 16))) / 2 for n in (queries, keys))
    q, k = (np.eye(1, 16) * -shift + 0 * q, np.eye(1, 16) * shift + 0 * k) if shift else (scale * q, k)
    v = rng.normal(size=(keys, 16))
    y, sizes = np.full((queries, 16), 99, np.float32), np.array([queries, keys], np.int32)
    arrays = *(a.astype(np.float32) for a in (q, k, v)), y
    blocks = -(-queries // 32)
    results, report = launched(flash, "flash", (blocks,), (32,), (*arrays, *sizes))
    if report:  # a thread without a query may read another's
        least = 4 * 16 * (32 * blocks + queries + 2 * blocks * keys)
        results |= {"y": y, "bytes requested from global memory": max(int(report.bytes_requested), least)}
    return results


def run_ring_attend(ring_attend, ranks, positions, width, order="striped", scale=1.0, dtype="float64", seed=0):
    rng, n = np.random.default_rng(seed), ranks * positions
    where = {
        "in order": np.arange(n).reshape(ranks, positions),
        "striped": np.arange(n).reshape(positions, ranks).T.copy(),
        "shuffled": rng.permutation(n).reshape(ranks, positions),
    }[order]
    parts = rng.normal(size=(3, n, width)).astype(dtype)[:, where]
    parts[0] *= scale
    world = dl.SimWorld(ranks, dl.Network(alpha=1e-6, beta=1e9), dl.Roofline(peak=1e9))
    whole = lambda a, b: tuple(merge(Partial(*a), Partial(*b)))  # noqa: E731
    y = world.run(lambda comm: ring_attend(comm, *parts[:, comm.rank].copy(), where.copy(), whole))
    late, calls = [], []
    for rank in range(ranks):  # before it passes on block j, a rank has used the blocks 0 to j - 1
        passed = sorted(m.sent for m in world.trace.messages if m.source == rank)
        used = sorted(s.start for s in world.trace.spans if (s.rank, s.name) == (rank, "attention"))
        late += [rank] * any(start > end for start, end in zip(used, passed[1:], strict=False))
        calls.append(len(used))
    sent = sorted((m.source, m.dest, m.nbytes) for m in world.trace.messages)
    return {
        "y by rank": y,
        "calls of see by rank": calls,
        "messages (from, to, bytes)": np.array(sent, int).reshape(-1, 3),
        "held": "at most two blocks of keys" if not late else f"more blocks of keys\non ranks {late}",
    }


def run_zigzag(zigzag, n, p):
    return {"where": zigzag(n, p)}


UNTILED = r"""extern "C" __global__ void untiled(
        const float* q, const float* k, const float* v, float* y, int n, int m) {
    int row = blockIdx.x * B + threadIdx.x;
    if (row >= n) return;
    float mine[D], top = NOTHING, total = 0.0f, out[D] = {};
    for (int c = 0; c < D; c++) mine[c] = q[row * D + c];
    for (int j = 0; j < m; j++) {
        float s = dot(mine, k + j * D) * rsqrtf(D), above = fmaxf(top, s);
        float less = expf(top - above), e = expf(s - above);
        total = total * less + e, top = above;
        for (int c = 0; c < D; c++) out[c] = out[c] * less + e * v[j * D + c];
    }
    for (int c = 0; c < D; c++) y[row * D + c] = out[c] / total;
}"""


def bytes_of_kernels(run, tile, naive, flash, q, k, v):
    """A table of bytes requested and moved: all scores in memory, the merge without tiles, and both."""
    scores = np.zeros((len(q), len(k)), np.float32)
    reports = {
        "scores in memory": run(naive, "naive", q, k, v, scores)[0],
        "merge, no tiles": run(tile + UNTILED, "untiled", q, k, v)[0],
        "merge and tiles (yours)": run(flash, "flash", q, k, v)[0],
    }
    return dl.viz.table([
        {"kernel": name, "requested [MB]": r.bytes_requested / 1e6, "moved [MB]": r.bytes_moved / 1e6}
        for name, r in reports.items()
    ])  # fmt: skip
