"""The exercises of lab 14: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

SOLVED = "np.linalg.lstsq(equations, np.ones(len(p)), rcond=None)[0]"
COLUMNS = "np.stack([1 / t, 1 / (p * t)], axis=1)"
PLAIN = "np.stack([np.ones(len(p)), 1 / p], axis=1)"

EXERCISES["fit_amdahl"] = Exercise(
    cases=rows(
        "ranks seconds",
        ([1, 2, 4], [7.0, 4.0, 2.5]),
        ([1, 2, 4, 8], [10.3, 5.6, 3.4, 3.7]),
        ([16, 2, 5, 1], [1.3, 4.1, 2.6, 7.7]),
        ([1, 3, 9, 27, 64], [9.1, 3.4, 0.8, 0.3, 0.1]),
    ),
    draw=lambda rng: {
        "ranks": (p := rng.permutation(64)[: rng.integers(3, 9)] + 1).tolist(),
        "seconds": ((rng.uniform(0.1, 2) + rng.uniform(5, 50) / p) * rng.uniform(0.7, 1.4, len(p))).tolist(),
    },
    rtol=1e-4,
    mistakes={
        "each equation is divided by its time once": (
            "1 / t, 1 / (p * t)  ->  1 / t**2, 1 / (p * t**2)",
            "np.ones(len(p))  ->  1 / t",
        ),
        "b first: return a, b": "return a, b  ->  return b, a",
        "these are shares: return seconds": "return a, b  ->  return a / (a + b), b / (a + b)",
        "relative errors: divide each equation by its time": (
            f"{COLUMNS}  ->  {PLAIN}",
            "np.ones(len(p)), rcond  ->  t, rcond",
        ),
        "divide by the time, do not multiply": (
            f"{COLUMNS}  ->  {PLAIN} * t[:, None]",
            "np.ones(len(p)), rcond  ->  t * t, rcond",
        ),
        "divide the right-hand sides, too: they become 1": ("np.ones(len(p)), rcond  ->  t, rcond"),
        "divide the left-hand sides, both columns, by the time, too": [
            f"{COLUMNS}  ->  {PLAIN}",
            f"{COLUMNS}  ->  np.stack([np.ones(len(p)), 1 / (p * t)], axis=1)",
        ],
        "two unknowns: a is missing": f"{COLUMNS}  ->  np.stack([0 / t, 1 / (p * t)], axis=1)",
        "the column of b has 1 / p, not p": f"{COLUMNS}  ->  np.stack([1 / t, p / t], axis=1)",
        "these are fitted to speed-ups, not to seconds": (
            f"{COLUMNS}  ->  {PLAIN}",
            "np.ones(len(p)), rcond  ->  t[0] / t, rcond",
        ),
        "all points count, not only the first and the last": (
            f"{SOLVED}  ->  np.linalg.solve(equations[[0, -1]], np.ones(2))"
        ),
        "all points count, the last one too": (
            f"{SOLVED}  ->  np.linalg.lstsq(equations[:-1], np.ones(len(p) - 1), rcond=None)[0]"
        ),
        "a and b are two numbers, not the times they give": "return a, b  ->  return a + b / p",
        "a may be negative: times can fall faster than 1 / p": ("return a, b  ->  return max(a, 0), b"),
        "ranks and seconds belong together: sort both alike, or neither": (
            "np.asarray(seconds, float)  ->  np.sort(np.asarray(seconds, float))[::-1]"
        ),
        "leave the lists as they are": "p, t = np.asarray  ->  ranks.sort(); p, t = np.asarray",
        "lstsq returns three things more: the solution is the first, [0]": (
            "rcond=None)[0]\n    return a, b  ->  rcond=None), 0\n    return a"
        ),
        "did you forget `return`?": "    return a, b  ->      a, b",
    },
    may_pass={
        "np.ones(len(": "as many",
        "np.ones(len(p)))[0]": "rcond is the default",
        "(ranks * t)": "a list times an array",
        "(p * seconds)": "a list times an array",
    },
)

END = "max(now[k] for k in members) + seconds.get(item, item)"
HERE = "item is not None and all(following(k) == item for k in members)"
ALONE = """
def finish(programs, seconds):
    return [float(sum(seconds.get(item, item) for item in program)) for program in programs]
