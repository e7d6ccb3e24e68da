"""Lab 15, attention: its checks, and the mistakes that they know."""

from __future__ import annotations

import numpy as np

import distlearn as dl

from .kernels import no_errors


def weights(s, mask=True):
    """Softmax of the scores where `mask` is True; the others, and a row that is all hidden, get 0."""
    top = np.where(mask, s, -np.inf).max(axis=-1, keepdims=True)
    e = np.where(mask, np.exp(np.minimum(s - np.where(np.isfinite(top), top, 0), 0)), 0)
    return e / np.maximum(e.sum(axis=-1, keepdims=True), np.finfo(float).tiny)


def check_attend(check, attend, q, k, v, causal):
    """Attention, forward: the dtype of its input is part of the answer."""
    what = f"{q.dtype} {q.shape}, causal {causal}"
    q_, k_, v_ = (a.astype(float) for a in (q, k, v))
    s, root = q_ @ np.swapaxes(k_, -1, -2), q.shape[-1] ** 0.5
    mask = np.tri(*s.shape[-2:], dtype=bool) | (not causal)
    want = weights(s / root, mask)
    y, p = check.call(attend, q, k, v, *[True] * causal)
    suspects = {
        "y and p have changed places: return y, p": want @ v_,
        "scores are not divided by the square root of d": weights(s, mask),
        "divided by d, not by its square root": weights(s / root**2, mask),
        "nothing is masked": weights(s / root),
        "the root of d, the length of a query, not of n": weights(s / s.shape[-1] ** 0.5, mask),
        "the mask comes after the softmax: rows do not sum to 1": weights(s / root) * mask,
        "a hidden score is 0, and e^0 is 1: use -np.inf": weights(s / root * mask),
        "a visible score can be below this: hide with -np.inf": weights(np.where(mask, s / root, -100)),
        "d is not always 3: q.shape[-1]": weights(s / 3**0.5, mask),
    }
    if causal:
        suspects["the mask is transposed: query i sees the keys 0 to i"] = weights(s / root, mask.T)
    elif s.shape[-1] == s.shape[-2]:
        suspects["the mask is for causal=True only"] = weights(s / root, np.tri(s.shape[-1], dtype=bool))
    check.close(f"p, {what}", p, want, dtype=q.dtype, suspects=suspects)
    missing = {"the values are missing: p @ v": want}
    check.close(f"y, {what}", y, want @ v_, dtype=q.dtype, suspects=missing)


def check_backward(check, attend_backward, shape, m, causal, rng, dtype=float):
    """Attention, backward, for queries of a shape and m keys."""
    turn, root = lambda a: np.swapaxes(a, -1, -2), shape[-1] ** 0.5
    q, dy = rng.normal(size=(2, *shape)).astype(dtype)
    k, v = rng.normal(size=(2, *shape[:-2], m, shape[-1])).astype(dtype)
    p = weights(q @ turn(k) / root, np.tri(shape[-2], m, dtype=bool) | (not causal)).astype(dtype)
    dp, what = dy @ turn(v), f", {q.dtype} {shape}, m = {m}, causal {causal}"
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    wrong = {
        "the softmax is missing: dS is not dP": dp / root,
        "the row's mean is missing: subtract the sum of dP P": p * dp / root,
        "the mean is the sum of dP P": p * (dp - dp.sum(axis=-1, keepdims=True)) / root,
        "each query has its own mean: sum over the keys, axis -1": p
        * (dp - (dp * p).sum(axis=-2, keepdims=True))
        / root,
        "each query has its own mean: keep the row": p * (dp - (dp * p).sum(axis=(-2, -1), keepdims=True)) / root,
        "divide by the square root of d here, too": ds,
        "divided by d, not by its square root": ds / root**2,
        "p (1 - p) is not all: the other weights fall": p * (1 - p) * dp / root,
        "a row of p sums to 1: its sum is the mean already": p * (dp - (dp * p).mean(axis=-1, keepdims=True)) / root,
        "dP = dY V^T: v, not k": p * (dy @ turn(k) - (dy @ turn(k) * p).sum(axis=-1, keepdims=True)) / root,
    }
    want = {"dq": ds @ k / root, "dk": turn(ds) @ q / root, "dv": turn(p) @ dy}
    suspects = {
        "dq": {text: x @ k for text, x in wrong.items()},
        "dk": {text: turn(x) @ q for text, x in wrong.items()},
        "dv": {"p is not transposed": p @ dy} if m == shape[-2] else {},
    }
    dq, dk, dv = check.call(attend_backward, dy, q, k, v, p)
    for name, got in {"dq": dq, "dk": dk, "dv": dv}.items():
        others = {f"this is {other}: return dq, dk, dv": want[other] for other in want if other != name}
        check.close(name + what, got, want[name], dtype=q.dtype, suspects=others | suspects[name])


