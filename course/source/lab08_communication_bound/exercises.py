"""The exercises of lab 08: cases of their checks, and the mistakes that the checks name."""

import numpy as np
from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

PRODUCTS = "kernel * kernel * c_in // groups"
VALUES = "products * c_out + c_out,"
WORK = "2 * products * c_out * pixels"

EXERCISES["layer_cost"] = Exercise(
    cases=rows("kernel c_in c_out pixels groups", (3, 7, 13, 25), (5, 8, 4, 49, 2), (4, 10, 15, 16, 5), (1, 30, 10, 1)),
    draw=lambda rng: {
        "kernel": rng.integers(1, 8),
        "c_in": int(rng.integers(1, 9)) * (groups := int(rng.integers(1, 5))),
        "c_out": int(rng.integers(1, 9)) * groups,
        "pixels": rng.integers(1, 80),
        "groups": groups,
    },
    mistakes={
        "the kernel is k x k": f"{PRODUCTS}  ->  kernel * c_in // groups",
        "the kernel's size is an argument": f"{PRODUCTS}  ->  9 * c_in // groups",
        "an output channel sees c_in / G channels, not all": " // groups  ->  ",
        "divided by G twice: k^2 c_in / G c_out weights in all": [
            "// groups  ->  // groups // groups",
            f"{VALUES} {WORK}  ->  products * c_out // groups + c_out, 2 * products * c_out // groups * pixels",
        ],
        "k squared, not k times 2": f"{PRODUCTS}  ->  2 * kernel * c_in // groups",
        "a bias for each output channel, whatever the groups": [
            f"{VALUES}  ->  products * c_out + c_out // groups,",
            f"{VALUES}  ->  products * c_out + c_out * groups,",
            f"{VALUES}  ->  products * c_out + groups,",
        ],
        "values, not their bytes": f"{VALUES}  ->  4 * (products * c_out + c_out),",
        "times c_out: these are the weights of one output channel": f"{VALUES}  ->  products + c_out,",
        "weights are shared by all pixels: not times pixels": f"{VALUES}  ->  products * c_out * pixels + c_out,",
        "the biases are missing": f"{VALUES}  ->  products * c_out,",
        "a bias for each output channel: c_out, not c_in": f"{VALUES}  ->  products * c_out + c_in,",
        "one bias for each output channel: c_out of them": f"{VALUES}  ->  products * c_out + 1,",
        "return values, operations, in this order": f"{VALUES} {WORK}  ->  {WORK}, products * c_out + c_out",
        "a multiplication and an addition are two operations": f"{WORK}  ->  products * c_out * pixels",
        "the bias does not count as an operation": f"{WORK}  ->  {WORK} + c_out * pixels",
        "the bias is not counted: 2 products, not 2 values": (f"{WORK}  ->  2 * (products * c_out + c_out) * pixels"),
        "as many additions as multiplications": f"{WORK}  ->  (2 * products - 1) * c_out * pixels",
        "each output pixel takes as many: times pixels": f"{WORK}  ->  2 * products * c_out",
        "each output channel takes as many: times c_out": f"{WORK}  ->  2 * products * pixels",
        "this is the forward pass and the backward pass": f"{WORK}  ->  6 * products * c_out * pixels",
        "these are the learned values: return values, operations": f"{WORK}  ->  products * c_out + c_out",
        "whole numbers: / gives a float, // does not": "c_in // groups  ->  c_in / groups",
        "did you forget `return`?": f"return {VALUES}  ->  {VALUES}",
    },
)

COMPUTING, MOVING = "return seconds / ranks,", "2 * (ranks - 1) / ranks * nbytes / bandwidth"
LATE = "2 * (ranks - 1) * alpha * buckets"

