"""The exercises of lab 05: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}
ALONE = ("distcourse", "distlearn")

FLOPS = "2 * batch * d_in * d_out"
BYTES = "itemsize * (batch * d_in + d_in * d_out + batch * d_out)"
BOUND = "max(flops / peak, nbytes / bandwidth)"

EXERCISES["product_cost"] = Exercise(
    answers=("product_cost", "least_time"),
    without=ALONE,
    cases=[
        {"of": "product_cost", "batch": 1, "d_in": 40, "d_out": 24},
        {"of": "product_cost", "batch": 7, "d_in": 3, "d_out": 5},
        {"of": "product_cost", "batch": 16, "d_in": 33, "d_out": 9, "itemsize": 8},
        {"of": "product_cost", "batch": 65, "d_in": 4097, "d_out": 9191, "itemsize": 2},
        {"of": "least_time", "flops": 1e9, "nbytes": 1e6, "peak": 1e11, "bandwidth": 2e10},
        {"of": "least_time", "flops": 1e6, "nbytes": 1e9, "peak": 1.3e11, "bandwidth": 2e10},
        {"of": "least_time", "flops": 3e9, "nbytes": 2e9, "peak": 7e11, "bandwidth": 3e10},
        {"of": "least_time", "flops": 8e6, "nbytes": 1e6, "peak": 1e11, "bandwidth": 2e10},
    ],
    draw=lambda rng: (
        {"of": "product_cost", "itemsize": int(rng.choice([2, 4, 8]))}
        | rows("batch d_in d_out", rng.integers(1, 60, 3).tolist())[0]
        if rng.random() < 0.5
        else {"of": "least_time"}
        | dict(
            zip(("flops", "nbytes", "peak", "bandwidth"), (10 ** rng.uniform([6, 6, 10, 10], 13)).tolist(), strict=True)
        )
    ),
    draws=8,
    mistakes={
        "a multiply-add is two operations": [
            f"{FLOPS}  ->  batch * d_in * d_out",
            f"{FLOPS}  ->  3 * batch * d_in * d_out",
            f"{FLOPS}  ->  6 * batch * d_in * d_out",
        ],
        "each number of Y is a sum of d_in products": [
            f"{FLOPS}  ->  2 * d_in * d_out",
            f"{FLOPS}  ->  2 * batch * d_in * d_in",
        ],
        "three matrices move, each number once, and nothing else": [
            f"{BYTES}  ->  itemsize * ({numbers})"
            for numbers in (
                "batch * d_in + d_in * d_out + d_out + batch * d_out",
                "batch * d_in + d_in * d_out + 2 * batch * d_out",
                "batch + d_in + d_out",
                "batch * d_in * d_out",
                "3 * batch * d_in * d_out",
            )
        ],
        "every number of all three matrices has itemsize bytes": [
            f"{BYTES}  ->  batch * d_in + itemsize * d_in * d_out + batch * d_out",
            f"{BYTES}  ->  itemsize * batch * d_in + d_in * d_out + batch * d_out",
        ],
        "Y = X W has no bias": f"{FLOPS}  ->  {FLOPS} + batch * d_out",
        "operations do not depend on itemsize": f"{FLOPS}  ->  {FLOPS} * itemsize",
        "bytes are asked for, no other unit": [
            f"{BYTES}  ->  8 * {BYTES}",
            "return flops, nbytes  ->  return flops, nbytes / 1e6",
        ],
        "each product is added, the first one to 0": (f"{FLOPS}  ->  batch * d_out * (2 * d_in - 1)"),
        "flops come first, then bytes": "return flops, nbytes  ->  return nbytes, flops",
        "the result moves, too": f"{BYTES}  ->  itemsize * (batch * d_in + d_in * d_out)",
        "the weights move, too": f"{BYTES}  ->  itemsize * (batch * d_in + batch * d_out)",
        "X moves, too": f"{BYTES}  ->  itemsize * (d_in * d_out + batch * d_out)",
        "count bytes, not numbers": f"{BYTES}  ->  batch * d_in + d_in * d_out + batch * d_out",
        "W is read once, not for every sample": f"{BYTES}  ->  itemsize * batch * (d_in + d_in * d_out + d_out)",
        "itemsize is an argument, not always 4 or 8": [
            f"{BYTES}  ->  {itemsize} * (batch * d_in + d_in * d_out + batch * d_out)" for itemsize in (4, 8)
        ],
        "itemsize is 4 where it is not given": "itemsize=4)  ->  itemsize=8)",
        "two results, a tuple: flops, nbytes": [
            "    return flops, nbytes  ->      return {'flops': flops, 'nbytes': nbytes}",
            "    return flops, nbytes  ->      return flops / nbytes",
        ],
        "both can happen at once: take the larger, not the sum": f"{BOUND}  ->  flops / peak + nbytes / bandwidth",
        "the slower of the two decides: take the larger": f"{BOUND}  ->  min(flops / peak, nbytes / bandwidth)",
        "memory may take longer than arithmetic": f"{BOUND}  ->  flops / peak",
        "arithmetic may take longer than memory": f"{BOUND}  ->  nbytes / bandwidth",
        "a time is work divided by speed, in seconds: the larger of the two": [
            f"{BOUND}  ->  {other}"
            for other in (
                "max(flops * peak, nbytes * bandwidth)",
                "max(peak / flops, bandwidth / nbytes)",
                "max(flops, nbytes) / max(peak, bandwidth)",
                "flops / nbytes / (peak / bandwidth)",
                "1e3 * max(flops / peak, nbytes / bandwidth)",
                "(flops / peak, nbytes / bandwidth)",
            )
        ],
        "this is a speed: a time is work divided by speed": (f"{BOUND}  ->  min(peak, flops / nbytes * bandwidth)"),
        "operations belong to the peak, bytes to the bandwidth": f"{BOUND}  ->  max(flops / bandwidth, nbytes / peak)",
        "the ridge is peak / bandwidth, not 10": (
            f"{BOUND}  ->  flops / peak if flops / nbytes > 10 else nbytes / bandwidth"
        ),
        "the larger of the two times, not their mean": f"{BOUND}  ->  (flops / peak + nbytes / bandwidth) / 2",
        "seconds are no whole number": f"{BOUND}  ->  int(max(flops / peak, nbytes / bandwidth))",
        "a number, not an array": f"{BOUND}  ->  np.maximum([flops / peak], [nbytes / bandwidth])",
        "did you forget `return`?": ["    return flops, nbytes  ->      flops, nbytes", f"return {BOUND}  ->  {BOUND}"],
    },
    may_pass={"max(nbytes / bandwidth, flops / peak)": "a maximum"},
)

NEEDED = "share * peak / bandwidth"
GAIN = "2 * weights - 4 * needed * (d_in + d_out)"
FIRST = "int(np.ceil(4 * needed * weights / gain))"
TRIES = """
def smallest_batch(share, d_in, d_out, peak, bandwidth):
    for b in range(1, {}):
        if 2 * b * d_in * d_out >= share * peak / bandwidth * 4 * (b * (d_in + d_out) + d_in * d_out):
            return b
    return None
