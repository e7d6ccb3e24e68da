"""Wrong answers to lab 13."""

WEIGHTS = "itemsize * sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))"
SAVED = "itemsize * batch * sum(sizes[1:])"
BATCH = "batch * (itemsize * sizes[0] + 8)"
REST = "34 / t if sequence else 10 + 24 / t"
SCORES = "0 if selective else 5 * a * s / (h * t)"
RUN_AGAIN = "    y, saved = block.forward(kept)\n    return block.backward(dy, saved)"
FORWARD = "    y, saved = block.forward(x)\n    return y, x"
FITS = "        if sum(saved[i:j]) <= room:"
PARTS = "best(i, k, room), best(k, j, room - inputs[k])"
LIST = {
    "left": "(0, list(range(i, k))) if sum(saved[i:k]) <= room else (float('inf'), None)",
    "right": "(0, list(range(k, j))) if sum(saved[k:j]) <= room - inputs[k] else (float('inf'), None)",
}
ROOT = """
def plan(forward, inputs, saved, budget):
    n = len(forward)
    size = max(1, round(n ** 0.5))
    parts = [list(range(i, min(n, i + size))) for i in range(0, n, size)]
    found = parts[-1]
    for part in parts[-2::-1]:
        found = part, found
    return found
"""
ALL_AGAIN = """
def plan(forward, inputs, saved, budget):
    found = [0]
    for i in range(1, len(forward)):
        found = found, [i]
    return found
"""
GREEDY = """
def plan(forward, inputs, saved, budget):
    def best(i, j, room):
        if sum(saved[i:j]) <= room or j - i == 1:
            return list(range(i, j))
        k = max(k for k in range(i + 1, j) if inputs[k] + max(
            saved[m] + inputs[m] * (m > k) for m in range(k, j)) <= room)
        return best(i, k, room), best(k, j, room - inputs[k])
    return best(0, len(forward), budget)
"""
HALVES = """
def plan(forward, inputs, saved, budget):
    def best(i, j, room):
        if sum(saved[i:j]) <= room or j - i == 1:
            return list(range(i, j))
        k = (i + j) // 2
        return best(i, k, room), best(k, j, room - inputs[k])
    return best(0, len(forward), budget)
"""
ELSEWHERE = """
KEPT = []

def light_forward(block, x):
    y, saved = block.forward(x)
    KEPT.append(saved)
    return y, x

def light_backward(block, dy, kept):
    return block.backward(dy, KEPT.pop())
"""
MEANS = "flat[ids == c].mean() if c in ids else values[c]"
PACKED = "ids[0::2] + 16 * ids[1::2]"
EVEN = "np.where(low % 2 == 0, low, high)"
SCALE = "e4m3(largest / 6 / t) * t"
BLOCKS = "    blocks = padded.reshape(*rows, -1, 16)"
ACROSS = f"    if x.ndim > 1:\n        return nvfp4(x.reshape(-1)).reshape(x.shape)\n{BLOCKS}"