EXERCISES["step_parts"] = Exercise(
    cases=rows(
        "ranks bandwidth seconds nbytes alpha buckets",
        (5, 1e9, 0.7, 2e8, 1e-4, 3),
        (1, 1e6, 0.6, 1e8, 1e-3, 2),
        (7, 5e7, 0.13, 4e6, 2e-3, 1),
        (2.5, 1e8, 1.1, 1e7, 1e-5, 6),
        (3, 1e9, 0.9, 1e6, 3e-3),
    ),
    draw=lambda rng: {
        "ranks": float(rng.choice([1, 2, 3, 12.5, 37, 1000])),
        "bandwidth": float(10 ** rng.uniform(6, 11)),
        "seconds": float(10 ** rng.uniform(-3, 1)),
        "nbytes": float(10 ** rng.uniform(4, 9)),
        "alpha": float(10 ** rng.uniform(-6, -2)),
        "buckets": rng.integers(1, 20),
    },
    mistakes={
        "p ranks divide the batch: seconds / ranks": f"{COMPUTING}  ->  return seconds,",
        "seconds are those of one rank for the whole batch": f"{COMPUTING}  ->  return seconds * ranks,",
        "return computing, moving, waiting, in this order": [
            f"{COMPUTING} moving, {LATE}  ->  return {order}"
            for order in (
                f"moving, seconds / ranks, {LATE}",
                f"seconds / ranks, {LATE}, moving",
                f"{LATE}, moving, seconds / ranks",
            )
        ],
        "each of the messages has n / p bytes": f"{MOVING}  ->  2 * (ranks - 1) * nbytes / bandwidth",
        "bits taken for bytes: all is in bytes here": [f"{MOVING}  ->  8 * {MOVING}", f"{MOVING}  ->  {MOVING} / 8"],
        "2 (p - 1) messages carry bytes, not 2 p": f"{MOVING}  ->  2 * nbytes / bandwidth",
        "there and back: twice p - 1 messages of n / p bytes": f"{MOVING}  ->  {MOVING[4:]}",
        "divide by the bandwidth": "nbytes / bandwidth  ->  nbytes * bandwidth",
        "k buckets have n bytes together": f"{MOVING}  ->  {MOVING} * buckets",
        "k buckets of n / k bytes: n in all": f"{MOVING}  ->  {MOVING} / buckets",
        "latency is a part of its own": "moving = 2  ->  moving = 2 * (ranks - 1) * alpha * buckets + 2",
        "each of the 2 (p - 1) messages has a latency": f"{LATE}  ->  alpha * buckets",
        "return all three, not the longest": (f"{COMPUTING} moving,  ->  {COMPUTING} max(moving, {LATE}),"),
        "p ranks share the batch, not p - 1": f"{COMPUTING}  ->  return seconds / (ranks - 1 or 1),",
        "each bucket is a ring with messages of its own": f"{LATE}  ->  2 * (ranks - 1) * alpha",
        "there and back: twice p - 1 latencies": f"{LATE}  ->  (ranks - 1) * alpha * buckets",
        "messages come one after the other: latency is not divided by p": f"{LATE}  ->  {LATE} / ranks",
        "a ring has 2 (p - 1) latencies, not log2(p)": (f"{LATE}  ->  2 * np.log2(ranks) * alpha * buckets"),
        "a ring has 2 (p - 1) latencies, not 2 for each level of a tree": (
            f"{LATE}  ->  2 * np.ceil(np.log2(ranks)) * alpha * buckets"
        ),
        "k buckets have k times as many latencies": f"{LATE}  ->  2 * (ranks - 1) * alpha / buckets",
        "a ring sends n / p bytes 2 (p - 1) times, not n bytes": (f"{MOVING}  ->  (ranks - 1) * nbytes / bandwidth"),
        "2 (p - 1) latencies, not 2 p": f"{LATE}  ->  2 * ranks * alpha * buckets",
        "one rank computes, too: it only sends nothing": (
            "    moving =  ->      if ranks == 1:\n        return 0.0, 0.0, 0.0\n    moving ="
        ),
        "(p - 1) needs its parentheses": [
            f"{MOVING}  ->  2 * ranks - 1 / ranks * nbytes / bandwidth",
            f"{MOVING}  ->  (2 * ranks - 1) / ranks * nbytes / bandwidth",
        ],
        "p may be a fraction: no int(), no //": [
            f"{MOVING}  ->  2 * (ranks - 1) // ranks * nbytes / bandwidth",
            "    moving =  ->      ranks = int(ranks)\n    moving =",
            "seconds / ranks  ->  seconds // ranks",
        ],
        "one bucket unless another number is given: buckets=1": "buckets=1  ->  buckets=2",
        "did you forget `return`?": f"{COMPUTING}  ->  {COMPUTING[7:]}",
    },
)

BORDER = "ranks seconds nbytes alpha buckets"
LEFT = "seconds / ranks - 2 * (ranks - 1) * alpha * buckets"
NEEDED = "2 * (ranks - 1) / ranks * nbytes / left"


def clusters(rng):
    """A network that is fast enough, or latencies that take too long."""
    ranks = float(rng.choice([1, 1.5, 2, 6, 31]))
    seconds, buckets = float(10 ** rng.uniform(-2, 1)), int(rng.integers(1, 9))
    late = float(rng.choice([rng.uniform(0.05, 0.9), rng.uniform(1.1, 9)]))
    alpha = late * seconds / ranks / (2 * (ranks - 1) * buckets) if ranks > 1 else float(rng.uniform(0, 1))
    nbytes = float(10 ** rng.uniform(2, 9))
    return rows(BORDER, (ranks, seconds, nbytes, alpha, buckets))[0]


