"""Wrong answers to lab 15."""

MASK = """    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
"""
PROBABILITIES = "p = e / e.sum(axis=-1, keepdims=True)"
RETURNED = "return ds @ k, ds.swapaxes(-1, -2) @ q, dv"
FACTORS = "np.exp(a[0] - safe), np.exp(b[0] - safe)"
MEAN = "p * (dp - (dp * p).sum(axis=-1, keepdims=True))"
STEP = "float s = dot(mine, ks[j]) * rsqrtf(D), above = fmaxf(top, s);"
UPDATE = "total = total * less + e, top = above;"
OUTPUT = "for (int c = 0; c < D && row < n; c++) y[row * D + c] = out[c] / total;"
SEND = "comm.send_recv(keys, right, arriving, left)"
MASKED_LATE = """
def attend(q, k, v, causal=False):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    if causal:
        p = p * np.tri(p.shape[-1])
    return p @ v, p
"""
FROM_MEMORY = """
def flash():
    return TILE + r'''extern "C" __global__ void flash(const float* q, const float* k, const float* v,
        float* y, int n, int m) {
    int row = blockIdx.x * B + threadIdx.x;
    float out[D] = {}, top = NOTHING, total = 0.0f;
    if (row >= n) return;
    for (int j = 0; j < m; j++) {
        float s = dot(q + row * D, k + j * D) * rsqrtf(D), above = fmaxf(top, s);
        float less = expf(top - above), e = expf(s - above);
        total = total * less + e, top = above;
        for (int c = 0; c < D; c++) out[c] = out[c] * less + e * v[j * D + c];
    }
    for (int c = 0; c < D; c++) y[row * D + c] = out[c] / total;
}'''
"""
GATHER = """
def ring_attend(comm, q, k, v, where, merge):
    keys, values = comm.all_gather(k), comm.all_gather(v)
    for source in range(comm.size):
        more = see(comm, q, keys[source], values[source], where[comm.rank], where[source])
        seen = more if source == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
COLLECTS = """
def ring_attend(comm, q, k, v, where, merge):
    blocks, right, left = [np.stack([k, v])], (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        blocks.append(np.empty_like(blocks[0]))
        comm.send_recv(blocks[-2], right, blocks[-1], left)
    for step, keys in enumerate(blocks):
        more = see(comm, q, keys[0], keys[1], where[comm.rank], where[(comm.rank - step) % comm.size])
        seen = more if step == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
MEDDLER = """
def merge(a, b):
    top = np.maximum(a[0], b[0])
    l = np.exp(a[0]) * a[1] + np.exp(b[0]) * b[1]
    o = np.exp(a[0]) * a[2] + np.exp(b[0]) * b[2]
    safe = np.where(np.isfinite(top), top, 0)
    return top, l / np.exp(safe), o / np.exp(safe)
"""
BROADCASTS = """
def ring_attend(comm, q, k, v, where, merge):
    for source in range(comm.size):
        keys = np.stack([k, v])
        comm.broadcast(keys, source)
        more = see(comm, q, keys[0], keys[1], where[comm.rank], where[source])
        seen = more if source == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
APART = [f"comm.send_recv(keys[{i}], right, arriving[{i}], left)" for i in (0, 1)]
SCORES = "e = np.exp(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)"

MUTANTS = {
    "attend": [
        ("no root", " / q.shape[-1] ** 0.5", ""),
        ("divided by d", " / q.shape[-1] ** 0.5", " / q.shape[-1]"),
        ("divided by 2", " / q.shape[-1] ** 0.5", " / 2"),
        ("a root that is float64", " / q.shape[-1] ** 0.5", " / np.sqrt(q.shape[-1])"),
        ("hidden scores are -100", "s, -np.inf)", "s, -100)"),
        ("results swapped", "return p @ v, p", "return p, p @ v"),
        ("lists", "return p @ v, p", "return (p @ v).tolist(), p.tolist()"),
        ("no mask", MASK, ""),
        ("hidden scores are 0", "s, -np.inf)", "s, 0)"),
        ("always masked", "if causal:", "if s.shape[-1] == s.shape[-2]:"),
        ("mask turned", "np.tri(s.shape[-1], dtype=bool)", "np.tri(s.shape[-1], dtype=bool).T"),
        ("own position hidden", "np.tri(s.shape[-1], dtype=bool)", "np.tri(s.shape[-1], k=-1, dtype=bool)"),
        ("mask after the softmax", MASKED_LATE),
        ("overflows", "np.exp(s - s.max(axis=-1, keepdims=True))", "np.exp(s)"),
        ("softmax over the queries", "e.sum(axis=-1, keepdims=True)", "e.sum(axis=-2, keepdims=True)"),
        ("weights only", "return p @ v, p", "return p, p"),
        ("output only", "return p @ v, p", "return p @ v"),
        ("two axes only", "k.swapaxes(-1, -2)", "k.T"),
        ("as many keys as queries", "return p @ v, p", "return p @ v[..., : q.shape[-2], :], p"),
        ("writes into q", "s = q @ k", "q += 1\n    s = q @ k"),
        ("hidden scores are -1e9", "s, -np.inf)", "s, -1e9)"),
        ("one largest score for all", "s.max(axis=-1, keepdims=True)", "s.max()"),
        ("always causal by default", "causal=False", "causal=True"),
        ("an epsilon in the sum", PROBABILITIES, f"{PROBABILITIES} + 1e-6"),
        ("d is always 3", "q.shape[-1] ** 0.5", "3 ** 0.5"),
        ("first head only", "s = q @ k", "q, k = (a.reshape(-1, *a.shape[-2:])[0] for a in (q, k))\n    s = q @ k"),
        ("in float32", "s = q @ k", "q, k, v = (a.astype('float32') for a in (q, k, v))\n    s = q @ k"),
    ],
    "attend_backward": [
        ("no softmax", MEAN, "dp"),
        ("no mean", MEAN, "p * dp"),
        ("mean of dP", "(dp * p).sum", "dp.sum"),
        ("mean over the queries", "(dp * p).sum(axis=-1", "(dp * p).sum(axis=-2"),
        ("no root", " / q.shape[-1] ** 0.5", ""),
        ("K not transposed back", "ds.swapaxes(-1, -2) @ q", "ds @ q"),
        ("dV from V", "p.swapaxes(-1, -2) @ dy", "p.swapaxes(-1, -2) @ v"),
        ("P not transposed", "p.swapaxes(-1, -2) @ dy", "p @ dy"),
        ("order of the results", RETURNED, "return dv, ds @ k, ds.swapaxes(-1, -2) @ q"),
        ("dq and dk swapped", RETURNED, "return ds.swapaxes(-1, -2) @ q, ds @ k, dv"),
        ("divided by d", " / q.shape[-1] ** 0.5", " / q.shape[-1]"),
        ("divided by 2", " / q.shape[-1] ** 0.5", " / 2"),
        ("sum over all heads", "keepdims=True))", "keepdims=True).sum(axis=0))"),
        ("root of the keys' number", "q.shape[-1] ** 0.5", "k.shape[-2] ** 0.5"),
        ("writes into dy", "    ds = p * (dp", "    dy *= 2\n    ds = p * (dp"),
        ("dq not divided", "return ds @ k,", "return ds @ k * q.shape[-1] ** 0.5,"),
        ("dk not divided", "ds.swapaxes(-1, -2) @ q,", "ds.swapaxes(-1, -2) @ q * q.shape[-1] ** 0.5,"),
        ("dv divided, too", "return ds @ k,", "dv = dv / q.shape[-1] ** 0.5\n    return ds @ k,"),
        ("mean of the row", "(dp * p).sum(axis=-1, keepdims=True)", "(dp * p).mean(axis=-1, keepdims=True)"),
        ("dP from K", "dp = dy @ v", "dp = dy @ k"),
        ("weights again, without the mask", "    dv =", f"    {SCORES}\n    {PROBABILITIES}\n    dv ="),
    ],
    "merge": [
        ("added as they are", "x * a[1] + y * b[1], x * a[2] + y * b[2]", "a[1] + b[1], a[2] + b[2]"),
        ("sum not scaled", "x * a[1] + y * b[1]", "a[1] + b[1]"),
        ("output not scaled", "x * a[2] + y * b[2]", "a[2] + b[2]"),
        ("only one is scaled", "x * a[2] + y * b[2]", "a[2] + y * b[2]"),
        ("NaN where nothing was seen", "np.where(np.isfinite(top), top, 0)", "top"),
        ("the smaller one", "np.maximum", "np.minimum"),
        ("one largest for all", "np.maximum(a[0], b[0])", "np.full_like(a[0], max(a[0].max(), b[0].max()))"),
        ("the other way round", FACTORS, "np.exp(safe - a[0]), np.exp(safe - b[0])"),
        ("divided too early", "x * a[2] + y * b[2]", "(x * a[2] + y * b[2]) / (x * a[1] + y * b[1])"),
        ("overflows", MEDDLER),
        ("both factors swapped", "x, y =", "y, x ="),
        ("factors swapped", "x * a[2] + y * b[2]", "y * a[2] + x * b[2]"),
        ("writes into a", "    return top", "    a[1][...] *= x\n    a[2][...] *= x\n    x = 1\n    return top"),
        ("the largest of a", "np.maximum(a[0], b[0])", "a[0]"),
        ("log of the sum", "np.maximum(a[0], b[0])", "np.logaddexp(a[0], b[0])"),
        ("weighted by l", "x * a[2] + y * b[2]", "x * a[1] * a[2] + y * b[1] * b[2]"),
        ("rows, not columns", "return top, x * a[1] + y * b[1],", "return top[:, 0], (x * a[1] + y * b[1])[:, 0],"),
        ("a dict", "return top, x * a[1] + y * b[1],", "return {'m': top, 'l': x * a[1] + y * b[1]},"),
    ],
    "flash": [
        ("keys from global memory", FROM_MEMORY),
        ("out not scaled", "out[c] = out[c] * less + e", "out[c] = out[c] + e"),
        ("total not scaled", "total * less + e", "total + e"),
        ("no largest score", STEP, STEP.replace("fmaxf(top, s)", "0.0f")),
        ("largest never kept", UPDATE, "total = total * less + e;"),
        ("largest begins at 0", "top = NOTHING", "top = 0.0f"),
        ("largest begins at -1e4", "top = NOTHING", "top = -1e4f"),
        ("nothing is rescaled", "less = expf(top - above)", "less = 1.0f"),
        ("divided by D", "rsqrtf(D), above", "(1.0f / D), above"),
        ("no root", " * rsqrtf(D)", ""),
        ("missing keys count", "j < B && first + j < m", "j < B"),
        ("no barrier after fetching", "__syncthreads();   // the tiles are there", ""),
        ("no barrier before the next tile", "__syncthreads();   // before the next tile", ""),
        ("not divided", "out[c] / total", "out[c]"),
        ("no guard at the end", OUTPUT, OUTPUT.replace(" && row < n", "")),
        ("returns early", "    float mine[D]", "    if (row >= n) return;\n    float mine[D]"),
        ("no guard of the queries", "row < n ? q[row * D + c] : 0.0f", "q[row * D + c]"),
        ("first tile only", "first < m; first += B", "first < min(m, B); first += B"),
        ("whole tiles only", "first < m; first += B", "first + B <= m; first += B"),
        ("always the first keys", "fetch(ks, k, first, m)", "fetch(ks, k, 0, m)"),
        ("the query from memory", "dot(mine, ks[j])", "dot(q + min(row, n - 1) * D, ks[j])"),
        ("values of the key before", "vs[j][c]", "vs[j > 0 ? j - 1 : 0][c]"),
        ("writes nothing", "&& row < n; c++)", "&& row < 0; c++)"),
        ("does not compile", "top = above;", "top = above"),
        ("no return", "return TILE + r'''", "code = TILE + r'''"),
        ("largest begins at -1e6", "top = NOTHING", "top = -1e6f"),
        ("96 keys", "first < m; first += B", "first < 96; first += B"),
        ("values are the keys", "fetch(vs, v, first, m)", "fetch(vs, k, first, m)"),
        ("barrier where row < n", "__syncthreads();   // before", "if (row < n) __syncthreads();   // before"),
        ("last key of a tile skipped", "j < B && first + j < m", "j < B - 1 && first + j < m"),
        ("each block writes the same rows", "y[row * D + c]", "y[threadIdx.x * D + c]"),
        ("not rescaled between tiles", "expf(top - above)", "first > 0 && j == 0 ? 1.0f : expf(top - above)"),
    ],
    "ring_attend": [
        ("own keys only", "range(comm.size)", "range(1)"),
        ("the other direction", "(comm.rank - step)", "(comm.rank + step)"),
        ("sends to the left", SEND, "comm.send_recv(keys, left, arriving, right)"),
        ("always its own positions", "where[source])", "where[comm.rank])"),
        ("forgets what it has seen", "more if step == 0 else merge(seen, more)", "more"),
        ("one step short", "range(comm.size)", "range(max(1, comm.size - 1))"),
        ("sends once more", "if step < comm.size - 1:", "if comm.size > 1:"),
        ("sends the first keys again", SEND, "comm.send_recv(np.stack([k, v]), right, arriving, left)"),
        ("not divided", "return seen[2] / seen[1]", "return seen[2]"),
        ("all gather", GATHER),
        ("collects all keys first", COLLECTS),
        ("keys for values", "keys[0], keys[1]", "keys[1], keys[0]"),
        ("keeps the old keys", "            keys = arriving\n", ""),
        ("all send first", SEND, "comm.send(keys, right)\n            comm.recv(arriving, left)"),
        ("four ranks at most", "range(comm.size)", "range(min(4, comm.size))"),
        ("no way around", "(comm.rank + 1) % comm.size", "comm.rank + 1"),
        (
            "divided in each step",
            "            arriving = np",
            "            seen = seen[0], seen[1] / seen[1], seen[2] / seen[1]\n            arriving = np",
        ),
        ("a step too far", "(comm.rank - step)", "(comm.rank - step - 1)"),
        (
            "positions in order",
            "where[comm.rank], where[source])",
            "*(np.arange(len(q)) + len(q) * r for r in (comm.rank, source)))",
        ),
        ("writes into v", "keys = arriving", "keys = arriving\n            v += 0\n            v[...] = keys[1]"),
        ("receives where it sends", "            arriving = np.empty_like(keys)\n", "            arriving = keys\n"),
        ("keys and values apart", SEND, "\n            ".join(APART)),
        ("each rank broadcasts", BROADCASTS),
    ],
    "zigzag": [
        ("plain", "pieces[::-1][:p]", "pieces[p:]"),
        ("late piece turned", "pieces[::-1][:p]", "pieces[::-1, ::-1][:p]"),
        ("late piece first", "[pieces[:p], pieces[::-1][:p]]", "[pieces[::-1][:p], pieces[:p]]"),
        ("contiguous", "np.concatenate([pieces[:p], pieces[::-1][:p]], axis=1)", "np.arange(n).reshape(p, n // p)"),
        ("striped", "np.concatenate([pieces[:p], pieces[::-1][:p]], axis=1)", "np.arange(n).reshape(n // p, p).T"),
        ("ranks turned round", "pieces[:p], pieces[::-1][:p]", "pieces[:p][::-1], pieces[p:]"),
        ("early pieces only", "pieces[::-1][:p]", "pieces[:p]"),
        ("late pieces only", "[pieces[:p], ", "[pieces[p:], "),
        ("no late piece", "[pieces[:p], pieces[::-1][:p]]", "[pieces[:p]]"),
        ("a piece too far", "pieces[::-1][:p]", "np.roll(pieces, 1, axis=0)[::-1][:p]"),
        ("one rank's", "axis=1)", "axis=1)[0]"),
        ("positions as floats", "np.arange(n)", "np.arange(float(n))"),
        ("four ranks", "n // (2 * p)", "n // (2 * min(p, 4))"),
        ("a list", "axis=1)", "axis=1).tolist()"),
        ("transposed", "axis=1)", "axis=1).T"),
        ("from 1", "np.arange(n)", "np.arange(1, n + 1)"),
        ("shuffled pieces", "return np", "pieces = np.random.permutation(pieces)\n    return np"),
        ("all pieces", "return np", "return pieces\n    return np"),
    ],
}