"""
ONE_PASS = """
def finish(programs, seconds):
    now, ends = [0.0] * len(programs), {}
    for r, program in enumerate(programs):
        for item in program:
            if isinstance(item, str):
                ends[item] = now[r] = max(now[r] + seconds[item], ends.get(item, 0))
            else:
                now[r] += item
    return now
"""
EVERYBODY = """
def finish(programs, seconds):
    names = list(dict.fromkeys(item for program in programs for item in program if isinstance(item, str)))
    now, at = [0.0] * len(programs), [0] * len(programs)
    for name in names + [None]:
        for r, program in enumerate(programs):
            while at[r] < len(program) and not isinstance(program[at[r]], str):
                now[r] += program[at[r]]
                at[r] += 1
        if name is not None:
            now = [max(now) + seconds[name]] * len(programs)
            at = [at[r] + (at[r] < len(p) and p[at[r]] == name) for r, p in enumerate(programs)]
    return now
"""
IN_ORDER = """
def finish(programs, seconds):
    now, at = [0.0] * len(programs), [0] * len(programs)
    for name in [*seconds, None]:
        for r, program in enumerate(programs):
            while at[r] < len(program) and not isinstance(program[at[r]], str):
                now[r] += program[at[r]]
                at[r] += 1
        members = [r for r, program in enumerate(programs) if name in program]
        if any(programs[r][at[r]] != name for r in members):
            raise ValueError("ranks wait for each other")
        end = max((now[r] for r in members), default=0) + seconds.get(name, 0)
        for r in members:
            now[r], at[r] = end, at[r] + 1
    return now