EXERCISES["needed_bandwidth"] = Exercise(
    cases=rows(
        BORDER,
        (4, 0.8, 3e7, 0.0, 1),
        (5, 0.7, 4e7, 0.005, 3),
        (2.5, 1.1, 1e6, 1e-3, 5),
        (3, 90.0, 700.0, 4.0),
        (100, 0.8, 3e7, 1e-3, 1),  # latencies take longer than computing
        (2, 1.0, 3e7, 0.25, 1),  # as long
        (1, 0.8, 3e7, 1e-3, 1),
    ),
    draw=clusters,
    mistakes={
        "a message has n / p bytes: divide by p": (f"{NEEDED}  ->  2 * (ranks - 1) * ranks * nbytes / left"),
        "no time is left: np.inf itself, no large number": ("left if left > 0 else np.inf  ->  max(left, 1e-12)"),
        "latencies are seconds: subtract them from the time": (
            f"{NEEDED}  ->  (2 * (ranks - 1) * nbytes / seconds - {LATE})"
        ),
        "computing takes seconds / ranks: divide by p": f"{LEFT}  ->  seconds - ranks * {LATE}",
        "latencies that take longer leave no time: np.inf, not abs()": ("left if left > 0 else np.inf  ->  abs(left)"),
        "each rank computes seconds / ranks": f"{LEFT}  ->  seconds - {LATE}",
        "the latencies take their share of the time": f"{LEFT}  ->  seconds / ranks",
        "latencies leave less time, not more": f"{LEFT}  ->  seconds / ranks + {LATE}",
        "this is its reciprocal": f"{NEEDED} if left > 0  ->  left / ({NEEDED[:-7]}) if left > 0 and ranks > 1",
        "each bucket has latencies of its own": "alpha * buckets  ->  alpha",
        "the network may take all of seconds / ranks": ("left = seconds / ranks  ->  left = seconds / ranks / 2"),
        "bytes per second are asked for": f"{NEEDED}  ->  8 * {NEEDED}",
        "the latencies are not divided by the ranks": f"{LEFT}  ->  (seconds - {LATE}) / ranks",
        "k buckets have n bytes together": [f"{NEEDED}  ->  {NEEDED} / buckets", f"{NEEDED}  ->  {NEEDED} * buckets"],
        "// rounds down: divide with /": f"{NEEDED}  ->  2 * (ranks - 1) / ranks * nbytes // left",
        "2 (p - 1) messages and latencies, not 2 p": (
            f"{LEFT}  ->  seconds / ranks - 2 * ranks * alpha * buckets",
            f"{NEEDED}  ->  2 * nbytes / left",
        ),
        "each of the 2 (p - 1) messages has n / p bytes": f"{NEEDED}  ->  2 * (ranks - 1) * nbytes / left",
        "there and back: 2 (p - 1) messages": f"{NEEDED}  ->  {NEEDED[4:]}",
        "there and back: 2 (p - 1) latencies": f"{LEFT}  ->  seconds / ranks - (ranks - 1) * alpha * buckets",
        "one rank sends nothing: 0": "if left > 0  ->  if left > 0 and ranks > 1",
        "latencies that take longer than computing leave no time: np.inf": " if left > 0 else np.inf  ->  ",
        "latencies that take as long as computing leave no time: np.inf": "if left > 0  ->  if left >= 0",
        "no bandwidth is enough: np.inf, not 0": [
            "else np.inf  ->  else 0.0",
            f"{NEEDED} if left > 0 else np.inf  ->  max(0.0, {NEEDED})",
        ],
        "no bandwidth is enough: return np.inf": [
            "else np.inf  ->  else None",
            "else np.inf  ->  else -1.0",
            "else np.inf  ->  else 1e30",
        ],
        "one bucket unless another number is given: buckets=1": "buckets=1  ->  buckets=2",
        "did you forget `return`?": f"return {NEEDED}  ->  {NEEDED}",
    },
)

CODES = ("encode_8bit", "decode_8bit", "encode_1bit", "decode_1bit", "encode_top", "decode_top")
SMALL = np.float32([0.31, -1.5, 0.02, 1.2, -0.77, 0.6])
NEGATIVE = np.float32([-0.09, -0.02, 0, -0.13, -0.045])
POSITIVE = np.float32([0.5, 0.8, 0.25])
TIES = np.float32([0.5, -1, 1, -0.5, 1, 1, -1, 0.5, 1])
MANY = np.float32([1.1, -0.6, 0.9, -2.1, 0.4, -0.33, 0.75, 2, -0.2, 1.7, -1.4, 0.15, 0.55, -0.85, 1.3, -1.9, 0.05])
LEVELS = "np.rint(x * (127 / scale))"
MEANS = "[x[side.nonzero()].mean() if side.any() else 0.0 for side in (above, ~above)]"
PLACES = "np.argpartition(np.abs(x), -k)[-k:]"
BACK = "levels * (scale / np.float32(127))"


