"""The exercises of lab 15: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise

EXERCISES = {}

ROOT = " / q.shape[-1] ** 0.5"
MASK = "    if causal:\n        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)\n"
NORM = "    p = e / e.sum(axis=-1, keepdims=True)\n"
S = "    s = q @ k.sw"


def drawn_attend(rng):
    """Scores far apart in float64; causal where there are as many keys as queries."""
    dtype, causal = str(rng.choice(["float64", "float32", "float16"])), bool(rng.integers(2))
    shape = [[1, 6], [7, 1], [3, 4, 8], [2, 1, 3, 5], [9, 3]][rng.integers(5)]
    return {
        "shape": shape,
        "causal": causal,
        "keys": None if causal or rng.random() < 0.3 else int(rng.integers(1, 12)),
        "scale": float(rng.choice([3.0, 30.0, 1e5])) if dtype == "float64" else 1.0,
        "below": bool(rng.integers(2)),
        "dtype": dtype,
        "seed": int(rng.integers(1000)),
    }


EXERCISES["attend"] = Exercise(
    cases=[
        {"shape": [5, 3], "causal": False, "seed": 1},
        {"shape": [5, 3], "causal": True, "seed": 2},
        {"shape": [2, 3, 6, 7], "causal": True, "seed": 3},
        {"shape": [4, 3], "causal": False, "keys": 7, "scale": 70.0, "seed": 4},
        {"shape": [4, 3], "causal": True, "scale": 1e5, "below": True, "seed": 5},
        {"shape": [4, 5], "causal": True, "dtype": "float32", "seed": 6},
        {"shape": [5, 3], "causal": True, "scale": 2.5, "seed": 7},
    ],
    draw=drawn_attend,
    draws=10,
    mistakes={
        "y and p have changed places: return y, p": "return p @ v, p  ->  return p, p @ v",
        "scores are not divided by the square root of d": f"{ROOT}  ->  ",
        "divided by d, not by its square root": f"{ROOT}  ->   / q.shape[-1]",
        "multiplied by the square root of d, not divided by it": f"{ROOT}  ->   * q.shape[-1] ** 0.5",
        "the root of d, the length of a query, not of n": f"{ROOT}  ->   / q.shape[-2] ** 0.5",
        "d is not always the same: q.shape[-1]": [f"{ROOT}  ->   / {root}" for root in ("3 ** 0.5", "2", "8")],
        "the scores are float64: np.sqrt of a whole number makes them so (x ** 0.5 does not), or np.tri": (
            f"{ROOT}  ->   / np.sqrt(q.shape[-1])"
        ),
        "row i has the scores of query i: q times k transposed": "q @ k.swapaxes  ->  k @ q.swapaxes",
        "nothing is masked": f"{MASK}  ->  ",
        "the mask is for causal=True only": [
            "if causal:  ->  if s.shape[-1] == s.shape[-2]:",
            "causal=False)  ->  causal=True)",
        ],
        "the mask is transposed: query i sees the keys 0 to i": (
            "np.tri(s.shape[-1], d  ->  ~np.tri(s.shape[-1], k=-1, d"
        ),
        "a query sees its own key, too: np.tri(n) has its diagonal": (
            "np.tri(s.shape[-1],  ->  np.tri(s.shape[-1], k=-1,"
        ),
        "a query does not see the key after its own": ("np.tri(s.shape[-1],  ->  np.tri(s.shape[-1], k=1,"),
        "the mask comes after the softmax: rows do not sum to 1": [
            (
                f"{MASK}  ->  ",
                f"{NORM}  ->  {NORM}    if causal:\n        p = p * np.tri(p.shape[-1], dtype=p.dtype)\n",
            ),
        ],
        "a hidden key had the largest score, and the rest is 0 / 0: mask the scores before you take the largest": [
            (
                f"{MASK}  ->  ",
                f"{NORM}  ->  {NORM}    if causal:\n        p = p * np.tri(p.shape[-1], dtype=p.dtype)\n"
                "        p = p / p.sum(axis=-1, keepdims=True)\n",
            ),
        ],
        "y and p have the dtype of q": [
            "return p @ v, p  ->  return p @ v.astype(float), p",
            "return p @ v, p  ->  return p @ v, p.astype(float)",
            f"{NORM}  ->  {NORM}    p = p * np.ones(p.shape)\n",
        ],
        "np.where(mask, s, -np.inf) keeps the scores where the mask is True": "s, -np.inf)  ->  -np.inf, s)",
        "a hidden score is 0, and e^0 is 1: use -np.inf": "s, -np.inf)  ->  s, 0)",
        "a visible score can be below this: hide with -np.inf": [
            f"s, -np.inf)  ->  s, {low})" for low in ("-100", "-1e4", "-1e9")
        ],
        "subtract each row's largest score before np.exp": ("np.exp(s - s.max(axis=-1, keepdims=True))  ->  np.exp(s)"),
        "scores may all be below that: subtract the largest as it is": (
            "np.exp(s - s.max(axis=-1, keepdims=True))  ->  np.exp(s - np.maximum(s.max(axis=-1, keepdims=True), -1e4))"
        ),
        "each row has a largest score of its own: s.max(axis=-1, keepdims=True)": (
            "s.max(axis=-1, keepdims=True)  ->  s.max()"
        ),
        "each query has its own sum, over the keys: axis=-1": [
            "e.sum(axis=-1, keepdims=True)  ->  e.sum(axis=-2, keepdims=True)",
            "e.sum(axis=-1, keepdims=True)  ->  e.sum()",
            ("s.max(axis=-1, k  ->  s.max(axis=-2, k", "e.sum(axis=-1, k  ->  e.sum(axis=-2, k"),
        ],
        "each row has a sum: keepdims=True keeps them as a column": "e.sum(axis=-1, keepdims=True)  ->  e.sum(axis=-1)",
        "weights are divided by their sum": f"{NORM}  ->      p = e\n",
        "weights are divided by their sum, not by their mean": "e.sum(axis=-1, k  ->  e.mean(axis=-1, k",
        "return the weights, p, not their numerators, and not the scores": [
            f"return p @ v, p  ->  return p @ v, {wrong}" for wrong in "es"
        ],
        "a row of weights sums to 1: add nothing to the sum": (
            "e.sum(axis=-1, keepdims=True)  ->  (e.sum(-1)[..., None] + 1e-6)"
        ),
        "`@` multiplies the last two axes of each array, np.dot does not": "return p @ v  ->  return np.dot(p, v)",
        "the values are missing: p @ v": "return p @ v, p  ->  return p, p",
        "the weights are missing: return y and p": "return p @ v, p  ->  return p @ v",
        "return arrays, not lists": "return p @ v, p  ->  return (p @ v).tolist(), p.tolist()",
        "with more axes than two: transpose the last two alone, k.swapaxes(-1, -2), and a mask has a row per query": [
            "k.swapaxes(-1, -2)  ->  k.T",
            "np.tri(s.shape[-1],  ->  np.tri(len(q),",
        ],
        "there may be more keys than queries": ("return p @ v, p  ->  return p @ v[..., : q.shape[-2], :], p"),
        "each sample and head has scores of its own: keep the leading axes": (
            f"{S}  ->      q, k, v = (a.reshape(-1, *a.shape[-2:])[0] for a in (q, k, v))\n{S}"
        ),
        "compute in the dtype of q: float32 is too coarse for float64": [
            f"{S}  ->      q, k, v = (a.astype('float32') for a in (q, k, v))\n{S}",
            (
                "return p @ v, p  ->  return (p @ v).astype(dtype), p.astype(dtype)",
                f"{S}  ->      dtype = q.dtype\n    q, k, v = (a.astype('float32') for a in (q, k, v))\n{S}",
            ),
        ],
        "make a new array instead of writing into q (`q / x`, not `q /= x`)": (
            f"{S}  ->      q /= q.shape[-1] ** 0.5\n{S}",
            f"{ROOT}  ->  ",
        ),
        "did you forget `return`?": "    return p @ v, p  ->      p @ v, p",
    },
    may_pass={
        "swapaxes(-2, -1)": "the same",
        "np.where(np.tri(s.shape[-1]), s": "1 and 0 in place of True and False",
        "/ k.shape[-1] ** 0.5": "as long as a query",
        "/ v.shape[-1] ** 0.5": "as long as a query",
        "np.tri(s.shape[-2], d": "a causal mask is square",
    },
)

MEAN = "p * (dp - (dp * p).sum(axis=-1, keepdims=True))"
SUM = "(dp * p).sum(axis=-1, keepdims=True)"
RETURN = "return ds @ k, ds.swapaxes(-1, -2) @ q, dv"

EXERCISES["attend_backward"] = Exercise(
    cases=[
        {"shape": [4, 3], "keys": 4, "causal": False, "seed": 1},
        {"shape": [4, 3], "keys": 4, "causal": True, "seed": 2},
        {"shape": [2, 3, 5, 2], "keys": 7, "causal": False, "seed": 3},
        {"shape": [5, 7], "keys": 5, "causal": True, "dtype": "float32", "seed": 4},
    ],
    draw=lambda rng: {
        "shape": (shape := [[1, 5], [6, 1], [3, 2, 7, 4], [2, 6, 3]][rng.integers(4)]),
        "causal": (causal := bool(rng.integers(2))),
        "keys": shape[-2] if causal else int(rng.integers(1, 9)),
        "dtype": rng.choice(["float64", "float32"]),
        "seed": rng.integers(1000),
    },
    draws=8,
    mistakes={
        "the mean weighs each dP with its P": (
            "(dp * p).sum(axis=-1, keepdims=True)  ->  dp.mean(axis=-1, keepdims=True)"
        ),
        "each row has a mean: keepdims=True keeps them as a column": (
            "(dp * p).sum(axis=-1, keepdims=True)  ->  (dp * p).sum(axis=-1)"
        ),
        "P stands before the bracket, too": "ds = p * (dp -  ->  ds = (dp -",
        "the softmax is missing: dS is not dP": f"{MEAN}  ->  dp",
        "the row's mean is missing: subtract the sum of dP P": f"{MEAN}  ->  p * dp",
        "the mean is the sum of dP P": f"{SUM}  ->  dp.sum(axis=-1, keepdims=True)",
        "a row of p sums to 1: the sum of dP P is the mean already": (
            f"{SUM}  ->  (dp * p).mean(axis=-1, keepdims=True)"
        ),
        "each query has its own mean: sum over the keys, axis=-1": (f"{SUM}  ->  (dp * p).sum(axis=-2, keepdims=True)"),
        "each query has its own mean: keep the row": [
            f"{SUM}  ->  (dp * p).sum(axis=(-2, -1), keepdims=True)",
            f"{SUM}  ->  (dp * p).sum(axis=-1, keepdims=True).sum(axis=0)",
        ],
        "subtract the row's mean: dP - mean, not dP + mean": "(dp - (dp  ->  (dp + (dp",
        "p (1 - p) is not all: the other weights fall": f"{MEAN}  ->  p * (1 - p) * dp",
        "divide by the square root of d here, too": f"{ROOT}  ->  ",
        "divided by d, not once by its square root": f"{ROOT}  ->   / q.shape[-1]",
        "d is not always the same: q.shape[-1]": [f"{ROOT}  ->   / {root}" for root in ("2", "3 ** 0.5")],
        "the root of d, the length of a query: q.shape[-1]": [
            f"{ROOT}  ->   / {n} ** 0.5" for n in ("k.shape[-2]", "q.shape[-2]", "q.shape[1]")
        ],
        "the gradients are float64: np.sqrt of a whole number makes them so (x ** 0.5 does not), or np.eye": (
            f"{ROOT}  ->   / np.sqrt(q.shape[-1])"
        ),
        "dQ is divided by the square root of d, too": ("return ds @ k,  ->  return ds @ k * q.shape[-1] ** 0.5,"),
        "dK is divided by the square root of d, too": ("2) @ q, dv  ->  2) @ q * q.shape[-1] ** 0.5, dv"),
        "dV is not divided: V has no root": f"{RETURN}  ->  {RETURN} / q.shape[-1] ** 0.5",
        "dP = dY V^T: v, not k": "dp = dy @ v  ->  dp = dy @ k",
        "dV = P^T dY: dY, not V": "2) @ dy  ->  2) @ v",
        "dV = P^T dY: P is not transposed": "p.swapaxes(-1, -2) @ dy  ->  p @ dy",
        "dV comes from the weights P, not from dS": [
            ("    dv = p.swapaxes(-1, -2) @ dy\n  ->  ", f"{RETURN}  ->  {RETURN[:-2]}ds.swapaxes(-1, -2) @ dy")
        ],
        "dK = dS^T Q: dS is not transposed": "ds.swapaxes(-1, -2) @ q  ->  ds @ q",
        "dK = dS^T Q: not K": "ds.swapaxes(-1, -2) @ q  ->  ds.swapaxes(-1, -2) @ k",
        "dK = dS^T Q: not P^T Q": "ds.swapaxes(-1, -2) @ q  ->  p.swapaxes(-1, -2) @ q",
        "dQ = dS K: not dP K": "return ds @ k,  ->  return dp @ k,",
        "dQ = dS K: not Q": "return ds @ k,  ->  return ds @ q,",
        "the order is dq, dk, dv": [
            f"{RETURN}  ->  return dv, ds @ k, ds.swapaxes(-1, -2) @ q",
            f"{RETURN}  ->  return ds.swapaxes(-1, -2) @ q, ds @ k, dv",
            f"{RETURN}  ->  return ds @ k, dv, ds.swapaxes(-1, -2) @ q",
        ],
        "return all three: dq, dk, dv": [
            f"{RETURN}  ->  return ds @ k, ds.swapaxes(-1, -2) @ q",
            f"{RETURN}  ->  return ds @ k",
        ],
        "transpose the last two axes alone: x.swapaxes(-1, -2)": [
            "p.swapaxes(-1, -2)  ->  p.T",
            "v.swapaxes(-1, -2)  ->  v.T",
            "ds.swapaxes(-1, -2)  ->  ds.T",
        ],
        "use the weights that are passed: they know the mask": (
            "    dv  ->      p = np.exp(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)\n"
            "    p = p / p.sum(axis=-1, keepdims=True)\n    dv"
        ),
        "make new arrays instead of writing into those that are passed (`a * b`, not `a *= b`)": [
            "    ds = p * (dp  ->      ds = p\n    ds *= (dp",
            "    ds  ->      dp *= p; p -= p\n    ds",
        ],
        "did you forget `return`?": f"    {RETURN}  ->      {RETURN[7:]}",
    },
    may_pass={"swapaxes(-2, -1)": "the same"}
    | {f"/ {x}.shape[-1] **": "as long as a query" for x in ("dv", "dy", "k", "v")},
)

SAFE = "np.where(np.isfinite(top), top, 0)"
L, O = "x * a[1] + y * b[1]", "x * a[2] + y * b[2]"
OVERFLOWS = f"""def merge(a, b):
    top = np.maximum(a[0], b[0])
    l = np.exp(a[0]) * a[1] + np.exp(b[0]) * b[1]
    o = np.exp(a[0]) * a[2] + np.exp(b[0]) * b[2]
    safe = {SAFE}
    return top, l / np.exp(safe), o / np.exp(safe)
