"""The exercises of lab 12: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

DELAY = "(timeout * seen - seen**2 / 2).sum() / gaps.sum()"

EXERCISES["watch"] = Exercise(
    cases=[
        {"timeout": 2.5, "arrivals": [0, 1, 2, 5, 6, 10]},
        {"timeout": 1.0, "arrivals": [3, 4, 7, 7.5]},
        {"timeout": 1.7, "beats": 300},
        {"timeout": 40.0, "beats": 11, "seed": 1},
    ],
    draw=lambda rng: {
        "timeout": rng.uniform(0.3, 6),
        "beats": rng.integers(2, 400),
        "seed": rng.integers(1000),
    },
    rtol=1e-6,
    mistakes={
        "a gap that raises an alarm counts, too, up to the alarm": (
            f"{DELAY}  ->  (timeout * gaps - gaps**2 / 2)[gaps <= timeout].sum() / gaps[gaps <= timeout].sum()"
        ),
        "the integral ends with the gap: from 0 to min(gap, timeout)": (
            f"{DELAY}  ->  len(gaps) * timeout**2 / 2 / gaps.sum()"
        ),
        "the integral of T - u from 0 to m is not (T - m)^2 / 2": (
            f"{DELAY}  ->  ((timeout - seen) ** 2 / 2).sum() / gaps.sum()"
        ),
        "the delay is T - u, not u": f"{DELAY}  ->  (seen**2 / 2).sum() / gaps.sum()",
        "divide by the time watched, not by the number of heartbeats": "gaps.sum()\n  ->  len(arrivals)\n",
        "each gap has its own square: square, then add up": (
            f"{DELAY}  ->  (timeout * seen.sum() - seen.sum() ** 2 / 2) / gaps.sum()"
        ),
        "each gap counts by itself: a mean hides the long ones": (
            f"{DELAY}  ->  timeout - min(gaps.mean(), timeout) / 2"
        ),
        "the mean delay depends on the gaps, not on the timeout alone": (
            "(timeout * seen - seen**2 / 2).sum() / gaps.sum()  ->  timeout / 2"
        ),
        "each moment counts alike, not each gap: add up, then divide by the time watched": (
            "(timeout * seen - seen**2 / 2).sum() / gaps.sum()  ->  ((timeout * seen - seen**2 / 2) / gaps).mean()"
        ),
        "after the timeout the delay is 0: the shorter of gap and timeout": (
            "np.minimum(gaps, timeout)  ->  np.maximum(gaps, timeout)"
        ),
        "these are the gaps that raise no alarm": "(gaps > timeout).sum()  ->  (gaps <= timeout).sum()",
        "the gaps count, not the times of arrival": "gaps = np.diff(arrivals)  ->  gaps = arrivals",
        "a gap as long as the timeout raises no alarm": ("(gaps > timeout)  ->  (gaps >= timeout)"),
        "a gap raises one alarm, however long it is": "int((gaps > timeout).sum())  ->  int((gaps // timeout).sum())",
        "the first heartbeat ends no gap": ("np.diff(arrivals)  ->  np.diff(arrivals, prepend=0)"),
        "a death comes between two beats, not right after one": f"{DELAY}  ->  timeout",
        "a node can die at any moment of a gap, not only at its end": f"{DELAY}  ->  (timeout - seen).mean()",
        "a node dies in a long gap more often: weight by the gap": (f"{DELAY}  ->  (timeout - gaps / 2).mean()"),
        "not every gap counts alike: weight by the gap": f"{DELAY}  ->  (timeout - seen / 2).mean()",
        "in a gap longer than the timeout the alarm comes first: min(gap, timeout)": (
            "np.minimum(gaps, timeout)  ->  gaps"
        ),
        "divide by the time watched": f"{DELAY}  ->  (timeout * seen - seen**2 / 2).sum()",
        "divide by the sum of the gaps, not by their number": ("gaps.sum()\n  ->  len(gaps)\n"),
        "the time watched begins with the first heartbeat": "gaps.sum()\n  ->  arrivals[-1]\n",
        "divide by all of the time watched: long gaps in full": "gaps.sum()\n  ->  seen.sum()\n",
        "the integral of u is half of a square": "seen**2 / 2  ->  seen**2",
        "the silence before the death counts, too: subtract it": "seen - seen**2 / 2  ->  seen + seen**2 / 2",
        "the silence before the death shortens the delay: subtract m^2 / 2": (
            "timeout * seen - seen**2 / 2  ->  timeout * seen"
        ),
        "only the gaps that raise no alarm are added up: add all": (
            "np.minimum(gaps, timeout)  ->  np.where(gaps > timeout, 0, gaps)"
        ),
        "the two results are exchanged: first the alarms, then the delay": (
            "return int((gaps > timeout).sum()), float(delay)  ->  return float(delay), int((gaps > timeout).sum())"
        ),
        "return both results: the alarms, and the delay": [
            ", float(delay)  ->  ",
            "return int((gaps > timeout).sum()), float(delay)  ->  return delay",
        ],
        "did you forget `return`?": "    return int(  ->      int(",
    },
    may_pass={"np.minimum(timeout, gaps)": "a minimum", "(gaps > seen)": "seen is less where a gap is longer"},
)

LATE = "[rank for rank in sorted(last) if last[rank][0] < number]"

EXERCISES["who_is_missing"] = Exercise(
    cases=[
        {"size": 4, "missing": [2], "number": 6},
        {"size": 7, "missing": [5, 1], "number": 3, "silent": [1], "seed": 1},
        {"size": 5, "missing": [], "number": 9, "odd": 0, "seed": 2},
        {"size": 6, "missing": [4], "number": 5, "ahead": [0, 3, 5], "past": [2], "seed": 4},
        {"size": 6, "missing": [], "number": 5, "odd": 4, "ahead": [1, 2, 3, 5], "past": [0], "seed": 4},
        {"size": 3, "missing": [0], "number": 1, "seed": 3},
        {"size": 12, "missing": [0, 10, 11, 5], "number": 12, "silent": [5], "seed": 5, "backwards": True},
        {"size": 12, "missing": [], "number": 20, "odd": 11, "ahead": [11], "seed": 6},
    ],
    draw=lambda rng: (
        {
            "size": (size := int(rng.integers(3, 17))),
            "number": rng.integers(3, 40),
            "seed": rng.integers(1000),
        }
        | (
            {"missing": [], "odd": rng.integers(2, size), "ahead": rng.permutation(size)[: rng.integers(size)].tolist()}
            if rng.random() < 0.5
            else {
                "missing": (gone := [int(r) for r in rng.permutation(size)[: rng.integers(1, size)]]),
                "silent": gone[:1],
            }
        )
    ),
    mistakes={
        "a box holds the last calls alone: the number is not their count": (
            "box[-1] if box else  ->  (len(box), *box[-1][1:]) if box else"
        ),
        "the ranks, not what they called": (
            '"mismatch", [rank for rank in sorted(called)  ->  "mismatch", [called[rank] for rank in sorted(called)'
        ),
        "kind, ranks, number, in this order": (
            'return "missing", late, number  ->  return "missing", number, late',
            "[rank for rank in sorted(called) if called[rank] != usual], number"
            "  ->  number, [rank for rank in sorted(called) if called[rank] != usual]",
        ),
        "the smallest number at which a rank waits, not the commonest": (
            'number = min(n for n, call, state in last.values() if state == "waiting")'
            '  ->  numbers = [n for n, call, state in last.values() if state == "waiting"]\n'
            "    number = max(set(numbers), key=numbers.count)"
        ),
        "missing at the number at which others wait, not at its own last": [
            f"late, number  ->  late, {x}" for x in ("min(last[rank][0] for rank in late)", "last[late[0]][0]")
        ],
        "these ranks wait: who keeps them waiting?": (
            f"{LATE}  ->  [rank for rank in sorted(last) if last[rank][0] >= number]"
        ),
        "a rank without records is missing, too": (
            f"{LATE}  ->  [rank for rank in sorted(last) if 0 < last[rank][0] < number]"
        ),
        "take the smallest number at which a rank waits: some may have gone on": "number = min(  ->  number = max(",
        "the missing rank made this call: at which one is it missing?": "late, number  ->  late, number - 1",
        "the others wait in this call, not in the next": (
            "late, number  ->  late, number + 1",
            "!= usual], number  ->  != usual], number + 1",
        ),
        "ranks is a list, not a tuple": "late, number  ->  tuple(late), number",
        "ranks is a list, not a set": "late, number  ->  set(late), number",
        "the verdict is a tuple, not a list": '"missing", late, number  ->  ["missing", late, number]',
        "count the calls of all ranks at that number, also of those that have gone on": (
            "for rank, box in boxes.items() for n, call, state in box if n == number"
            "  ->  for rank, (n, call, state) in last.items() if n == number"
        ),
        "ranks in order": [
            f"for rank in sorted(last) if last[rank][0] <  ->  for rank in {ranks} if last[rank][0] <"
            for ranks in ("sorted(last)[::-1]", "last")
        ],
        "no rank is named: if all have come, do they make the same call?": (
            'return "mismatch", [rank for rank in sorted(called) if called[rank] != usual], number'
            '  ->  return "missing", late, number'
        ),
        "ranks that have not come are missing: no call of theirs differs": ('"missing", late  ->  "mismatch", late'),
        "all have come: it is a mismatch": 'return "mismatch"  ->  return "missing"',
        "the odd rank is the one whose call differs from what most call": "!= usual  ->  == usual",
        "which call is the usual one? Rank 0 may be the odd one": "max(names, key=names.count)  ->  names[0]",
        "compare the calls at that number, not the last ones": (
            "for rank, box in boxes.items() for n, call, state in box if n == number"
            "  ->  for rank, (n, call, state) in last.items()"
        ),
        "a rank that has left this call and computes is not missing: compare the numbers": (
            "last[rank][0] < number  ->  last[rank][2] != 'waiting'"
        ),
        "name all ranks that are late, also those above 3": (
            'return "missing", late, number  ->  return "missing", [r for r in late if r < 4], number'
        ),
        "name all ranks that are late, not the first alone": (
            'return "missing", late,  ->  return "missing", late[:1],'
        ),
        "leave the records as they are": (
            "last = {  ->  [box.pop(0) for box in boxes.values() if len(box) > 1]; last = {"
        ),
        "the kind is spelt in small letters": '"missing", late  ->  "MISSING", late',
        "did you forget `return`?": 'return "missing", late  ->  "missing", late',
    },
    may_pass={
        "(-1, '', 'done')": "less than every number",
        "in sorted(boxes)": "the same ranks",
        "in sorted(last) if called": "the same ranks",
        "names[rank] != usual": "where all have come, the rank-th name is the rank's",
    },
)

EXERCISES["attack"] = Exercise(
    cases=[{}],
    draw=lambda rng: {},
    draws=1,
    without=(),
    mistakes={
        "program C survives every crash and torn write: what can happen later?": [
            *(f'("flip", "checkpoint", 100)  ->  ("tear", 0, {n})' for n in range(17)),
            *(f'("flip", "checkpoint", 100)  ->  ("crash", {k})' for k in range(3)),
        ],
        "program A: tear its write, in the step or in the weights": [
            '("tear", 0, 12)  ->  ("crash", 0)',
            '("tear", 0, 12)  ->  ("crash", 1)',
        ],
        "program A has one operation, number 0": '("tear", 0, 12)  ->  ("tear", 1, 5)',
        "a torn write has as many of its bytes as are there, 0 or more": [
            '("tear", 0, 12)  ->  ("tear", 0, -1)',
            '("tear", 0, 12)  ->  ("tear", 0, 999)',
        ],
        "program B: between which two operations is there no file `checkpoint`?": [
            *(f'("crash", 2)  ->  ("crash", {k})' for k in (0, 1, 3)),
            *(f'("crash", 2)  ->  ("tear", 0, {n})' for n in range(17)),
        ],
        "a flip ruins all three programs: find a crash or a torn write": [
            '("tear", 0, 12)  ->  ("flip", "checkpoint", 100)',
            '("crash", 2)  ->  ("flip", "checkpoint", 100)',
        ],
        "the file has no such bit": '("flip", "checkpoint", 100)  ->  ("flip", "checkpoint", 1000)',
        "only a write can be torn, and operation 1 of program B is none": '("crash", 2)  ->  ("tear", 1, 5)',
        "the file that is loaded is called checkpoint": '("flip", "checkpoint", 100)  ->  ("flip", "new", 100)',
        "a fault is a tuple, such as ('crash', 1)": [
            '("crash", 2)  ->  "crash"',
            '("crash", 2)  ->  ["crash", 2]',
        ],
        "did you forget `return`?": "    return faults[program]  ->      faults[program]",
    },
    may_pass={"faults = {": "another fault of the same kind"},
)

WRITES = '[("write", "part", whole), ("rename", "part", name), *(("remove", n) for n in old)]'
BODY = 'step.to_bytes(8, "little")'

EXERCISES["save"] = Exercise(
    answers=("save", "load"),
    cases=rows("sizes seed first apart", ([40, 25, 60, 3],), ([1, 0, 7, 2], 1, 9, 1), ([300, 17, 9], 2, 9_900, 60_000)),
    draw=lambda rng: {
        "sizes": rng.integers(0, 60, int(rng.integers(2, 5))).tolist(),
        "seed": rng.integers(1000),
        "first": rng.integers(1, 100),
        "apart": rng.integers(1, 70_000),
    },
    draws=3,
    mistakes={
        "`save` returns what to do: what it changes in `files` is not on the disk": (
            f"return {WRITES}  ->  files[name] = whole\n    return []"
        ),
        "a torn file is one of the two that are kept: count whole ones alone": (
            f'{WRITES}  ->  [("write", name, whole), *(("remove", n) for n in old)]'
        ),
        "remove old checkpoints last, after the rename": [
            f'{WRITES}  ->  [("write", "part", whole), *(("remove", n) for n in files if n[0] == "s"), '
            '("rename", "part", name)]',
            f'{WRITES}  ->  [*(("remove", n) for n in sorted(files)), ("write", "part", whole), '
            '("rename", "part", name)]',
        ],
        "one checkpoint is kept: a flipped bit in it would leave nothing": "[:-1]  ->  ",
        "of the old checkpoints the newest is kept, not the oldest": "[:-1]  ->  [1:]",
        "remove old checkpoints: the two newest are enough": '*(("remove", n) for n in old)]  ->  ]',
        "wrong data are loaded after a flipped bit: keep a checksum": (
            'and zlib.crc32(body).to_bytes(4, "little") == check  ->  '
        ),
        "a checkpoint of no data is whole, too": 'if name.startswith("step-") and  ->  if len(body) > 8 and',
        "a rename has two names: the old and the new": '("rename", "part", name)  ->  ("rename", "part")',
        "a part that a crash has left must go: one name for all parts, or remove them": (
            f'{WRITES}  ->  [("write", f"part{{step}}", whole), ("rename", f"part{{step}}", name), '
            '*(("remove", n) for n in old)]'
        ),
        "the data may end in zeros or white space": '"little"), body[8:]  ->  "little"), body[8:].rstrip(b"\\0 \\n")',
        "the checksum must cover the step, too": [
            (
                "whole = zlib.crc32(body)  ->  whole = zlib.crc32(data)",
                "and zlib.crc32(body)  ->  and zlib.crc32(body[8:])",
            )
        ],
        "save and load have checksums of different bytes": "whole = zlib.crc32(body)  ->  whole = zlib.crc32(data)",
        "load takes the oldest checkpoint: the newest first": "sorted(files, reverse=True)  ->  sorted(files)",
        "names are sorted as text: step-9 comes after step-12, so fill up with zeros": [
            'f"step-{step:012d}"  ->  f"step-{step}"',
            'f"step-{step:02d}"'.join(['f"step-{step:012d}"  ->  ', ""]),
        ],
        "load returns what was saved, without the step and the checksum in front": (
            '"little"), body[8:]  ->  "little"), body'
        ),
        "load gives up at the first file that is damaged: try the one before": (
            "sorted(files, reverse=True)  ->  sorted(files, reverse=True)[:1]"
        ),
        "with nothing to load the result is None": '    return None  ->      return 0, b""',
        "written under its final name, a torn file looks like a checkpoint": (
            f'{WRITES}  ->  [("write", "checkpoint", whole), *(("remove", n) for n in files if n != "checkpoint")]'
        ),
        "remove only what is still there: a part may be renamed first": (
            'n for n in files if n.startswith("step-"))[:-1]  ->  files)[:-1]'
        ),
        "step numbers are larger than a byte": [
            (
                'step.to_bytes(8, "little") + data  ->  bytes([step % 256]) + data',
                'int.from_bytes(body[:8], "little"), body[8:]  ->  body[0], body[1:]',
            ),
        ],
        "steps grow beyond 65,535": (
            "step.to_bytes(8  ->  step.to_bytes(2",
            'int.from_bytes(body[:8], "little"), body[8:]  ->  int.from_bytes(body[:2], "little"), body[2:]',
        ),
        "steps are not always as far apart: look into `files` for what is old": (
            'sorted(n for n in files if n.startswith("step-"))[:-1]'
            '  ->  [n for n in [f"step-{step - 6:012d}"] if n in files]'
        ),
        "load returns a tuple (step, data)": [
            f'return int.from_bytes(body[:8], "little"), body[8:]  ->  return {x}'
            for x in (
                '[int.from_bytes(body[:8], "little"), body[8:]]',
                'body[8:], int.from_bytes(body[:8], "little")',
                "body[8:]",
            )
        ],
        "`save` returns a list of operations": f"return {WRITES}  ->  {WRITES}",
    },
    may_pass={
        "return None  ->  pass": "the same",
        "[:-2]": "three files are allowed",
        "body[:7]": "no step has more than 7 bytes",
        "load, whole numbers as floats": "an equal step",
    },
)

FORMULA = "1 - cost / interval - interval / (2 * mtbf) - restart / mtbf"
BEST = "(2 * cost * mtbf) ** 0.5"

EXERCISES["effective_share"] = Exercise(
    answers=("effective_share", "best_interval"),
    cases=rows(
        "interval cost restart mtbf",
        (300.0, 5.0, 60.0, 7200.0),
        ([100.0, 900.0], 20.0, 400.0, 11000.0),
        (1235.0, 50.0, 7.0, 700.0),
    ),
    draw=lambda rng: {
        "interval": rng.uniform(10, 1000),
        "cost": rng.uniform(1, 100),
        "restart": rng.uniform(1, 500),
        "mtbf": rng.uniform(1000, 50_000),
    },
    rtol=1e-7,
    mistakes={
        "to first order each share is subtracted from 1: no quotient of times": (
            f"{FORMULA}  ->  interval / (interval + cost + (interval / 2 + restart) * interval / mtbf)"
        ),
        "a failure costs half an interval and a restart alone": " - restart / mtbf  ->   - (restart + cost) / mtbf",
        "a restart takes time away: subtract its share": " - restart / mtbf  ->   + restart / mtbf",
        "a checkpoint comes once in an interval, not once in an MTBF": " - cost / interval  ->   - cost / mtbf",
        "a checkpoint costs cost / interval, not interval / cost": " - cost / interval  ->   - interval / cost",
        "the interval grows with the cost: tau^2 = 2 C M": f"{BEST}  ->  (mtbf / (2 * cost)) ** 0.5",
        "both C and M stand under the root": f"{BEST}  ->  (2 * cost) ** 0.5 * mtbf",
        "the 2 stands under the root, too": f"{BEST}  ->  2 * (cost * mtbf) ** 0.5",
        "to first order the shares add up: nothing is multiplied": [
            f"{FORMULA}  ->  {x}"
            for x in (
                "(1 - cost / interval) * (1 - (interval / 2 + restart) / mtbf)",
                "(1 - cost / interval) * (1 - interval / (2 * mtbf)) * (1 - restart / mtbf)",
                "interval / (interval + cost) * (1 - (interval / 2 + restart) / mtbf)",
            )
        ],
        "what is lost is work, half an interval: the checkpoint has been counted": (
            " - interval / (2 * mtbf)  ->   - (interval + cost) / (2 * mtbf)"
        ),
        "to first order a checkpoint takes cost / interval": " - cost / interval  ->   - cost / (interval + cost)",
        "of a restart all is lost: only the interval is halved": " - restart / mtbf  ->   - restart / (2 * mtbf)",
        "a restart follows a failure, not a checkpoint: divide by the MTBF": (
            " - restart / mtbf  ->   - restart / interval"
        ),
        "this is the share that is lost": f"return {FORMULA}  ->  return 1 - ({FORMULA})",
        "a failure undoes half an interval on average, not all of it": "interval / (2 * mtbf)  ->  interval / mtbf",
        "half an interval need not be whole: / and not //": " - interval / (2 * mtbf)  ->   - interval // 2 / mtbf",
        "half of interval / mtbf: the 2 belongs below": "interval / (2 * mtbf)  ->  interval / 2 * mtbf",
        "every failure needs a restart": " - restart / mtbf  ->  ",
        "work is lost with every failure": " - interval / (2 * mtbf)  ->  ",
        "a checkpoint costs time once in an interval": " - cost / interval  ->  ",
        "half an interval for each failure: divide by the MTBF": "interval / (2 * mtbf)  ->  interval / 2",
        "an interval may be an array: no float(), no rounding": (
            f"return {FORMULA}  ->  return float(np.ravel({FORMULA})[0])"
        ),
        "set the derivative to zero: where does the 2 go?": (f"{BEST}  ->  (cost * mtbf) ** 0.5"),
        "it follows from cost and mtbf: not always ten minutes": f"{BEST}  ->  600.0",
        "half an interval is lost, not a whole one": f"{BEST}  ->  (cost * mtbf / 2) ** 0.5",
        "this is tau squared": f"{BEST}  ->  2 * cost * mtbf",
        "the root is of the product of both, 2 C M": f"{BEST}  ->  cost * (2 * mtbf) ** 0.5",
        "the derivative of C / tau is -C / tau^2": f"{BEST}  ->  2 * mtbf * cost / (cost + mtbf)",
        "this is Daly's interval: to first order nothing is subtracted": f"{BEST}  ->  (2 * cost * mtbf) ** 0.5 - cost",
        "did you forget `return`?": [f"return {FORMULA}  ->  {FORMULA}", f"return {BEST}  ->  {BEST}"],
    },
)

LIMIT = "NormalDist().inv_cdf(1 - rate / times.shape[1])"
FOUND = "np.flatnonzero((mean - np.median(mean)) / error > limit).tolist()"

EXERCISES["slow_nodes"] = Exercise(
    cases=[
        {"rate": 0.05, "nodes": 48, "steps": 200, "clusters": 12, "slow": 3, "factor": 1.06, "seed": 7},
        {"rate": 1e-6, "nodes": 48, "steps": 200, "clusters": 6, "slow": 1, "factor": 2.0},
        {"rate": 0.9, "nodes": 12, "steps": 100, "clusters": 30, "seed": 1},
        {"rate": 0.3, "nodes": 30, "steps": 400, "clusters": 15, "seed": 2},
        {"rate": 0.5, "nodes": 12, "steps": 6, "clusters": 20, "seed": 3},
        {"rate": 0.05, "nodes": 9, "steps": 30, "clusters": 20, "slow": 1, "factor": 0.8, "seed": 4},
    ],
    draw=lambda rng: {
        "rate": rng.uniform(0.01, 0.95),
        "nodes": rng.integers(6, 60),
        "steps": rng.integers(40, 300),
        "clusters": 20,
        "slow": rng.integers(0, 3),
        "factor": rng.uniform(1.02, 1.2),
        "seed": rng.integers(10**6),
    },
    mistakes={
        "each node has a standard error of its own, from its steps": (
            "relative.std(axis=0, ddof=1) / len(times) ** 0.5  ->  mean.std(ddof=1)"
        ),
        "compare with the median of the means: a slow node moves their mean": "np.median(mean)  ->  mean.mean()",
        "the limit is inv_cdf of a probability, cdf goes the other way": "inv_cdf(1  ->  cdf(1",
        "1 - rate / nodes: only the rate is shared among the nodes": (
            "1 - rate / times.shape[1]  ->  (1 - rate) / times.shape[1]"
        ),
        "a node's mean over steps, not its median": "relative.mean(axis=0)  ->  np.median(relative, axis=0)",
        "the root of the number of steps, not of one less": ("len(times) ** 0.5  ->  (len(times) - 1) ** 0.5"),
        "the root is of the number of steps, not of the deviation": (
            "relative.std(axis=0, ddof=1) / len(times) ** 0.5  ->  (relative.std(axis=0, ddof=1) / len(times)) ** 0.5"
        ),
        "a healthy node passes with probability rate / nodes, and not another one": (
            "1 - rate / times.shape[1]  ->  (1 - rate) ** (1 / times.shape[1])"
        ),
        "divide by the median over nodes: a slow node moves the mean": (
            "np.median(times, axis=1, keepdims=True)  ->  times.mean(axis=1, keepdims=True)"
        ),
        "each step has its own median, over nodes: axis=1": (
            "np.median(times, axis=1, keepdims=True)  ->  np.median(times, axis=0)"
        ),
        "the deviation takes ddof=1": "std(axis=0, ddof=1)  ->  std(axis=0)",
        "the root of the number of steps, not of nodes": "len(times) ** 0.5  ->  times.shape[1] ** 0.5",
        "one-sided: rate / nodes is not halved": "rate / times.shape[1]  ->  rate / times.shape[1] / 2",
        "rare is what lies above the limit: inv_cdf of 1 - rate / nodes": "inv_cdf(1 - rate /  ->  inv_cdf(rate /",
        "compare with the median of the means, which is not 1": "(mean - np.median(mean))  ->  (mean - 1)",
        "divide each step by its median over nodes: what all have in common cancels": (
            "times / np.median(times, axis=1, keepdims=True)  ->  times"
        ),
        "subtracting the median does not cancel a factor: divide": (
            "times / np.median(times, axis=1, keepdims=True)  ->  times - np.median(times, axis=1, keepdims=True)"
        ),
        "share the rate among the nodes": ("rate / times.shape[1]  ->  rate"),
        "the limit follows from the number of nodes, not of steps": "rate / times.shape[1]  ->  rate / len(times)",
        "nobody is named: is the limit or the standard error too large?": [
            " / len(times) ** 0.5  ->  ",
            f"{LIMIT}  ->  30.0",
            f"{FOUND}  ->  []",
        ],
        "the root of the number of steps, not their number": " / len(times) ** 0.5  ->   / len(times)",
        "the limit follows from the rate, which is an argument": [
            *(f"{LIMIT}  ->  {x}" for x in ("1.0", "3.0", "4.75")),
            *(f"1 - rate /  ->  1 - {x} /" for x in ("rate**2", "1e-6", "0.05")),
        ],
        "one-sided: a node that is faster raises no alarm": [
            "(mean - np.median(mean)) / error  ->  np.abs(mean - np.median(mean)) / error",
            (
                "(mean - np.median(mean)) / error  ->  np.abs(mean - np.median(mean)) / error",
                "rate / times.shape[1]  ->  rate / times.shape[1] / 2",
            ),
        ],
        "these are the fast ones": "(mean - np.median(mean)) / error  ->  (np.median(mean) - mean) / error",
        "no fixed percentage: how much do means of healthy nodes vary?": (
            "(mean - np.median(mean)) / error > limit  ->  mean > 1.05 * np.median(mean)"
        ),
        "np.where gives a tuple of arrays: take the first": (
            f"{FOUND}  ->  np.where((mean - np.median(mean)) / error > limit)"
        ),
        "all slow nodes, not the slowest": [
            *(f"{FOUND}  ->  [int({x}.argmax())]" for x in ("mean", "times.mean(axis=0)")),
            "> limit).tolist()  ->  > limit).tolist()[-1:]",
        ],
        "nodes are counted from 0": f"{FOUND}  ->  [1 + i for i in {FOUND}]",
        "the number of nodes is not always 48": "1 - rate / times.shape[1]  ->  1 - rate / 48",
        "did you forget `return`?": f"return {FOUND}  ->  {FOUND}",
        "this is a mask: return the numbers of the nodes": (
            f"{FOUND}  ->  ((mean - np.median(mean)) / error > limit).astype(int).tolist()"
        ),
    },
    may_pass={
        "len(relative)": "as many",
        "relative.shape[1]": "as many",
        ">= limit": "no node is at the limit",
        "whole numbers as floats": "equal numbers",
    },
)

ROWS = "np.random.default_rng([seed, epoch]).permutation(n)[rank::size]"
SAVED = "        w[...] = saved\n    comm.broadcast(w)"
ORDER = "default_rng([seed, epoch]).permutation(n)\n        found"
STEP = "x.T @ (x @ w - y) / n"

EXERCISES["step"] = Exercise(
    answers=("step", "my_rows", "restore", "batches"),
    cases=[
        {"of": "step", "n": 6, "size": 1, "lr": 0.1},
        {"of": "step", "n": 8, "size": 3, "lr": 0.25, "seed": 1},
        {"of": "step", "n": 2, "size": 3, "lr": 0.07, "d": 4},
        {"of": "my_rows", "n": 12, "size": 3, "epoch": 0, "seed": 1},
        {"of": "my_rows", "n": 34, "size": 4, "epoch": 2, "seed": 5},
        {"of": "restore", "size": 3, "seed": 2},
        {"of": "restore", "size": 5, "seed": 4, "length": 3},
        {"of": "batches", "n": 11, "size": 4, "seed": 5, "start": [0, 0], "count": 7},
        {"of": "batches", "n": 11, "size": 4, "seed": 6, "start": [0, 2], "count": 6},
        {"of": "batches", "n": 12, "size": 5, "seed": 5, "start": [2, 1], "count": 2},
    ],
    draw=lambda rng: (
        {"seed": rng.integers(1000), "n": rng.integers(5, 40), "size": rng.integers(1, 7)}
        | [
            {"of": "step", "lr": float(rng.uniform(0.01, 0.3)), "d": int(rng.integers(1, 6))},
            {"of": "my_rows", "epoch": int(rng.integers(5))},
            {"of": "batches", "start": [int(rng.integers(4)), 0], "count": int(rng.integers(1, 30))},
        ][rng.integers(3)]
    ),
    draws=9,
    inplace=True,
    mistakes={
        "a mean of the ranks' means: ranks have different numbers of rows": (
            f"{STEP}  ->  x.T @ (x @ w - y) / max(1, len(x))",
            "w -= lr * g  ->  w -= lr * g / comm.size",
        ),
        "the gradient of half the squared error has no factor 2": f"{STEP}  ->  2 * {STEP}",
        "`index` counts batches, not rows": (
            "[order[i:i + size] for i in range(0, n, size)][index:]"
            "  ->  [order[i:i + size] for i in range(index, n, size)]"
        ),
        "each epoch has a generator of its own, made from [seed, epoch]": (
            "np.random.default_rng([seed, epoch]).permutation(n)\n  ->  rng.permutation(n)\n",
            "(epoch, index), found = start, []"
            "  ->  (epoch, index), found = start, []\n    rng = np.random.default_rng([seed, epoch])",
        ),
        "divided twice: by n, and by the number of ranks": "w -= lr * g  ->  w -= lr * g / comm.size",
        "not divided by n": f"{STEP}  ->  x.T @ (x @ w - y)",
        "every rank divides by its own rows: divide by n": f"{STEP}  ->  x.T @ (x @ w - y) / max(1, len(x))",
        "a rank without rows must take part in the sum, too": (
            "    g = x.T  ->      if len(x) == 0: return\n    g = x.T"
        ),
        "the gradient of this rank's rows alone: sum over ranks": "comm.all_reduce(g)  ->  pass",
        "w is unchanged: write into it (`w -= ...`), a new array is lost": [
            "w -= lr * g  ->  w = w - lr * g",
            "w -= lr * g  ->  return w - lr * g",
        ],
        "a rank without rows takes the step, too": "w -= lr * g  ->  w -= lr * g * (len(x) > 0)",
        "against the gradient: w -= lr * g": "w -= lr * g  ->  w += lr * g",
        "lr is an argument, not 0.1": "w -= lr * g  ->  w -= 0.1 * g",
        "rows come twice: do all ranks shuffle alike?": f"{ROWS}  ->  {ROWS.replace('epoch]', 'epoch, rank]')}",
        "without a seed every rank has an order of its own": f"{ROWS}  ->  np.random.permutation(n)[rank::size]",
        "the order is another one in each epoch": [
            f"{ROWS}  ->  {ROWS.replace('epoch]', x)}" for x in ("epoch % 2]", "0]")
        ],
        "the order follows from the seed": f"{ROWS}  ->  {ROWS.replace('[seed, epoch]', 'epoch')}",
        "no order is drawn: shuffle the rows": f"{ROWS}  ->  (np.arange(n)[rank::size] + epoch) % n",
        "rows that never come: n need not be a multiple of the ranks": (
            f"{ROWS}  ->  {ROWS.replace('[rank::size]', '[rank * (n // size):(rank + 1) * (n // size)]')}"
        ),
        "no two ranks differ by more than one row": [
            f"{ROWS}  ->  {ROWS.replace('[rank::size]', x)}"
            for x in (
                "[rank * -(-n // size):(rank + 1) * -(-n // size)]",
                "[rank * (n // size):(rank + 1) * (n // size) if rank + 1 < size else n]",
            )
        ],
        "did you forget `return`?": f"return {ROWS}  ->  {ROWS}",
        "one rank has all rows: deal them out": f"{ROWS}  ->  {ROWS.replace('[rank::size]', '[: n * (rank == 0)]')}",
        "rows are counted from 0": f"{ROWS}  ->  {ROWS} + 1",
        "rows are whole numbers": f"{ROWS}  ->  {ROWS}.astype(float)",
        "only rank 0 has the weights: it must send them": f"{SAVED}  ->          w[...] = saved\n    comm.barrier()",
        "`saved` is None on all ranks but 0: rank 0 must send the weights": (
            "    if comm.rank == 0:\n        w[...] = saved\n    comm.broadcast(w)  ->      w[...] = saved"
        ),
        "the ranks' weights are added up: send those of rank 0": "comm.broadcast(w)  ->  comm.all_reduce(w)",
        "saved weights replace the old ones: nothing is added": "w[...] = saved  ->  w += saved",
        "no average: every rank takes rank 0's weights as they are": (
            "comm.broadcast(w)  ->  comm.all_reduce(w); w /= comm.size"
        ),
        "rank 0 sends its old weights: copy `saved` into w first": "w[...] = saved  ->  w = saved",
        "the order of epoch 0 in place of the right epoch's": (
            f"{ORDER}  ->  {ORDER.replace('epoch', 'epoch - start[0]')}"
        ),
        "the order depends on (seed, epoch), not on the seed alone": (
            f"{ORDER}  ->  {ORDER.replace('[seed, epoch]', 'seed')}"
        ),
        "the generator of an epoch is default_rng([seed, epoch]), in this order": [
            f"{ORDER}  ->  {ORDER.replace('[seed, epoch]', x)}" for x in ("[epoch, seed]", "seed + epoch")
        ],
        "the next epoch begins with its first batch": "epoch, index = epoch + 1, 0  ->  epoch = epoch + 1",
        "it begins at the first batch of the epoch: skip `index` of them": "[index:]  ->  ",
        "after an epoch comes the next": "while len(found) < count:  ->  for _ in range(1):",
        "too many batches: `count` are wanted": "return found[:count]  ->  return found",
        "the last, smaller batch of an epoch is missing": "range(0, n, size)  ->  range(0, n - size + 1, size)",
        "a list of batches, not a generator": "return found[:count]  ->  return (b for b in found[:count])",
    },
    may_pass={
        "if True:": "what the others write is overwritten by the broadcast",
        "while len(found) ": "read further than needed",
        "arrays as lists": "rows in any sequence",
    },
)

MTBF = "(now + 3600) / (len(failures) + 1)"

EXERCISES["next_interval"] = Exercise(
    cases=[
        {"clusters": [[1000.0, 60.0, 60.0], [4000.0, 2.0, 60.0]]},
        {"clusters": [[30000.0, 300.0, 300.0], [300000.0, 10.0, 300.0]]},
    ],
    draw=lambda rng: {
        "clusters": [
            [float(rng.uniform(800, 1500)), 40.0, 40.0],
            [float(rng.uniform(5e3, 2e4)), 4.0, 200.0],
            [float(rng.uniform(1e5, 2.5e5)), 8.0, 600.0],
        ]
    },
    draws=1,
    mistakes={
        "the interval grows with what a checkpoint costs": [
            "return (2 * cost * mtbf) ** 0.5  ->  return (2 * mtbf / cost) ** 0.5",
            "return (2 * cost * mtbf) ** 0.5  ->  return (2 * mtbf) ** 0.5",
        ],
        "this is tau squared, far too long": "return (2 * cost * mtbf) ** 0.5  ->  return 2 * cost * mtbf",
        "a quarter of Young's interval is too short": (
            "return (2 * cost * mtbf) ** 0.5  ->  return (2 * cost * mtbf) ** 0.5 / 4"
        ),
        "four times Young's interval is too long": (
            "return (2 * cost * mtbf) ** 0.5  ->  return (2 * cost * mtbf) ** 0.5 * 4"
        ),
        "one gap between failures says little: take the mean of all": [
            f"{MTBF}  ->  {x}"
            for x in (
                "failures[-1] - failures[-2] if len(failures) > 1 else 3600.0",
                "now - failures[-1] + 1 if failures else 3600.0",
                "now - failures[-1] if failures and now > failures[-1] else 3600.0",
            )
        ],
        "these are failures per second: the MTBF is seconds per failure": (
            f"{MTBF}  ->  (len(failures) + 1) / (now + 3600)"
        ),
        "`failures` are times since the start, not gaps: divide `now` by their number": (
            f"{MTBF}  ->  sum(failures) / len(failures) if failures else 3600.0"
        ),
        "a first guess of weeks counts too long: an hour or so": f"{MTBF}  ->  (now + 3.6e6) / (len(failures) + 1)",
        "all times are in seconds: do not divide by 3600": f"{MTBF}  ->  (now / 3600 + 1) / (len(failures) + 1)",
        "divide the time by the failures, then take the root": (
            "return (2 * cost * mtbf) ** 0.5  ->  return 3600 / (len(failures) + 1)"
        ),
        "one interval cannot be right for all clusters": [
            f"return (2 * cost * mtbf) ** 0.5  ->  return {x}" for x in ("600.0", "1800.0", "3600.0")
        ],
        "learn the MTBF from `failures`: clusters differ": "(now + 3600) / (len(failures) + 1)  ->  3600.0",
        "at the start nothing has failed: do not divide by 0": (
            "(now + 3600) / (len(failures) + 1)  ->  now / len(failures)"
        ),
        "this is what a checkpoint costs: Young's interval is the root of 2 C M": (
            "return (2 * cost * mtbf) ** 0.5  ->  return cost"
        ),
        "Young's interval is the root of 2 C M, not a share of the MTBF": [
            "return (2 * cost * mtbf) ** 0.5  ->  return mtbf",
            "return (2 * cost * mtbf) ** 0.5  ->  return mtbf / 10",
        ],
        "did you forget `return`?": "return (2 * cost * mtbf) ** 0.5  ->  pass",
    },
    may_pass={
        "rounded to three digits": "as good",
        "wrong from the sixth call on": "a second more is as good",
        "mtbf = (now + 36": "another guess",
        "mtbf = (now + 3600) / (len(failures) + 2)": "another guess",
        "* cost * mtbf) ** 0.5": "an interval that is off by a factor of 1.4 loses little",
    },
)