def code(rng):
    """A gradient to encode, of which no level is between two whole numbers; or a code of some gradient."""
    of = str(rng.choice(CODES))
    n, size = int(rng.choice([1, 5, 8, 61, 300])), float(10 ** rng.uniform(-6, 3))
    k, normal = int(rng.integers(1, n + 1)), rng.normal(size=n)
    if of == "encode_8bit":
        levels = rng.integers(-126, 127, n) + rng.uniform(-0.4, 0.4, n)
        levels[rng.integers(n)] = rng.choice([-127, 127])
        return {"of": of, "x": np.float32(levels * size * rng.choice([0, 1, 1, 1]))}
    if of == "encode_1bit":
        kinds = normal, normal - 1.5, np.abs(normal), np.minimum(normal, 0), -np.abs(normal)
        return {"of": of, "x": np.float32(size * kinds[rng.integers(len(kinds))])}
    if of == "encode_top":
        return {"of": of, "x": np.float32(size * (normal, np.round(normal))[rng.integers(2)]), "k": k}
    if of == "decode_8bit":
        return {"of": of, "scale": np.float32([size]), "levels": rng.integers(-127, 128, n).astype(np.int8), "n": n}
    if of == "decode_1bit":
        bits = np.packbits(rng.random(n) < 0.5)
        return {"of": of, "means": np.float32([size, -size * rng.uniform(0.2, 0.8)]), "bits": bits, "n": n}
    return {"of": of, "places": rng.permutation(n)[:k].astype(np.uint32), "values": np.float32(normal[:k]), "n": n}