def check_merge(check, merge, s, v, cut, what):
    """The merge of the first `cut` keys with the others, for scores (n, m) and values (m, d)."""

    def seen(s, v):
        top = s.max(axis=1, keepdims=True)
        e = np.exp(s - np.where(np.isfinite(top), top, 0))
        return top, e.sum(axis=1, keepdims=True), e @ v

    a, b, want = seen(s[:, :cut], v[:cut]), seen(s[:, cut:], v[cut:]), seen(s, v)
    empty = np.isinf(want[0])
    text = "each side needs a factor of its own, to the common m"
    swapped = "the factors have changed sides: exp(m_A - m) belongs to A"
    early = "o is a sum, like l: divide by l only at the very end"
    mean = np.divide(want[2], want[1], out=np.full_like(want[2], np.nan), where=~empty)
    with np.errstate(all="ignore"):
        x, y = (np.exp(side[0] - np.where(empty, 0, want[0])) for side in (b, a))
        turned = [None, x * a[1] + y * b[1], x * a[2] + y * b[2]]
        weighted = y * a[1] * a[2] + x * b[1] * b[2]
    told = {"m": {"the larger of the two: np.maximum": np.logaddexp(a[0], b[0])}}
    told["l"] = {text: a[1] + b[1], swapped: turned[1]}
    told["o"] = {text: a[2] + b[2], swapped: turned[2], early: mean, "o has its weights already, not l": weighted}
    lost = "-inf - (-inf) is NaN: where m is -inf, subtract 0"
    m, l, o = check.call(merge, a, b)
    for name, mine, right in zip("mlo", (m, l, o), want, strict=True):
        suspects = told[name] | {lost: np.where(empty, np.nan, right)}
        check.close(f"{name}, {what}", mine, right, dtype=s.dtype, suspects=suspects)


