"""Wrong answers to lab 09, and what each must cost."""

TYPES, MOVE, TYPED = {"check_product_type"}, {"check_move"}, {"check_typed"}
LAYERS, ASSIGN, RULE = {"check_layers"}, {"check_assign"}, {"check_rule"}

GAIN = "return (dy * x_hat).sum(0).all_reduce().whole()"
INPUT = "return (dy @ W.T).all_reduce().whole()"
SQUARES = "squares += (g * g).sum().all_reduce().whole()"
COLUMN = "    dx = comm.all_reduce(dy @ W.T)\n    return dx, x.T @ dy, dy.sum(axis=0)"
ROW = "    y = comm.all_reduce(x @ W)\n    return y + b"
ROW_DOC = '"""dy : (n, m), the same everywhere; return dx : (n, k of this rank), dW and db."""\n'
TRICK = "before + 2 * q * facts.boundary + facts.tensor_dense"
FEWEST = "    found = sent(facts)\n    return min(found, key=found.get)"

MUTANTS = {
    "product_type": [
        ("a sum is whole", ("return Partial()", "return Replicate()"), TYPES),
        ("a class", ("return Partial()", "return Partial"), TYPES),
        ("columns by W's axis", ("return Shard(last)", "return Shard(1)"), TYPES),
        ("rows are lost", ("        return x\n", "        return Replicate()\n"), TYPES),
        ("partials multiply", ("    return None", "    return Partial() if x == w == Partial() else None"), TYPES),
        ("a partial is not linear", ("w == Replicate() and x", "w == Replicate() and x != Partial() and x"), TYPES),
        ("only the first factor", ("if x == Replicate() and w == Partial()", "if False"), TYPES),
        ("columns alone", ("w == Replicate() and x != Shard(last)", "w == Replicate()"), TYPES),
        ("rows of W alone", ("x == Shard(last) and w == Shard(0)", "w == Shard(0)"), TYPES),
        ("columns stay whole", ("return Shard(last)", "return Replicate()"), TYPES),
        ("rows are summed", ("        return x\n", "        return Partial() if isinstance(x, Shard) else x\n"), TYPES),
        ("columns are summed", ("return Shard(last)", "return Partial()"), TYPES),
        ("a partial becomes whole", ("        return w\n", "        return Replicate()\n"), TYPES),
        ("two axes only", ("last = ndim - 1", "last = 1"), TYPES),
        ("three axes at most", ("last = ndim - 1", "last = min(ndim, 3) - 1"), TYPES),
    ],
    "move": [
        ("half an all-reduce", ('"all_reduce", 2 * others', '"all_reduce", others'), MOVE),
        ("sends to itself", ("(p - 1) / p * nbytes", "nbytes"), MOVE),
        ("all ranks together", ("(p - 1) / p * nbytes", "(p - 1) * nbytes"), MOVE),
        ("its own part once", ("(p - 1) / p * nbytes", "nbytes / p"), MOVE),
        ("an all-to-all is a gather", ("others / p", "others"), MOVE),
        ("moves where it lies", ("isinstance(new, Shard) and old != new", "isinstance(new, Shard)"), MOVE),
        ("bytes first", ('return "reduce_scatter", others', 'return others, "reduce_scatter"'), MOVE),
        ("names swapped", ('return "reduce_scatter"', 'return "all_gather"'), MOVE),
        ("gathers by a sum", ('return "all_gather", others', 'return "all_reduce", 2 * others'), MOVE),
        ("a name only", ('return "", 0.0', 'return ""'), MOVE),
        ("an all-to-all keeps its part", ("others / p", "nbytes / p"), MOVE),
        ("no collective for a sum", ('return "reduce_scatter", others', 'return "", 0.0'), MOVE),
        ("the whole array", ('"all_reduce", 2 * others', '"all_reduce", nbytes'), MOVE),
        ("a gather both ways", ('return "all_gather", others', 'return "all_gather", 2 * others'), MOVE),
        ("pads by a sum", ('return "", 0.0', 'return "all_reduce", others'), MOVE),
        ("four ranks", ("others = (p - 1)", "p = min(p, 4)\n    others = (p - 1)"), MOVE),
    ],
    "typed": [
        ("missing", (GAIN, "return (dy * x_hat).sum(0).whole()"), TYPED),
        ("missing, by .local", (GAIN, "return (dy * x_hat).sum(0).local"), TYPED),
        ("doubled", (INPUT, "return (dy @ W.T).all_reduce().all_reduce().whole()"), TYPED),
        ("doubled by hand", (INPUT, "return dy.comm.all_reduce((dy @ W.T).all_reduce().whole())"), TYPED),
        ("not transposed", (INPUT, "return (dy @ W).all_reduce().whole()"), TYPED),
        ("norm over shards", (SQUARES, "squares += (g * g).sum().local"), TYPED),
        ("p times", ("(g * g).sum().whole()", "(g * g).sum().whole() * g.comm.size"), TYPED),
        ("shards only", ("    for g in replicated:\n        squares += (g * g).sum().whole()\n", ""), TYPED),
        ("no root", ("float(np.sqrt(squares))", "float(squares)"), TYPED),
        (
            "gathers both",
            (INPUT, "dy, W = (a.redistribute(Replicate()).whole() for a in (dy, W))\n    return dy @ W.T"),
            TYPED,
        ),
        ("gathers the rows", (GAIN, "return (dy * x_hat).redistribute(Replicate()).whole().sum(axis=0)"), TYPED),
        ("gathers shards", (SQUARES, "squares += (g.redistribute(Replicate()).whole() ** 2).sum()"), TYPED),
        ("plain arrays", (GAIN, "return dy.comm.all_gather((dy.local * x_hat.local).sum(axis=0)).sum(axis=0)"), TYPED),
        ("plain arrays, one sum", (INPUT, "return dy.comm.all_reduce(dy.local @ W.local.T)"), TYPED),
        ("a plain sum", (GAIN, "return dy.comm.all_reduce((dy.local * x_hat.local).sum(axis=0))"), TYPED),
        ("plain squares", (SQUARES, "squares += g.comm.all_reduce(np.array([(g.local**2).sum()]))[0]"), TYPED),
        ("returns a Partial", (INPUT, "return dy @ W.T"), TYPED),
        ("a sum for each row", (GAIN, "return (dy * x_hat).sum(1).redistribute(Replicate()).whole()"), TYPED),
        ("replicated only", (" (g * g).sum().all_reduce().whole(", " 0.0 * (g * g).sum().all_reduce().whole("), TYPED),
        ("no squares", (SQUARES, "squares += g.sum().all_reduce().whole()"), TYPED),
        (
            "all norms",
            (
                "return float(np.sqrt(squares))",
                "every = [*sharded, *replicated]\n"
                "    return sum(float(np.sqrt((g * g).sum().redistribute(Replicate()).whole())) for g in every)",
            ),
            TYPED,
        ),
        ("a sum of norms", (SQUARES, "squares += np.sqrt((g * g).sum().all_reduce().whole())"), TYPED),
    ],
    "layers": [
        ("dx missing", (COLUMN, COLUMN.replace("comm.all_reduce(dy @ W.T)", "dy @ W.T")), LAYERS),
        ("dx twice", (COLUMN, COLUMN.replace("    return", "    comm.all_reduce(dx)\n    return")), LAYERS),
        ("dW summed", (COLUMN, COLUMN.replace("x.T @ dy", "comm.all_reduce(x.T @ dy)")), LAYERS),
        ("dx a mean", (COLUMN, COLUMN.replace("W.T)", "W.T) / comm.size")), LAYERS),
        ("y twice", (ROW, "    y = comm.all_reduce(comm.all_reduce(x @ W))\n    return y + b"), LAYERS),
        ("y a mean", (ROW, "    return comm.all_reduce(x @ W) / comm.size + b"), LAYERS),
        ("y missing, no bias", (ROW, "    return x @ W"), LAYERS),
        ("column without bias", ("    return x @ W + b", "    return x @ W"), LAYERS),
        ("db a mean", (COLUMN, COLUMN.replace("dy.sum(axis=0)", "dy.mean(axis=0)")), LAYERS),
        ("column's db summed", (COLUMN, COLUMN.replace("dy.sum(axis=0)", "comm.all_reduce(dy.sum(axis=0))")), LAYERS),
        ("into float64", (ROW, "    return comm.all_reduce(x.astype(float) @ W) + b"), LAYERS),
        ("dW transposed", (COLUMN, COLUMN.replace("x.T @ dy", "dy.T @ x")), LAYERS),
        ("gathers", (ROW, "    return comm.all_gather(x @ W).sum(axis=0) + b"), LAYERS),
        ("y missing", (ROW, "    return x @ W + b"), LAYERS),
        ("bias in the sum", (ROW, "    return comm.all_reduce(x @ W + b)"), LAYERS),
        ("no bias", (ROW, "    return comm.all_reduce(x @ W)"), LAYERS),
        ("column's y summed", ("    return x @ W + b", "    return comm.all_reduce(x @ W + b)"), LAYERS),
        (
            "row's db summed",
            (ROW_DOC, '"""x"""\n    return dy @ W.T, x.T @ dy, comm.all_reduce(dy.sum(axis=0))\n'),
            LAYERS,
        ),
        (
            "row's dx summed",
            (ROW_DOC, '"""x"""\n    return comm.all_reduce(dy @ W.T), x.T @ dy, dy.sum(axis=0)\n'),
            LAYERS,
        ),
        (
            "two ranks",
            (COLUMN, COLUMN.replace("comm.all_reduce(dy @ W.T)", "comm.all_reduce(dy @ W.T) * (comm.size < 3)")),
            LAYERS,
        ),
    ],
    "assign": [
        ("in order of numbers", ("sorted(range(len(costs)), key=lambda k: -costs[k])", "range(len(costs))"), ASSIGN),
        (
            "positions",
            (
                "sorted(range(len(costs)), key=lambda k: -costs[k]):\n",
                "range(len(costs)):\n        if path == 0:\n            costs = sorted(costs, reverse=True)\n",
            ),
            ASSIGN,
        ),
        ("floats", ("paths[rank].append(path)", "paths[rank].append(float(path))"), ASSIGN),
        ("a dict", ("    return paths", "    return dict(enumerate(paths))"), ASSIGN),
        (
            "the last of equals",
            ("[0.0] * p", "[[]][:0] or [0.0] * p\n    paths = paths[: max(1, p - 1)]; loads = loads[: max(1, p - 1)]"),
            ASSIGN,
        ),
        ("cheapest first", ("-costs[k]", "costs[k]"), ASSIGN),
        ("dealt in turn", ("loads.index(min(loads))", "path % p"), ASSIGN),
        ("sorted, then dealt", ("loads.index(min(loads))", "sum(map(len, paths)) % p"), ASSIGN),
        ("no load grows", ("loads[rank] += costs[path]", "pass"), ASSIGN),
        ("numbered from 1", ("paths[rank].append(path)", "paths[rank].append(path + 1)"), ASSIGN),
        ("fewest paths", ("loads[rank] += costs[path]", "loads[rank] += 1"), ASSIGN),
        ("the busiest", ("min(loads)", "max(loads)"), ASSIGN),
        ("costs, not numbers", ("paths[rank].append(path)", "paths[rank].append(costs[path])"), ASSIGN),
        ("one list for all", ("[[] for _ in range(p)]", "[[]] * p"), ASSIGN),
        ("a path per rank", ("    return paths", "    return [own[:1] for own in paths]"), ASSIGN),
        ("two ranks", (" = [[] for _ in range(p)], [0.0] * p", " = [[] for _ in range(p)], [0.0] * min(p, 2)"), ASSIGN),
    ],
    "rule": [
        ("gradients once", ("2 * q * facts.weights, ", "q * facts.weights, "), RULE),
        ("sends to itself", ("(facts.ranks - 1) / facts.ranks", "1"), RULE),
        ("all weights in the trick", ("facts.weights - facts.weights_dense", "facts.weights"), RULE),
        ("the boundary once", (TRICK, "before + q * facts.boundary + facts.tensor_dense"), RULE),
        ("no boundary", (TRICK, "before + facts.tensor_dense"), RULE),
        ("dense layers free", (TRICK, "before + 2 * q * facts.boundary"), RULE),
        ("the trick everywhere", (" is not None:", " is not None or not found.update({'one weird trick': 0}):"), RULE),
        ("always data", (FEWEST, '    return "data"'), RULE),
        ("always tensor", (FEWEST, '    return "tensor"'), RULE),
        ("most bytes", ("min(found, key=found.get)", "max(found, key=found.get)"), RULE),
        (
            "by weight alone",
            (
                FEWEST,
                "    if facts.boundary is None:\n        return 'data' if facts.weights < 2e7 else 'tensor'\n"
                "    return 'data' if facts.weights_dense < 1e8 else 'one weird trick'",
            ),
            RULE,
        ),
        ("weights before twice", ("before = 2 * q", "before = 4 * q"), RULE),
        ("None for no trick", (" found\n", " found if len(found) > 2 else found | {'one weird trick': None}\n"), RULE),
        ("bytes, no name", (FEWEST, "    return min(sent(facts).values())"), RULE),
        ("no trick", (FEWEST, '    return "data" if facts.weights < facts.tensor else "tensor"'), RULE),
        (
            "the trick if there is one",
            (FEWEST, '    return "data" if facts.boundary is None else "one weird trick"'),
            RULE,
        ),
        ("four ranks", ("q = (facts.ranks - 1)", "facts = facts._replace(ranks=4)\n    q = (facts.ranks - 1)"), RULE),
    ],
}