"""


def drawn_merge(rng):
    """Sides that some queries have not seen."""
    queries = int(rng.integers(1, 6))
    return {
        "queries": queries,
        "width": int(rng.integers(1, 6)),
        "keys": rng.integers(1, 9, 2).tolist(),
        "spread": float(rng.choice([1.0, 20.0, 200.0])),
        "near": rng.choice([0, 900, -900, -9e9], queries).tolist(),
        "blind": [[side, query] for side in (0, 1) for query in range(queries) if rng.random() < 0.25],
        "dtype": str(rng.choice(["float64", "float64", "float32"])),
        "seed": int(rng.integers(1000)),
    }


EXERCISES["merge"] = Exercise(
    cases=[
        {"queries": 4, "width": 3, "keys": [3, 4], "seed": 1},
        {"queries": 4, "width": 3, "keys": [3, 4], "dtype": "float32", "seed": 2},
        {"queries": 4, "width": 3, "keys": [5, 2], "near": [900, -900, 0, -4e9], "seed": 3},
        {"queries": 3, "width": 2, "keys": [2, 2], "spread": 300.0, "seed": 4},
        {"queries": 4, "width": 3, "keys": [4, 3], "blind": [[0, 0], [1, 1]], "seed": 5},
        {"queries": 4, "width": 5, "keys": [4, 3], "blind": [[0, 0], [1, 0], [1, 1]], "seed": 6},
    ],
    draw=drawn_merge,
    draws=8,
    mistakes={
        "l is a sum, too: add both sides": [
            f"{L}  ->  np.maximum(x * a[1], y * b[1])",
            f"{L}  ->  x * a[1] * y * b[1]",
        ],
        "the factors are powers of e": (
            "np.exp(a[0] - safe), np.exp(b[0] - safe)  ->  np.exp2(a[0] - safe), np.exp2(b[0] - safe)"
        ),
        "each side needs a factor of its own, to the common m: exp(m_A - m) and exp(m_B - m)": [
            f"{L}, {O}  ->  a[1] + b[1], a[2] + b[2]",
            f"{L}, {O}  ->  x * a[1] + b[1], x * a[2] + b[2]",
            f"{L}, {O}  ->  a[1] + y * b[1], a[2] + y * b[2]",
            "np.exp(a[0] - safe), np.exp(b[0] - safe)  ->  np.exp(a[0]), np.exp(b[0])",
        ],
        "l needs the factors, too": f"{L}  ->  a[1] + b[1]",
        "o needs the factors, too": [f"{O}  ->  a[2] + b[2]", f"{O}  ->  a[2] + y * b[2]", f"{O}  ->  x * a[2] + b[2]"],
        "the factors have changed sides: exp(m_A - m) belongs to A": [
            "x, y =  ->  y, x =",
            f"{O}  ->  y * a[2] + x * b[2]",
        ],
        "the factors are exp(m_A - m), never above 1: not the other way round": (
            "np.exp(a[0] - safe), np.exp(b[0] - safe)  ->  np.exp(safe - a[0]), np.exp(safe - b[0])"
        ),
        "o is a sum, like l: divide by l only at the very end": f"{O}  ->  ({O}) / ({L})",
        "o has its weights already, not l: a factor, and no more": (f"{O}  ->  x * a[1] * a[2] + y * b[1] * b[2]"),
        "m is the larger of the two: np.maximum": [
            f"np.maximum(a[0], b[0])  ->  {m}"
            for m in (
                "np.minimum(a[0], b[0])",
                "a[0]",
                "b[0]",
                "np.logaddexp(a[0], b[0])",
                "a[0] + b[0]",
                "max(a[0], b[0])",
            )
        ],
        "each query has an m of its own": (
            "np.maximum(a[0], b[0])  ->  np.full_like(a[0], max(a[0].max(), b[0].max()))"
        ),
        "-inf - (-inf) is NaN: where m is -inf, subtract 0": f"{SAFE}  ->  top",
        "scores may all be below that: only -inf is replaced": [
            f"{SAFE}  ->  np.maximum(top, {low})" for low in ("-1e4", "0")
        ],
        "some queries have seen nothing, others have: decide for each row": [
            f"{SAFE}  ->  top if np.isfinite(top).all() else 0",
            "    top = np  ->      if np.isinf(a[0]).any():\n        return b\n"
            "    if np.isinf(b[0]).any():\n        return a\n    top = np",
        ],
        "m stays -inf where nothing was seen": "return top,  ->  return safe,",
        "exp of a score overflows, or is 0: only of differences from m": OVERFLOWS,
        "m and l are columns, (n, 1)": f"return top, {L},  ->  return top[:, 0], ({L})[:, 0],",
        "return a tuple: m, l, o": [
            f"return top, {L}, {O}  ->  return {{'m': top, 'l': {L}, 'o': {O}}}",
            f"return top, {L}, {O}  ->  return np.concatenate([top, {L}, {O}], axis=1)",
        ],
        "return all three: m, l, o": f"return top, {L}, {O}  ->  return {L}, {O}",
        "the order is m, l, o": f"return top, {L}, {O}  ->  return {L}, {O}, top",
        "keep the dtype of the arguments": f"{SAFE}  ->  {SAFE}.astype(float)",
        "make new arrays instead of writing into those that are passed (`a * b`, not `a *= b`)": (
            f"    return top, {L}, {O}  ->      a[1][...] *= x; a[2][...] *= x\n"
            "    return top, a[1] + y * b[1], a[2] + y * b[2]"
        ),
        "did you forget `return`?": "    return top  ->      top",
    },
    may_pass={
        "np.maximum(b[0], a[0])": "a maximum",
        "np.isfinite(top), top, 1)": "any number, where all factors are 0",
        "np.isfinite(top), top, -1)": "any number, where all factors are 0",
    },
)

STEP = "float s = dot(mine, ks[j]) * rsqrtf(D), above = fmaxf(top, s);"
LOOP = "first < m; first += B"
FETCH = "fetch(ks, k, first, m), fetch(vs, v, first, m);"
KEY, KEY_AGAIN = "dot(mine, ks[j])", "dot(mine, k + (first + j) * D)"
VALUE, VALUE_AGAIN = "vs[j][c]", "v[(first + j) * D + c]"
FROM_MEMORY = """def flash():
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