EXERCISES["codecs"] = Exercise(
    answers=CODES,
    cases=[
        {"of": "encode_8bit", "x": SMALL},
        {"of": "encode_8bit", "x": MANY},
        {"of": "encode_8bit", "x": NEGATIVE[[0, 1, 3, 4]]},
        {"of": "encode_8bit", "x": np.zeros(4, np.float32)},
        {"of": "decode_8bit", "scale": np.float32([0.7]), "levels": np.int8([127, -127, 3, 0, -50]), "n": 5},
        {"of": "decode_8bit", "scale": np.float32([0]), "levels": np.int8([0, 0, 0]), "n": 3},
        {"of": "encode_1bit", "x": SMALL},
        {"of": "encode_1bit", "x": MANY},
        {"of": "encode_1bit", "x": NEGATIVE},
        {"of": "encode_1bit", "x": NEGATIVE[:2]},
        {"of": "encode_1bit", "x": POSITIVE},
        {"of": "encode_1bit", "x": np.zeros(8, np.float32)},
        {"of": "decode_1bit", "means": np.float32([0.7, -0.3]), "bits": np.uint8([0b10011010, 0b01101000]), "n": 14},
        {"of": "decode_1bit", "means": np.float32([0.2, -1.1]), "bits": np.uint8([0b00101101]), "n": 8},
        {"of": "encode_top", "x": SMALL, "k": 2},
        {"of": "encode_top", "x": NEGATIVE, "k": 3},
        {"of": "encode_top", "x": TIES, "k": 4},
        {"of": "encode_top", "x": MANY, "k": 17},
        {"of": "encode_top", "x": MANY, "k": 1},
        {"of": "encode_top", "x": np.sin(np.arange(1.0, 301) ** 2).astype(np.float32), "k": 20},
        {"of": "decode_top", "places": np.uint32([4, 0, 6]), "values": np.float32([-0.5, 0.3, 2]), "n": 9},
        {"of": "decode_top", "places": np.uint32([1, 0]), "values": np.float32([0.9, -4]), "n": 2},
    ],
    draw=code,
    draws=30,
    mistakes={
        "8 bit, back: // rounds down: divide with /": (
            "levels * (scale / np.float32(127))  ->  levels * scale[0] // 127"
        ),
        "8 bit: round to the nearest level (np.rint): astype alone cuts off": f"{LEVELS}  ->  x * (127 / scale)",
        "8 bit: round to the nearest level (np.rint), not down": [
            f"{LEVELS}  ->  np.floor(x * (127 / scale))",
            f"{LEVELS}  ->  np.floor(x * 127 / scale)",
        ],
        "8 bit: round to the nearest level (np.rint), not up": f"{LEVELS}  ->  np.ceil(x * (127 / scale))",
        "8 bit: the largest becomes 127": f"{LEVELS}  ->  np.rint(x * (126 / scale))",
        "8 bit: 255 levels on one side are too many: int8 ends at 127": (
            f"{LEVELS}  ->  np.rint(x * (255 / scale)).astype(int)"
        ),
        "8 bit: int8 ends at 127, and the largest becomes 128": f"{LEVELS}  ->  np.rint(x * (128 / scale)).astype(int)",
        "8 bit: the scale is the largest of abs(x), not of x": "np.abs(x).max(keepdims=True)  ->  x.max(keepdims=True)",
        "8 bit: the scale is the largest of abs(x), not a mean or a width": [
            "np.abs(x).max(keepdims=True)  ->  np.abs(x).mean(keepdims=True)",
            "np.abs(x).max(keepdims=True)  ->  np.ptp(x, keepdims=True)",
            "np.abs(x).max(keepdims=True)  ->  np.ptp(x, keepdims=True) / 2",
        ],
        "8 bit: the scale is an array of one: keepdims=True": [
            ("np.abs(x).max(keepdims=True)  ->  np.abs(x).max()", "if scale[0] > 0  ->  if scale > 0")
        ],
        "8 bit: the scale is float32: astype": (
            "np.abs(x).max(keepdims=True)  ->  np.abs(x).max(keepdims=True).astype(float)"
        ),
        "8 bit: the levels are int8: astype(np.int8)": [
            "levels.astype(np.int8)  ->  levels",
            "levels.astype(np.int8)  ->  levels.astype(int)",
        ],
        "8 bit: levels have a sign, and 0 is level 0": (
            "scale, levels.astype(np.int8)  ->  scale, (levels + 128).astype(np.uint8)"
        ),
        "8 bit: the scale is max abs(x): decoding divides by 127": (
            "return scale, levels  ->  return scale / np.float32(127), levels"
        ),
        "8 bit: scale first, then levels": "scale, levels.astype(np.int8)  ->  levels.astype(np.int8), scale",
        "8 bit, back: divide by 127, the largest level": f"{BACK}  ->  levels * scale",
        "8 bit, back: the largest level is 127": f"{BACK}  ->  levels * (scale / np.float32(128))",
        "8 bit, back: times the scale": f"{BACK}  ->  levels / np.float32(127)",
        "8 bit, back: the result is float32": f"{BACK}  ->  levels * (scale / np.float64(127))",
        "1 bit: a mean of each side, not a sum": "x[side.nonzero()].mean()  ->  x[side.nonzero()].sum()",
        "1 bit: the mean of a side, not its largest": f"{MEANS}  ->  [max(x.max(), 0.0), min(x.min(), 0.0)]",
        "1 bit: the mean of a side, not its median": "x[side.nonzero()].mean()  ->  np.median(x[side.nonzero()])",
        "1 bit: the mean of those on that side, not of all": (
            f"{MEANS}  ->  [np.maximum(x, 0).mean(), np.minimum(x, 0).mean()]"
        ),
        "1 bit: a side without values has mean 0": f"{MEANS}  ->  [x[above].mean(), x[~above].mean()]",
        "1 bit: each side has its own mean": f"{MEANS}  ->  [np.abs(x).mean(), -np.abs(x).mean()]",
        "1 bit: signs alone do not say how large": f"{MEANS}  ->  [1.0, -1.0]",
        "1 bit: the mean of x >= 0 comes first": "(above, ~above)  ->  (~above, above)",
        "1 bit: the mean of a side keeps its sign": "x[side.nonzero()].mean()  ->  np.abs(x[side.nonzero()]).mean()",
        "1 bit: 0 has bit 1: x >= 0": "above = x >= 0  ->  above = x > 0",
        "1 bit: the bit is 1 where x >= 0": "np.packbits(above)  ->  np.packbits(~above)",
        "1 bit: the first value is the first bit, as np.packbits has it": (
            "np.packbits(above)  ->  np.packbits(above, bitorder='little')"
        ),
        "1 bit: np.packbits puts 8 bits into a byte": "np.packbits(above)  ->  above.astype(np.uint8)",
        "1 bit: a bool is a byte: np.packbits": "np.packbits(above)  ->  above",
        "1 bit: means first, then bits": (
            "np.array(means, np.float32), np.packbits(above)  ->  np.packbits(above), np.array(means, np.float32)"
        ),
        "1 bit: the means are an array, not a list": "np.array(means, np.float32)  ->  means",
        "1 bit: the means are float32: np.array(means, np.float32)": "np.array(means, np.float32)  ->  np.array(means)",
        "1 bit, back: n values, no more: [:n]": ("np.unpackbits(bits)[:n]  ->  np.unpackbits(bits)"),
        "1 bit, back: the last byte is filled up at its end: [:n]": (
            "np.unpackbits(bits)[:n]  ->  np.unpackbits(bits)[-n:]"
        ),
        "1 bit, back: the first bit is the first value, as np.unpackbits has it": (
            "np.unpackbits(bits)[:n]  ->  np.unpackbits(bits, bitorder='little')[:n]"
        ),
        "1 bit, back: bit 1 has the first mean": "means[1 - np.unpackbits  ->  means[np.unpackbits",
        "1 bit, back: the result is float32": "return means[1 -  ->  return means.astype(float)[1 -",
        "top k: the largest in magnitude: abs(x)": f"{PLACES}  ->  np.argsort(x)[-k:]",
        "top k: these are the smallest": [
            f"{PLACES}  ->  np.argsort(np.abs(x))[:k]",
            f"{PLACES}  ->  np.argpartition(np.abs(x), k)[:k]",
        ],
        "top k: k values, no more and no fewer, also with ties": [
            f"{PLACES}  ->  np.flatnonzero(np.abs(x) >= np.sort(np.abs(x))[-k])",
            f"{PLACES}  ->  np.flatnonzero(np.abs(x) > np.sort(np.abs(x))[-k])",
            f"{PLACES}  ->  np.argsort(np.abs(x))[-k + 1:]",
            f"{PLACES}  ->  np.argpartition(np.abs(x), -k)[-k - 1:]",
        ],
        "top k: argpartition with -k, not k, puts the largest last": (
            f"{PLACES}  ->  np.argpartition(np.abs(x), min(k, len(x) - 1))[-k:]"
        ),
        "top k: the last k are [-k:]": f"{PLACES}  ->  np.argsort(np.abs(x))[-k - 1 : -1]",
        "top k: each place once": f"{PLACES}  ->  np.full(k, np.argmax(np.abs(x)))",
        "top k: at each place its value": [
            "return places, x[places]  ->  return places, np.sort(x[places])",
            "return places, x[places]  ->  return places, x[places][::-1]",
            "return places, x[places]  ->  return np.sort(places), x[places]",
        ],
        "top k: the values have lost their signs": "return places, x[places]  ->  return places, np.abs(x[places])",
        "top k: the places are uint32: astype(np.uint32)": ".astype(np.uint32)  ->  ",
        "top k: the places come first, then the values": "return places, x[places]  ->  return x[places], places",
        "top k, back: 0 wherever nothing was sent": [
            "np.zeros(n, np.float32)  ->  np.ones(n, np.float32)",
            "np.zeros(n, np.float32)  ->  np.full(n, np.nan, np.float32)",
        ],
        "top k, back: n values that are float32: np.zeros(n, np.float32)": ("np.zeros(n, np.float32)  ->  np.zeros(n)"),
        "top k, back: n values, also where the last ones are 0": [
            "np.zeros(n, np.float32)  ->  np.zeros(places.max() + 1, np.float32)",
            "np.zeros(n, np.float32)  ->  np.zeros(n + 1, np.float32)",
        ],
        "top k, back: each value goes to its place": "x[places] = values  ->  x[:len(values)] = values",
        "did you forget `return`?": [
            "return scale, levels  ->  scale, levels",
            f"return {BACK}  ->  {BACK}",
            "return np.array(means, np.float32), np  ->  np.array(means, np.float32), np",
            "return means[1 -  ->  means[1 -",
            "return places, x[places]  ->  places, x[places]",
            "x[places] = values\n    return x  ->  x[places] = values",
        ],
    },
    may_pass={"if scale[-1] > 0": "an array of one", "decode_8bit, argument n frozen": "the levels are n"},
)

