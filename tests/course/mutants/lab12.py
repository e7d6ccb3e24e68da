"""Wrong answers to lab 12."""

DELAY = "(timeout * seen - seen**2 / 2).sum() / gaps.sum()"
LATE = "[rank for rank in sorted(last) if last[rank][0] < number]"
WRITES = '[("write", "part", whole), ("rename", "part", name), *(("remove", n) for n in old)]'
WHOLE = 'if name.startswith("step-") and zlib.crc32(body).to_bytes(4, "little") == check:'
FORMULA = "1 - cost / interval - interval / (2 * mtbf) - restart / mtbf"
RELATIVE = "times / np.median(times, axis=1, keepdims=True)"
FOUND = "np.flatnonzero((mean - np.median(mean)) / error > limit).tolist()"
EVEN = 'zlib.crc32(body).to_bytes(4, "little") + body'
LATE_RETURN = 'return "missing", late, number'
ORDER = "default_rng([seed, epoch]).permutation(n)\n        found"
SHARE_OF_ROWS = "np.random.default_rng([seed, epoch]).permutation(n)[rank * (n // size):(rank + 1) * (n // size)]"
REMOVES = '[*(("remove", n) for n in sorted(files)), ("write", "part", whole), ("rename", "part", name)]'
LIMIT = "NormalDist().inv_cdf(1 - rate / times.shape[1])"
ROWS = "np.random.default_rng([seed, epoch]).permutation(n)[rank::size]"
RESTORE = "    if comm.rank == 0:\n        w[...] = saved\n    comm.broadcast(w)\n"

