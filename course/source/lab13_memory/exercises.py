"""The exercises of lab 13: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

WEIGHTS = "itemsize * sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))"
SAVED = "itemsize * batch * sum(sizes[1:])"
BATCH = "batch * (itemsize * sizes[0] + 8)"

EXERCISES["step_bytes"] = Exercise(
    cases=[
        {"sizes": [7, 5, 3], "batch": 6, "arrays": 2},
        {"sizes": [20, 31, 9, 4], "batch": 11, "arrays": 1, "itemsize": 8},
        {"sizes": [13, 5], "batch": 4, "arrays": 0},  # no hidden layer
        {"sizes": [11, 6, 17, 23, 8], "batch": 29, "arrays": 2, "itemsize": 2},
    ],
    draw=lambda rng: {
        "sizes": [*rng.integers(3, 40, int(rng.integers(1, 6))).tolist(), int(rng.integers(2, 12))],
        "batch": rng.integers(2, 30),
        "arrays": rng.integers(3),
        "itemsize": int(rng.choice([2, 4, 8])),
    },
    mistakes={
        "a bias for each output of a layer: the input has none": (
            f"{WEIGHTS}  ->  itemsize * (sum(a * b for a, b in zip(sizes, sizes[1:])) + sum(sizes))"
        ),
        "a layer has d_out biases, not d_in + d_out": "(a + 1) * b  ->  a * b + a + b",
        "the last layer has biases, too": f"{WEIGHTS}  ->  {WEIGHTS} - itemsize * sizes[-1]",
        "parameters' gradients alone, not those of activations": (
            '"gradients": weights  ->  "gradients": weights + saved'
        ),
        "a ReLU's output says where it let values through: no mask": (
            f"{SAVED}  ->  {SAVED} + batch * sum(sizes[1:-1])"
        ),
        "the inputs of the batch have sizes[0] numbers each": f"{BATCH}  ->  batch * (itemsize * sizes[-1] + 8)",
        "outputs are saved once each; the input is the batch": (
            f"{SAVED}  ->  itemsize * batch * (sum(sizes[:-1]) + sum(sizes[1:-1]))"
        ),
        "an optimizer's arrays are as large as the parameters": [
            "arrays * weights  ->  arrays * itemsize",
            "arrays * weights  ->  arrays * batch * weights",
        ],
        "one label of 8 bytes, not a number for each class": (
            f"{BATCH}  ->  batch * itemsize * (sizes[0] + sizes[-1])"
        ),
        "a label is an int64, 64 bits: 8 bytes": [
            f"{BATCH}  ->  batch * (itemsize * sizes[0] + {n})" for n in (1, 4, 64)
        ],
        "weights of layers add up: d_in times d_out each": (f"{WEIGHTS}  ->  itemsize * int(np.prod(sizes))"),
        "parameters are in bytes already: not times 4 again": "arrays * weights  ->  arrays * 4 * weights",
        "each output is saved once, not twice": f"{SAVED}  ->  2 * {SAVED}",
        "each layer has a bias for every output, too": "(a + 1) * b  ->  a * b",
        "a layer has d_out biases, not d_in": "(a + 1) * b  ->  a * (b + 1)",
        "a layer has d_out biases, not one": "(a + 1) * b  ->  (a * b + 1)",
        "the last layer has parameters, too": "zip(sizes, sizes[1:])  ->  zip(sizes, sizes[1:-1])",
        "parameters are numbers so far: times itemsize bytes": f"{WEIGHTS}  ->  {WEIGHTS[11:]}",
        "a parameter has itemsize bytes, not always 4": f"{WEIGHTS}  ->  4 * {WEIGHTS[11:]}",
        "the optimizer keeps `arrays` numbers for each parameter": [
            f"arrays * weights  ->  {n}weights" for n in ("", "2 * ")
        ],
        "`arrays` numbers for each parameter, without weight and gradient": (
            "arrays * weights  ->  (arrays + 1) * weights"
        ),
        "the optimizer keeps numbers for the biases, too": (
            f"arrays * weights  ->  arrays * {WEIGHTS.replace('(a + 1)', 'a')}"
        ),
        "the optimizer's numbers have itemsize bytes, too": (f"arrays * weights  ->  arrays * {WEIGHTS[11:]}"),
        "a parameter has one gradient, whatever the batch": ('"gradients": weights  ->  "gradients": batch * weights'),
        "each parameter has a gradient": '"gradients": weights  ->  "gradients": 0',
        "the first layer's input is the batch, counted already": (f"{SAVED}  ->  itemsize * batch * sum(sizes)"),
        "a ReLU's output is the next layer's input: one array, not two": (
            f"{SAVED}  ->  itemsize * batch * (2 * sum(sizes[1:]) - sizes[-1])"
        ),
        "the scores are held, too: count them": (f"{SAVED}  ->  itemsize * batch * sum(sizes[1:-1])"),
        "every sample saves its own: times the batch": f"{SAVED}  ->  itemsize * sum(sizes[1:])",
        "what is saved are outputs, not inputs": f"{SAVED}  ->  itemsize * batch * sum(sizes[:-1])",
        "what is saved are numbers so far: times itemsize bytes": f"{SAVED}  ->  {SAVED[11:]}",
        "saved numbers have itemsize bytes, not always 4": (f"{SAVED}  ->  4 * {SAVED[11:]}"),
        "all layers' are kept until backward, not only one layer's": [
            f"{SAVED}  ->  itemsize * batch * {one}" for one in ("max(sizes[1:])", "sizes[1]", "sizes[-1]")
        ],
        "the labels are missing: 8 bytes for each sample": f"{BATCH}  ->  batch * itemsize * sizes[0]",
        "a label has 8 bytes, whatever itemsize is": f"{BATCH}  ->  batch * itemsize * (sizes[0] + 1)",
        "one label for each sample, not for each class": (
            f"{BATCH}  ->  batch * (itemsize * sizes[0] + 8 * sizes[-1])"
        ),
        "one label for each sample, not for the batch": f"{BATCH}  ->  batch * itemsize * sizes[0] + 8",
        "inputs have itemsize bytes a number, not always 4": (f"{BATCH}  ->  batch * (4 * sizes[0] + 8)"),
        "only the labels have 8 bytes": f"{BATCH}  ->  batch * 8 * (sizes[0] + 1)",
        "the inputs are missing: itemsize bytes a number": f"{BATCH}  ->  batch * 8",
        "itemsize is an argument, not always 4": "    weights =  ->      itemsize = 4\n    weights =",
        "bytes are whole numbers: no division, no float": f"{SAVED}  ->  itemsize / 1 * {SAVED[11:]}",
        "a dict of bytes by owner, not their sum": "return held |  ->  return sum(held.values()) or ",
        "five owners: with the batch": f'"batch": {BATCH},   ->  ',
        "did you forget `return`?": "return held |  ->  held |",
    },
)

REST = "34 / t if sequence else 10 + 24 / t"
SCORES = "0 if selective else 5 * a * s / (h * t)"
ALL = "return s * b * h * (rest + scores)"

EXERCISES["layer_bytes"] = Exercise(
    cases=[
        {"s": 131, "b": 3, "h": 102, "a": 6},
        {"s": 100, "b": 7, "h": 117, "a": 9, "t": 4},
        {"s": 300, "b": 5, "h": 253, "a": 11, "t": 3, "sequence": True},
        {"s": 310, "b": 3, "h": 182, "a": 14, "t": 5, "selective": True},
        {"s": 73, "b": 11, "h": 247, "a": 19, "t": 6, "sequence": True, "selective": True},
        {"s": 300, "b": 7, "h": 253, "a": 11, "t": 4, "full": True},
        {"s": 210, "b": 3, "h": 299, "a": 13, "t": 5, "full": True, "sequence": True},
        {"s": 97, "b": 5, "h": 119, "a": 7, "t": 3, "full": True, "selective": True},
    ],
    draw=lambda rng: {
        "s": rng.integers(5, 400),
        "b": rng.integers(3, 60),
        "h": int(rng.integers(11, 40)) * (a := int(rng.integers(3, 30))),
        "a": a,
        "t": rng.integers(2, 9),
        "sequence": rng.random() < 0.5,
        "selective": rng.random() < 0.5,
        "full": rng.random() < 0.25,
    },
    draws=10,
    mistakes={
        "2 + 2 + 4 + 1 + 1 = 10 stay whole: four inputs and two masks": [
            f"{REST}  ->  34 / t if sequence else {n} + {34 - n} / t" for n in (6, 9, 11, 12, 14, 15)
        ],
        "24 of the 34 are divided by t, and not dropped": f"{REST}  ->  34 / t if sequence else 10",
        "sequence parallelism divides the 10 by t, not drops them": (
            f"{REST}  ->  24 / t if sequence else 10 + 24 / t"
        ),
        "full recomputation keeps the layer's input alone, and no attention term": (
            "return 2.0 * s * b * h\n  ->  return 2.0 * s * b * h + 5 * a * s**2 * b / t\n"
        ),
        "sequence parallelism divides the 10 alone: the rest is divided already": (
            f"{ALL}  ->  return s * b * h * (10 + 24 / t + scores) / (t if sequence else 1)"
        ),
        "full recomputation keeps 2 s b h, not 34 / t": "return 2.0 * s * b * h\n  ->  return 34 * s * b * h / t\n",
        "selective recomputation drops all of the attention term, not a part": [
            f"{SCORES}  ->  (1 if selective else 5) * a * s / (h * t)",
            f"{SCORES}  ->  5 * a * s / (h * t) / (2 if selective else 1)",
            f"{SCORES}  ->  (2 if selective else 5) * a * s / (h * t)",
        ],
        "the attention term is 5 a s^2 b: times b": (
            f"{ALL}  ->  return s * b * h * rest + (0 if selective else 5 * a * s**2 / t)"
        ),
        "full recomputation keeps one input: s b h numbers of 2 bytes": [
            "return 2.0 * s * b * h\n  ->  return 16 * s * b * h\n",
            "return 2.0 * s * b * h\n  ->  return 4 * s * b * h\n",
        ],
        "two masks of one byte stay whole, too": "10 + 24 / t  ->  8 + 26 / t",
        "selective recomputation drops no part of the 34": ("0 if selective  ->  -11 / t if selective"),
        "the attention term is 5 a s / h: divide by h": "5 * a * s / (h * t)  ->  5 * a * s * h / t",
        "the formula gives bytes already: not times 2": f"{ALL}  ->  {ALL.replace('return', 'return 2 *')}",
        "the formula gives bytes, not numbers of 2 bytes: do not halve it": f"{ALL}  ->  {ALL} / 2",
        "full recomputation keeps the layer's input, 2 bytes a number": (
            "return 2.0 * s * b * h\n  ->  return s * b * h\n"
        ),
        "full recomputation keeps the layer's input alone": ("    if full:\n        return 2.0 * s * b * h\n  ->  "),
        "full recomputation keeps something: the layer's input": ("return 2.0 * s * b * h\n  ->  return 0\n"),
        "full recomputation keeps the whole input: not divided by t": [
            "return 2.0 * s * b * h\n  ->  return 2.0 * s * b * h / t\n",
            "return 2.0 * s * b * h\n  ->  return 2.0 * s * b * h / (t if sequence else 1)\n",
        ],
        "ranks share the heads: the attention term is divided by t": (
            f"{SCORES}  ->  0 if selective else 5 * a * s / h"
        ),
        "`/ h * t` multiplies by t": (f"{SCORES}  ->  0 if selective else 5 * a * s / h * t"),
        "24 of the 34 are divided by t, and 10 are not": [
            f"{REST}  ->  34",
            f"{REST}  ->  10 / t + 24 if sequence else 34",
        ],
        "with sequence parallelism the 10 are divided by t, too": [
            f"{REST}  ->  10 + 24 / t",
            f"{REST}  ->  10 / t + 24 if sequence else 10 + 24 / t",
        ],
        "without sequence parallelism the 10 stay whole": f"{REST}  ->  34 / t",
        "without sequence parallelism the 24, not the 10, are divided by t": (
            f"{REST}  ->  34 / t if sequence else 10 / t + 24"
        ),
        "without sequence parallelism 24 are divided by t": f"{REST}  ->  34 / t if sequence else 34",
        "divide what ranks share by t": "    rest =  ->      t = 1\n    rest =",
        "selective recomputation drops the attention term, 5 a s / h": (f"{SCORES}  ->  5 * a * s / (h * t)"),
        "selective recomputation drops the attention term, and keeps the rest": (
            f"{ALL}  ->  rest = 0 if selective else rest\n    return s * b * h * (rest + 5 * a * s / (h * t))"
        ),
        "the attention term is dropped only if recomputation is selective": (
            f"{SCORES}  ->  5 * a * s / (h * t) if selective else 0"
        ),
        "the attention term is kept, unless recomputation is selective": f"{SCORES}  ->  0",
        "5 a s / h grows with s": f"{SCORES}  ->  0 if selective else 5 * a / (h * t)",
        "5 a s / h grows with a": f"{SCORES}  ->  0 if selective else 5 * s / (h * t)",
        "5 a s / h falls with h": (f"{SCORES}  ->  0 if selective else 5 * a * s / t"),
        "5 a s / h, not 5 a h / s": f"{SCORES}  ->  0 if selective else 5 * a * h / (s * t)",
        "the attention term is in the bracket: times s b h": (f"{ALL}  ->  return s * b * h * rest + scores"),
        "/ divides, // leaves the remainder out": [
            f"{SCORES}  ->  0 if selective else 5 * a * s // (h * t)",
            f"{SCORES}  ->  0 if selective else 5 * a * s // h / t",
            f"{REST}  ->  34 // t if sequence else 10 + 24 // t",
        ],
        "a fraction as it is: no int(), no rounding": (f"{ALL}  ->  return int(s * b * h * (rest + scores))"),
        "times s b h": f"{ALL}  ->  return rest + scores",
        "times b, too": f"{ALL}  ->  return s * h * (rest + scores)",
        "times s, too": f"{ALL}  ->  return b * h * (rest + scores)",
        "times h, too": f"{ALL}  ->  return s * b * (rest + scores)",
        "did you forget `return`?": f"{ALL}  ->  s * b * h * (rest + scores)",
    },
    may_pass={"rounded to three digits": "a thousandth of a byte"},
)

RUN = "    y, saved = block.forward(x)\n    return y, x"
AGAIN = "    y, saved = block.forward(kept)\n    return block.backward(dy, saved)"
BACK = "return block.backward(dy, saved)"
GLOBAL = "KEPT = []\ndef light_forward  ->  "

EXERCISES["light_forward"] = Exercise(
    answers=("light_forward", "light_backward"),
    cases=rows(
        "sizes n dtype seed", ([5, 7, 3], 4, "float64"), ([6, 9, 8, 6], 5, "float32", 1), ([4, 11], 7, "float64", 2)
    ),
    draw=lambda rng: {
        "sizes": rng.integers(3, 12, int(rng.integers(2, 6))).tolist(),
        "n": rng.integers(2, 9),
        "dtype": rng.choice(["float32", "float64"]),
        "seed": rng.integers(1000),
    },
    draws=4,
    at_most=("bytes kept of batch 0", "bytes kept of batch 1", "bytes kept of batch 2"),
    mistakes={
        "the backward pass takes dy, not the output": f"{BACK}  ->  return block.backward(y, saved)",
        "keep the block's input alone, not what it saved": [
            (f"{RUN}  ->      return block.forward(x)", f"{AGAIN}  ->      return block.backward(dy, kept)"),
        ],
        "keep the block's input, which light_backward gives to forward": [
            "return y, x  ->  return y, saved",
            "return y, x  ->  return y, (x, saved)",
        ],
        "keep the block's input, and nothing else": [
            (
                f"{RUN}  ->      y, saved = block.forward(x)\n    return y, (x, saved)",
                "forward(kept)  ->  forward(kept[0])",
            ),
            (
                f"{RUN}  ->      y, saved = block.forward(x)\n    return y, [x, y]",
                "forward(kept)  ->  forward(kept[0])",
            ),
            ("return y, x  ->  return y, (x, x.copy())", "forward(kept)  ->  forward(kept[0])"),
        ],
        "the input is kept, not the output": "return y, x  ->  return y, y",
        "the output comes first: return y, kept": "return y, x  ->  return x, y",
        "return the output as well: y, kept": "return y, x  ->  return x",
        "the block did not run again: keep nothing elsewhere": (
            "SAVED = []\n\n"
            "def light_forward(block, x):\n    y, saved = block.forward(x)\n"
            "    SAVED.append((x, saved))\n    return y, x\n\n"
            "def light_backward(block, dy, kept):\n"
            "    return block.backward(dy, next(saved for x, saved in SAVED[::-1] if x is kept))\n"
        ),
        "several batches are under way: keep nothing on the block or outside": [
            ("return y, x  ->  block.x = x\n    return y, None", "forward(kept)  ->  forward(block.x)"),
            (
                "def light_forward  ->  LAST = {}\ndef light_forward",
                "return y, x  ->  LAST['x'] = x\n    return y, None",
                "forward(kept)  ->  forward(LAST['x'])",
            ),
        ],
        "batches come back in any order: return what is kept": [
            (
                "def light_forward  ->  STACK = []\ndef light_forward",
                "return y, x  ->  STACK.append(x)\n    return y, None",
                "forward(kept)  ->  forward(STACK.pop())",
            ),
        ],
        "what is saved serves one backward pass: forward again, backward once": [
            f"    {BACK}  ->      block.backward(dy, saved)\n    {BACK}",
            (
                "def light_forward  ->  LAST = {}\ndef light_forward",
                "return y, x  ->  LAST['saved'] = saved\n    return y, x",
                f"{AGAIN}  ->      return block.backward(dy, LAST['saved'])",
            ),
        ],
        "`block.forward` returns a pair: the output, and what it saved": [
            f"{RUN}  ->      y = block.forward(x)\n    return y, x",
            "    y, saved = block.forward(kept)  ->      saved = block.forward(kept)",
        ],
        "the block's output comes first, not its input": "return y, x  ->  return x, x",
        "the backward pass runs in light_backward, with dy": (
            f"{RUN}  ->      y, saved = block.forward(x)\n    return y, block.backward(y, saved)",
            f"{AGAIN}  ->      return kept",
        ),
        "one forward pass in each function is enough": [
            f"{AGAIN}  ->      block.forward(kept)\n{AGAIN}",
            f"{RUN}  ->      block.forward(x)\n{RUN}",
        ],
        "return what block.backward returns, not the output": (
            f"    {BACK}  ->      block.backward(dy, saved)\n    return y"
        ),
        "return what block.backward returns, not dy": (f"    {BACK}  ->      block.backward(dy, saved)\n    return dy"),
        "the gradients of the block are missing: run its backward pass": f"    {BACK}  ->      return dy",
        "forward again on the input that was kept, not on dy": "block.forward(kept)  ->  block.forward(dy)",
        "`block.backward` wants what the forward pass has saved, not its input": (
            f"{AGAIN}  ->      return block.backward(dy, kept)"
        ),
        "keep the input as it is, in its dtype": "return y, x  ->  return y, x.astype('float32')",
        "dy goes into the backward pass as it is": f"{BACK}  ->  return block.backward(-dy, saved)",
        "`light_forward`: did you forget `return`?": "    return y, x  ->      y, x",
        "`light_backward`: did you forget `return`?": f"    {BACK}  ->      block.backward(dy, saved)",
    },
)


TOUR = {"forward": [6, 2, 9, 4, 3], "inputs": [0, 5, 2, 4, 3], "saved": [5, 2, 4, 3, 1]}
FITS = "        if sum(saved[i:j]) <= room:"
PARTS = "best(i, k, room), best(k, j, room - inputs[k])"
COST = "sum(forward[i:k]) + a + b"
END = "return best(0, len(forward), budget)[1]"
FOUND = "found = again, (left, right)"


def listed(i, j, room):
    """The text of a part that is a list, or nothing."""
    return f"(0, list(range({i}, {j}))) if sum(saved[{i}:{j}]) <= {room} else (float('inf'), None)"


EXERCISES["plan"] = Exercise(
    cases=[
        TOUR | {"budget": 15},
        TOUR | {"budget": 10},
        TOUR | {"budget": 7},
        {"layers": 3, "room": 0, "seed": 1},
        {"layers": 8, "room": 0.15, "seed": 10},
        {"layers": 8, "room": 0.4, "seed": 12},
        {"layers": 11, "room": 0, "seed": 23},
        {"layers": 11, "room": 0.3, "seed": 16},
        {"layers": 12, "room": 0.15, "seed": 8},
        {"layers": 9, "room": 1, "seed": 6},
        {"layers": 7, "room": 0.1, "size": 1e6, "seed": 3},
    ],
    draw=lambda rng: {
        "layers": int(rng.choice([1, 7, 9, 10, 11, 12])),
        "room": float(rng.choice([0, 0.1, 0.3, 1])),
        "size": float(rng.choice([1, 1e6])),
        "seed": rng.integers(10**6),
    },
    draws=8,
    at_most=("operations done again",),
    mistakes={
        "try every cut, not only the middle": "range(i + 1, j):  ->  [(i + j) // 2][: j - i - 1]:",
        "i < k < j: else one part is the whole again": [
            "range(i + 1, j):  ->  range(i, j):",
            "range(i + 1, j):  ->  range(i + 1, j + 1):",
            "range(i + 1, j):  ->  range(i, j + 1):",
        ],
        "where nothing fits there is a pair as well: infinity, None": [
            'float("inf"), None  ->  None',
            ('float("inf"), None  ->  None', "if again < found[0]:  ->  if found is None or again < found[0]:"),
        ],
        "the next chain has other answers: keep them inside `plan`": [
            (
                "from functools import cache  ->  KNOWN = {}",
                "    @cache\n    def best(i, j, room):  ->  "
                "    def best(i, j, room):\n"
                "        if (i, j, room) not in KNOWN:\n"
                "            KNOWN[i, j, room] = search(i, j, room)\n"
                "        return KNOWN[i, j, room]\n\n"
                "    def search(i, j, room):",
            ),
            (
                "from functools import cache  ->  KNOWN = {}",
                "    @cache\n  ->  ",
                "        found = float  ->  "
                "        if (i, j, room) in KNOWN:\n            return KNOWN[i, j, room]\n        found = float",
                "        return found  ->          KNOWN[i, j, room] = found\n        return found",
            ),
            (
                "from functools import cache  ->  KNOWN = {}",
                "    @cache\n  ->  ",
                f"{FITS}  ->          if (i, j, room) in KNOWN:\n            return KNOWN[i, j, room]\n{FITS}",
                "        return found  ->          KNOWN[i, j, room] = found\n        return found",
            ),
        ],
        "any peak that fits is as good: do the least again": (
            """def plan(forward, inputs, saved, budget):
    def best(i, j):
        found = sum(saved[i:j]), list(range(i, j))
        for k in range(i + 1, j):
            (a, left), (b, right) = best(i, k), best(k, j)
            peak = max(a, inputs[k] + b)
            if peak < found[0]:
                found = peak, (left, right)
        return found
    return best(0, len(forward))[1]