def check_flash(check, run, rng, n, m, scale, shift=0):
    """The tiled kernel; `run(q, k, v)` launches it and returns (report, y). A shift puts all scores at -shift^2 / 4."""
    q, k, v = (rng.normal(size=(size, 16)).astype("float32") for size in (n, m, m))
    q *= scale
    if shift:
        q[...], k[...] = np.eye(1, 16) * -shift, np.eye(1, 16) * shift
    (report, y), what = run(q, k, v), f"n = {n}, m = {m}"
    if not no_errors(check, report, f"no errors, {what}"):
        return
    s = q.astype(float) @ k.T
    stale, final = (np.exp(s / 4 - top) for top in (np.maximum.accumulate(s, 1) / 4, s.max(1, keepdims=True) / 4))
    first = q.astype(float) @ k[np.arange(m) % 32].T / 4
    suspects = {
        "y was not written": 99,
        "not divided by the total": final @ v,
        "what was seen before a larger score needs the factor less": stale / stale.sum(axis=1, keepdims=True) @ v,
        "out needs the factor less, as total has": stale / final.sum(axis=1, keepdims=True) @ v,
        "total needs the factor less, as out has": final / stale.sum(axis=1, keepdims=True) @ v,
        "each tile has its own keys: fetch from `first` on": weights(first) @ v,
        "the factor 1 / square root of D is missing": weights(s) @ v,
        "divided by D, not by its square root": weights(s / 16) @ v,
        "top stays as it was: top = above": np.tile(v[-1], (n, 1)),
        "only the first tile was seen": weights(s[:, :32] / 4) @ v[:32],
        "these are the keys again: fetch(vs, v, first, m)": weights(s / 4) @ k,
        "rows beyond the end count": weights(np.pad(s / 4, ((0, 0), (0, -m % 32))))[:, :m] @ v,
    }
    if scale > 1 or shift:
        suspects["keep the largest score so far, from NOTHING on"] = np.nan
    check.close(f"y, {what}", y, weights(s / 4) @ v, rtol=1e-3, atol=1e-4, suspects=suspects)
    needed, read = 4 * (2 * n * 16 + 2 * -(-n // 32) * m * 16), int(report.bytes_requested)
    once = "a thread reads its query once, into `mine`; a block reads each key and value once, with fetch"
    check.true(f"bytes requested, {what}", read == needed, f"wanted {needed:,}, got {read:,}: {once}")


def check_ring(check, ring, where, d, rng):
    """Ring attention; `ring(world, q, k, v, where)` runs it on a world of ranks and returns y by position."""
    p, n = where.shape
    world = dl.SimWorld(p, dl.Network(alpha=1e-6, beta=1e9), dl.Roofline(peak=1e9))
    q, k, v = rng.normal(size=(3, p * n, d))

    def result(keys_of, positions_of=lambda rank, step: rank - step, steps=p, k=k, v=v, divide=True):
        """y if in each step a rank uses the keys of one rank, and the positions of one."""
        y = np.empty_like(q)
        for rank, rows in enumerate(where):
            top, total, out = 0, 0, 0
            for step in range(steps):
                theirs, at = (where[of(rank, step) % p] for of in (keys_of, positions_of))
                scores = np.where(at <= rows[:, None], q[rows] @ k[theirs].T / np.sqrt(d), -np.inf)
                top = scores.max(axis=1, keepdims=True) if step == 0 else np.maximum(top, scores.max(1, keepdims=True))
                total, out = total + np.exp(scores).sum(1, keepdims=True), out + np.exp(scores) @ v[theirs]
            with np.errstate(all="ignore"):
                y[rows] = out / (total if divide else np.exp(top))
        return y

    right = lambda rank, step: rank - step  # noqa: E731
    suspects = {
        "each rank has seen its own keys only": result(right, steps=1),
        "not divided by l: o / l at the end": result(right, divide=False),
        "in step s, rank r has the keys of rank r - s": result(right, lambda rank, step: rank + step),
        "in step 0 a rank has its own keys: rank r - s": result(right, lambda rank, step: rank - step - 1),
        "the positions are those of the keys: where[source]": result(right, lambda rank, step: rank),
        "what has arrived replaces the old keys: keys = arriving": result(lambda rank, step: rank),
        "pass on what has arrived, not the first keys again": result(lambda rank, step: rank - min(step, 1)),
        "keys and values have changed places: keys[0], keys[1]": result(right, k=v, v=k),
    }
    y = ring(world, q, k, v, where)
    check.close(f"y, {p} ranks of {n} positions", y, result(right), suspects=suspects)
    sent = sorted((m.source, m.dest, m.nbytes) for m in world.trace.messages)
    once = sorted((r, (r + 1) % p, 16 * n * d) for r in range(p))
    wrong = {
        "send to rank + 1, receive from rank - 1": sorted((b, a, size) for a, b, size in once * (p - 1)),
        "after the last step nobody needs the keys: p - 1 messages from each rank": sorted(once * p),
    }
    check.equal("messages (from, to, bytes)", sent, sorted(once * (p - 1)), suspects=wrong)
    for rank in range(p):  # before it passes on block j, a rank has used the blocks 0 to j - 1
        passed = sorted(m.sent for m in world.trace.messages if m.source == rank)
        used = sorted(s.start for s in world.trace.spans if (s.rank, s.name) == (rank, "attention"))
        in_time = len(used) == p and all(used[j - 1] <= passed[j] for j in range(1, len(passed)))
        collects = "a rank that collects all keys before it uses them needs memory for the whole sequence"
        check.true(f"rank {rank} of {p} holds two blocks of keys at most", in_time, collects)


def check_zigzag(check, zigzag, n, p):
    """The positions of each rank: pieces r and 2p - 1 - r, in whole numbers."""
    pieces = np.arange(n).reshape(2 * p, -1)
    early, late = pieces[:p], pieces[::-1][:p]
    side = lambda *parts: np.concatenate(parts, axis=1)  # noqa: E731
    got = check.call(zigzag, n, p)
    suspects = {
        "this is the plain order": np.arange(n).reshape(p, -1),
        "the late piece is reversed: each piece keeps its own order": side(early, late[:, ::-1]),
        "the late piece comes first: the early one, then the late one": side(late, early),
        "pieces r and r + p: early ranks still have less to do": side(early, pieces[p:]),
        "this is a striped order: pieces are contiguous": np.arange(n).reshape(-1, p).T,
        "two early pieces: one of them must be a late one": side(early, early),
        "two late pieces: one of them must be an early one": side(late[::-1], late),
        "one piece a rank: put an early and a late one side by side, axis=1": early,
        "these are the positions of rank 0: return a row for each rank": side(early, late)[0],
        "the last piece belongs to rank 0: piece 2p - 1 - r": side(early, np.roll(pieces, 1, axis=0)[::-1][:p]),
    }
    check.close(f"where, {n} positions, {p} ranks", got, side(early, late), suspects=suspects)
    kind = getattr(got, "dtype", np.dtype(float)).kind
    check.true("whole numbers", kind in "iu", "positions are used as indices: return an integer array")


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