"""

EXERCISES["smallest_batch"] = Exercise(
    without=ALONE,
    cases=rows(
        "share d_in d_out peak bandwidth",
        (0.5, 4096, 9192, 3.762e11, 3e10),
        (0.9, 4096, 9192, 2.508e11, 2e10),
        (1, 512, 64, 7.3e10, 1e10),
        (0.05, 300, 200, 9.3e10, 3e10),
        (0.5, 20, 30, 3.762e11, 3e10),
        (0.7, 90, 40, 5.05e11, 1e10),
        (0.5, 64, 64, 4.8e11, 3e10),
        (1, 64, 66, 4.873e11, 3e10),
        (1, 64, 64, 4.8e11, 3e10),
    ),
    draw=lambda rng: {
        "share": rng.uniform(0.02, 0.95),
        "d_in": rng.integers(8, 6000),
        "d_out": rng.integers(8, 6000),
        "peak": rng.uniform(2e11, 2e12),
        "bandwidth": rng.uniform(5e10, 2e11),
    },
    draws=12,
    mistakes={
        "this is the batch for the full peak: use the share": f"{NEEDED}  ->  peak / bandwidth",
        "X and Y move, too, and grow with the batch": [
            f"{GAIN}  ->  2 * weights",
            f"{FIRST}  ->  int(np.ceil(2 * needed))",
        ],
        "X and Y both move": [
            f"{GAIN}  ->  2 * weights - 4 * needed * d_in",
            f"{GAIN}  ->  2 * weights - 4 * needed * d_out",
        ],
        "the batch may be larger than 100,000": [TRIES.format(10_001), TRIES.format(100_001)],
        "round up: this is one sample too few": [
            f"{FIRST}  ->  int(4 * needed * weights / gain)",
            f"{FIRST}  ->  {FIRST} - 1",
        ],
        "round up, not to the nearest": f"{FIRST}  ->  round(4 * needed * weights / gain)",
        "samples are whole: round up": [
            f"{FIRST}  ->  4 * needed * weights / gain",
            f"{FIRST}  ->  max(1.0, 4 * needed * weights / gain)",
        ],
        "the least that reaches it, not one more": [
            f"{FIRST}  ->  int(4 * needed * weights / gain) + 2",
            f"{FIRST}  ->  {FIRST} + 1",
        ],
        "where X and Y alone move too much, return None": (
            "    if gain <= 0:\n        return None\n  ->      gain = abs(gain)\n"
        ),
        "None if no batch is large enough, not another value": [
            "return None  ->  return 0",
            "return None  ->  return 1",
            "return None  ->  return np.inf",
            "return None  ->  return False",
            "return None  ->  return -1",
            "return None  ->  return 10**9",
            "return None  ->  raise ValueError('no batch')",
            "    if gain <= 0:\n        return None\n  ->  ",
        ],
        "a multiply-add is two operations, and a number has 4 bytes": [
            f"{GAIN}  ->  weights - 4 * needed * (d_in + d_out)",
            f"{GAIN}  ->  2 * weights - needed * (d_in + d_out)",
        ],
        "is the ridge peak / bandwidth, and is D on both sides?": [
            f"{NEEDED}  ->  share * bandwidth / peak",
            "4 * needed * weights / gain  ->  4 * needed / gain",
        ],
        "solve b (2 D - 4 s (d_in + d_out)) >= 4 s D, with s = share * ridge": [
            f"{GAIN}  ->  2 * weights + 4 * needed * (d_in + d_out)",
            f"{GAIN}  ->  2 * weights - 4 * needed * d_in * d_out",
            "4 * needed * weights / gain  ->  2 * needed * weights / gain",
            "4 * needed * weights / gain  ->  needed * weights / gain",
            f"{NEEDED}  ->  {NEEDED} / 4",
            f"{NEEDED}  ->  share * {NEEDED}",
        ],
        "the smallest whole number, not power of two": (
            f"{FIRST}  ->  2 ** int(np.ceil(np.log2(4 * needed * weights / gain)))"
        ),
        "share may be 1": "gain <= 0  ->  gain <= 0 or share >= 1",
        "did you forget `return`?": f"return {FIRST}  ->  {FIRST}",
    },
    may_pass={
        "gain <= 1": "",
        "gain < 0": "",
        "gain <= -1": "",
    },
)

MOVED = "4 * (batch * d_in * across + d_in * d_out * down + batch * d_out)"
TILES = "-(-batch // tile), -(-d_out // tile)"

EXERCISES["tiled_bytes"] = Exercise(
    without=ALONE,
    cases=rows(
        "batch d_in d_out tile", (64, 64, 64, 16), (32, 64, 128, 8), (24, 16, 40, 16), (40, 8, 8, 32), (56, 120, 88, 32)
    ),
    draw=lambda rng: dict(
        zip(
            ("batch", "d_in", "d_out", "tile"),
            [*(8 * rng.integers(1, 20, 3)).tolist(), int(rng.choice([8, 16, 32]))],
            strict=True,
        )
    ),
    mistakes={
        "each number moves once: that is the bound": f"{MOVED}  ->  4 * (batch * d_in + d_in * d_out + batch * d_out)",
        "each row of tiles reads all of W, each column all of X": (
            f"{MOVED}  ->  4 * (batch * d_in * down + d_in * d_out * across + batch * d_out)"
        ),
        "Y is written, too": f"{MOVED}  ->  4 * (batch * d_in * across + d_in * d_out * down)",
        "Y is written once, not for every piece of d_in": (
            f"{MOVED}  ->  {MOVED.replace('batch * d_out)', 'batch * d_out * -(-d_in // tile))')}"
        ),
        "this rounds down": [
            f"{TILES}  ->  batch // tile, d_out // tile",
            f"{TILES}  ->  max(1, batch // tile), max(1, d_out // tile)",
        ],
        "X passes once for every column of tiles, W once for every row of tiles": [
            f"{MOVED}  ->  4 * ({passes} + batch * d_out)"
            for passes in (
                "batch * d_in * down + d_in * d_out * down",
                "batch * d_in * across + d_in * d_out * across",
                "batch * d_in + d_in * d_out * down",
                "batch * d_in * across + d_in * d_out",
                "(batch * d_in + d_in * d_out) * (down + across)",
                "(batch * d_in + d_in * d_out) * down * across",
                "(batch * d_in + d_in * d_out + batch * d_out) * down * across - batch * d_out",
            )
        ],
        "what lies outside Y is not written": (
            f"{MOVED}  ->  {MOVED.replace('batch * d_out)', 'down * across * tile**2)')}"
        ),
        "what lies outside is not fetched": [
            "batch * d_in * across  ->  down * tile * d_in * across",
            "d_in * d_out * down  ->  d_in * across * tile * down",
            "batch * d_in * across  ->  batch * -(-d_in // tile) * tile * across",
            (
                "batch * d_in * across  ->  down * tile * d_in * across",
                "d_in * d_out * down  ->  d_in * across * tile * down",
            ),
            f"{MOVED}  ->  4 * tile * (down * d_in * across * 2 + down * across * tile)",
        ],
        "Y moves once, and a number has 4 bytes": [
            f"{MOVED}  ->  {MOVED.replace('batch * d_out)', 'batch * d_out * across)')}",
            f"{MOVED}  ->  {MOVED.replace('batch * d_out)', '2 * batch * d_out)')}",
            f"{MOVED}  ->  2 * {MOVED}",
        ],
        "a column of tiles is t wide, not t * t": f"{TILES}  ->  -(-batch // tile**2), -(-d_out // tile**2)",
        "tiles are Y's: batch / t down, d_out / t across": [
            f"{TILES}  ->  -(-batch // tile), -(-d_in // tile)",
            f"{TILES}  ->  -(-d_in // tile), -(-d_out // tile)",
        ],
        "a tile that sticks out is a tile, too: round up": f"{TILES}  ->  batch / tile, d_out / tile",
        "round up, not to the nearest": f"{TILES}  ->  round(batch / tile), round(d_out / tile)",
        "a tile too many where it fits: -(-batch // t)": f"{TILES}  ->  batch // tile + 1, d_out // tile + 1",
        "count bytes: 4 for each number": [
            f"{MOVED}  ->  {MOVED[4:]}",
            f"{MOVED}  ->  4 * batch * d_in * across + d_in * d_out * down + batch * d_out",
        ],
        "a tile's reads serve t rows or columns, not one": (
            f"{MOVED}  ->  4 * (batch * d_in * d_out * 2 + batch * d_out)"
        ),
        "tiles are t wide, not always 16": [
            f"{TILES}  ->  -(-batch // 16), -(-d_out // 16)",
            f"{TILES}  ->  -(-batch // min(tile, 16)), -(-d_out // min(tile, 16))",
        ],
        "Y's tiles count: the sums' length d_in is read in pieces": f"{TILES}  ->  -(-d_in // tile), -(-d_in // tile)",
        "W is read, too": "+ d_in * d_out * down   ->  ",
        "X is read, too": "batch * d_in * across +   ->  ",
        "did you forget `return`?": f"return {MOVED}  ->  {MOVED}",
    },
)

ROOTS = "def two_layers(n):\n    side = round(n ** (1 / 3))\n    return (1, n, 1), (side, side, n // side**2)"
RETURN = "    return bad, good  ->  "

EXERCISES["two_layers"] = Exercise(
    without=ALONE,
    cases=[{"n": n} for n in (2**15, 48_000, 3 * 2**22, 10**7)],
    draw=lambda rng: {"n": int(2 ** rng.integers(16, 20) * 3 ** rng.integers(0, 4) * 5 ** rng.integers(0, 4))},
    mistakes={
        "first the bad one, then the good one": f"{RETURN}    return good, bad",
        "the second shape is as bad as the first": [
            f"{RETURN}    return bad, bad",
            "good = min(  ->  good = max(",
        ],
        "both are the good one": f"{RETURN}    return good, good",
        "a batch of 1 alone is not bad enough": f"{RETURN}    return (1, sizes[-1], n // sizes[-1]), good",
        "n counts multiply-adds, not operations": f"{RETURN}    return (1, n // 2, 1), good",
        "exactly n multiply-adds: the bad one has one more": f"{RETURN}    return (1, n + 1, 1), good",
        "the cube root is no divisor: all three sizes divide n": ROOTS,
        "sizes are whole numbers": [
            f"{RETURN}    return (1, n / 2, 2.0), good",
            f"{RETURN}    return tuple(map(float, bad)), tuple(map(float, good))",
        ],
        "a good shape is not flat: none of the three sizes is 1": (
            f"{RETURN}    return bad, (1, sizes[-1], n // sizes[-1])"
        ),
        "a shape has three sizes": f"{RETURN}    return (1, n), good",
        "divisors have factors 3 and 5, too": "n % d == 0]  ->  n % d == 0 and d & (d - 1) == 0]",
        "not every n is divisible by 1024: look for divisors of n": f"{RETURN}    return bad, (32, 32, n // 1024)",
        "tuples, not arrays": f"{RETURN}    return np.array(bad), np.array(good)",
        "two shapes, in a tuple": [f"{RETURN}    return bad", f"{RETURN}    return dict(bad=bad, good=good)"],
        "sizes of 1 or more": f"{RETURN}    return (-1, -n, 1), good",
        "did you forget `return`?": f"{RETURN}    bad, good",
    },
    may_pass={
        "bad, good = ((1": "the first good shape is replaced",
        "sizes = [": "other divisors do as well",
        "min(shape, good": "a minimum",
        "for b in good if": "three divisors are enough here",
    },
)

WORK = "starting + copying + max(flops / card.peak, nbytes / card.bandwidth)"
T4 = {"peak": 8.1e12, "bandwidth": 3.2e11, "overhead": 5e-6, "link": 1.6e10}
SLOW = {"peak": 1e9, "bandwidth": 2e8, "overhead": 1e-3, "link": 1e8}
CPU = {"peak": 1e11, "bandwidth": 4e10, "overhead": 2e-6, "link": float("inf")}

EXERCISES["seconds"] = Exercise(
    without=ALONE,
    cases=rows(
        "card flops nbytes calls copied",
        (SLOW, 1e6, 1e6),
        (SLOW, 1e6, 1.5e6, 3, 9e5),
        (SLOW, 8e6, 1e5, 1, 0.0),
        (SLOW, 1e5, 1e7, 60, 1e7),
        (T4, 1e9, 1e7, 60, 1e7),
        (CPU, 1e9, 1e7, 70, 2e7),
    ),
    draw=lambda rng: {
        "card": dict(zip(T4, (10 ** rng.uniform([10, 10, -6, 9], [14, 13, -4, 11])).tolist(), strict=True)),
        "flops": float(10 ** rng.uniform(6, 10)),
        "nbytes": float(10 ** rng.uniform(6, 10)),
        "calls": rng.integers(1, 99),
        "copied": float(10 ** rng.uniform(4, 8)),
    },
    mistakes={
        "arithmetic and memory at once: the larger, not the sum": (
            f"{WORK}  ->  starting + copying + flops / card.peak + nbytes / card.bandwidth"
        ),
        "memory may take longer than arithmetic": f"{WORK}  ->  starting + copying + flops / card.peak",
        "arithmetic may take longer than memory": f"{WORK}  ->  starting + copying + nbytes / card.bandwidth",
        "the longer of the two counts": f"{WORK}  ->  {WORK.replace('max', 'min')}",
        "copied counts both ways already": "copied / card.link  ->  2 * copied / card.link",
        "every call costs the overhead of this card": [
            "calls * card.overhead  ->  card.overhead",
            "calls * card.overhead  ->  calls * 5e-6",
            "calls * card.overhead  ->  card.overhead / calls",
            "calls * card.overhead  ->  calls + card.overhead",
        ],
        "calls multiply the overhead alone: the others are totals": [
            f"{WORK}  ->  {WORK.replace('copying', 'calls * copying')}",
            f"{WORK}  ->  {WORK.replace('max', 'calls * max')}",
            f"{WORK}  ->  calls * (card.overhead + {WORK.removeprefix('starting + ')})",
        ],
        "nbytes pass over the bandwidth, copied over the link": [
            "nbytes / card.bandwidth  ->  nbytes / card.link",
            "nbytes / card.bandwidth  ->  (nbytes - copied) / card.bandwidth",
            "copied / card.link  ->  (copied or nbytes) / card.link",
        ],
        "flops are operations already": "flops / card.peak  ->  2 * flops / card.peak",
        "one number, the sum of the three parts in seconds": [
            f"{WORK}  ->  starting, copying, max(flops / card.peak, nbytes / card.bandwidth)",
            f"{WORK}  ->  1e3 * ({WORK})",
            f"{WORK}  ->  round({WORK}, 6)",
        ],
        "calls cost": "starting + copying +  ->  copying +",
        "copies cost": "starting + copying +  ->  starting +",
        "copies pass over this card's `link`, not through its memory": [
            "copied / card.link  ->  copied / card.bandwidth",
            "copied / card.link  ->  copied / 16e9",
            f"{WORK}  ->  starting + max(flops / card.peak, (nbytes + copied) / card.bandwidth)",
        ],
        "operations belong to the peak, bytes to the bandwidth": (
            f"{WORK}  ->  starting + copying + max(flops / card.bandwidth, nbytes / card.peak)"
        ),
        "copied bytes are not among nbytes": ("nbytes / card.bandwidth  ->  (nbytes + copied) / card.bandwidth"),
        "nothing overlaps but arithmetic and memory: add": [
            f"{WORK}  ->  starting + max(copying, flops / card.peak, nbytes / card.bandwidth)",
            f"{WORK}  ->  copying + max(starting, flops / card.peak, nbytes / card.bandwidth)",
            f"{WORK}  ->  max(starting, copying, flops / card.peak, nbytes / card.bandwidth)",
            f"{WORK}  ->  max(starting + flops / card.peak, copying + nbytes / card.bandwidth)",
        ],
        "one call by default, and no copies": [
            "calls=1, copied=0):  ->  calls=2, copied=0):",
            "calls=1, copied=0):  ->  calls, copied):",
            "copied=0):  ->  copied=1e6):",
        ],
        "as many calls as there are, not one more": "calls * card.overhead  ->  (calls + 1) * card.overhead",
        "divide by the link": "copied / card.link  ->  copied * card.link",
        "the card cannot be changed": ("    starting, copying  ->      card.overhead *= 2; starting, copying"),
        "did you forget `return`?": "    return starting  ->      starting",
    },
    may_pass={"max(nbytes / card.bandwidth, flops / card.peak)": "a maximum"},
)
