"""Wrong answers to lab 14."""

FIT = """    equations = np.stack([1 / t, 1 / (p * t)], axis=1)
    a, b = np.linalg.lstsq(equations, np.ones(len(p)), rcond=None)[0]
"""
SOLVED = "np.linalg.lstsq(equations, np.ones(len(p)), rcond=None)[0]"
END = "end = max(now[k] for k in members) + seconds.get(item, item)"
ALL_HERE = "item is not None and all(following(k) == item for k in members)"
ALONE = """
def finish(programs, seconds):
    return [float(sum(seconds.get(item, item) for item in program)) for program in programs]
"""
BARRIERS = """
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
BYTES = "3 * 2 * 12 * blocks * width**2"
BETTER = 'found["fits"] and found["share of peak"] > most'
SKIP = "        try:\n            found = score(plan)\n        except ValueError:\n            continue\n"


def fit(columns, right="np.ones(len(p))"):
    """The lines FIT with other columns and another right-hand side."""
    return FIT.replace("1 / t, 1 / (p * t)", columns).replace("np.ones(len(p)), r", f"{right}, r")


MUTANTS = {
    "fit_amdahl": [
        ("absolute errors", FIT, fit("np.ones(len(p)), 1 / p", "t")),
        ("swapped", "return a, b", "return b, a"),
        ("shares", "return a, b", "return a / (a + b), b / (a + b)"),
        ("p for 1 / p", FIT, fit("1 / t, p / t")),
        ("weighted by the time", FIT, fit("t, t / p", "t * t")),
        ("two points", SOLVED, "np.linalg.solve(equations[[0, -1]], np.ones(2))"),
        ("the times", "return a, b", "return a + b / p"),
        ("only b", FIT, fit("0 / t, 1 / (p * t)")),
        ("one left alone", SOLVED, "np.linalg.lstsq(equations[:-1], np.ones(len(p) - 1), rcond=None)[0]"),
        ("right side not divided", "np.ones(len(p)), rcond", "t, rcond"),
        ("of speed-ups", FIT, "    t = t[0] / t\n" + fit("np.ones(len(p)), 1 / p", "t")),
        ("no return", "    return a, b", "    a, b"),
    ],
    "finish": [
        ("nobody waits", ALONE),
        ("everybody waits", BARRIERS),
        ("operations are free", END, "end = max(now[k] for k in members) + (0 if isinstance(item, str) else item)"),
        ("computing is free", END, "end = max(now[k] for k in members) + seconds.get(item, 0)"),
        ("begins with the first", END, "end = min(now[k] for k in members) + seconds.get(item, item)"),
        ("the last of all", "    return now", "    return max(now)"),
        ("all at the last", "    return now", "    return [max(now)] * n"),
        ("only this rank goes on", "for k in members:\n", "for k in [r]:\n"),
        ("does not look whether all are there", ALL_HERE, "item is not None"),
        ("all ranks take part", "[k for k in range(n) if item in programs[k]]", "list(range(n))"),
        ("returns at a deadlock", 'raise ValueError("ranks wait for each other")', "return now"),
        ("another error", 'raise ValueError("ranks', 'raise RuntimeError("ranks'),
        ("sums of ends", END, "end = sum(now[k] for k in members) + seconds.get(item, item)"),
        (
            "twice as long",
            END,
            "end = max(now[k] for k in members) + 2 * seconds.get(item, 0) + (0 if item in seconds else item)",
        ),
        ("where it stands", "    return now", "    return at"),
    ],
    "workers_needed": [
        ("bandwidth ignored", "    if rate * nbytes > bandwidth:\n        return math.inf\n", ""),
        ("always too slow", "if rate * nbytes > bandwidth", "if rate * nbytes <= bandwidth"),
        ("bytes of an answer", "rate * nbytes > bandwidth", "rate * nbytes * images > bandwidth"),
        ("images ignored", "latency / images", "latency"),
        ("no decoding", "latency / images + decode", "latency / images"),
        ("no latency", "latency / images + decode", "decode"),
        ("rounded", "math.ceil", "round"),
        ("down", "math.ceil", "math.floor"),
        ("not whole", "math.ceil(rate * (latency / images + decode))", "rate * (latency / images + decode)"),
        (
            "one more",
            "math.ceil(rate * (latency / images + decode))",
            "math.ceil(rate * (latency / images + decode)) + 1",
        ),
        ("the longer of the two", "latency / images + decode", "max(latency / images, decode)"),
        ("sending counted", "latency / images + decode", "latency / images + decode + nbytes / bandwidth"),
        ("per second", "rate * (latency / images + decode)", "(latency / images + decode) / rate"),
        ("raises", "        return math.inf", "        raise ValueError('too slow')"),
        ("0 for impossible", "        return math.inf", "        return 0"),
    ],
    "step_time": [
        ("no recomputation", "96 * width**2 + 16 * width * length", "72 * width**2 + 12 * width * length"),
        ("no attention", "96 * width**2 + 16 * width * length", "96 * width**2"),
        ("one sequence", "flops = batch * length", "flops = length"),
        ("full peak", "gpus * peak * efficiency", "gpus * peak"),
        ("efficiency above", "gpus * peak * efficiency", "gpus * peak / efficiency"),
        ("one GPU", "(gpus * peak * efficiency)", "(peak * efficiency)"),
        ("replicas are GPUs", "gpus / (tensor * pipeline)", "gpus"),
        ("pipeline alone", "gpus / (tensor * pipeline)", "gpus / pipeline"),
        ("micro-batch forgotten", "(replicas * microbatch)", "replicas"),
        ("replicas forgotten", "(replicas * microbatch)", "microbatch"),
        ("sum", "max(computing, m * nbytes / link)", "computing + m * nbytes / link"),
        ("once a step", "m * nbytes / link", "nbytes / link"),
        ("gathered twice", BYTES, "2 * 2 * 12 * blocks * width**2"),
        ("one byte", BYTES, "3 * 12 * blocks * width**2"),
        ("four bytes", BYTES, "3 * 4 * 12 * blocks * width**2"),
        ("only the link", "return max(computing, m * nbytes / link)", "return m * nbytes / link"),
        ("only the cards", "return max(computing, m * nbytes / link)", "return computing"),
        ("shared by GPUs", "m * nbytes / link", "m * nbytes / gpus / link"),
        ("no bubble", "computing * (m + pipeline - 1) / m", "computing"),
        ("one slot too many", "(m + pipeline - 1) / m", "(m + pipeline) / m"),
        (
            "bubble by its share",
            "computing * (m + pipeline - 1) / m",
            "computing * (1 + (pipeline - 1) / (m + pipeline - 1))",
        ),
        ("full part", "computing * (m + pipeline - 1) / m", "computing * m / (m + pipeline - 1)"),
        ("the shorter", "max(computing, m", "min(computing, m"),
        ("ZeRO for all", "    if zero:", "    if True:"),
        ("width once", BYTES, "3 * 2 * 12 * blocks * width"),
    ],
    "search": [
        ("does not ask whether it fits", BETTER, 'found["share of peak"] > most'),
        ("the worst", BETTER, 'found["fits"] and (best is None or found["share of peak"] < most)'),
        ("the first", BETTER, 'found["fits"] and best is None'),
        ("the last", BETTER, 'found["fits"]'),
        ("errors pass", SKIP, "        found = score(plan)\n"),
        ("stops at an error", "            continue", "            break"),
        ("least of what is lost", "max(lost, key=lost.get)", "min(lost, key=lost.get)"),
        ("the number", "max(lost, key=lost.get)", "max(lost.values())"),
        ("the last name", "max(lost, key=lost.get)", "max(lost)"),
        ("no weakest", 'plan | {"weakest": max(lost, key=lost.get)}', "plan"),
        ("values alone", 'plan | {"weakest": max(lost, key=lost.get)}', "values"),
        ("with its share", "    return best", "    return best, most"),
        ("only the share", "    return best", "    return most"),
        ("empty for none", "best, most = None, 0.0", "best, most = {}, 0.0"),
        ("zip of options", "itertools.product(*options.values())", "zip(*options.values())"),
        (
            "weakest of the last",
            "    return best",
            '    return best and best | {"weakest": max(found["lost"], key=found["lost"].get)}',
        ),
    ],
}