"""

EXERCISES["finish"] = Exercise(
    cases=[
        {"programs": [[3, "sum", 1], [5, "sum", 4]], "seconds": {"sum": 2.5}},
        {"programs": [[2.5], [], [1, 0.25]], "seconds": {}},
        {
            "programs": [["a", 1, "b"], [4, "a", "b"], [2, "b", 3], [1.5, "c"]],
            "seconds": {"b": 0.5, "a": 2, "c": 0.75},
        },
        {"programs": [[0, 5], [0, 3.5]], "seconds": {}},
        {"programs": [[], []], "seconds": {}},
        {"programs": [["a", 1, "b"], [2, "a", "b", 2]], "seconds": {"b": 1.5, "a": 0.5}},
        {"programs": [[0, "x", 0, 2], [1, "x", "y"], [0, 7, "y", 1]], "seconds": {"y": 0, "x": 0}},
        {"ranks": 5, "joint": 7, "seed": 3},
        {"ranks": 3, "joint": 190, "seed": 4},
        {
            "programs": [["a"], ["b", "a"], ["c", "b"], ["d", "c"], [1.5, "d"]],
            "seconds": {"a": 1, "b": 2, "c": 0.5, "d": 3},
        },
        {"programs": [["a", "b"], ["b", "a"]], "seconds": {"a": 1, "b": 1}},
        {"programs": [[1, "a", "b"], [2, "b", "a"], [1, 1, 1, 1]], "seconds": {"a": 1, "b": 1}},
    ],
    draw=lambda rng: {
        "ranks": rng.integers(2, 8),
        "joint": rng.integers(1, 25),
        "seed": rng.integers(10**6),
    },
    mistakes={
        "the latest of its ranks, not the one whose turn it is": (f"{END}  ->  now[r] + seconds.get(item, item)"),
        "only its own ranks count, not the last of all": (
            f"{END}  ->  (max(now) if item in seconds else now[r]) + seconds.get(item, item)"
        ),
        "go round until nothing moves, however often": (
            "while any(following(r) is not None for r in range(n)):"
            "  ->  for _ in range(1 + max(map(len, programs), default=0)):",
            "    return now  ->      if any(following(r) is not None for r in range(n)):\n"
            '        raise ValueError("ranks wait")\n    return now',
            '        if at == before:\n            raise ValueError("ranks wait for each other")\n  ->  ',
        ),
        "an operation begins when the last of its ranks has arrived": ALONE,
        "a rank does not know who comes later: go round until nothing moves": ONE_PASS,
        "only the ranks in whose programs a name stands take part": [
            EVERYBODY,
            "[k for k in range(n) if item in programs[k]]  ->  list(range(n))",
        ],
        "the order of `seconds` says nothing about that of operations": IN_ORDER,
        "the operation itself takes seconds[name]": (
            f"{END}  ->  max(now[k] for k in members) + (0 if isinstance(item, str) else item)"
        ),
        "computing takes time, too": (f"{END}  ->  max(now[k] for k in members) + seconds.get(item, 0)"),
        "it begins when the last has arrived, not the first": (
            f"{END}  ->  min(now[k] for k in members) + seconds.get(item, item)"
        ),
        "the last of its ranks counts, not the sum of all": (
            f"{END}  ->  sum(now[k] for k in members) + seconds.get(item, item)"
        ),
        "compute the end before the first of them goes on": (
            "at[k], now[k] = at[k] + 1, end  ->  "
            "at[k], now[k] = at[k] + 1, max(now[j] for j in members) + seconds.get(item, item)"
        ),
        "one time for each rank, not the last of all": [
            "    return now  ->      return max(now)",
            "    return now  ->      return [max(now)] * n",
        ],
        "times by rank, in the order of the ranks": "    return now  ->      return sorted(now)",
        "all ranks of an operation go on when it ends": "for k in members:\n  ->  for k in [r]:\n",
        "an operation waits until all its ranks are at its name": f"{HERE}  ->  item is not None",
        "a time of 0 is a time: ask whether it is None": (
            "while any(following(r) is not None for r in range(n))  ->  while any(following(r) for r in range(n))"
        ),
        "ranks that wait for each other for ever: raise a ValueError": [
            'raise ValueError("ranks wait for each other")  ->  return now',
            'raise ValueError("ranks  ->  raise RuntimeError("ranks',
        ],
        "they wait for ever, although another rank has ended": (
            "if at == before:  ->  if at == before and all(isinstance(following(r), str) for r in range(n)):"
        ),
        "raise only if a whole round moves no rank": "before = list(at)  ->  before = at",
        "an operation that one rank has alone is done, too": (
            f"{HERE}  ->  {HERE} and (len(members) > 1 or not isinstance(item, str))"
        ),
        "programs may be longer than that": (
            "while any(following(r) is not None for r in range(n)):  ->  for _ in range(100):"
        ),
        "leave the programs as they are": (
            "n = len(programs)  ->  [program.append(0) for program in programs]; n = len(programs)"
        ),
        "did you forget `return`?": "    return now  ->      now",
        "seconds may be an int, too: only a str names an operation": (
            "if item is not None and  ->  if item is not None and type(item) is not int and"
        ),
    },
)

NEEDED = "rate * (latency / images + decode)"

EXERCISES["workers_needed"] = Exercise(
    cases=rows(
        "rate latency decode nbytes bandwidth images",
        (300, 0.01, 0.002, 4e3, 1e8),
        (90, 0.03, 0.0161, 1e5, 1e7),
        (700, 0.13, 0.0093, 5e3, 1e7, 20),
        (2000, 0.01, 0.002, 50_001, 1e8),
        (100, 0.02, 0.0001, 2e5, 3e6, 50),
        (128, 0.25, 0.125, 2**17, 2**24),
        (37.5, 0.012, 0.004, 3e4, 1.137e6, 3),
    ),
    draw=lambda rng: {
        "rate": (rate := float(rng.integers(50, 900))),
        "latency": rng.uniform(0.004, 0.09),
        "decode": rng.uniform(0.001, 0.02),
        "nbytes": (nbytes := float(rng.integers(1_000, 200_000))),
        "bandwidth": rate * nbytes / [0.4, 0.97, 1.2][rng.integers(3)],
        "images": int(rng.choice([1, 3, 7, 20])),
    },
    draws=9,
    mistakes={
        "the bytes/s of the storage do not depend on `images`": [
            "rate * nbytes > bandwidth  ->  rate * nbytes * images > bandwidth",
            "rate * nbytes >  ->  rate * nbytes / images >",
        ],
        "a worker's rate need not be a whole number": f"{NEEDED}  ->  rate / int(rate / ({NEEDED}))",
        "`rate` counts images, not answers": f"math.ceil({NEEDED})  ->  math.ceil(images * {NEEDED})",
        "bytes on both sides: no factor 8": "rate * nbytes > bandwidth  ->  8 * rate * nbytes > bandwidth",
        "`images` images share a latency: divide it by them": "latency / images  ->  latency * images",
        "a line that is just fast enough is fast enough": "rate * nbytes > bandwidth  ->  rate * nbytes >= bandwidth",
        "a whole number is not rounded up": (
            "math.ceil(rate * (latency / images + decode))  ->  int(rate * (latency / images + decode)) + 1"
        ),
        "where the storage cannot send so much, return math.inf": [
            "        return math.inf  ->          return None",
            "if rate * nbytes > bandwidth  ->  if False",
            "        return math.inf  ->          return 0",
            "        return math.inf  ->          rate = bandwidth / nbytes",
        ],
        "math.inf is a result: raise nothing": "        return math.inf  ->          raise ValueError('too slow')",
        "math.inf only where rate * nbytes is more than the bandwidth": (
            "rate * nbytes > bandwidth  ->  rate * nbytes <= bandwidth"
        ),
        "whole workers: round up": [f"math.ceil({NEEDED})  ->  {NEEDED}"],
        "round up, not down": f"math.ceil({NEEDED})  ->  int({NEEDED})",
        "round up, not to the nearest": f"math.ceil({NEEDED})  ->  round({NEEDED})",
        "round the sum up, once": (
            f"math.ceil({NEEDED})  ->  math.ceil(rate * latency / images) + math.ceil(rate * decode)"
        ),
        "an answer brings `images` images: its latency is shared": "latency / images + decode  ->  latency + decode",
        "each image is decoded by itself: only the latency is shared": (
            "latency / images + decode  ->  (latency + decode) / images"
        ),
        "decoding keeps a worker busy, too": "latency / images + decode  ->  latency / images",
        "waiting keeps a worker busy: add latency / images, which // makes 0": [
            "latency / images + decode  ->  decode",
            "latency / images  ->  latency // images",
        ],
        "waiting and decoding come one after the other: add": (
            "latency / images + decode  ->  max(latency / images, decode)"
        ),
        "the smallest number that suffices, not one more": f"math.ceil({NEEDED})  ->  int({NEEDED}) + 2",
        "several images in an answer: count in the same way": (
            "    return math.ceil(  ->      if images > 1: return 1\n    return math.ceil("
        ),
        "sending is not counted while the line is fast enough": (
            "latency / images + decode  ->  latency / images + decode + nbytes / bandwidth"
        ),
        "rate images a second: multiply": f"{NEEDED}  ->  (latency / images + decode) / rate",
        "did you forget `return`?": "return math.ceil(  ->  math.ceil(",
    },
    may_pass={"floats": "equal numbers"},
)

FLOPS = "96 * width**2 + 16 * width * length"
BYTES = "3 * 2 * 12 * blocks * width**2"
BUBBLE = "computing * (m + pipeline - 1) / m"
LONGER = "max(computing, m * nbytes / link)"

EXERCISES["step_time"] = Exercise(
    cases=rows(
        "run peak efficiency link",
        ([10, 1000, 500, 60, 3, 40, 4, 5, 0], 1e14, 0.53, 2e10),
        ([7, 3000, 700, 160, 2, 16, 1, 1, 3], 2e14, 0.41, 3e9),
        ([7, 3000, 700, 336, 1, 16, 1, 1, 3], 2e14, 0.41, 9e11),
        ([5, 900, 300, 48, 1, 8, 1, 1, 3], 1.5e14, 0.7, 1e7),
        ([24, 2000, 900, 105, 1, 42, 2, 7, 0], 3e14, 0.62, 2e10),
        ([11, 1500, 650, 90, 3, 10, 1, 2, 0], 2.3e14, 0.37, 1e10),
        ([8, 1200, 400, 60, 2, 10, 1, 1, 0], 1.7e14, 0.45, 1e7),
    ),
    draw=lambda rng: {
        "run": [
            *rng.integers(100, 900, 3).tolist(),
            (d := int(rng.integers(2, 9))) * int(rng.integers(2, 9)) * (micro := int(rng.integers(1, 9))),
            micro,
            *(
                [d, 1, 1, 3]
                if rng.random() < 0.5
                else [d * (t := int(rng.integers(1, 9))) * (p := int(rng.integers(1, 9))), t, p, 0]
            ),
        ],
        "peak": rng.uniform(1e13, 9e14),
        "efficiency": rng.uniform(0.3, 0.7),
        "link": float(rng.choice([1e8, 1e13])),
    },
    draws=8,
    mistakes={
        "4 width length operations for each symbol: `length` once here": (
            "16 * width * length  ->  16 * width * length**2"
        ),
        "tensor-parallel GPUs are among the `gpus` that share computing": (
            "gpus * peak * efficiency  ->  gpus * tensor * peak * efficiency"
        ),
        "a step takes four times the operations of forward": [
            f"{FLOPS}  ->  72 * width**2 + 12 * width * length",
            f"{FLOPS}  ->  24 * width**2 + 4 * width * length",
        ],
        "the term with the length is missing": f"{FLOPS}  ->  96 * width**2",
        "a step has `batch` sequences": [
            "batch * length * blocks  ->  length * blocks",
            "batch * length * blocks  ->  microbatch * length * blocks",
        ],
        "a power is **: ^ is another operation": "96 * width**2  ->  96 * (width ^ 2)",
        "a sequence has `length` symbols": "batch * length * blocks  ->  batch * blocks",
        "all blocks are computed": "batch * length * blocks  ->  batch * length",
        "`efficiency` is the share of the peak that is reached": "gpus * peak * efficiency  ->  gpus * peak",
        "divide by the efficiency: less of the peak takes longer": (
            "gpus * peak * efficiency  ->  gpus * peak / efficiency"
        ),
        "all GPUs share the work": "(gpus * peak * efficiency)  ->  (peak * efficiency)",
        "a replica has tensor * pipeline GPUs": "gpus / (tensor * pipeline)  ->  gpus",
        "tensor ranks belong to a replica, too": "gpus / (tensor * pipeline)  ->  gpus / pipeline",
        "pipeline ranks belong to a replica, too": "gpus / (tensor * pipeline)  ->  gpus / tensor",
        "a micro-batch has `microbatch` sequences": "(replicas * microbatch)  ->  replicas",
        "the batch is shared by the replicas": "(replicas * microbatch)  ->  microbatch",
        "gathers run beside computing: the longer of the two, not the sum": (
            f"{LONGER}  ->  computing + m * nbytes / link"
        ),
        "every micro-batch gathers again": "m * nbytes / link  ->  nbytes / link",
        "the computing is that of all micro-batches already": f"{LONGER}  ->  m * max(computing, nbytes / link)",
        "three times: gathered forward, gathered backward, gradients reduced": [
            f"{BYTES}  ->  2 * 2 * 12 * blocks * width**2",
            f"{BYTES}  ->  2 * 12 * blocks * width**2",
        ],
        "there are `blocks` blocks, not 12": f"{BYTES}  ->  3 * 2 * 12 * 12 * width**2",
        "2 bytes a number": f"{BYTES}  ->  3 * 12 * blocks * width**2",
        "2 bytes a number, not 4": f"{BYTES}  ->  3 * 4 * 12 * blocks * width**2",
        "the parameters of all blocks are gathered": f"{BYTES}  ->  3 * 2 * 12 * width**2",
        "12 width^2 parameters a block": [
            f"{BYTES}  ->  3 * 2 * 12 * blocks * width",
            f"{BYTES}  ->  3 * 2 * blocks * width**2",
        ],
        "every GPU gathers all parameters: they are not shared": "m * nbytes / link  ->  m * nbytes / gpus / link",
        "computing may take longer than the link": (f"return {LONGER}  ->  return m * nbytes / link"),
        "communication is missing": f"return {LONGER}  ->  return computing",
        "the longer of the two, not the shorter": "max(computing, m  ->  min(computing, m",
        "the bubble is missing": f"{BUBBLE}  ->  computing",
        "m + p - 1 slots for m micro-batches": "(m + pipeline - 1) / m  ->  (m + pipeline) / m",
        "the bubble lasts as long as p - 1 micro-batches": (
            f"{BUBBLE}  ->  computing * (1 + (pipeline - 1) / (m + pipeline - 1))"
        ),
        "the bubble makes it longer: divide by the share that is full": (
            f"{BUBBLE}  ->  computing * m / (m + pipeline - 1)"
        ),
        "m + p - 1 belongs into parentheses": f"{BUBBLE}  ->  computing * m + pipeline - 1 / m",
        "divide by m, not by p": f"{BUBBLE}  ->  computing * (m + pipeline - 1) / pipeline",
        "without ZeRO (zero is 0) nothing is gathered": "    if zero:  ->      if True:",
        "`zero` says whether ZeRO-3 is used, not `tensor`": "    if zero:  ->      if tensor == 1:",
        "did you forget `return`?": [f"return {BUBBLE}  ->  {BUBBLE}"],
    },
    may_pass={"max(m * nbytes / link, computing)": "a maximum"},
)

BETTER = 'found["fits"] and found["share of peak"] > most'
TRY = "        try:\n            found = score(plan)\n        except ValueError:\n            continue\n"
WEAKEST = 'plan | {"weakest": max(lost, key=lost.get)}'

EXERCISES["search"] = Exercise(
    cases=rows(
        "options fits seed",
        ({"a": [1, 2], "b": [3, 4, 5]}, 0.6, 10),
        ({"a": [1, 2], "b": [3, 4, 5]}, 0.9, 2),
        ({"tensor": [4, 8], "k": [True, False], "m": [0, 1, 2, 3]}, 0.6, 6),
        ({"a": [1, 2, 3]}, 0.0, 7),
        (
            {
                "p": [1, 2, 4, 8, 16, 32],
                "q": [0.5, 2.5, 9.0, 7.0],
                "r": [1, 3, 5],
                "s": list(range(20)),
                "t": [6, 11, 10, 14, 12],
            },
            0.3,
            2,
        ),
    ),
    draw=lambda rng: {
        "options": {name: rng.permutation(9)[:4].tolist() for name in "abcd"[: int(rng.integers(1, 5))]},
        "fits": rng.uniform(0.2, 0.9),
        "seed": rng.integers(10**6),
    },
    mistakes={
        "all combinations, not one option after the other": """def search(score, options):
    plan, best = {key: values[0] for key, values in options.items()}, None
    for key in options:
        most = 0
        for value in options[key]:
            try:
                found = score(plan | {key: value})
            except ValueError:
                continue
            if found["fits"] and found["share of peak"] > most:
                most, keep, lost = found["share of peak"], value, found["lost"]
        if most:
            plan[key] = keep
            best = plan | {"weakest": max(lost, key=lost.get)}
    return best