MUTANTS = {
    "step_bytes": [
        ("no biases", "(a + 1) * b", "a * b"),
        ("biases of the input", "(a + 1) * b", "a * (b + 1)"),
        ("not the last layer", "zip(sizes, sizes[1:])", "zip(sizes, sizes[1:-1])"),
        ("numbers, not bytes", WEIGHTS, WEIGHTS.removeprefix("itemsize * ")),
        ("always 4 bytes", WEIGHTS, WEIGHTS.replace("itemsize", "4")),
        ("one array", "arrays * weights", "weights"),
        ("gradient counted as state", "arrays * weights", "(arrays + 1) * weights"),
        (
            "optimizer without biases",
            "arrays * weights",
            "arrays * itemsize * sum(a * b for a, b in zip(sizes, sizes[1:]))",
        ),
        ("a gradient for each sample", '"gradients": weights', '"gradients": batch * weights'),
        ("no gradients", '"gradients": weights', '"gradients": 0'),
        ("the batch twice", "sum(sizes[1:])\n", "sum(sizes)\n"),
        ("two arrays for each hidden layer", SAVED, "itemsize * batch * (2 * sum(sizes[1:]) - sizes[-1])"),
        ("no scores", SAVED, "itemsize * batch * sum(sizes[1:-1])"),
        ("one sample's", SAVED, "itemsize * sum(sizes[1:])"),
        ("inputs, not outputs", SAVED, "itemsize * batch * sum(sizes[:-1])"),
        ("saved numbers", SAVED, "batch * sum(sizes[1:])"),
        ("saved in 4 bytes", SAVED, "4 * batch * sum(sizes[1:])"),
        ("the largest alone", SAVED, "itemsize * batch * max(sizes[1:])"),
        ("no labels", BATCH, "batch * itemsize * sizes[0]"),
        ("labels like numbers", BATCH, "batch * itemsize * (sizes[0] + 1)"),
        ("one-hot labels", BATCH, "batch * (itemsize * sizes[0] + 8 * sizes[-1])"),
        ("inputs of 4 bytes", BATCH, "batch * (4 * sizes[0] + 8)"),
        ("inputs of 8 bytes", BATCH, "batch * 8 * (sizes[0] + 1)"),
        ("a sum", "    return held | ", "    return sum(held.values())\n    return held | "),
        ("no batch", '{"batch": batch * (itemsize * sizes[0] + 8), "saved": saved}', '{"saved": saved}'),
    ],
    "layer_bytes": [
        ("times 2", "return s * b * h * (", "return 2 * s * b * h * ("),
        ("halved", "return s * b * h * (", "return s * b * h / 2 * ("),
        ("one byte for the input", "return 2 * s * b * h\n", "return s * b * h\n"),
        ("full is nothing special", "    if full:\n        return 2 * s * b * h\n", ""),
        ("full over ranks", "return 2 * s * b * h\n", "return 2 * s * b * h / t\n"),
        (
            "full only with sequence parallelism over ranks",
            "return 2 * s * b * h\n",
            "return 2 * s * b * h / (t if sequence else 1)\n",
        ),
        ("scores whole on every rank", SCORES, "0 if selective else 5 * a * s / h"),
        ("34 whole", REST, "34"),
        ("24 not divided", REST, "34 / t if sequence else 10 / t + 24"),
        ("34 always divided", REST, "34 / t"),
        ("sequence parallelism without effect", REST, "10 + 24 / t"),
        ("nothing divided", "    rest =", "    t = 1\n    rest ="),
        ("scores kept", SCORES, "5 * a * s / (h * t)"),
        ("scores dropped always", SCORES, "0"),
        (
            "only scores when selective",
            "    return s * b * h * (rest + scores)",
            "    rest = 0 if selective else rest\n    return s * b * h * (rest + 5 * a * s / (h * t))",
        ),
        ("no s in the scores", SCORES, "0 if selective else 5 * a / (h * t)"),
        ("no a in the scores", SCORES, "0 if selective else 5 * s / (h * t)"),
        ("no h in the scores", SCORES, "0 if selective else 5 * a * s / t"),
        ("h over s", SCORES, "0 if selective else 5 * a * h / (s * t)"),
        ("no s b h", "return s * b * h * (", "return ("),
        ("no batch", "return s * b * h * (", "return s * h * ("),
    ],
    "light_forward": [
        ("keeps what was saved", FORWARD, "    return block.forward(x)"),
        ("keeps both", "return y, x", "return y, (x, saved)"),
        ("keeps the output", "return y, x", "return y, y"),
        ("swapped", "return y, x", "return x, y"),
        ("keeps a copy too", "return y, x", "return y, (x, x.copy())"),
        ("kept elsewhere", ELSEWHERE),
        ("backward twice", RUN_AGAIN, RUN_AGAIN.replace("return ", "") + "\n" + RUN_AGAIN),
        ("forward twice", RUN_AGAIN, "    block.forward(kept)\n" + RUN_AGAIN),
        ("returns the output", "    return block.backward(dy, saved)", "    block.backward(dy, saved)\n    return y"),
        ("returns dy", "    return block.backward(dy, saved)", "    block.backward(dy, saved)\n    return dy"),
        ("no return", "    return block.backward(dy, saved)", "    block.backward(dy, saved)"),
        ("no backward", "    return block.backward(dy, saved)", "    return dy"),
        ("runs dy forward", "block.forward(kept)", "block.forward(dy)"),
        ("float32 only", "return y, x", "return y, x.astype('float32')"),
        ("negative", "return block.backward(dy, saved)", "return block.backward(-dy, saved)"),
    ],
    "plan": [
        ("keeps everything", "    return best(0, len(forward), budget)[1]", "    return list(range(len(forward)))"),
        ("square root", ROOT),
        ("all again", ALL_AGAIN),
        ("the last cut that fits", GREEDY),
        ("halves", HALVES),
        ("the input is free", PARTS, "best(i, k, room), best(k, j, room)"),
        ("the input stays during the left part", PARTS, "best(i, k, room - inputs[k]), best(k, j, room - inputs[k])"),
        ("the input of the left part", PARTS, "best(i, k, room), best(k, j, room - inputs[i])"),
        ("left never cut", PARTS, f"({LIST['left']}), best(k, j, room - inputs[k])"),
        ("right never cut", PARTS, f"best(i, k, room), ({LIST['right']})"),
        ("fewest layers again", "sum(forward[i:k]) + a + b", "k - i + a + b"),
        ("the left part is not run again", "sum(forward[i:k]) + a + b", "a + b"),
        ("the right part is run again", "sum(forward[i:k]) + a + b", "sum(forward[k:j]) + a + b"),
        ("parts are free", "sum(forward[i:k]) + a + b", "sum(forward[i:k])"),
        ("left counted once", "sum(forward[i:k]) + a + b", "sum(forward[i:k]) + b"),
        ("bytes, not operations", "sum(forward[i:k])", "sum(saved[i:k])"),
        ("the most", "again < found[0]", "found[1] is None or again > found[0]"),
        ("the first cut that fits", "again < found[0]", "found[1] is None and again < found[0]"),
        ("right first", "found = again, (left, right)", "found = again, (right, left)"),
        ("one layer short", "range(i, j))", "range(i, j - 1))"),
        ("with its cost", "budget)[1]", "budget)"),
        ("only the cost", "budget)[1]", "budget)[0]"),
        ("the largest layer", FITS, "        if max(saved[i:j]) <= room:"),
        ("first input counted", FITS, "        if inputs[i] + sum(saved[i:j]) <= room:"),
    ],
    "cluster_16": [
        ("no rounds", "range(50)", "range(0)"),
        ("one round", "range(50)", "range(1)"),
        ("empty is NaN", MEANS, "flat[ids == c].mean()"),
        ("empty is 0", MEANS, "flat[ids == c].mean() if c in ids else 0"),
        ("quantiles first", "np.linspace(flat.min(), flat.max(), 16)", "np.quantile(flat, np.linspace(0, 1, 16))"),
        ("random first", "np.linspace(flat.min(), flat.max(), 16)", "np.random.default_rng(0).choice(flat, 16)"),
        (
            "from the largest size",
            "np.linspace(flat.min(), flat.max(), 16)",
            "np.linspace(-abs(flat).max(), abs(flat).max(), 16)",
        ),
        ("medians", MEANS, "np.median(flat[ids == c]) if c in ids else values[c]"),
        ("float64", "values.astype(w.dtype)", "values"),
        ("float32", "values.astype(w.dtype)", "values.astype('float32')"),
        ("a byte each", PACKED, "ids"),
        ("halves swapped", PACKED, "16 * ids[0::2] + ids[1::2]"),
        ("not neighbours", PACKED, "ids[: len(ids) // 2] + 16 * ids[len(ids) // 2 :]"),
        ("times 15", PACKED, "ids[0::2] + 15 * ids[1::2]"),
        ("int64", PACKED, "ids[0::2].astype(int) + 16 * ids[1::2]"),
        ("last one lost", "ids = np.append(ids, np.uint8(0))", "ids = ids[:-1]"),
        ("by columns", "astype(float).reshape(-1)", "astype(float).T.reshape(-1)"),
        (
            "ids of the round before",
            "    ids = abs(flat[:, None] - values).argmin(axis=1).astype(np.uint8)",
            "    ids = (15 - ids).astype(np.uint8)",
        ),
        (
            "farthest",
            "    ids = abs(flat[:, None] - values).argmin(axis=1).astype",
            "    ids = abs(flat[:, None] - values).argmax(axis=1).astype",
        ),
        (
            "swapped results",
            "return values.astype(w.dtype), " + PACKED,
            "return " + PACKED + ", values.astype(w.dtype)",
        ),
        ("values alone", ", " + PACKED, ""),
        ("8 values", "return values.astype(w.dtype),", "return values[:8].astype(w.dtype),"),
    ],
    "nvfp4": [
        ("ties down", EVEN, "low"),
        ("ties up", EVEN, "high"),
        ("ties to odd", "low % 2 == 0", "low % 2 == 1"),
        ("scales not rounded", SCALE, "largest / 6"),
        ("no t", SCALE, "e4m3(largest / 6)"),
        ("not times t", SCALE, "e4m3(largest / 6 / t)"),
        ("one scale", SCALE, "e4m3(largest.max() / 6 / t) * t * np.ones_like(largest)"),
        (
            "t for each block",
            "largest.max() / (448 * 6)) or np.float32(1)",
            "1) * np.maximum(largest / np.float32(2688), np.float32(1e-38))",
        ),
        ("t without 448", "(448 * 6)", "6"),
        ("t without 6", "(448 * 6)", "448"),
        ("not divided by 6", SCALE, "e4m3(largest / t) * t"),
        ("divided by 8", "largest / 6 / t", "largest / 8 / t"),
        ("in units", "low, high)] * s", "low, high)]"),
        ("no sign", "np.sign(blocks) * ", ""),
        ("powers of two", SCALE, "2.0 ** np.floor(np.log2(np.maximum(largest, 1e-30)) - 2)"),
        ("blocks of 32", BLOCKS, BLOCKS.replace("16", "32")),
        ("NaN for an array of zeros", " or np.float32(1)", ""),
        ("not cut off", "[..., :n]", ""),
        ("blocks go on in the next row", BLOCKS, ACROSS),
        ("float64", "return y.reshape", "y = y.astype(float)\n    return y.reshape"),
        ("to the nearest below", EVEN, "np.searchsorted(GRID, size, 'right') - 1"),
        ("no largest size", "abs(blocks).max", "blocks.max"),
        ("rounds x, not x / s", "size = abs(blocks) / np.where(s == 0, 1, s)", "size = abs(blocks)"),
    ],
}