EXERCISES["flash"] = Exercise(
    inplace=True,
    rtol=1e-4,
    at_most=("bytes requested from global memory",),
    cases=[
        {"queries": 32, "keys": 32, "seed": 1},
        {"queries": 96, "keys": 40, "seed": 2},
        {"queries": 20, "keys": 45, "seed": 3},
        {"queries": 33, "keys": 130, "scale": 200, "seed": 4},
        {"queries": 9, "keys": 40, "shift": 100000, "seed": 5},
    ],
    draw=lambda rng: {
        "queries": rng.integers(1, 70),
        "keys": int(rng.choice([1, 5, 31, 45, 64, 130])),
        "scale": int(rng.choice([1, 300])),
        "shift": int(rng.choice([0, 0, 0, 1 << 20])),
        "seed": rng.integers(1000),
    },
    draws=4,
    mistakes={
        "out needs the factor `less`, as total has": "out[c] * less + e  ->  out[c] + e",
        "total needs the factor `less`, as out has": "total * less + e  ->  total + e",
        "what was seen before a larger score needs the factor: less = expf(top - above)": (
            "less = expf(top - above)  ->  less = 1.0f"
        ),
        "both factors are relative to the new largest score, and never above 1": [
            "expf(top - above)  ->  expf(above - top)",
            "expf(s - above)  ->  expf(s - top)",
        ],
        "also what the tiles before have given needs the factor": (
            "expf(top - above)  ->  first > 0 && j == 0 ? 1.0f : expf(top - above)"
        ),
        "keep the largest score so far, from NOTHING on": f"{STEP}  ->  {STEP.replace('fmaxf(top, s)', '0.0f')}",
        "top stays as it was: top = above": ("total = total * less + e, top = above;  ->  total = total * less + e;"),
        "the factor 1 / square root of D is missing": " * rsqrtf(D)  ->  ",
        "divided by D, not by its square root": "rsqrtf(D), above  ->  (1.0f / D), above",
        "multiplied by the square root of D: rsqrtf(D) is 1 / sqrtf(D)": "rsqrtf(D), above  ->  sqrtf(D), above",
        "not divided by the total": "out[c] / total  ->  out[c]",
        "rows beyond the end count": "j < B && first + j < m  ->  j < B",
        "a tile has B keys, the last one, too": ("j < B && first + j < m  ->  j < B - 1 && first + j < m"),
        "j counts the keys within a tile, up to B": "j < B && first + j < m  ->  j < m",
        "each block goes over the keys of all tiles, not of its own": [
            "int first = 0; first < m;  ->  int first = blockIdx.x * B; first < int(blockIdx.x * B + B);",
            f"int first = 0; {LOOP}  ->  int first = blockIdx.x * B; {LOOP} * gridDim.x",
        ],
        "there is no mask here: each query sees all keys": "first + j < m; j++  ->  first + j <= row; j++",
        "only the first tile was seen": f"{LOOP}  ->  first < min(m, B); first += B",
        "the last tile may hold fewer than B keys": f"{LOOP}  ->  first + B <= m; first += B",
        "go on to the end of the keys, m": [
            *(f"{LOOP}  ->  first < {end}; first += B" for end in ("96", "n")),
            f"{FETCH}  ->  {FETCH.replace('m)', 'n)')}",
            "first + j < m  ->  first + j < n",
        ],
        "each tile has its own keys: fetch from `first` on": ("fetch(ks, k, first, m)  ->  fetch(ks, k, 0, m)"),
        "each tile has its own values: fetch from `first` on": ("fetch(vs, v, first, m)  ->  fetch(vs, v, 0, m)"),
        "these are the keys again: fetch(vs, v, first, m)": ("fetch(vs, v, first, m)  ->  fetch(vs, k, first, m)"),
        "key j has value j": "vs[j][c]  ->  vs[j > 0 ? j - 1 : 0][c]",
        "y is written once, after the last tile": (
            "// before the next tile\n        }  ->  // before the next tile",
            "total; }'''  ->  total; }}'''",
        ),
        "y was not written": "&& row < n; c++)  ->  && row < 0; c++)",
        "a block writes its own rows: blockIdx.x * B + threadIdx.x": ("y[row * D + c]  ->  y[threadIdx.x * D + c]"),
        "a barrier is missing: all must have fetched before any thread uses a tile": (
            "__syncthreads();   // the tiles are there  ->  "
        ),
        "a barrier is missing: all must have used a tile before any thread fetches the next": (
            "__syncthreads();   // before the next tile  ->  "
        ),
        "all threads of the block fetch, and reach each barrier: no early return, no barrier in an `if`": [
            "return begin + r'''  ->  return begin + r'''if (row >= n) return;",
            "__syncthreads();   // before  ->  if (row < n) __syncthreads();   // before",
            f"{FETCH}  ->  if (row < n) {FETCH}",
        ],
        "the last block may have fewer than B queries: write where row < n": "c < D && row < n;  ->  c < D;",
        "a thread reads its query once, into `mine`; a block reads each key and value once, with fetch": [
            "dot(mine, ks[j])  ->  dot(q + min(row, n - 1) * D, ks[j])",
            f"{KEY}  ->  {KEY_AGAIN}",
            f"{VALUE}  ->  {VALUE_AGAIN}",
            (f"{KEY}  ->  {KEY_AGAIN}", f"{VALUE}  ->  {VALUE_AGAIN}"),
            FROM_MEMORY,
        ],
        "the compiler's message says what to mend": "top = above;  ->  top = above",
        "did you forget `return`?": "return begin + r'''  ->  code = begin + r'''",
    },
    may_pass={"results kept": "the same text in every call"},
)