"""
        ),
        "a list takes bytes, not operations": (f"{FITS}  ->          if sum(forward[i:j]) <= room:"),
        "count layers from the chain's first, not the part's": "list(range(i, j))  ->  list(range(j - i))",
        "the left part alone is run again: layers i to k - 1": f"{COST}  ->  sum(forward[i:j]) + a + b",
        "a single layer must fit into its room, too": f"{FITS}  ->          if j - i == 1 or sum(saved[i:j]) <= room:",
        "what the parts do again adds up: a + b, not the larger": f"{COST}  ->  sum(forward[i:k]) + max(a, b)",
        "compare operations, sum(forward[i:k]), not the bytes of an input": f"{COST}  ->  inputs[k] + a + b",
        "parts of equal length are not the best: try every cut": [
            """def plan(forward, inputs, saved, budget):
    n = len(forward)
    size = max(1, round(n**0.5))
    parts = [list(range(i, min(n, i + size))) for i in range(0, n, size)]
    found = parts[-1]
    for part in parts[-2::-1]:
        found = part, found
    return found
""",
            """def plan(forward, inputs, saved, budget):
    def best(i, j, room):
        if sum(saved[i:j]) <= room or j - i == 1:
            return list(range(i, j))
        k = (i + j) // 2
        return best(i, k, room), best(k, j, room - inputs[k])
    return best(0, len(forward), budget)