GATHER = "    rows = [comm.all_gather(part) for part in code]\n"
GIVEN, ERROR = "given = x + error", "error[...] = given - decode(*code, len(x))"
SUM = "sum(decode(*(part[r] for part in rows), len(x)) for r in range(comm.size))"

EXERCISES["compressed_all_reduce"] = Exercise(
    cases=rows(
        "code ranks n calls first_error",
        ("every third value", 3, 17, 3),
        ("multiples of the mean size", 1, 11, 2),
        ("multiples of the mean size", 5, 7, 3, 0.5),
        ("every third value", 2, 10, 4, 2.0),
    ),
    draw=lambda rng: {
        "code": rng.choice(["every third value", "multiples of the mean size"]),
        "ranks": rng.integers(1, 6),
        "n": rng.integers(3, 60),
        "calls": rng.integers(2, 5),
        "first_error": rng.uniform(0.2, 2),
        "seed": rng.integers(10**6),
    },
    inplace=True,
    mistakes={
        "the error is this rank's own: minus what arrives from it, not from rank 0": (
            f"{ERROR}  ->  pass",
            f"return {SUM}  ->  error[...] = given - decode(*(part[0] for part in rows), len(x))\n    return {SUM}",
        ),
        "the error is what the code that was sent has left out": (
            f"{ERROR}  ->  error[...] = given - decode(*encode(x), len(x))"
        ),
        "each rank's code is decoded by itself, then added": f"{SUM}  ->  decode(*rows, len(x))",
        "codes cannot be added, also when they are gathered: decode each": (
            f"{SUM}  ->  decode(*(part.sum(axis=0, dtype=part.dtype) for part in rows), len(x))"
        ),
        "the whole error is kept, not half": f"{ERROR}  ->  error[...] = (given - decode(*code, len(x))) / 2",
        "the error of the last call is not added": f"{GIVEN}  ->  given = x",
        "no error is added, and none kept": (
            f"{GIVEN}  ->  given = x",
            f"{ERROR}  ->  pass",
        ),
        "this rank's own code is among those gathered: add it once": f"{SUM}  ->  {SUM} + decode(*code, len(x))",
        "encode x + error, not x": "encode(given)  ->  encode(x)",
        "the whole error is added": [
            f"{GIVEN}  ->  given = x + np.float32(0.9) * error",
            f"{GIVEN}  ->  given = x + error / np.float32(comm.size)",
        ],
        "the new error is that of x + error, not that of error": (
            f"{ERROR}  ->  error[...] = error - decode(*code, len(x))"
        ),
        "codes cannot be added: gather them, decode each, and add what arrives": (
            f"return {SUM}  ->  return decode(*(comm.all_reduce(part.copy()) for part in code), len(x))"
        ),
        "`error` is as it was: write into it, error[...] = ...": [
            f"{ERROR}  ->  pass",
            f"{ERROR}  ->  error = given - decode(*code, len(x))",
            "given = x + error  ->  error = error.copy()\n    given = x + error",
        ],
        "the new error is that of x + error, not that of x": f"{ERROR}  ->  error[...] = x - decode(*code, len(x))",
        "the error is what was meant minus what arrives": f"{ERROR}  ->  error[...] = decode(*code, len(x)) - given",
        "if the error is what was meant minus what arrives, add it": f"{GIVEN}  ->  given = x - error",
        "the new error replaces the old one: it is in x + error already": (
            f"{ERROR}  ->  error += given - decode(*code, len(x))"
        ),
        "the error is what the message left out: minus what arrives": f"{ERROR}  ->  error[...] = given",
        "the error is this rank's own: minus what arrives from it, not from all": [
            (f"{ERROR}  ->  pass", f"return {SUM}  ->  total = {SUM}\n    error[...] = {kept}\n    return total")
            for kept in ("given - total", "given - total / comm.size", "comm.size * given - total")
        ],
        "the error stays on its rank: it is not summed": [
            f"{ERROR}  ->  error[...] = comm.all_reduce(given - decode(*code, len(x))) / np.float32(comm.size)",
            f"{SUM}  ->  {SUM} + comm.all_reduce(error.copy())",
        ],
        "keep what is left out now: not 0": f"{ERROR}  ->  error[...] = 0",
        "a sum over ranks, not a mean": f"{SUM}  ->  {SUM} / np.float32(comm.size)",
        "this rank's own code belongs to the sum": [
            f"{SUM}  ->  {zero}{SUM.replace('range(comm.size)', 'range(comm.size) if r != comm.rank')}"
            for zero in ("", "np.float32(0) * x + ")
        ],
        "each rank's code is another: decode all of them": f"{SUM}  ->  decode(*code, len(x)) * np.float32(comm.size)",
        "this is what arrives from this rank alone": f"{SUM}  ->  decode(*code, len(x))",
        "the codes of all ranks, not of three": "range(comm.size))  ->  range(min(comm.size, 3)))",
        "the codes of all ranks, of rank 0 too": [
            f"{SUM}  ->  {zero}{SUM.replace('range(comm', 'range(1, comm')}" for zero in ("", "np.float32(0) * x + ")
        ],
        "the error is sent next time, not now": f"{SUM}  ->  {SUM} + error",
        "x changed: x + error makes a new array, x += error does not": [
            f"{GIVEN}  ->  x += error\n    given = x",
            f"return {SUM}  ->  x[...] = {SUM}\n    return x",
        ],
        "send the codes alone, not what they decode to": [
            f"{SUM}  ->  comm.all_reduce(decode(*code, len(x)))",
            (f"{GATHER}  ->  ", f"{SUM}  ->  comm.all_reduce(decode(*code, len(x)))"),
            (f"{GATHER}  ->  ", f"{SUM}  ->  comm.all_gather(decode(*code, len(x))).sum(axis=0)"),
        ],
        "these are the gradients themselves: send their codes": [
            (f"{GATHER}  ->  ", f"{SUM}  ->  comm.all_gather(x).sum(axis=0)"),
            (f"{GATHER}  ->  ", f"{SUM}  ->  comm.all_reduce(x.copy())"),
        ],
        "send each array of the code once, and nothing else": [
            "    rows =  ->      comm.all_gather(x)\n    rows =",
            "    rows =  ->      [comm.all_gather(part) for part in code]\n    rows =",
        ],
        "the sum has the dtype of what arrives: float32": f"{SUM}  ->  np.zeros(len(x)) + {SUM}",
        "did you forget `return`?": f"return {SUM}  ->  {SUM}",
    },
    may_pass={"len(error))": "as long as x", "len(given))": "as long as x"},
)

