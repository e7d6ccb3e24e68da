"""The exercises of lab 09: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}


def kinds(ndim):
    return ["Replicate()", "Partial()", *(f"Shard({axis})" for axis in range(ndim))]


EXERCISES["product_type"] = Exercise(
    cases=[{"x": [x], "ndim": ndim} for ndim in (2, 4) for x in kinds(ndim)],
    draw=lambda rng: {"x": kinds(ndim := int(rng.integers(2, 9))), "ndim": ndim},
    mistakes={
        "each rank has some of the terms of every sum: Partial()": [
            "return Partial()  ->  return Replicate()",
            "    if x == Shard(last) and w == Shard(0):\n        return Partial()\n  ->  ",
        ],
        "these are classes: call them, as in Replicate()": [
            "return Partial()  ->  return Partial",
            ("return Partial()  ->  return Partial", "        return w\n  ->          return Partial\n"),
        ],
        "y is cut along its last axis: count the axes of x, not of W": [
            "return Shard(last)  ->  return Shard(1)",
        ],
        "X has `ndim` axes, counted from 0: the last is ndim - 1": [
            "last = ndim - 1  ->  last = 1",
            "last = ndim - 1  ->  last = -1",
            "last = ndim - 1  ->  last = ndim",
            "last = ndim - 1  ->  last = min(ndim, 3) - 1",
        ],
        "rows of x times all of W: these rows of y": [
            "        return x\n  ->          return Replicate()\n",
            "        return x\n  ->          return Partial() if isinstance(x, Shard) else x\n",
            "        return x\n  ->          return Shard(0) if isinstance(x, Shard) else x\n",
        ],
        "all of x times columns of W: these columns of y": [
            "return Shard(last)  ->  return Replicate()",
            "return Shard(last)  ->  return Shard(0)",
            "return Shard(last)  ->  return Partial()",
        ],
        "a product of sums is not the sum of products": [
            "    return None  ->      return Partial() if x == w == Partial() else None",
            "x == Replicate() and w == Partial()  ->  x in (Replicate(), Partial()) and w == Partial()",
        ],
        "linear in each factor: the ranks' products add up to the product, a Partial": [
            "        return w\n  ->          return Replicate()\n",
        ],
        "the ranks' parts do not belong together: None": [
            "w == Replicate() and x != Shard(last)  ->  w == Replicate()",
            "x == Shard(last) and w == Shard(0)  ->  w == Shard(0)",
            "x == Shard(last) and w == Shard(0)  ->  x == Shard(last)",
            "x == Shard(last) and w == Shard(0)  ->  isinstance(x, Shard) and w == Shard(0)",
            "x == Replicate() and w == Shard(1)  ->  w == Shard(1)",
            "x == Replicate() and w == Shard(1)  ->  x == Replicate() and isinstance(w, Shard)",
            "    return None  ->      return Partial() if x == Replicate() and w == Shard(0) else None",
            "    return None  ->      return Shard(0) if x == Shard(0) and w == Shard(0) else None",
            "    return None  ->      return Shard(0) if x == Shard(0) and w == Shard(1) else None",
            "    return None  ->      return Partial() if x == Shard(last) and w == Replicate() else None",
            "    return None  ->      return Replicate()",
            "    return None  ->      return Partial()",
        ],
        "the parts fit, so this is not None (is a `return` missing, or == written as `is`?)": [
            (
                "return Shard(last)  ->  Shard(last)",
                "return Partial()  ->  Partial()",
                "        return x\n  ->          x\n",
                "        return w\n  ->          w\n",
            ),
            "w == Replicate() and x != Shard(last)  ->  w == Replicate() and x == Shard(0)",
            "w == Replicate() and x != Shard(last)  ->  w == Replicate() and x not in (Shard(last), Replicate())",
            "return Shard(last)  ->  return None",
            "w == Replicate() and x  ->  w == Replicate() and x != Partial() and x",
            "if x == Replicate() and w == Partial()  ->  if False",
        ],
    },
    draws=3,
    may_pass={"return None  ->  pass": "None, too"},
)

EXERCISES["move"] = Exercise(
    cases=[
        *({"old": old, "new": kinds(2), "nbytes": 800.0, "p": 4} for old in kinds(2)),
        {"old": "Partial()", "new": ["Replicate()", "Shard(2)"], "nbytes": 900.0, "p": 7},
        {"old": "Shard(2)", "new": ["Replicate()", "Partial()", "Shard(0)", "Shard(2)"], "nbytes": 900.0, "p": 7},
        {"old": "Shard(0)", "new": kinds(2), "nbytes": 130.0, "p": 2},
    ],
    draw=lambda rng: {
        "old": ["Replicate()", "Partial()", *(shards := [f"Shard({a})" for a in rng.permutation(5)[:2]])][
            rng.integers(4)
        ],
        "new": ["Replicate()", "Partial()", *shards],
        "nbytes": float(rng.integers(1000, 10**6)),
        "p": rng.integers(2, 20),
    },
    draws=12,
    mistakes={
        "an all-reduce is a reduce-scatter and an all-gather: twice as much": (
            '"all_reduce", 2 * others  ->  "all_reduce", others'
        ),
        "an all-reduce sends all but a rank's share, twice": [
            '"all_reduce", 2 * others  ->  "all_reduce", nbytes',
            '"all_reduce", 2 * others  ->  "all_reduce", others + nbytes',
            '"all_reduce", 2 * others  ->  "all_reduce", 2 * nbytes',
        ],
        "a rank does not send its own part: (p - 1) / p": [
            "(p - 1) / p * nbytes  ->  nbytes",
            'return "all_gather", others  ->  return "all_gather", nbytes',
        ],
        "all ranks together send this: a rank sends a p-th": "(p - 1) / p * nbytes  ->  (p - 1) * nbytes",
        "shares need not be whole numbers: / in place of //": [
            "(p - 1) / p * nbytes  ->  (p - 1) * (nbytes // p)",
            "(p - 1) / p * nbytes  ->  (p - 1) * nbytes // p",
        ],
        "of p parts all but one are sent, not one alone": [
            "(p - 1) / p * nbytes  ->  nbytes / p",
            'return "all_gather", others  ->  return "all_gather", nbytes / p',
        ],
        "an all-to-all sends of a rank's own share, not of the whole array": (
            '"all_to_all", others / p  ->  "all_to_all", others'
        ),
        "an all-to-all: a rank keeps one p-th of its share": '"all_to_all", others / p  ->  "all_to_all", nbytes / p',
        "where the type stays nothing is sent": [
            "isinstance(new, Shard) and old != new  ->  isinstance(new, Shard)",
            "isinstance(new, Shard) and old != new  ->  isinstance(new, Shard) and old is not new",
            "if old == Partial() and new == Replicate()  ->  if old == Partial() and not isinstance(new, Shard)",
        ],
        "from one axis to another: all_to_all, of a rank's share what it does not keep": [
            '"all_to_all", others / p  ->  "all_gather", others',
            '"all_to_all", others / p  ->  "", 0.0',
            "isinstance(new, Shard) and old != new  ->  False",
        ],
        "the name comes first, then the bytes": [
            'return "reduce_scatter", others  ->  return others, "reduce_scatter"',
            (
                'return "all_reduce", 2 * others  ->  return 2 * others, "all_reduce"',
                'return "reduce_scatter", others  ->  return others, "reduce_scatter"',
                'return "all_gather", others  ->  return others, "all_gather"',
                'return "all_to_all", others / p  ->  return others / p, "all_to_all"',
                'return "", 0.0  ->  return 0.0, ""',
            ),
        ],
        "from Partial to Shard: reduce_scatter, (p - 1) / p of the array": [
            'return "reduce_scatter"  ->  return "all_gather"',
            'return "reduce_scatter"  ->  return "scatter"',
            'return "reduce_scatter", others  ->  return "", 0.0',
            'return "reduce_scatter", others  ->  return "all_reduce", 2 * others',
        ],
        "a reduce-scatter sends half as much as an all-reduce": (
            'return "reduce_scatter", others  ->  return "reduce_scatter", 2 * others'
        ),
        "a reduce-scatter sends all shares but one, not one share": (
            'return "reduce_scatter", others  ->  return "reduce_scatter", others / p'
        ),
        "from Shard to Replicate: all_gather, (p - 1) / p of the array": [
            'return "all_gather", others  ->  return "all_reduce", 2 * others',
            'return "all_gather", others  ->  return "", 0.0',
        ],
        "an all-gather sends half as much as an all-reduce": (
            'return "all_gather", others  ->  return "all_gather", 2 * others'
        ),
        "two results, also where nothing is sent": 'return "", 0.0  ->  return ""',
        "what is not sent has 0 bytes, not None": 'return "", 0.0  ->  return "", None',
        'no collective has the name ""': 'return "", 0.0  ->  return None, 0.0',
        "what every rank has, or pads with zeros, is not sent": [
            'return "", 0.0  ->  return "all_reduce", others',
            'return "", 0.0  ->  return "", others',
        ],
        "every rank needs the whole sum: all_reduce": (
            'return "all_reduce", 2 * others  ->  return "all_gather", others'
        ),
        "any number of ranks: p is an argument": [
            "others = (p - 1)  ->  p = min(p, 4)\n    others = (p - 1)",
            "others = (p - 1) / p  ->  others = 3 / 4",
        ],
        "did you forget `return`?": (
            'return "all_reduce"  ->  "all_reduce"',
            'return "reduce_scatter"  ->  "reduce_scatter"',
            'return "all_gather"  ->  "all_gather"',
            'return "all_to_all"  ->  "all_to_all"',
            'return "", 0.0  ->  "", 0.0',
        ),
    },
)

GAIN = "return (dy * x_hat).sum(0).all_reduce().whole()"
INPUT = "return (dy @ W.T).all_reduce().whole()"
SQUARES = "squares += (g * g).sum().all_reduce().whole()"
OWN = "squares += (g * g).sum().whole()"
ROOT = "float(np.sqrt(squares))"
WORLDS = ((1, [7, 9]), (2, [7, 9]), (4, [6, 11]))

EXERCISES["typed"] = Exercise(
    answers=("gain_gradient", "input_gradient", "grad_norm"),
    cases=[
        {"of": of, "ranks": ranks, "shape": shape, "seed": ranks}
        for of in ("gain_gradient", "input_gradient", "grad_norm")
        for ranks, shape in WORLDS
    ],
    draw=lambda rng: {
        "of": ["gain_gradient", "input_gradient", "grad_norm"][rng.integers(3)],
        "ranks": rng.integers(1, 7),
        "shape": rng.integers(3, 12, 2).tolist(),
        "seed": rng.integers(1000),
    },
    draws=12,
    mistakes={
        "the types do not fit: the message says which array, and why": [
            f"{GAIN}  ->  return (dy * x_hat).sum(0).whole()",
            f"{GAIN}  ->  return (dy * x_hat).sum(1).all_reduce().whole()",
            f"{INPUT}  ->  return (dy @ W.T).all_reduce().all_reduce().whole()",
            f"{INPUT}  ->  return (dy @ W).all_reduce().whole()",
            f"{INPUT}  ->  return (dy @ W.T).whole()",
            f"{SQUARES}  ->  squares += (g * g).sum().whole()",
            f"{OWN}  ->  {SQUARES}",
            f"return {ROOT}  ->  squares = sum((g * g).sum() for g in [*sharded, *replicated])\n"
            "    return float(np.sqrt(squares.all_reduce().whole()))",
        ],
        "gain_gradient: this rank's rows only: .all_reduce().whole(), not .local": (
            f"{GAIN}  ->  return (dy * x_hat).sum(0).local"
        ),
        "gain_gradient: sum over the rows, .sum(0)": [
            f"{GAIN}  ->  return (dy * x_hat).sum(1).redistribute(Replicate()).whole()",
        ],
        "gain_gradient: add up what each rank has with .all_reduce(), gather nothing": [
            f"{GAIN}  ->  return (dy * x_hat).redistribute(Replicate()).whole().sum(axis=0)",
            f"{GAIN}  ->  return dy.comm.all_gather((dy.local * x_hat.local).sum(axis=0)).sum(axis=0)",
        ],
        "gain_gradient: compute with the arrays: .local has no type": (
            f"{GAIN}  ->  return dy.comm.all_reduce((dy.local * x_hat.local).sum(axis=0))"
        ),
        "gain_gradient: a sum over the rows, not a mean": (
            f"{GAIN}  ->  return (dy * x_hat).sum(0).all_reduce().whole() / dy.shape[0]"
        ),
        "gain_gradient: a sum over the ranks, not a mean": (
            f"{GAIN}  ->  return (dy * x_hat).sum(0).all_reduce().whole() / dy.comm.size"
        ),
        "gain_gradient: dy times x_hat, in each place": [
            f"{GAIN}  ->  return dy.sum(0).all_reduce().whole()",
            f"{GAIN}  ->  return (dy.T @ x_hat).all_reduce().whole()",
        ],
        "np.sum takes plain arrays: these have a method, .sum(axis)": [
            f"{GAIN}  ->  return np.sum(dy * x_hat, axis=0).all_reduce().whole()",
            f"{SQUARES}  ->  squares += np.sum(g * g).all_reduce().whole()",
        ],
        "input_gradient: a sum over the ranks, not a mean": f"{INPUT}  ->  {INPUT} / dy.comm.size",
        "gain_gradient: return the plain array, .whole()": f"{GAIN}  ->  return (dy * x_hat).sum(0).all_reduce()",
        "input_gradient: this is summed twice": [
            f"{INPUT}  ->  return dy.comm.all_reduce((dy @ W.T).all_reduce().whole())",
        ],
        "input_gradient: add up the ranks' products, gather nothing": (
            f"{INPUT}  ->  dy, W = (a.redistribute(Replicate()).whole() for a in (dy, W))\n    return dy @ W.T"
        ),
        "input_gradient: compute with the arrays: .local has no type": (
            f"{INPUT}  ->  return dy.comm.all_reduce(dy.local @ W.local.T)"
        ),
        "input_gradient: add up with .all_reduce(), and return the plain array, .whole()": (
            f"{INPUT}  ->  return dy @ W.T"
        ),
        "input_gradient: this rank's summand: .all_reduce().whole(), not .local": (
            f"{INPUT}  ->  return (dy @ W.T).local"
        ),
        "grad_norm: this rank's shards only: complete the sum before the root": (
            f"{SQUARES}  ->  squares += (g * g).sum().local"
        ),
        "grad_norm: what every rank has is counted once, not once per rank": [
            f"{OWN}  ->  squares += (g * g).sum().whole() * g.comm.size",
            f"{OWN}  ->  squares += g.comm.all_reduce(np.array([(g.local**2).sum()]))[0]",
        ],
        "grad_norm: the gradients that all ranks have are missing": (
            "    for g in replicated:\n        squares += (g * g).sum().whole()\n  ->  "
        ),
        "grad_norm: the sharded gradients are missing": f"{SQUARES}  ->  pass",
        "grad_norm: the root is missing": f"{ROOT}  ->  float(squares)",
        "grad_norm: each gradient is added to those before it: +=": [
            f"{SQUARES}  ->  {SQUARES.replace('+=', '=')}",
            f"{OWN}  ->  {OWN.replace('+=', '=')}",
        ],
        "grad_norm: squares are missing: g * g": f"{SQUARES}  ->  squares += g.sum().all_reduce().whole()",
        "grad_norm: add up squares, not arrays: no array is gathered": (
            f"{SQUARES}  ->  squares += (g.redistribute(Replicate()).whole() ** 2).sum()"
        ),
        "grad_norm: compute with the arrays: .local has no type": [
            f"{SQUARES}  ->  squares += g.comm.all_reduce(np.array([(g.local**2).sum()]))[0]",
            f"{SQUARES}  ->  squares += float((g.local**2).sum())",
        ],
        "grad_norm: squares add up, norms do not: one root at the end": (
            f"return {ROOT}  ->  every = [*sharded, *replicated]\n"
            "    return sum(float(np.sqrt((g * g).sum().redistribute(Replicate()).whole())) for g in every)"
        ),
        "grad_norm: squares add up, norms do not: no root before the sum": (
            f"{SQUARES}  ->  squares += np.sqrt((g * g).sum().all_reduce().whole())"
        ),
        "grad_norm: all gradients of each list, not the first alone": (
            "    for g in sharded:  ->      for g in sharded[:1]:",
            "    for g in replicated:  ->      for g in replicated[:1]:",
        ),
        "did you forget `return`?": [
            f"{GAIN}  ->  {GAIN[7:]}",
            f"{INPUT}  ->  {INPUT[7:]}",
            f"return {ROOT}  ->  {ROOT}",
        ],
    },
)

FUNCTIONS = "column_forward", "column_backward", "row_forward", "row_backward"
COLUMN = "    dx = comm.all_reduce(dy @ W.T)\n    return dx, x.T @ dy, dy.sum(axis=0)"
SERIAL = "return dy @ W.T, x.T @ dy, dy.sum(axis=0)"
ROW = "    y = comm.all_reduce(x @ W)\n    return y + b"
FIRST = "    return x @ W + b"


def column(old, new):
    """An edit of column_backward."""
    return f"{COLUMN}  ->  {COLUMN.replace(old, new)}"


def row(old, new):
    """An edit of row_backward."""
    return f"    {SERIAL}  ->      {SERIAL.replace(old, new)}"


EXERCISES["layers"] = Exercise(
    answers=FUNCTIONS,
    cases=[
        {"of": of, "ranks": ranks, "shape": shape} | more
        for of in FUNCTIONS
        for ranks, shape, more in (
            (1, [5, 6, 8], {}),
            (2, [5, 6, 8], {"seed": 2}),
            (5, [4, 7, 6], {"seed": 3}),
            (5, [4, 7, 6], {"dtype": "float32"}),
        )
    ],
    draw=lambda rng: {
        "of": FUNCTIONS[rng.integers(4)],
        "ranks": rng.integers(2, 7),
        "shape": [int(rng.integers(1, 8)), *rng.integers(7, 12, 2).tolist()],
        "dtype": rng.choice(["float32", "float64"]),
        "seed": rng.integers(1000),
    },
    draws=16,
    mistakes={
        "row_forward: after the sum every rank adds all of b": "return y + b  ->  return y + b / comm.size",
        "column_backward: dx is this rank's summand: sum it over the ranks": (
            column("comm.all_reduce(dy @ W.T)", "dy @ W.T")
        ),
        "column_backward: dx is summed twice": column("    return", "    comm.all_reduce(dx)\n    return"),
        "column_backward: the sum over the ranks, not the mean": (column("W.T)", "W.T) / comm.size")),
        "column_backward: each rank has its own columns of dW: no all_reduce": [
            column("x.T @ dy", "comm.all_reduce(x.T @ dy)"),
        ],
        "column_backward: each rank has its own columns of db: no all_reduce": [
            column("dy.sum(axis=0)", "comm.all_reduce(dy.sum(axis=0))"),
        ],
        "column_backward: db is a sum over the batch, not a mean": column("dy.sum(axis=0)", "dy.mean(axis=0)"),
        "column_backward: db has a number for each column: dy.sum(axis=0)": column("dy.sum(axis=0)", "dy.sum(axis=1)"),
        "column_backward: dW has the shape of W: x.T @ dy": column("x.T @ dy", "dy.T @ x"),
        "column_backward: return dx, dW, db in this order": [
            column("return dx, x.T @ dy", "dW = x.T @ dy\n    return dW, dx"),
        ],
        "column_backward: more than two ranks sum up, too": column("@ W.T)", "@ W.T) * (comm.size < 3)"),
        "column_forward: the bias is missing": f"{FIRST}  ->      return x @ W",
        "column_forward: each rank has its own columns of y: no all_reduce": (
            f"{FIRST}  ->      return comm.all_reduce(x @ W + b)"
        ),
        "column_forward: each rank keeps its own columns of y: no all_gather": (
            f"{FIRST}  ->      return comm.all_gather(x @ W + b)"
        ),
        "column_forward: the dense layer alone: ReLU is another layer": (
            f"{FIRST}  ->      return np.maximum(x @ W + b, 0)"
        ),
        "row_forward: every rank adds the bias: add it after the sum": (
            f"{ROW}  ->      return comm.all_reduce(x @ W + b)"
        ),
        "row_forward: this rank's summand: sum over the ranks": f"{ROW}  ->      return x @ W + b",
        "row_forward: sum over the ranks, then add b": (f"{ROW}  ->      return x @ W"),
        "row_forward: the bias is missing": f"{ROW}  ->      return comm.all_reduce(x @ W)",
        "row_forward: summed twice": f"{ROW}  ->      return comm.all_reduce(comm.all_reduce(x @ W)) + b",
        "row_forward: the sum over the ranks, not the mean": (
            f"{ROW}  ->      return comm.all_reduce(x @ W) / comm.size + b"
        ),
        "row_forward: add up with all_reduce: all_gather sends every summand to all": (
            f"{ROW}  ->      return comm.all_gather(x @ W).sum(axis=0) + b"
        ),
        "row_forward: multiply what a rank has, and add up with all_reduce": (
            f"{ROW}  ->      return np.concatenate(comm.all_gather(x), axis=1) @ W + b"
        ),
        "row_forward: the dtype of the arrays, float32 stays float32": (
            f"{ROW}  ->      return comm.all_reduce(x.astype(float) @ W) + b"
        ),
        "row_backward: every rank has all of dy, so db is whole: no all_reduce": (
            row("dy.sum(axis=0)", "comm.all_reduce(dy.sum(axis=0))")
        ),
        "row_backward: every rank has all of dy, so db is whole: nothing to divide": (
            row("dy.sum(axis=0)", "dy.sum(axis=0) / comm.size")
        ),
        "row_backward: each rank has its own columns of dx: no all_reduce": row(
            "dy @ W.T", "comm.all_reduce(dy @ W.T)"
        ),
        "row_backward: each rank has its own rows of dW: no all_reduce": row("x.T @ dy", "comm.all_reduce(x.T @ dy)"),
        "row_backward: db is a sum over the batch, not a mean": row("dy.sum(axis=0)", "dy.mean(axis=0)"),
        "row_backward: return dx, dW, db in this order": row("dy @ W.T, x.T @ dy", "x.T @ dy, dy @ W.T"),
        "did you forget `return`?": [
            f"{FIRST}  ->      x @ W + b",
            f"{ROW}  ->  {ROW.replace('return ', '')}",
            column("return ", ""),
            row("return ", ""),
        ],
    },
)

ORDER = "sorted(range(len(costs)), key=lambda k: -costs[k])"
LISTS = "[[] for _ in range(p)], [0.0] * p"
LEAST = "loads.index(min(loads))"

EXERCISES["assign"] = Exercise(
    cases=rows(
        "costs p",
        ([11, 17, 14, 7, 5, 15], 2),
        ([12, 9, 16, 14, 4, 18, 19], 3),
        ([5, 1], 3),
        ([7, 7, 6, 6, 5, 5, 4, 4, 4], 3),
        ([8.5, 79.25, 10.0, 4.5], 4),
        ([9, 40, 12, 10], 2),
        ([2, 3, 1], 1),
        ([0.3, 0.25, 0.9, 0.45, 0.6], 2),
        ([21, 20, 19, 38, 5, 6, 8, 31, 11], 5),
    ),
    draw=lambda rng: {
        "costs": rng.integers(1, 1000, int(rng.integers(2, 20))).tolist(),
        "p": rng.integers(1, 7),
    },
    draws=8,
    at_most=("operations of the busiest rank",),
    mistakes={
        "dealt in turn, there and back: look at what each rank has to do": (
            "rank = loads.index(min(loads))"
            "  ->  k = sum(map(len, paths)); rank = k % p if k // p % 2 == 0 else p - 1 - k % p"
        ),
        "in the order of their numbers: take the costliest first": f"{ORDER}  ->  range(len(costs))",
        "these are positions in the sorted list: sort the paths' numbers by cost": [
            (
                f"    for path in {ORDER}:\n  ->      costs = sorted(costs, reverse=True)\n"
                "    for path in range(len(costs)):\n"
            ),
        ],
        "return p lists of whole numbers, the numbers of the paths": [
            "paths[rank].append(path)  ->  paths[rank].append(float(path))",
            "    return paths  ->      paths",
            "    return paths  ->      return dict(enumerate(paths))",
            "    return paths  ->      return loads",
            "    return paths  ->      return paths, loads",
            "    return paths  ->      return [k for own in paths for k in own]",
        ],
        "a list for each rank, also for an idle one": [
            "    return paths  ->      return [own for own in paths if own]",
        ],
        "all ranks have something to do, also the last": (
            f"{LISTS}  ->  [[] for _ in range(p)], [0.0] * max(1, p - 1)"
        ),
        "dealt in turn: look at what each rank has to do": f"{LEAST}  ->  path % p",
        "dealt in turn, or the cheapest first: the costliest first, to the rank with least to do": [
            f"{LEAST}  ->  sum(map(len, paths)) % p",
            "-costs[k]  ->  costs[k]",
            "+= costs[path]  ->  += 1",
        ],
        "one rank has all: take the one with least to do, and let its load grow": [
            "loads[rank] += costs[path]  ->  pass",
            f"{LEAST}  ->  loads.index(max(loads))",
        ],
        "paths are numbered from 0": "paths[rank].append(path)  ->  paths[rank].append(path + 1)",
        "numbers of paths are wanted, not their costs": "paths[rank].append(path)  ->  paths[rank].append(costs[path])",
        "costs need not be whole numbers": [
            "+= costs[path]  ->  += int(costs[path])",
            "-costs[k]  ->  -int(costs[k])",
        ],
        "the least operations decide, not the fewest paths": (
            f"{LEAST}  ->  min(range(p), key=lambda r: (len(paths[r]), loads[r]))"
        ),
        "[[]] * p is one list, p times": "[[] for _ in range(p)]  ->  [[]] * p",
        "every path needs a rank, also if ranks are fewer": [
            "    return paths  ->      return [own[:1] for own in paths]",
            f"{ORDER}  ->  {ORDER}[:p]",
            "range(len(costs)), key  ->  range(min(p, len(costs))), key",
        ],
        "equally many paths are not equal work: look at the costs": (
            "def assign(costs, p):\n    return [own.tolist() for own in np.array_split(np.arange(len(costs)), p)]"
        ),
        "what a rank has to do is the sum of its paths: +=": "+= costs[path]  ->  = costs[path]",
        "taking a cost out of the list changes the numbers of the paths after it": (
            f"    for path in {ORDER}:\n  ->      costs = list(costs)\n    while costs:\n"
            "        path = costs.index(max(costs))\n",
            "+= costs[path]  ->  += costs.pop(path)",
        ),
        "any number of ranks, not two": f"{LISTS}  ->  [[] for _ in range(p)], [0.0] * min(p, 2)",
        "costs may be equal: go through the numbers of the paths, not their costs": (
            f"for path in {ORDER}:  ->  for path in [costs.index(c) for c in sorted(costs, reverse=True)]:"
        ),
    },
    may_pass={"1.0] * p)": "loads that all begin alike"},
)

TRICK = "before + 2 * q * facts.boundary + facts.tensor_dense"
FEWEST = "    found = sent(facts)\n    return min(found, key=found.get)"

EXERCISES["rule"] = Exercise(
    answers=("sent", "choose"),
    cases=[
        {"of": "sent", "network": "wide MLP", "ranks": 4, "batch": 128},
        {"of": "sent", "network": "AlexNet", "ranks": 4, "batch": 128},
        {"of": "sent", "network": "GPT", "ranks": 2, "batch": 500},
        {"of": "sent", "network": "AlexNet", "ranks": 2, "batch": 1000},
        {"of": "sent", "network": "LeNet", "ranks": 7, "batch": 350},
        {"of": "choose", "ranks": 4, "times": 1},
        {"of": "choose", "ranks": 2, "times": 64},
    ],
    draw=lambda rng: (
        {"of": "choose", "ranks": rng.integers(2, 4), "times": float(2 ** rng.uniform(-1, 6))}
        if rng.random() < 0.15
        else {
            "of": "sent",
            "network": rng.choice(["wide MLP", "AlexNet", "LeNet", "GPT", "small CNN"]),
            "ranks": rng.integers(2, 9),
            "batch": rng.integers(64, 2000),
        }
    ),
    draws=6,
    rtol=1e-6,
    mistakes={
        "sent: data: an all-reduce is a reduce-scatter and an all-gather": (
            "2 * q * facts.weights,   ->  q * facts.weights, "
        ),
        "sent: a rank does not send its own part: (ranks - 1) / ranks": "(facts.ranks - 1) / facts.ranks  ->  1",
        "sent: all parts but its own: (ranks - 1) / ranks, not 1 / ranks": (
            "(facts.ranks - 1) / facts.ranks  ->  1 / facts.ranks"
        ),
        "sent: // rounds (ranks - 1) / ranks down to 0": (
            "(facts.ranks - 1) / facts.ranks  ->  (facts.ranks - 1) // facts.ranks"
        ),
        "sent: data: an all-reduce sends 2 (p - 1) / p times the gradients": (
            "2 * q * facts.weights,   ->  facts.weights, "
        ),
        "sent: the number of ranks is facts.ranks": "q = (facts.ranks - 1) / facts.ranks  ->  q = 3 / 4",
        "sent: 2 (p - 1) / p times the array, not 2 (p - 1) times": (
            '"data": 2 * q * facts.weights,   ->  "data": 2 * (facts.ranks - 1) * facts.weights, '
        ),
        "sent: in bytes": '"data": 2 * q * facts.weights,   ->  "data": 2e-6 * q * facts.weights, ',
        "sent: `tensor` is what a rank sends already": [
            '"tensor": facts.tensor}  ->  "tensor": 2 * q * facts.tensor}',
            '"tensor": facts.tensor}  ->  "tensor": 2 * facts.tensor}',
        ],
        "sent: if all layers are tensor-parallel, `tensor`, not `tensor_dense`": (
            '"tensor": facts.tensor}  ->  "tensor": facts.tensor_dense}'
        ),
        "sent: `tensor_dense` is what a rank sends already": (
            f"{TRICK}  ->  before + 2 * q * facts.boundary + 2 * q * facts.tensor_dense"
        ),
        "sent: at the boundary an all-gather and a reduce-scatter, (p - 1) / p each": [
            f"{TRICK}  ->  before + 4 * q * facts.boundary + facts.tensor_dense",
            f"{TRICK}  ->  before + facts.boundary + facts.tensor_dense",
        ],
        "sent: data: all weights have a gradient": "2 * q * facts.weights,   ->  2 * q * facts.weights_dense, ",
        "sent: the trick sums only the weights before the dense layers": [
            "facts.weights - facts.weights_dense  ->  facts.weights",
        ],
        "sent: the trick sums the weights before the dense layers, not theirs": (
            "facts.weights - facts.weights_dense  ->  facts.weights_dense"
        ),
        "sent: the boundary is passed twice: activations forward, gradients backward": (
            f"{TRICK}  ->  before + q * facts.boundary + facts.tensor_dense"
        ),
        "sent: the boundary is missing": f"{TRICK}  ->  before + facts.tensor_dense",
        "sent: the tensor-parallel dense layers send, too": f"{TRICK}  ->  before + 2 * q * facts.boundary",
        "sent: of the dense layers `tensor_dense`, not `tensor`": (
            f"{TRICK}  ->  before + 2 * q * facts.boundary + facts.tensor"
        ),
        "sent: at the boundary a rank does not send its own part either": (
            f"{TRICK}  ->  before + 2 * facts.boundary + facts.tensor_dense"
        ),
        "sent: the trick's sum sends 2 (p - 1) / p times the weights, not twice that": (
            "before = 2 * q  ->  before = 4 * q"
        ),
        "sent: the weights before the dense layers are summed: 2 (p - 1) / p": "before = 2 * q  ->  before = q",
        "sent: boundary is None where the trick does not apply: leave it out": [
            "    if facts.boundary is not None:\n  ->      if True:\n",
            "return found\n  ->  return found if len(found) > 2 else found | {'one weird trick': None}\n",
            " is not None:  ->   is not None or not found.update({'one weird trick': 0}):",
        ],
        "sent: the trick's bytes are missing": "    if facts.boundary is not None:  ->      if False:",
        "choose: return a name of a layout that there is": [
            f"{FEWEST}  ->      return min(sent(facts).values())",
            f"{FEWEST}  ->      return min(sent(facts).items(), key=lambda one: one[1])",
            "return min(  ->  min(",
        ],
        "choose: where weights are many and activations few, gradients are not cheap": (
            f'{FEWEST}  ->      return "data"'
        ),
        "choose: where activations are many and weights few, they are not cheap": f'{FEWEST}  ->      return "tensor"',
        "choose: for some networks it is tensor parallelism that sends least": [
            f"{FEWEST}  ->      found = sent(facts)\n    del found['tensor']\n    return min(found, key=found.get)",
            f"{FEWEST}  ->      if facts.boundary is None or facts.weights < facts.boundary:\n"
            "        return 'data'\n    return 'one weird trick'",
        ],
        "choose: the fewest bytes, not the most": "min(found, key=found.get)  ->  max(found, key=found.get)",
        "choose: look at the activations, too, which grow with the batch": (
            f"{FEWEST}  ->      if facts.boundary is None:\n"
            "        return 'data' if facts.weights < 2e7 else 'tensor'\n"
            "    return 'data' if facts.weights_dense < 1e8 else 'one weird trick'"
        ),
        "choose: one weird trick is worth it for some networks": [
            f'{FEWEST}  ->      return "data" if facts.weights < facts.tensor else "tensor"',
        ],
        "choose: the trick is not worth it for every network": (
            f'{FEWEST}  ->      return "data" if facts.boundary is None else "one weird trick"'
        ),
        "did you forget `return`?": "    return found\n  ->      found\n",
    },
    may_pass={"sent, rounded to three digits": "bytes are large numbers"},
)