""",
        ],
        "what fits is kept: a list of several layers costs nothing again": """def plan(forward, inputs, saved, budget):
    found = [0]
    for i in range(1, len(forward)):
        found = found, [i]
    return found
""",
        "this is the first cut that fits: take the cheapest, with sum(forward[i:k])": [
            "again < found[0]  ->  found[1] is None and again < found[0]",
            f"{COST}  ->  a + b",
        ],
        "the cheapest cut, not the last that fits or the one that does most": [
            "again < found[0]  ->  again < float('inf')",
            "again < found[0]  ->  again < float('inf') and (found[1] is None or again > found[0])",
        ],
        "the cheapest, to the operation": "again < found[0]  ->  again < 0.95 * found[0]",
        "the right part's input takes inputs[k] of its room": (f"{PARTS}  ->  best(i, k, room), best(k, j, room)"),
        "the left part runs last: it has the whole room": [
            f"{PARTS}  ->  best(i, k, room - inputs[{x}]), best(k, j, room - inputs[k])" for x in "ki"
        ],
        "what takes room is the input of the right part, inputs[k]": [
            f"{PARTS}  ->  best(i, k, room), best(k, j, room - inputs[i])",
            f"{PARTS}  ->  best(i, k, room), best(k, j, room - inputs[k - 1])",
            (f"{PARTS}  ->  best(i, k, room), best(k, j, room - (inputs + [0])[k + 1])"),
        ],
        "a left part can be cut again": (f"{PARTS}  ->  ({listed('i', 'k', 'room')}), best(k, j, room - inputs[k])"),
        "a right part can be cut again": (f"{PARTS}  ->  best(i, k, room), ({listed('k', 'j', 'room - inputs[k]')})"),
        "compare operations, sum(forward[i:k]), not numbers of layers": f"{COST}  ->  k - i + a + b",
        "compare operations, sum(forward[i:k]), not bytes": f"{COST}  ->  sum(saved[i:k]) + a + b",
        "the left part is run again, not the right part": f"{COST}  ->  sum(forward[k:j]) + a + b",
        "what both parts do again counts, too": f"{COST}  ->  sum(forward[i:k])",
        "what the left part does again counts, too": f"{COST}  ->  sum(forward[i:k]) + b",
        "what the right part does again counts, too": f"{COST}  ->  sum(forward[i:k]) + a",
        "(left, right): the left part first": f"{FOUND}  ->  found = again, (right, left)",
        "a list has all layers from i to j - 1": [
            "list(range(i, j))  ->  list(range(i, j - 1))",
            "list(range(i, j))  ->  list(range(i, j + 1))",
            "list(range(i, j))  ->  list(range(i + 1, j + 1))",
        ],
        "kept layers are a list, not a range or a tuple": [
            "list(range(i, j))  ->  range(i, j)",
            "list(range(i, j))  ->  tuple(range(i, j))",
        ],
        "return the plan, not its cost": f"{END}  ->  {END[:-3]}[0]",
        "return the plan, without its cost": f"{END}  ->  {END[:-3]}",
        "a list keeps what all its layers save: if that does not fit, cut": [
            f"{END}  ->  return list(range(len(forward)))",
            f"{FITS}  ->          if max(saved[i:j]) <= room:",
        ],
        "a list takes what its layers save: its input is counted at the cut": (
            f"{FITS}  ->          if inputs[i] + sum(saved[i:j]) <= room:"
        ),
        "a list takes what its layers save, not their inputs": (f"{FITS}  ->          if sum(inputs[i:j]) <= room:"),
        "layers i to j - 1 are a part: one more is counted": (f"{FITS}  ->          if sum(saved[i : j + 1]) <= room:"),
        "what takes all of the room fits, too: <=": [
            f"{FITS}  ->          if sum(saved[i:j]) < room:",
        ],
        "try every cut, also the last, k = j - 1": "range(i + 1, j):  ->  range(i + 1, j - 1):",
        "try every cut, also the first, k = i + 1": "range(i + 1, j):  ->  range(i + 2, j):",
        "the answer depends on the room, too: one for each (i, j, room)": (
            "    @cache\n    def best(i, j, room):  ->  "
            "    known = {}\n"
            "    def best(i, j, room):\n"
            "        if (i, j) not in known:\n"
            "            known[i, j] = search(i, j, room)\n"
            "        return known[i, j]\n\n"
            "    def search(i, j, room):"
        ),
        "a part without a plan costs infinity": ('float("inf"), None  ->  10**6, None'),
        "a part has no plan: one without costs infinity, and a left part has all the room": [
            'float("inf"), None\n  ->  0, None\n        if j - i == 1:\n            return found\n',
            f"{PARTS}  ->  best(i, k, room - sum(saved[k:j])), best(k, j, room - inputs[k])",
        ],
        "a list may be as long as fits": (f"{FITS}  ->          if sum(saved[i:j]) <= room and j - i <= 6:"),
        "did you forget `return`?": f"    {END}  ->      {END[7:]}",
    },
    may_pass={
        "if inputs[k] <= room:": "a part with less than no room has no plan either",
        "again <= found[0]": "as good",
        "len(inputs)": "as many",
        "len(saved)": "as many",
    },
)

NEAREST = "        ids = abs(flat[:, None] - values).argmin(axis=1)\n"
START = "np.linspace(flat.min(), flat.max(), 16)"
MEANS = "flat[ids == c].mean() if c in ids else values[c]"
PACKED = "ids[0::2] + 16 * ids[1::2]"
LAST = "    ids = abs(flat[:, None] - values).argmin(axis=1).astype(np.uint8)"

EXERCISES["cluster_16"] = Exercise(
    cases=[
        {"shape": [9, 7], "dtype": "float32"},
        {"shape": [33, 37], "seed": 22},  # values move for 68 rounds
        {"shape": [62], "first": [40.0, 41.0], "seed": 2},  # values without weights
        {"shape": [3, 5, 7], "scale": 0.01, "first": [-0.3], "seed": 3},
    ],
    draw=lambda rng: {
        "shape": [[3, 5, 7], [19, 31], [401], [33, 37]][rng.integers(4)],
        "dtype": rng.choice(["float32", "float64"]),
        "scale": rng.uniform(0.1, 9),
        "first": [[], [-70.0, -90.0], [55.0]][rng.integers(3)],
        "seed": rng.integers(1000),
    },
    mistakes={
        "all ids first, then all means": (
            "        values = np.array([flat[ids == c].mean() if c in ids else values[c] for c in range(16)])"
            "  ->          for c in range(16):\n"
            "            ids = abs(flat[:, None] - values).argmin(axis=1)\n"
            "            values[c] = flat[ids == c].mean() if c in ids else values[c]"
        ),
        "16 values from the smallest to the largest weight, not 15": (
            f"{START}  ->  np.linspace(flat.min(), flat.max(), 15)",
            "for c in range(16)  ->  for c in range(15)",
        ),
        "begin with the smallest to the largest weight, not around the mean": (
            f"{START}  ->  flat.mean() + flat.std() * np.linspace(-2, 2, 16)"
        ),
        "an id has four bits: shift the second by 4": f"{PACKED}  ->  ids[0::2] | ids[1::2] << 3",
        "from the smallest to the largest there are 15 gaps: divide by 15": (
            "np.linspace(flat.min(), flat.max(), 16)  ->  flat.min() + (flat.max() - flat.min()) * np.arange(16) / 16"
        ),
        "these are the first 16 values: move each to its weights' mean": ("range(50)  ->  range(0)"),
        "go on until nothing moves, or for 50 rounds: this stopped too soon": [
            *(f"range(50)  ->  range({n})" for n in (1, 2, 3, 5, 10, 20, 25, 30, 40, 49)),
            *(
                (
                    "        values = np.array(  ->          old = values\n        values = np.array(",
                    "for c in range(16)])  ->  for c in range(16)])\n"
                    f"        if np.allclose(old, values, {tolerance}):\n            break",
                )
                for tolerance in ("rtol=1e-2", "atol=1e-2")
            ),
            (
                "        values = np.array(  ->          new = np.array(",
                "for c in range(16)])  ->  for c in range(16)])\n"
                "        if np.allclose(new, values, rtol=1e-2):\n            break\n        values = new",
            ),
        ],
        "a value without weights stays: the mean of nothing is NaN": (
            f"{MEANS}  ->  flat[ids == c].sum() / (ids == c).sum()"
        ),
        "a value without weights stays: not at 0, nor at the mean of all": [
            f"{MEANS}  ->  flat[ids == c].mean() if c in ids else {other}" for other in ("0", "flat.mean()")
        ],
        "begin with evenly spread values, not quantiles": (f"{START}  ->  np.quantile(flat, np.linspace(0, 1, 16))"),
        "begin with evenly spread values, not with some weights": [
            f"{START}  ->  np.random.default_rng(0).choice(flat, 16)",
            f"{START}  ->  flat[:16].copy()",
        ],
        "begin from the smallest weight, not minus the largest": (
            f"{START}  ->  np.linspace(-abs(flat).max(), abs(flat).max(), 16)"
        ),
        "begin with both ends, the smallest and the largest weight": [
            f"{START}  ->  np.linspace(flat.min(), flat.max(), 18)[1:-1]",
            f"{START}  ->  np.linspace(0, flat.max(), 16)",
            f"{START}  ->  np.linspace(-1, 1, 16)",
            f"{START}  ->  np.linspace(0, 1, 16)",
        ],
        "the mean of its weights, not their median or mid-range": [
            f"{MEANS}  ->  np.median(flat[ids == c]) if c in ids else values[c]",
            f"{MEANS}  ->  (flat[ids == c].min() + flat[ids == c].max()) / 2 if c in ids else values[c]",
        ],
        "the mean of its own weights: divide by their number": (
            f"{MEANS}  ->  flat[ids == c].sum() / len(flat) if c in ids else values[c]"
        ),
        "at most 50 rounds, even if values still move": [f"range(50)  ->  range({n})" for n in (51, 100, 1000)],
        "a weight belongs to the nearest value, not the next above": (
            f"{NEAREST}  ->          ids = np.minimum(np.searchsorted(values, flat), 15)\n",
            f"{LAST}  ->      ids = np.minimum(np.searchsorted(values, flat), 15).astype(np.uint8)",
        ),
        "argmin over the values: axis=1 of weights by values": (
            f"{NEAREST}  ->          ids = abs(flat[:, None] - values).argmin(axis=0)\n"
        ),
        "weights keep their order: not sorted": "w.astype(float).reshape(-1)  ->  np.sort(w.astype(float).reshape(-1))",
        "the values in the dtype of w": [
            "values.astype(w.dtype)  ->  values",
            "values.astype(w.dtype)  ->  values.astype('float32')",
        ],
        "compute in float64": [f"w.astype(float).reshape(-1)  ->  w.astype('float{n}').reshape(-1)" for n in (16, 32)],
        "two ids in each byte": f"{PACKED}  ->  ids",
        "the first of two ids has the low four bits": (f"{PACKED}  ->  16 * ids[0::2] + ids[1::2]"),
        "neighbours share a byte: ids[0::2] and ids[1::2], not the two halves": (
            f"{PACKED}  ->  ids[: len(ids) // 2] + 16 * ids[len(ids) // 2 :]"
        ),
        "16 ids in four bits: times 16": [
            f"{PACKED}  ->  ids[0::2] + {second}" for second in ("15 * ids[1::2]", "10 * ids[1::2]", "(ids[1::2] << 8)")
        ],
        "codes are an array of uint8, the appended 0 too": [
            "np.append(ids, np.uint8(0))  ->  np.append(ids, 0)",
            f"{PACKED}  ->  ids[0::2].astype(int) + 16 * ids[1::2]",
            f"return values.astype(w.dtype), {PACKED}  ->  return values.astype(w.dtype), ({PACKED}).tolist()",
        ],
        "of an odd number the last id is lost: append 0": ("ids = np.append(ids, np.uint8(0))  ->  ids = ids[:-1]"),
        "append the 0: in front it moves all ids": (
            "ids = np.append(ids, np.uint8(0))  ->  ids = np.append(np.uint8(0), ids)"
        ),
        "row by row: w.reshape(-1)": "astype(float).reshape(-1)  ->  astype(float).T.reshape(-1)",
        "ids are counted from 0, for the smallest value": (
            f"{LAST}  ->      ids = (15 - abs(flat[:, None] - values).argmin(axis=1)).astype(np.uint8)"
        ),
        "each weight has the id of the nearest value, not of the farthest": (
            f"{LAST}  ->  {LAST.replace('argmin', 'argmax')}"
        ),
        "compute the ids once more, for the values that you return": [
            f"{LAST}  ->      ids = abs(flat[:, None] - {START}).argmin(axis=1).astype(np.uint8)",
            f"{LAST}  ->      ids = ids.astype(np.uint8)",
        ],
        "the distance counts, not the difference: abs": [
            f"{LAST}  ->  {LAST.replace('abs', '')}",
            (f"{NEAREST}  ->  {NEAREST.replace('abs', '')}", f"{LAST}  ->  {LAST.replace('abs', '')}"),
        ],
        "the values first, then the codes": (
            f"return values.astype(w.dtype), {PACKED}  ->  return {PACKED}, values.astype(w.dtype)"
        ),
        "return the values and the codes": (
            f"return values.astype(w.dtype), {PACKED}  ->  return values.astype(w.dtype)"
        ),
        "16 values, also those without weights": (
            "return values.astype(w.dtype),  ->  return values[np.unique(ids)].astype(w.dtype),"
        ),
        "did you forget `return`?": "    return values  ->      values",
    },
    may_pass={
        "reshape(-2)": "any negative number",
        "len(w) % 2": "as many",
        "len(flat) % 2": "as many",
        "w.min()": "the same number",
        "w.max()": "the same number",
        "ids[::2]": "the same",
    },
)

EVEN = "np.where(low % 2 == 0, low, high)"
SCALE = "e4m3(largest / 6 / t) * t"
BLOCKS = "    blocks = padded.reshape(*rows, -1, 16)"
T = "np.float32(largest.max() / (448 * 6)) or np.float32(1)"

EXERCISES["nvfp4"] = Exercise(
    cases=[
        {"shape": [3, 64]},
        {"shape": [2, 3, 21], "power": 7, "scale": -1e-4, "seed": 1},
        {"shape": [5, 40], "power": 3, "scale": 1e-11, "seed": 2},
        {"blocks": [[2688, 112], [6, 0.25], [-6, -0.25]]},  # ties: t is 1, a scale is 1
        {"blocks": [[0, 0], [2, -0.125]]},
        {"blocks": [[2, -0.125], [1e-6, 0]]},  # a scale becomes 0
        {"x": [[0.0] * 5] * 2},
    ],
    draw=lambda rng: (
        {"blocks": [[2688 * (c := 2.0 ** rng.integers(-9, 9)), 112 * c], [-6 * c, -c / 4], [0, 0]]}
        if rng.random() < 0.2
        else {
            "shape": [[16], [5, 7], [2, 2, 40], [3, 33]][rng.integers(4)],
            "power": int(rng.choice([1, 3, 5])),
            "scale": float(rng.choice([1e-9, 0.3, 1.0, 7e4])),
            "seed": rng.integers(1000),
        }
    ),
    draws=8,
    rtol=2e-7,  # what is smallest beside the array's largest is 3.6e-7 of it
    mistakes={
        "divide by t before e4m3, and multiply by it after": f"{SCALE}  ->  e4m3(largest / 6) * t",
        "a number becomes a size of GRID: E4M3 is for scales": f"GRID[{EVEN}]  ->  e4m3(size)",
        "a number becomes a size of GRID: 5 is none, 0.5 is one": f"GRID[{EVEN}]  ->  np.rint(size)",
        "even is the place in GRID, not the size": "low % 2 == 0  ->  GRID[low] % 2 == 0",
        "fill up the last block of a row, not the first": (
            "(0, -n % 16)  ->  (-n % 16, 0)",
            "[..., :n]  ->  [..., -n:]",
        ),
        "the largest of a block sets its scale, not the mean": "abs(blocks).max  ->  abs(blocks).mean",
        "a tie goes to the even place of GRID, not always down": f"{EVEN}  ->  low",
        "a tie goes to the even place of GRID, not always up": f"{EVEN}  ->  high",
        "a tie goes to the even place of GRID, not to the odd one": "low % 2 == 0  ->  low % 2 == 1",
        "to the nearest size, not to the one below": (f"{EVEN}  ->  np.searchsorted(GRID, size, 'right') - 1"),
        "search in MIDDLES: GRID has the sizes themselves": (f"{EVEN}  ->  np.minimum(np.searchsorted(GRID, size), 7)"),
        "the largest of a block becomes 6: divide by 6": f"{SCALE}  ->  e4m3(largest / t) * t",
        "the largest of a block becomes 6, the grid's largest size": ("largest / 6 / t  ->  largest / 8 / t"),
        "scales have 8 bits: round them with e4m3": f"{SCALE}  ->  largest / 6",
        "a scale is e4m3(...) times t": f"{SCALE}  ->  e4m3(largest / 6 / t)",
        "each block has a scale of its own": [
            f"{SCALE}  ->  e4m3(largest.max() / 6 / t) * t * np.ones_like(largest)",
            "abs(blocks).max(axis=-1, keepdims=True)  ->  abs(blocks).max(axis=(-1, -2), keepdims=True)",
        ],
        "the place in GRID is not the size: GRID[place]": f"GRID[{EVEN}]  ->  {EVEN}",
        "x has any number of axes: one axis is one row": (f"{BLOCKS}  ->      blocks = padded.reshape(len(x), -1, 16)"),
        "e4m3 may give 0: all of that block becomes 0": (
            f"{SCALE}  ->  np.maximum(e4m3(largest / 6 / t), np.float32(2**-9)) * t"
        ),
        "t is one number for the array, not one for each block": (
            f"{T}  ->  np.maximum(largest / np.float32(2688), np.float32(1e-38))"
        ),
        "t is one number for the array, not one for each row": (
            f"{T}  ->  np.maximum(largest.max(axis=-2, keepdims=True) / np.float32(2688), np.float32(1e-38))"
        ),
        "without t scales of small numbers become 0 in E4M3": (f"{SCALE}  ->  e4m3(largest / 6)"),
        "E4M3 ends at 448: t = largest of all / (448 * 6)": "(448 * 6)  ->  6",
        "448 is the largest scale, 6 the largest number: t = largest of all / (448 * 6)": ("(448 * 6)  ->  448"),
        "this is in units of the scales: multiply by them": "low, high)] * s  ->  low, high)]",
        "the sign is lost": "np.sign(blocks) *   ->  ",
        "the largest by size: negative numbers count, too": [
            "abs(blocks).max  ->  blocks.max",
            ("abs(blocks).max  ->  blocks.max", "largest.max() /  ->  abs(x).max() /"),
        ],
        "scales are numbers of E4M3 times t, not powers of two": [
            f"{SCALE}  ->  2.0 ** np.floor(np.log2(np.maximum(largest, 1e-30)) - 2)",
            *(f"{SCALE}  ->  2.0 ** np.{to}(np.log2(np.maximum(largest, 1e-30) / 6))" for to in ("floor", "ceil")),
        ],
        "blocks have 16 values, not 32": (
            "    padded = np.pad(x, [(0, 0)] * len(rows) + [(0, -n % 16)])\n"
            f"{BLOCKS}  ->  "
            "    padded = np.pad(x, [(0, 0)] * len(rows) + [(0, -n % 32)])\n"
            f"{BLOCKS.replace('16', '32')}"
        ),
        "fill up the last block: by -n % 16": "(0, -n % 16)  ->  (0, 0)",
        "the shape of x: cut the zeros off again": "[..., :n]  ->  ",
        "blocks begin anew in each row": (
            "    n, rows  ->      if x.ndim > 1:\n        return nvfp4(x.reshape(-1)).reshape(x.shape)\n    n, rows"
        ),
        "blocks lie along the last axis, not the first": [
            (
                "    n, rows  ->      x = x.swapaxes(0, -1)\n    n, rows",
                "[..., :n]  ->  [..., :n].swapaxes(0, -1)",
            )
        ],
        "an array of zeros has t = 0: divide by something else": " or np.float32(1)  ->  ",
        "a block of zeros has the scale 0: divide by something else": ("np.sign(blocks)  ->  np.sign(blocks / s)"),
        "e4m3 rounds some scales to 0: ask the scale, not the largest": (
            "np.sign(blocks)  ->  np.sign(blocks / np.where(largest == 0, 1, s))"
        ),
        "s and t as they are: a constant spoils small numbers": [
            f"{SCALE}  ->  {SCALE} + 1e-12",
            f"{T}  ->  np.float32(largest.max() / (448 * 6) + 1e-8)",
            f"{T}  ->  np.float32(largest.max() / (448 * 6) + 1e-12)",
            f"{T}  ->  max(np.float32(largest.max() / (448 * 6)), np.float32(1e-12))",
        ],
        "divide numbers by their block's scale s before rounding": [
            "size = abs(blocks) / np.where(s == 0, 1, s)  ->  size = abs(blocks)",
            "size = abs(blocks) / np.where(s == 0, 1, s)  ->  size = abs(blocks) / t",
        ],
        "the result in float32, not float64": "return y.reshape  ->  y = y.astype(float)\n    return y.reshape",
        "did you forget `return`?": "    return y.reshape  ->      y.reshape",
    },
    may_pass={
        "-2, 16)": "any negative number",
        "or np.float32(2)": "any number, for an array of zeros",
        "/ np.where(": "what a number of a block of zeros becomes is multiplied by 0",
    },
)