DELTA, STEP = "delta = start - comm.all_reduce(end.copy()) / comm.size", "start - lr * (delta + mu * velocity)"
GAIN = "    velocity *= mu\n    velocity += delta\n"

EXERCISES["diloco_round"] = Exercise(
    cases=rows(
        "ranks n rounds lr mu dtype",
        (3, 5, 3),
        (4, 6, 3, 0.4, 0.6, "float32"),
        (2, 4, 2, 0.9, 0.7),
        (1, 3, 2, 1.3, 0.2),
    ),
    draw=lambda rng: {
        "ranks": rng.integers(1, 6),
        "n": rng.integers(2, 9),
        "rounds": rng.integers(2, 5),
        "lr": rng.uniform(0.1, 1.5),
        "mu": rng.uniform(0.05, 0.95),
        "dtype": rng.choice(["float32", "float64"]),
        "seed": rng.integers(10**6),
    },
    inplace=True,
    mistakes={
        "the velocity takes the mean of all displacements": "velocity += delta\n  ->  velocity += start - end\n",
        "the velocity is the same on all ranks: do not sum it": (
            "velocity += delta\n  ->  velocity += delta\n    comm.all_reduce(velocity)\n"
        ),
        "mu times the new velocity: mu once, not squared": f"{STEP}  ->  start - lr * (delta + mu * mu * velocity)",
        "delta points from the mean back to the start: start - mean": (
            "start - comm.all_reduce(end.copy()) / comm.size  ->  comm.all_reduce(end.copy()) / comm.size - start"
        ),
        "delta points from start to mean, and is added: then the velocity is start - mean, too": [
            (
                "start - comm.all_reduce(end.copy()) / comm.size  ->  comm.all_reduce(end.copy()) / comm.size - start",
                f"{STEP}  ->  start + lr * (delta + mu * velocity)",
            )
        ],
        "this is momentum: Nesterov moves by delta + mu v, with the new v": [
            f"{STEP}  ->  start - lr * velocity",
            (f"{GAIN}  ->      w = {STEP}\n{GAIN}", f"return {STEP}  ->  return w"),
        ],
        "delta points from the mean back to the start, and is subtracted": (
            f"{STEP}  ->  start + lr * (delta + mu * velocity)"
        ),
        "go on from start, not from the mean": f"{STEP}  ->  start - delta - lr * (delta + mu * velocity)",
        "go on from start, not from this rank's own end": f"{STEP}  ->  end - lr * (delta + mu * velocity)",
        "this is local SGD: the mean itself": [
            f"{STEP}  ->  start - delta",
            (f"{GAIN}  ->  ", f"{STEP}  ->  start - delta"),
        ],
        "the velocity is missing": [
            f"{STEP}  ->  start - lr * delta",
            (f"{GAIN}  ->  ", f"{STEP}  ->  start - lr * delta"),
        ],
        "the velocity is not updated: v becomes mu v + delta, before the step": f"{GAIN}  ->  ",
        "v becomes mu v + delta: += adds that to the old v": f"{GAIN}  ->      velocity += mu * velocity + delta\n",
        "mu times the velocity is added to delta": f"{STEP}  ->  start - lr * (delta + velocity)",
        "lr multiplies both: lr (delta + mu v)": f"{STEP}  ->  start - (lr * delta + mu * velocity)",
        "the rate is missing": f"{STEP}  ->  start - (delta + mu * velocity)",
        "the velocity fades first, then delta is added in full": "velocity += delta\n  ->  velocity += mu * delta\n",
        "the mean over ranks, not their median": (
            f"{DELTA}  ->  delta = start - np.median(comm.all_gather(end), axis=0)"
        ),
        "an array, not a list": f"return {STEP}  ->  return ({STEP}).tolist()",
        "any number of ranks, not at most three: comm.size": "/ comm.size  ->  / min(comm.size, 3)",
        "all_reduce sums: divide by the number of ranks": [
            " / comm.size  ->  ",
            f"{DELTA}  ->  delta = comm.all_reduce(start - end)",
        ],
        "divided by the number of ranks once too often": "/ comm.size  ->  / comm.size**2",
        "start is the same on all ranks: it needs no all_reduce": (
            "delta = start -  ->  delta = comm.all_reduce(start.copy()) -"
        ),
        "return the parameters alone: velocity is changed in place": f"return {STEP}  ->  return {STEP}, velocity",
        "the mean of all ranks, not rank 0's end": (f"{DELTA}  ->  delta = start - comm.broadcast(end.copy())"),
        "this rank's own end: the mean needs an all_reduce": f"{DELTA}  ->  delta = start - end",
        "the velocity fades: mu v + delta": "velocity *= mu  ->  pass",
        "delta is added in full: mu v + delta": "velocity += delta  ->  velocity += (1 - mu) * delta",
        "the velocity has no rate: mu v + delta": "velocity += delta  ->  velocity += lr * delta",
        "what was before is lost: mu v + delta": "velocity *= mu  ->  velocity *= 0",
        "velocity = ... makes a new array: change this one in place": (
            f"{GAIN}  ->      velocity = mu * velocity + delta\n"
        ),
        "lr and mu are arguments: 0.7 and 0.9 are defaults": [
            f"    delta = start  ->      {fixed}\n    delta = start"
            for fixed in ("lr, mu = 0.7, 0.9", "lr = 0.7", "mu = 0.9")
        ],
        "lr is 0.7 and mu 0.9 unless others are given": ["lr=0.7  ->  lr=1.0", "mu=0.9  ->  mu=0.0"],
        "start changed: start = start - ..., not start -= ...": (
            f"    return {STEP}  ->      start -= lr * (delta + mu * velocity)\n    return start"
        ),
        "end changed: all_reduce sums in place, so give it end.copy()": [
            "end.copy()  ->  end",
            f"return {STEP}  ->  end[...] = {STEP}\n    return end",
        ],
        "the parameters keep the dtype of start": f"{STEP}  ->  start.astype(float) - lr * (delta + mu * velocity)",
        "did you forget `return`?": f"return {STEP}  ->  {STEP}",
    },
)