MUTANTS = {
    "watch": [
        ("arrivals are gaps", "gaps = np.diff(arrivals)", "gaps = arrivals"),
        ("counts the quiet ones", "(gaps > timeout).sum()", "(gaps <= timeout).sum()"),
        ("all gaps in full", "np.minimum(gaps, timeout)", "gaps"),
        ("always the timeout", DELAY, "timeout"),
        ("a plain mean", DELAY, "(timeout - seen / 2).mean()"),
        ("not divided", DELAY, "(timeout * seen - seen**2 / 2).sum()"),
        ("adds the silence", "seen - seen**2 / 2", "seen + seen**2 / 2"),
        ("without the half", "seen**2 / 2", "seen**2"),
        (
            "results swapped",
            "return int((gaps > timeout).sum()), float(delay)",
            "return float(delay), int((gaps > timeout).sum())",
        ),
    ],
    "who_is_missing": [
        ("names those who wait", LATE, "[rank for rank in sorted(last) if last[rank][0] >= number]"),
        ("forgets silent ranks", LATE, LATE.replace("last[rank][0]", "0 < last[rank][0]")),
        ("the largest number", "number = min(", "number = max("),
        ("the last call that was made", 'return "missing", late, number', 'return "missing", late, number - 1'),
        ("a tuple of ranks", '"missing", late, number', '"missing", tuple(late), number'),
        ("reversed", " rank in sorted(last) if last[rank][0] ", " rank in sorted(last)[::-1] if last[rank][0] "),
        (
            "always missing",
            'return "mismatch", [rank for rank in sorted(called) if called[rank] != usual], number',
            'return "missing", late, number',
        ),
        ("always a mismatch", 'return "missing", late, number', 'return "mismatch", late, number'),
        ("the usual ones", "called[rank] != usual", "called[rank] == usual"),
        ("rank 0 is right", "max(set(names), key=names.count)", "last[0][1]"),
        ("four ranks", LATE_RETURN, LATE_RETURN.replace("late", "[r for r in late if r < 4]")),
    ],
    "attack": [
        ("before anything", '("tear", 0, 12)', '("crash", 0)'),
        ("after all", '("crash", 2)', '("crash", 3)'),
        ("B after the write", '("crash", 2)', '("crash", 1)'),
        ("C torn", '("flip", "checkpoint", 100)', '("tear", 0, 5)'),
        ("C's other file", '("flip", "checkpoint", 100)', '("flip", "new", 100)'),
        ("a word", '("crash", 2)', '"crash"'),
    ],
    "save": [
        ("removes before it writes", WRITES, REMOVES),
        ("keeps one", "[:-1]", ""),
        ("removes nothing", '*(("remove", n) for n in old)]', "]"),
        ("no checksum", WHOLE, 'if name.startswith("step-"):'),
        ("checks the data alone", EVEN, EVEN.replace("body)", "data)")),
        ("the oldest first", "sorted(files, reverse=True)", "sorted(files)"),
        ("names as text", 'f"step-{step:012d}"', 'f"step-{step}"'),
        ("returns the whole", '"little"), body[8:]', '"little"), body'),
        ("the newest or nothing", "sorted(files, reverse=True)", "sorted(files, reverse=True)[:1]"),
        ("nothing is a step", "    return None", '    return 0, b""'),
    ],
    "effective_share": [
        ("a whole interval", "interval / (2 * mtbf)", "interval / mtbf"),
        ("no restart", " - restart / mtbf", ""),
        ("no saving", " - cost / interval", ""),
        ("nothing is lost", " - interval / (2 * mtbf)", ""),
        ("what is lost", FORMULA, "cost / interval + interval / (2 * mtbf) + restart / mtbf"),
        ("not divided by the MTBF", "interval / (2 * mtbf)", "interval / 2"),
        ("without the 2", "(2 * cost * mtbf) ** 0.5", "(cost * mtbf) ** 0.5"),
        ("half", "(2 * cost * mtbf) ** 0.5", "(cost * mtbf / 2) ** 0.5"),
        ("no root", "(2 * cost * mtbf) ** 0.5", "2 * cost * mtbf"),
        ("ten minutes", "(2 * cost * mtbf) ** 0.5", "600.0"),
    ],
    "slow_nodes": [
        ("steps are not compared", RELATIVE, "times"),
        ("every node alone", "rate / times.shape[1]", "rate"),
        ("error of a step", " / len(times) ** 0.5", ""),
        ("fixed limit", LIMIT, "1.0"),
        ("far too strict", LIMIT, "30.0"),
        ("five percent above", "(mean - np.median(mean)) / error > limit", "mean > 1.05 * np.median(mean)"),
        ("the largest", FOUND, "[int(mean.argmax())]"),
        ("the fast ones", "(mean - np.median(mean)) / error", "(np.median(mean) - mean) / error"),
        ("nobody", FOUND, "[]"),
    ],
    "step": [
        ("divided twice", "    w -= lr * g\n", "    w -= lr * g / comm.size\n"),
        ("not divided", "x.T @ (x @ w - y) / n", "x.T @ (x @ w - y)"),
        ("divided by its rows", "x.T @ (x @ w - y) / n", "x.T @ (x @ w - y) / max(1, len(x))"),
        ("leaves early", "    g = x.T", "    if len(x) == 0:\n        return\n    g = x.T"),
        ("no sum", "    comm.all_reduce(g)\n", ""),
        ("another array", "    w -= lr * g\n", "    w = w - lr * g\n"),
        ("seeds by rank", ROWS, ROWS.replace("[seed, epoch]", "[seed, epoch, rank]")),
        ("the same in every epoch", ROWS, ROWS.replace("[seed, epoch]", "[seed]")),
        ("rows lost", ROWS, SHARE_OF_ROWS),
        ("only rank 0", RESTORE, "    if comm.rank == 0:\n        w[...] = saved\n    comm.barrier()\n"),
        ("everybody reads", RESTORE, "    w[...] = saved\n"),
        ("adds them up", "comm.broadcast(w)", "comm.all_reduce(w)"),
        ("epoch 0 again", ORDER, ORDER.replace("epoch", "epoch - start[0]")),
        ("always skips", "epoch, index = epoch + 1, 0", "epoch = epoch + 1"),
        ("never skips", "[index:]", ""),
        ("one epoch", "    while len(found) < count:\n", "    for _ in range(1):\n"),
        ("seeded once", ORDER, ORDER.replace("[seed, epoch]", "seed")),
        ("too many", "return found[:count]", "return found"),
    ],
    "next_interval": [
        ("ten minutes", "return (2 * cost * mtbf) ** 0.5", "return 600.0"),
        ("an hour's MTBF", "(now + 3600) / (len(failures) + 1)", "3600.0"),
        ("divides by zero", "(now + 3600) / (len(failures) + 1)", "now / len(failures)"),
        ("the cost", "return (2 * cost * mtbf) ** 0.5", "return cost"),
        ("the MTBF", "return (2 * cost * mtbf) ** 0.5", "return mtbf"),
        ("a tenth of the MTBF", "return (2 * cost * mtbf) ** 0.5", "return mtbf / 10"),
        ("nothing", "    return (2 * cost * mtbf) ** 0.5", "    (2 * cost * mtbf) ** 0.5"),
    ],
}
