"""Wrong answers to lab 12, and what each must cost."""

WATCH, WHO, ATTACK, SAVE = {"check_watch"}, {"check_who_is_missing"}, {"check_attack"}, {"check_save"}
SHARE, SLOW, BUGS, POLICY = {"check_effective_share"}, {"check_slow_nodes"}, {"check_step"}, {"check_next_interval"}

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
        ("arrivals are gaps", ("gaps = np.diff(arrivals)", "gaps = arrivals"), WATCH),
        ("counts the quiet ones", ("(gaps > timeout).sum()", "(gaps <= timeout).sum()"), WATCH),
        ("all gaps in full", ("np.minimum(gaps, timeout)", "gaps"), WATCH),
        ("always the timeout", (DELAY, "timeout"), WATCH),
        ("a plain mean", (DELAY, "(timeout - seen / 2).mean()"), WATCH),
        ("not divided", (DELAY, "(timeout * seen - seen**2 / 2).sum()"), WATCH),
        ("adds the silence", ("seen - seen**2 / 2", "seen + seen**2 / 2"), WATCH),
        ("without the half", ("seen**2 / 2", "seen**2"), WATCH),
        (
            "results swapped",
            ("return int((gaps > timeout).sum()), float(delay)", "return float(delay), int((gaps > timeout).sum())"),
            WATCH,
        ),
    ],
    "who_is_missing": [
        ("names those who wait", (LATE, "[rank for rank in sorted(last) if last[rank][0] >= number]"), WHO),
        ("forgets silent ranks", (LATE, LATE.replace("last[rank][0]", "0 < last[rank][0]")), WHO),
        ("the largest number", ("number = min(", "number = max("), WHO),
        ("the last call that was made", ('return "missing", late, number', 'return "missing", late, number - 1'), WHO),
        ("a tuple of ranks", ('"missing", late, number', '"missing", tuple(late), number'), WHO),
        ("reversed", (" rank in sorted(last) if last[rank][0] ", " rank in sorted(last)[::-1] if last[rank][0] "), WHO),
        (
            "always missing",
            (
                'return "mismatch", [rank for rank in sorted(called) if called[rank] != usual], number',
                'return "missing", late, number',
            ),
            WHO,
        ),
        ("always a mismatch", ('return "missing", late, number', 'return "mismatch", late, number'), WHO),
        ("the usual ones", ("called[rank] != usual", "called[rank] == usual"), WHO),
        ("rank 0 is right", ("max(set(names), key=names.count)", "last[0][1]"), WHO),
        ("four ranks", (LATE_RETURN, LATE_RETURN.replace("late", "[r for r in late if r < 4]")), WHO),
    ],
    "attack": [
        ("before anything", ('("tear", 0, 12)', '("crash", 0)'), ATTACK),
        ("after all", ('("crash", 2)', '("crash", 3)'), ATTACK),
        ("B after the write", ('("crash", 2)', '("crash", 1)'), ATTACK),
        ("C torn", ('("flip", "checkpoint", 100)', '("tear", 0, 5)'), ATTACK),
        ("C's other file", ('("flip", "checkpoint", 100)', '("flip", "new", 100)'), ATTACK),
        ("a word", ('("crash", 2)', '"crash"'), ATTACK),
    ],
    "save": [
        ("removes before it writes", (WRITES, REMOVES), SAVE),
        ("keeps one", ("[:-1]", ""), SAVE),
        ("removes nothing", ('*(("remove", n) for n in old)]', "]"), SAVE),
        ("no checksum", (WHOLE, 'if name.startswith("step-"):'), SAVE),
        ("checks the data alone", (EVEN, EVEN.replace("body)", "data)")), SAVE),
        ("the oldest first", ("sorted(files, reverse=True)", "sorted(files)"), SAVE),
        ("names as text", ('f"step-{step:012d}"', 'f"step-{step}"'), SAVE),
        ("returns the whole", ('"little"), body[8:]', '"little"), body'), SAVE),
        ("the newest or nothing", ("sorted(files, reverse=True)", "sorted(files, reverse=True)[:1]"), SAVE),
        ("nothing is a step", ("    return None", '    return 0, b""'), SAVE),
    ],
    "effective_share": [
        ("a whole interval", ("interval / (2 * mtbf)", "interval / mtbf"), SHARE),
        ("no restart", (" - restart / mtbf", ""), SHARE),
        ("no saving", (" - cost / interval", ""), SHARE),
        ("nothing is lost", (" - interval / (2 * mtbf)", ""), SHARE),
        ("what is lost", (FORMULA, "cost / interval + interval / (2 * mtbf) + restart / mtbf"), SHARE),
        ("not divided by the MTBF", ("interval / (2 * mtbf)", "interval / 2"), SHARE),
        ("without the 2", ("(2 * cost * mtbf) ** 0.5", "(cost * mtbf) ** 0.5"), SHARE),
        ("half", ("(2 * cost * mtbf) ** 0.5", "(cost * mtbf / 2) ** 0.5"), SHARE),
        ("no root", ("(2 * cost * mtbf) ** 0.5", "2 * cost * mtbf"), SHARE),
        ("ten minutes", ("(2 * cost * mtbf) ** 0.5", "600.0"), SHARE),
    ],
    "slow_nodes": [
        ("steps are not compared", (RELATIVE, "times"), SLOW),
        ("every node alone", ("rate / times.shape[1]", "rate"), SLOW),
        ("error of a step", (" / len(times) ** 0.5", ""), SLOW),
        ("fixed limit", (LIMIT, "1.0"), SLOW),
        ("far too strict", (LIMIT, "30.0"), SLOW),
        ("five percent above", ("(mean - np.median(mean)) / error > limit", "mean > 1.05 * np.median(mean)"), SLOW),
        ("the largest", (FOUND, "[int(mean.argmax())]"), SLOW),
        ("the fast ones", ("(mean - np.median(mean)) / error", "(np.median(mean) - mean) / error"), SLOW),
        ("nobody", (FOUND, "[]"), SLOW),
    ],
    "step": [
        ("divided twice", ("    w -= lr * g\n", "    w -= lr * g / comm.size\n"), BUGS),
        ("not divided", ("x.T @ (x @ w - y) / n", "x.T @ (x @ w - y)"), BUGS),
        ("divided by its rows", ("x.T @ (x @ w - y) / n", "x.T @ (x @ w - y) / max(1, len(x))"), BUGS),
        ("leaves early", ("    g = x.T", "    if len(x) == 0:\n        return\n    g = x.T"), BUGS),
        ("no sum", ("    comm.all_reduce(g)\n", ""), BUGS),
        ("another array", ("    w -= lr * g\n", "    w = w - lr * g\n"), BUGS),
        ("seeds by rank", (ROWS, ROWS.replace("[seed, epoch]", "[seed, epoch, rank]")), BUGS),
        ("the same in every epoch", (ROWS, ROWS.replace("[seed, epoch]", "[seed]")), BUGS),
        ("rows lost", (ROWS, SHARE_OF_ROWS), BUGS),
        ("only rank 0", (RESTORE, "    if comm.rank == 0:\n        w[...] = saved\n    comm.barrier()\n"), BUGS),
        ("everybody reads", (RESTORE, "    w[...] = saved\n"), BUGS),
        ("adds them up", ("comm.broadcast(w)", "comm.all_reduce(w)"), BUGS),
        ("epoch 0 again", (ORDER, ORDER.replace("epoch", "epoch - start[0]")), BUGS),
        ("always skips", ("epoch, index = epoch + 1, 0", "epoch = epoch + 1"), BUGS),
        ("never skips", ("[index:]", ""), BUGS),
        ("one epoch", ("    while len(found) < count:\n", "    for _ in range(1):\n"), BUGS),
        ("seeded once", (ORDER, ORDER.replace("[seed, epoch]", "seed")), BUGS),
        ("too many", ("return found[:count]", "return found"), BUGS),
    ],
    "next_interval": [
        ("ten minutes", ("return (2 * cost * mtbf) ** 0.5", "return 600.0"), POLICY),
        ("an hour's MTBF", ("(now + 3600) / (len(failures) + 1)", "3600.0"), POLICY),
        ("divides by zero", ("(now + 3600) / (len(failures) + 1)", "now / len(failures)"), POLICY),
        ("the cost", ("return (2 * cost * mtbf) ** 0.5", "return cost"), POLICY),
        ("the MTBF", ("return (2 * cost * mtbf) ** 0.5", "return mtbf"), POLICY),
        ("a tenth of the MTBF", ("return (2 * cost * mtbf) ** 0.5", "return mtbf / 10"), POLICY),
        ("nothing", ("    return (2 * cost * mtbf) ** 0.5", "    (2 * cost * mtbf) ** 0.5"), POLICY),
    ],
}