""",
        "`weakest` is of the best plan, not of all together": (
            "            continue\n  ->              continue\n"
            "        worst = {k: v + (worst if plan_number else {}).get(k, 0) for k, v in found['lost'].items()}\n"
            "        plan_number += 1\n",
            "best, most = None, 0.0  ->  best, most, plan_number = None, 0.0, 0",
            "    return best  ->      return best and best | {'weakest': max(worst, key=worst.get)}",
        ),
        "None if no plan fits: there is nothing to add `weakest` to": (
            f"{WEAKEST}  ->  plan",
            "    return best  ->      return best | {'weakest': max(lost, key=lost.get)}",
        ),
        "`weakest` is the name alone": (
            f"{WEAKEST}  ->  plan | {{'weakest': {{max(lost, key=lost.get): max(lost.values())}}}}"
        ),
        "only plans that fit raise the share to beat": (
            f'if {BETTER}:\n            most, lost = found["share of peak"], found["lost"]'
            '  ->  if found["share of peak"] > most:\n            most, lost = found["share of peak"], found["lost"]'
            '\n        if found["fits"] and found["share of peak"] == most:'
        ),
        "the largest share of the peak, not the least sum of losses": (
            f"{BETTER}  ->  found['fits'] and -sum(found['lost'].values()) > most",
            "best, most = None, 0.0  ->  best, most = None, -np.inf",
            'most, lost = found["share of peak"]  ->  most, lost = -sum(found["lost"].values())',
        ),
        "`weakest` stands in the plan itself, beside its options": (
            f"{WEAKEST}  ->  {{'plan': plan, 'weakest': max(lost, key=lost.get)}}"
        ),
        "this one does not fit": f'{BETTER}  ->  found["share of peak"] > most',
        "the largest share of the peak, not the smallest": (
            f'{BETTER}  ->  found["fits"] and (best is None or found["share of peak"] < most)'
        ),
        "the best of those that fit, not the first": f'{BETTER}  ->  found["fits"] and best is None',
        "the best of those that fit, not the last": f'{BETTER}  ->  found["fits"]',
        "skip combinations that raise a ValueError": (f"{TRY}  ->          found = score(plan)\n"),
        "go on with the next combination after an error": "            continue  ->              break",
        "after an error the result of the plan before is used again": "            continue  ->              pass",
        "try all combinations: these were not all": (
            "itertools.product(*options.values())  ->  list(itertools.product(*options.values()))[:300]"
        ),
        "`weakest` is what is lost most to, not least": "max(lost, key=lost.get)  ->  min(lost, key=lost.get)",
        "`weakest` is the key of what is lost most": [
            "max(lost, key=lost.get)  ->  max(lost.values())",
            "max(lost, key=lost.get)  ->  max(lost.items(), key=lambda pair: pair[1])",
        ],
        "one dict for all plans: make a new one for each": [
            (
                "best, most = None, 0.0  ->  best, most, plan = None, 0.0, {}",
                "plan = dict(zip(options, values))  ->  plan |= zip(options, values)",
                f"{WEAKEST}  ->  plan; best['weakest'] = max(lost, key=lost.get)",
            )
        ],
        "`weakest` is the key with the largest value, not the last name": "max(lost, key=lost.get)  ->  max(lost)",
        "`weakest` is of the best plan, not of the last": (
            '    return best  ->      return best and best | {"weakest": max(found["lost"], key=found["lost"].get)}'
        ),
        "the plan lacks `weakest`": f"{WEAKEST}  ->  plan",
        "return the plan itself, a dict": f"{WEAKEST}  ->  values",
        "return the plan, without its share": "    return best  ->      return best, most",
        "return the plan, not its share": "    return best  ->      return most",
        "None if no plan fits": "best, most = None, 0.0  ->  best, most = {}, 0.0",
        "all combinations, not the k-th of each": "itertools.product(*options.values())  ->  zip(*options.values())",
        "leave the options as they are": "    return best  ->      options.clear()\n    return best",
        "did you forget `return`?": "    return best  ->      best",
    },
    may_pass={"arrays as lists": "", ">= most": "no two shares are equal", "(None, -1.0)": "shares are above 0"},
)