SEND = "comm.send_recv(keys, right, arriving, left)"
GATHER = """def ring_attend(comm, q, k, v, where, merge):
    keys, values = comm.all_gather(k), comm.all_gather(v)
    for source in range(comm.size):
        more = see(comm, q, keys[source], values[source], where[comm.rank], where[source])
        seen = more if source == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
COLLECTS = """def ring_attend(comm, q, k, v, where, merge):
    blocks, right, left = [np.stack([k, v])], (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        blocks.append(np.empty_like(blocks[0]))
        comm.send_recv(blocks[-2], right, blocks[-1], left)
    for step, keys in enumerate(blocks):
        more = see(comm, q, keys[0], keys[1], where[comm.rank], where[(comm.rank - step) % comm.size])
        seen = more if step == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
BROADCASTS = """def ring_attend(comm, q, k, v, where, merge):
    for source in range(comm.size):
        keys = np.stack([k, v])
        comm.broadcast(keys, source)
        more = see(comm, q, keys[0], keys[1], where[comm.rank], where[source])
        seen = more if source == 0 else merge(seen, more)
    return seen[2] / seen[1]
"""
APART = "\n            ".join(f"comm.send_recv(keys[{i}], right, arriving[{i}], left)" for i in (0, 1))

EXERCISES["ring_attend"] = Exercise(
    cases=[
        {"ranks": 1, "positions": 4, "width": 3, "seed": 1},
        {"ranks": 2, "positions": 3, "width": 5, "seed": 2},
        {"ranks": 3, "positions": 4, "width": 2, "dtype": "float32", "seed": 3},
        {"ranks": 5, "positions": 2, "width": 3, "seed": 4},
        {"ranks": 4, "positions": 3, "width": 2, "order": "in order", "seed": 5},
        {"ranks": 2, "positions": 2, "width": 3, "scale": 1e4, "seed": 9},
    ],
    draw=lambda rng: {
        "ranks": rng.integers(1, 8),
        "positions": rng.integers(1, 6),
        "width": rng.integers(1, 6),
        "order": rng.choice(["in order", "striped", "shuffled"]),
        "dtype": (dtype := rng.choice(["float64", "float32"])),
        "scale": float(rng.choice([1.0, 3e4])) if dtype == "float64" else 1.0,
        "seed": rng.integers(1000),
    },
    mistakes={
        "each rank has seen its own keys only": "range(comm.size)  ->  range(1)",
        "not divided by l: o / l at the end": [
            f"return seen[2] / seen[1]  ->  return seen[2]{more}" for more in ("", " / seen[0]")
        ],
        "merge the triples: a mean of outputs gives each block the same weight": (
            "more if step == 0 else merge(seen, more)  ->  more[2] / more[1] / comm.size + (seen if step else 0)",
            "return seen[2] / seen[1]  ->  return seen",
        ),
        "call `see` in each step: it takes the computing's time": (
            "see(comm, q, keys[0], keys[1], where[comm.rank], where[source])"
            "  ->  partial(q, keys[0], keys[1], where[source] <= where[comm.rank][:, None])"
        ),
        "call `see` in each step, also where nothing is visible: the merge can do with it": (
            "        more = see(  ->          if where[source].min() <= where[comm.rank].max(): more = see(",
            "more if step == 0 else merge(seen, more)  ->  more if step == 0 else merge(seen, more) "
            "if where[source].min() <= where[comm.rank].max() else seen",
        ),
        "divide once, at the end: the merge needs l and o": (
            "            arriving = np  ->              seen = seen[0], seen[1] / seen[1], seen[2] / seen[1]\n"
            "            arriving = np"
        ),
        "return the output alone, not the triple": "return seen[2] / seen[1]  ->  return seen",
        "in step s, rank r has the keys of rank r - s": ("(comm.rank - step)  ->  (comm.rank + step)"),
        "in step 0 a rank has its own keys: rank r - s": ("(comm.rank - step)  ->  (comm.rank - step - 1)"),
        "the positions are those of the keys: where[source]": ("where[source])  ->  where[comm.rank])"),
        "positions are in any order: where[comm.rank] and where[source]": (
            "where[comm.rank], where[source])  ->  *(np.arange(len(q)) + len(q) * r for r in (comm.rank, source)))"
        ),
        "first the positions of the queries, then those of the keys": (
            "where[comm.rank], where[source])  ->  where[source], where[comm.rank])"
        ),
        "what has arrived replaces the old keys: keys = arriving": ("            keys = arriving\n  ->  "),
        "pass on what has arrived, not the first keys again": (
            f"{SEND}  ->  comm.send_recv(np.stack([k, v]), right, arriving, left)"
        ),
        "keys and values have changed places: keys[0], keys[1]": ("keys[0], keys[1]  ->  keys[1], keys[0]"),
        "merge what has been seen with what comes": ("more if step == 0 else merge(seen, more)  ->  more"),
        "send to rank + 1, receive from rank - 1": (f"{SEND}  ->  comm.send_recv(keys, left, arriving, right)"),
        "after the last step nobody needs the keys: p - 1 messages from each rank": [
            f"if step < comm.size - 1:  ->  if {always}:" for always in ("comm.size > 1", "True")
        ],
        "who has seen nothing has m = -inf, not 0": (
            "    for step  ->      seen = *np.zeros((2, len(q), 1), q.dtype), 0 * q\n    for step",
            "more if step == 0 else merge(seen, more)  ->  merge(seen, more)",
        ),
        "add nothing up: merge what has been seen with what comes": (
            "merge(seen, more)  ->  tuple(x + y for x, y in zip(seen, more))"
        ),
        "p steps, of which the first needs no message": [
            "range(comm.size)  ->  range(max(1, comm.size - 1))",
            ("range(comm.size)  ->  range(comm.size + 1)", "step < comm.size - 1:  ->  step < comm.size:"),
        ],
        "there are comm.size steps, not always the same number": [
            f"range(comm.size)  ->  range({n})" for n in ("min(4, comm.size)", "min(3, comm.size)")
        ],
        "ranks wait for each other: each sends to the right and receives from the left at once, with send_recv": (
            f"{SEND}  ->  comm.send(keys, right)\n            comm.recv(arriving, left)"
        ),
        "pass on keys and values, nothing else: queries stay": "np.stack([k, v])  ->  np.stack([k, v, q])",
        "keys and values travel together, as one array": f"{SEND}  ->  {APART}",
        "pass keys on around the ring, from rank to rank, without a collective": [GATHER, BROADCASTS],
        "use each block before you pass it on: who collects all keys first needs memory for the whole sequence": (
            COLLECTS
        ),
        "send to (rank + 1) % p, and receive into another array than you send: np.empty_like(keys)": [
            "(comm.rank + 1) % comm.size  ->  comm.rank + 1",
            "            arriving = np.empty_like(keys)\n  ->              arriving = keys\n",
        ],
        "receive into an array of the same dtype: np.empty_like(keys)": (
            "np.empty_like(keys)  ->  np.empty(keys.shape)"
        ),
        "receive into new arrays, and leave k and v as they are": (
            "keys = arriving  ->  keys = arriving\n            k[...], v[...] = keys"
        ),
        "did you forget `return`?": "    return seen[2] / seen[1]  ->      seen[2] / seen[1]",
    },
    may_pass={"merge(more, seen)": "in any order", "argument merge frozen": "there is one merge"},
)

BOTH = "[pieces[:p], pieces[::-1][:p]]"

EXERCISES["zigzag"] = Exercise(
    cases=[{"n": n, "p": p} for n, p in ((16, 4), (12, 2), (50, 5), (6, 1))],
    draw=lambda rng: {"n": 2 * (p := int(rng.integers(1, 9))) * int(rng.integers(1, 9)), "p": p},
    mistakes={
        "the late piece of rank r is 2 p - 1 - r": [
            "pieces[::-1][:p]  ->  np.roll(pieces[::-1], 1, axis=0)[:p]",
            "pieces[::-1][:p]  ->  pieces[::-1][:p] + n // (2 * p)",
        ],
        "the positions in a piece are wanted, not its number": (
            "np.arange(n).reshape(2 * p, n // (2 * p))  ->  np.arange(2 * p)[:, None]"
        ),
        "positions of each rank are wanted, not the rank of each position": (
            "np.concatenate([pieces[:p], pieces[::-1][:p]], axis=1)"
            "  ->  np.repeat([*range(p), *reversed(range(p))], n // (2 * p))"
        ),
        "this is the plain order": [
            f"np.concatenate({BOTH}, axis=1)  ->  np.arange(n).reshape(p, n // p)",
            f"{BOTH}  ->  [pieces[::2], pieces[1::2]]",
        ],
        "the late piece is reversed: each piece keeps its own order": ("pieces[::-1][:p]  ->  pieces[::-1, ::-1][:p]"),
        "the late piece comes first: the early one, then the late one": (f"{BOTH}  ->  [pieces[::-1][:p], pieces[:p]]"),
        "pieces r and r + p: early ranks still have less to do": "pieces[::-1][:p]  ->  pieces[p:]",
        "this is a striped order: pieces are contiguous": (
            f"np.concatenate({BOTH}, axis=1)  ->  np.arange(n).reshape(n // p, p).T"
        ),
        "two early pieces: one of them must be a late one": [
            f"pieces[::-1][:p]  ->  {early}" for early in ("pieces[:p]", "pieces[:p][::-1]")
        ],
        "two late pieces: one of them must be an early one": (f"{BOTH}  ->  [pieces[p:], pieces[::-1][:p]]"),
        "rank 0 has the first and the last piece, not the last rank": (f"{BOTH}  ->  [pieces[:p][::-1], pieces[p:]]"),
        "one piece a rank: put an early and a late one side by side, axis=1": (f"{BOTH}  ->  [pieces[:p]]"),
        "side by side: axis=1": ["axis=1)  ->  axis=0)", "    return np  ->      return pieces\n    return np"],
        "these are the positions of rank 0: return a row for each rank": "axis=1)  ->  axis=1)[0]",
        "a row for each rank: this is transposed": "axis=1)  ->  axis=1).T",
        "the last piece belongs to rank 0: piece 2p - 1 - r": (
            "pieces[::-1][:p]  ->  np.roll(pieces, 1, axis=0)[::-1][:p]"
        ),
        "positions are used as indices: return an integer array": [
            "np.arange(n)  ->  np.arange(float(n))",
            "axis=1)  ->  axis=1).tolist()",
        ],
        "positions are counted from 0": "np.arange(n)  ->  np.arange(1, n + 1)",
        "there are 2p pieces, however many ranks": [
            "n // (2 * p)  ->  n // (2 * min(p, 4))",
            "reshape(2 * p, n // (2 * p))  ->  reshape(8, n // 8)",
            "np.arange(n).reshape(2 * p, n // (2 * p))  ->  np.arange(2 * n).reshape(2 * p, n // p)",
        ],
        "did you forget `return`?": "    return np  ->      np",
    },
)
