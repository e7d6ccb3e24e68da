"""The exercises of lab 10: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

ROW = "F0 F1 F2 B0 F3 B1 B2 B3"
SECOND = "F0 F1 B0 F2 B1 F3 B2 B3"
LAST = "F0 B0 F1 B1 F2 B2 F3 B3"


def draw_seed(rng):
    return {"seed": int(rng.integers(1, 10**6))}


EXERCISES["half_the_memory"] = Exercise(
    cases=[{}],
    draw=draw_seed,
    draws=2,
    rtol=1e-6,
    mistakes={
        "micro-batches are numbered from 0: F0 to F3": (
            'def half_the_memory():\n    return "F1 B1 F2 B2 F3 B3 F4 B4\\n" * 3'
        ),
        "the first micro-batch comes back first: B0, B1, B2, B3": (
            f"{ROW}  ->  F0 F1 F2 B2 F3 B3 B1 B0",
            f"{SECOND}  ->  F0 F1 B1 F2 B2 F3 B3 B0",
        ),
        "from the first backward on, rank 1 runs one forward after each backward": (
            f"{SECOND}  ->  F0 F1 B0 B1 F2 F3 B2 B3"
        ),
        "this is GPipe: a backward can come as soon as the next rank has done its own": [
            f"{ROW}  ->  F0 F1 F2 F3 B0 B1 B2 B3",
            'def half_the_memory():\n    return "F0 F1 F2 F3 B0 B1 B2 B3\\n" * 3',
        ],
        "the first line is rank 0's: F1 comes before B0": (
            f"{ROW}\n    {SECOND}\n    {LAST}  ->  {LAST}\n    {SECOND}\n    {ROW}"
        ),
        "whenever rank 0 has room, a forward comes before the next backward": [
            f"{ROW}  ->  {SECOND}",
            f"{ROW}  ->  F0 F1 F2 B0 B1 B2 F3 B3",
        ],
        "every line has F0 to F3 and B0 to B3, each once": [
            f"{LAST}  ->  F0 B0 F1 B1 F2 B2 F3",
            f"{LAST}  ->  {LAST} B3",
        ],
        "rank 0 waits for a backward that rank 1 does later: B0 before B1": f"{ROW}  ->  F0 F1 B1 F2 B0 F3 B2 B3",
        "a micro-batch goes forward before it goes backward": f"{LAST}  ->  B0 F0 F1 B1 F2 B2 F3 B3",
        "three lines, one for each rank": [
            f"    {LAST}\n  ->  ",
            f"    {LAST}\n  ->      {LAST}\n    {LAST}\n",
            f'def half_the_memory():\n    return "{ROW} {LAST}"',
        ],
        "rank 0 can go on with F1 while rank 1 has F0": (
            f'def half_the_memory():\n    return "\\n".join(["{LAST}"] * 3)'
        ),
        "backward is one action here, B": f"{LAST}  ->  F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3",
        "return the text, with `return`": [
            "def half_the_memory():\n    return 18",
            "def half_the_memory():\n    pass",
        ],
        "write the lines themselves": 'def half_the_memory():\n    return "1f1b"',
    },
)

FIRST = "min(n_stages - 1 - stage, n_microbatches)"
TURN = '        if i + ahead < n_microbatches:\n            yield f"F{i + ahead}"\n'
BACK = '        yield f"B{i}"'
STAGED = (
    'yield f"F{i}"  ->  yield f"{stage}F{i}"',
    'yield f"F{i + ahead}"  ->  yield f"{stage}F{i + ahead}"',
    'yield f"B{i}"  ->  yield f"{stage}B{i}"',
)

EXERCISES["generators"] = Exercise(
    answers=("one_f_one_b",),
    cases=rows("p m", (3, 4), (5, 7), (4, 2), (1, 3), (2, 11)),
    draw=lambda rng: {"p": rng.integers(1, 7), "m": rng.integers(1, 13)},
    draws=10,
    mistakes={
        "after the last forward come the remaining backwards": (
            "for i in range(n_microbatches):\n        if  ->  for i in range(n_microbatches - ahead):\n        if"
        ),
        "B0 is the first backward: B follows `ahead` behind F": 'f"B{i}"  ->  f"B{(i + ahead) % n_microbatches}"',
        "the forwards go on after the first ones: F(i + ahead)": (f'{TURN}  ->          yield f"F{{i}}"\n'),
        "p - 1 - stage micro-batches go ahead, not twice as many": "min(n_stages - 1  ->  min(2 * (n_stages - 1)",
        "backward goes in the order of the numbers, too": 'f"B{i}"  ->  f"B{n_microbatches - 1 - i}"',
        "one forward too many at the start: p - 1 - stage": "n_stages - 1 - stage  ->  n_stages - stage",
        "one forward too few at the start: p - 1 - stage": [
            "n_stages - 1 - stage  ->  n_stages - 2 - stage",
            "n_stages - 1 - stage  ->  max(0, n_stages - 2 - stage)",
        ],
        "the first stage goes ahead furthest, the last not at all": "n_stages - 1 - stage  ->  stage",
        "this fills nothing: every rank waits for the last one": f"{FIRST}  ->  0",
        "this is GPipe: after the first forwards, forward and backward take turns": f"{FIRST}  ->  n_microbatches",
        "the last forwards are missing": "i + ahead < n_microbatches:  ->  i + ahead < n_microbatches - 1:",
        "there are n_microbatches forwards, no more": "if i + ahead < n_microbatches:  ->  if True:",
        "in each turn forward comes first, then backward": f"{TURN}{BACK}  ->  {BACK}\n{TURN}",
        "with few micro-batches no more than those can go ahead": f"{FIRST}  ->  n_stages - 1 - stage",
        "micro-batches are numbered from 0, backward as well": 'f"B{i}"  ->  f"B{i + 1}"',
        'yield one action at a time, a text such as "F0"': [
            'yield f"B{i}"  ->  yield ("B", i)',
            'def one_f_one_b(stage, n_stages, n_microbatches):\n    yield "F0 B0"',
            "from distlearn.parallel.pipeline.schedule import one_f_one_b",
        ],
        "for any number of stages, not only for three": "n_stages - 1 - stage  ->  2 - stage",
        "no stage in front of the action here": [STAGED, STAGED[2]],
        "nothing is yielded": "ahead = min(  ->  return\n    ahead = min(",
    },
    may_pass={
        "min(n_microbatches, n_stages": "the same minimum",
    },
)

TIME = "(n_microbatches + fill) * (forward + backward)"
SHARE = "fill / (n_microbatches + fill)"
HELD = "min(n_ranks - rank, n_microbatches)"
WORK, WAIT = "n_microbatches * (forward + backward)", "fill * (forward + backward)"


def work_and_wait(work, wait):
    """The same mistake in the time alone, and in both results."""
    both = f"return {TIME}, {SHARE}  ->  work, wait = {work}, {wait}\n    return work + wait, wait / (work + wait)"
    return [f"return {TIME}  ->  return {work} + {wait}", both]


EXERCISES["predicted"] = Exercise(
    answers=("predicted", "held_by_1f1b"),
    cases=rows(
        "of p m v f b",
        ("predicted", 3, 4, 1, 1.0, 2.0),
        ("predicted", 4, 8, 2, 1.5, 2.5),
        ("predicted", 6, 2, 1, 5.0, 3.5),
        ("predicted", 5, 10, 3, 0.2, 0.7),
        ("predicted", 1, 7, 1, 2.0, 1.2),
        ("held_by_1f1b", 4, 9),
        ("held_by_1f1b", 6, 3),
        ("held_by_1f1b", 1, 5),
    ),
    draw=lambda rng: (
        {"of": "held_by_1f1b", "p": rng.integers(1, 14), "m": rng.integers(1, 14)}
        if rng.random() < 0.3
        else {
            "of": "predicted",
            "p": (p := int(rng.integers(1, 9))),
            "m": p * int(rng.integers(1, 5)),
            "v": rng.integers(1, 6),
            "f": rng.uniform(0.1, 5),
            "b": rng.uniform(0.1, 5),
        }
    ),
    draws=10,
    mistakes={
        "f and b are for all stages of a rank: one stage takes a v-th": (
            f"return {TIME},  ->  return (n_microbatches * n_virtual + n_ranks - 1) * (forward + backward),"
        ),
        "a share of one rank's time, not a sum over ranks": f"{SHARE}  ->  n_ranks * {SHARE}",
        "the pipeline empties v times as fast, too": work_and_wait(
            WORK, "(n_ranks - 1) * (forward / n_virtual + backward)"
        ),
        "the last rank works on all m micro-batches, not on m - 1": work_and_wait(
            "(n_microbatches - 1) * (forward + backward)", WAIT
        ),
        "f + b: one micro-batch goes forward, and then backward": work_and_wait(
            "n_microbatches * forward * backward", "fill * forward * backward"
        ),
        "a share of the time, not seconds: divide by the time": f"{SHARE}  ->  fill * (forward + backward)",
        "(p - 1) f before and (p - 1) b after: p - 1 times f + b, not twice": (
            "(n_ranks - 1) / n_virtual  ->  2 * (n_ranks - 1) / n_virtual"
        ),
        "p - 1 - r forwards go ahead, and one more before the first backward": (
            f"{HELD}  ->  max(1, min(n_ranks - 1 - rank, n_microbatches))"
        ),
        "the smaller of p - r and m: subtract r before you compare": f"{HELD}  ->  min(n_ranks, n_microbatches) - rank",
        "a number for each rank, even with few micro-batches": (
            f"[{HELD} for rank in range(n_ranks)]  ->  [n_ranks - rank for rank in range(min(n_ranks, n_microbatches))]"
        ),
        "with v stages a rank the pipeline fills v times as fast": "(n_ranks - 1) / n_virtual  ->  n_ranks - 1",
        "divide by v: more stages fill faster": "(n_ranks - 1) / n_virtual  ->  (n_ranks - 1) * n_virtual",
        "with v stages a rank the work is the same: m (f + b)": (
            f"{TIME},  ->  {TIME.replace('s +', 's / n_virtual +')},"
        ),
        "divide by v: the result need not be whole": [
            "(n_ranks - 1) / n_virtual  ->  (n_ranks - 1) // n_virtual",
            "(n_ranks - 1) / n_virtual  ->  -(-(n_ranks - 1) // n_virtual)",
        ],
        "divide by v once, in the filling": f"{SHARE}  ->  fill / (n_virtual * n_microbatches + fill)",
        "the first rank holds most, the last one holds one": f"{HELD}  ->  min(rank + 1, n_microbatches)",
        "p - 1 ranks must be passed, not p": "(n_ranks - 1) / n_virtual  ->  n_ranks / n_virtual",
        "divide by the whole time, not by the work": f"{SHARE}  ->  fill / n_microbatches",
        "backward takes time, too: f + b": f"return {TIME}  ->  return (n_microbatches + fill) * forward",
        "the pipeline also empties": work_and_wait(WORK, "fill * forward"),
        "this is the work alone": f"return {TIME}  ->  return n_microbatches * (forward + backward)",
        "time comes first, then the bubble": f"{TIME}, {SHARE}  ->  {SHARE}, {TIME}",
        "a share, from 0 to 1, not in percent": f"{SHARE}  ->  100 * {SHARE}",
        "the share of the time in which a rank waits, not works": f"{SHARE}  ->  1 - {SHARE}",
        "f and b are arguments": "    fill =  ->      forward, backward = 1, 2\n    fill =",
        "return both, time and bubble": f", {SHARE}  ->  ",
        "later ranks wait for fewer others, and hold fewer": f"{HELD}  ->  min(n_ranks, n_microbatches)",
        "never more than there are micro-batches, and fewer on later ranks": f"{HELD}  ->  n_ranks",
        "never more than there are micro-batches": [
            f"{HELD}  ->  n_ranks - rank",
            f"{HELD}  ->  min(n_ranks - 1 - rank, n_microbatches) + 1",
        ],
        "this is GPipe; 1F1B holds what goes ahead, and one more": f"{HELD}  ->  n_microbatches",
        "the first turn's forward is held, too": f"{HELD}  ->  min(n_ranks - 1 - rank, n_microbatches)",
        "a list, a number for each rank": f"[{HELD} for rank in range(n_ranks)]  ->  min(n_ranks, n_microbatches)",
        "did you forget `return`?": "    return (n_mic  ->      (n_mic",
    },
    may_pass={"min(n_microbatches, n_ranks - rank)": "the same minimum"},
)

FORWARD = 'forward.append(f"{rank + k * n_ranks}F{i}")'
BACKWARD = 'backward.append(f"{rank + (n_virtual - 1 - k) * n_ranks}B{i}")'
AHEAD = "2 * (n_ranks - 1 - rank) + (n_virtual - 1) * n_ranks"


def other_stage(forward, backward):
    """Edits that put another stage in front of the actions."""
    return (
        f"{{rank + k * n_ranks}}F  ->  {{{forward}}}F",
        f"{{rank + (n_virtual - 1 - k) * n_ranks}}B  ->  {{{backward}}}B",
    )


EXERCISES["interleaved"] = Exercise(
    cases=rows("p m v", (2, 4, 2), (3, 3, 2), (2, 6, 3), (4, 8, 1), (1, 2, 2)),
    draw=lambda rng: {
        "p": (p := int(rng.integers(1, 6))),
        "m": p * int(rng.integers(1, 4)),
        "v": rng.integers(1, 5),
    },
    mistakes={
        "2 (p - 1 - r), not 2 (p - r)": "(n_ranks - 1 - rank)  ->  (n_ranks - rank)",
        'the stage stands in front of the action: "2F0", not "F20"': (
            f'{FORWARD}  ->  forward.append(f"F{{rank + k * n_ranks}}{{i}}")',
            f'{BACKWARD}  ->  backward.append(f"B{{rank + (n_virtual - 1 - k) * n_ranks}}{{i}}")',
        ),
        "groups of p micro-batches, not of v": (
            "range(0, n_microbatches, n_ranks)  ->  range(0, n_microbatches, n_virtual)",
            "range(first, first + n_ranks)  ->  range(first, min(first + n_virtual, n_microbatches))",
        ),
        "within a group backward goes in the order of the numbers, too": (
            "n_ranks}B{i}  ->  n_ranks}B{2 * first + n_ranks - 1 - i}"
        ),
        "backward reverses the stages, not the micro-batches": (
            'enumerate(backward)  ->  enumerate(a.replace("F", "B") for a in forward[::-1])'
        ),
        "after the last forward come the remaining backwards": (
            "enumerate(backward)  ->  enumerate(backward[: len(forward) - ahead])"
        ),
        "a rank goes backward through its own stages": (
            "{rank + (n_virtual - 1 - k) * n_ranks}B  ->  {n_virtual * n_ranks - 1 - rank - k * n_ranks}B"
        ),
        "groups begin at 0, p, 2 p, ...": "range(0, n_microbatches, n_ranks)  ->  range(n_microbatches // n_ranks)",
        "backward starts with the rank's last stage": "(n_virtual - 1 - k) * n_ranks}B  ->  k * n_ranks}B",
        "a rank has the stages rank, rank + p, rank + 2 p, ..., no neighbours": [
            other_stage("rank * n_virtual + k", "rank * n_virtual + n_virtual - 1 - k")[0],
            other_stage("rank * n_virtual + k", "rank * n_virtual + n_virtual - 1 - k"),
            other_stage("k", "n_virtual - 1 - k"),
        ],
        "micro-batches go in groups of p": (
            (
                "range(0, n_microbatches, n_ranks)  ->  range(1)",
                "range(first, first + n_ranks)  ->  range(n_microbatches)",
            )
        ),
        "a group has p micro-batches": "range(first, first + n_ranks)  ->  range(first, n_microbatches)",
        "this many go ahead in 1F1B: here more do": f"{AHEAD}  ->  n_ranks - 1 - rank",
        "(v - 1) p more go ahead, not (v - 1) m": f"{AHEAD}  ->  {AHEAD.replace(') * n_ranks', ') * n_microbatches')}",
        "(v - 1) p more go ahead, not v p": f"{AHEAD}  ->  {AHEAD.replace('(n_virtual - 1)', 'n_virtual')}",
        "the last rank goes ahead least: p - 1 - r": f"{AHEAD}  ->  {AHEAD.replace('(n_ranks - 1 - rank)', 'rank')}",
        "a group of p micro-batches passes one stage, then the next": (
            "        for k in range(n_virtual):\n            for i in range(first, first + n_ranks):"
            "  ->          for i in range(first, first + n_ranks):\n            for k in range(n_virtual):"
        ),
        "(v - 1) p more go ahead": f"{AHEAD}  ->  2 * (n_ranks - 1 - rank)",
        "p - 1 - r counts twice": "2 * (n_ranks  ->  (n_ranks",
        "the first turn has a forward itself": f"{AHEAD}  ->  {AHEAD} + 1",
        "all forwards first: this is GPipe": f"min({AHEAD}, len(forward))  ->  len(forward)",
        "every action names its stage": [
            f'{FORWARD}  ->  forward.append(f"F{{i}}")',
            (f'{FORWARD}  ->  forward.append(f"F{{i}}")', f'{BACKWARD}  ->  backward.append(f"B{{i}}")'),
        ],
        "the groups after the first have other micro-batches: p to 2 p - 1, ...": (
            "n_ranks}F{i}  ->  n_ranks}F{i - first}",
            "n_ranks}B{i}  ->  n_ranks}B{i - first}",
        ),
        "one forward too few before the first backward": [
            f"{AHEAD}  ->  {AHEAD} - 1",
            f"min({AHEAD},  ->  min(max(0, {AHEAD} - 1),",
        ],
        "the later forwards are missing: one forward, then one backward": (
            "ahead + k : ahead + k + 1  ->  ahead + k : ahead + k"
        ),
        "in each turn forward comes first, then backward": (
            "        yield from forward[ahead + k : ahead + k + 1]\n        yield action"
            "  ->          yield action\n        yield from forward[ahead + k : ahead + k + 1]"
        ),
        'yield one action at a time, a text such as "0F0"': (
            "from distlearn.parallel.pipeline.schedule import interleaved"
        ),
        "v is n_virtual, not always 2": "forward, backward = [], []  ->  forward, backward, n_virtual = [], [], 2",
    },
    may_pass={"min(len(forward)": "the same minimum", "len(backward))": "as many as forwards"},
)

NOW = "w = w - lr * gradient(i, old)"
NEEDED = "len({used for used, _ in kept.values()} | {version})"
TAB = " " * 12

EXERCISES["run_stage"] = Exercise(
    cases=rows(
        "order lr seed",
        ("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", 0.3, 5),
        ("F0 B0 F1 B1 F2 B2 F3 B3", 0.25, 4),
        ("F0 F1 F2 B0 B1 B2", 0.2, 1),
        ("F0 F1 B0 F2 B2 B1", 0.2, 2),
        ("F10 F1 F0 B1 F11 B10 B11 B0", 0.37, 7),
        ("F0 B0", 0.6, 3),
    ),
    draw=lambda rng: {
        "order": drawn_order(rng, int(rng.integers(1, 14))),
        "lr": rng.uniform(0.1, 0.5),
        "seed": rng.integers(10**6),
    },
    mistakes={
        "count after every action, with the newest weights": (
            "        most = max(most, len({used for used, _ in kept.values()} | {version}))"
            "  ->              most = max(most, len({used for used, _ in kept.values()}))"
        ),
        "those needed at one time, not all there have been": (
            "return w, staleness, most  ->  return w, staleness, version + 1"
        ),
        "each B is an update at once: later mini-batches go forward with it": (
            f"{NOW}  ->  total = gradient(i, old) + (total if version else 0)",
            "return w, staleness, most  ->  return w - lr * total, staleness, most",
        ),
        "the update comes at the B, not at the F": (
            "kept[i] = version, w  ->  kept[i] = version, w; w = w - lr * gradient(i, w)",
            f"{NOW}  ->  pass",
        ),
        "keep the weights of every mini-batch in flight, by its number": (
            "kept[i] = version, w  ->  kept[i] = version, w; last = w",
            "gradient(i, old)  ->  gradient(i, last)",
        ),
        "a list, not a dict: the staleness of each B in turn": (
            "return w, staleness, most"
            "  ->  return w, dict(zip([int(a[1:]) for a in order if a[0] == 'B'], staleness)), most"
        ),
        "staleness counts updates since the forward, not mini-batches in flight": (
            "append(version - used)  ->  append(len(kept))"
        ),
        "backward uses the weights with which its mini-batch went forward": "gradient(i, old)  ->  gradient(i, w)",
        "update the newest weights, not the stashed ones": "w = w - lr  ->  w = old - lr",
        "`w -= ...` writes into the array that is stashed: make a new one": f"{NOW}  ->  w -= lr * gradient(i, old)",
        "`w -= ...` writes into the stashed weights": (
            "kept[i] = version, w  ->  w = w if version else w.copy(); kept[i] = version, w",
            f"{NOW}  ->  w -= lr * gradient(i, old)",
        ),
        "F10 is mini-batch 10, not 1: all digits count": "int(action[1:])  ->  int(action[1])",
        "a step goes against the gradient": "w = w - lr  ->  w = w + lr",
        "the step is lr times the gradient": "w - lr * gradient  ->  w - gradient",
        "staleness is how many updates came since, not which version was used": (
            "append(version - used)  ->  append(used)"
        ),
        "a mini-batch's own update does not count": (
            "            staleness.append(version - used)\n            version += 1"
            "  ->              version += 1\n            staleness.append(version - used)"
        ),
        "a mini-batch that has come back needs its weights no longer": [
            "kept.pop(i)  ->  kept[i]",
            (
                "kept.pop(i)  ->  kept[i]",
                f"        most = max(most, {NEEDED})  ->  {TAB}most = max(most, {NEEDED})\n{TAB}del kept[i]",
            ),
        ],
        "gradient(i, ..) is that of mini-batch i, the number in the action": [
            "gradient(i, old)  ->  gradient(len(staleness), old)",
            "int(action[1:])  ->  action[1:]",
        ],
        "the staleness is a list: one number for each B": [
            "return w, staleness, most  ->  return w, sum(staleness) / len(staleness), most",
            "return w, staleness, most  ->  return w, max(staleness), most",
        ],
        "weights, staleness, versions, in this order": "return w, staleness, most  ->  return w, most, staleness",
        "in the order of the B's, not of the mini-batches' numbers": (
            "return w, staleness, most  ->  return w, [s for _, s in sorted(zip([int(a[1:]) for a in order"
            " if a[0] == 'B'], staleness))], most"
        ),
        "after a B the newest weights are one version more: count then": " | {version})  ->  )",
        "mini-batches in flight may share a version: count versions": f"{NEEDED}  ->  len(kept)",
        "some mini-batches in flight went forward with the same weights: count them once": (
            f"{NEEDED}  ->  len(kept) + 1"
        ),
        "count versions: their number does not follow from the staleness": [
            "return w, staleness, most  ->  return w, staleness, 1 + max(staleness)",
            "return w, staleness, most  ->  return w, staleness, max(staleness)",
        ],
        "B's may come in any order: B2 is mini-batch 2": "kept.pop(i)  ->  kept.pop(min(kept))",
        "the largest number at any time, not that at the end": "most = max(most,  ->  most = max(1,",
        "return all three: weights, staleness, versions": "return w, staleness, most  ->  return w",
        "did you forget `return`?": "    return w, staleness, most  ->      w, staleness, most",
    },
    may_pass={
        "({}, [], 1, 1)": "only differences of versions count",
        "({}, [], -1, 1)": "only differences of versions count",
        "({}, [], 0, 0)": "the first forward needs one version",
        "max(len(": "the same maximum",
    },
)


def drawn_order(rng, m):
    """Any order in which each of m mini-batches goes forward before it comes back."""
    order, numbers = [], rng.permutation(m).tolist()
    flying = []
    while numbers or flying:
        if numbers and (not flying or rng.random() < 0.6):
            flying.append(numbers.pop())
            order.append(f"F{flying[-1]}")
        else:
            order.append(f"B{flying.pop(int(rng.integers(len(flying))))}")
    return " ".join(order)


SLOW = "F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5"
TWO_AHEAD = "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5"
ONE_AHEAD = "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5"
GPIPE = "F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5"
STAGE_1 = "1F0 1F1 1F2 1B0 1B1 1F3 1B2 1F4 1B3 1F5 1B4 1B5"

EXERCISES["slow_and_uneven"] = Exercise(
    answers=("slow_links", "uneven_stages"),
    cases=rows("puzzle", (2,), (3,)),
    draw=draw_seed,
    draws=2,
    rtol=1e-6,
    mistakes={
        "puzzle 2: rank 0 goes ahead with four forwards, rank 1 with two": [
            f"{TWO_AHEAD}  ->  {ONE_AHEAD}",
            f"{SLOW}  ->  {TWO_AHEAD}",
        ],
        "puzzle 3: rank 1 must never wait: let it run two forwards ahead": (
            f"{STAGE_1}  ->  {STAGE_1.replace('1F1 1F2 1B0 1B1 1F3', '1B0 1F1 1F2 1F3 1B1')}"
        ),
        "puzzle 3: three stages on two ranks: name the stage, 0F0": (
            "def uneven_stages():  ->  def uneven_stages():\n"
            "    return 'F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5\\n' * 2\n\ndef unused():"
        ),
        "puzzle 2: this is 1F1B; with slow links rank 0 has to go ahead further": (
            f"{TWO_AHEAD}  ->  {ONE_AHEAD}",
            f"{SLOW}  ->  {TWO_AHEAD}",
        ),
        "puzzle 2: there is no room for all forwards at once": [
            f"{SLOW}  ->  {GPIPE}",
            (f"{SLOW}  ->  {GPIPE}", f"{TWO_AHEAD}  ->  {GPIPE}"),
        ],
        "puzzle 2: rank 0 waits for a backward that rank 1 does later": (
            f"{SLOW}  ->  F0 F1 F2 F3 F4 B5 F5 B1 B2 B3 B4 B0"
        ),
        "puzzle 2: every line has F0 to F5 and B0 to B5": f"{SLOW}  ->  {SLOW.replace(' B5', '')}",
        "puzzle 3: ranks wait: let forwards run ahead": (
            f"{STAGE_1}  ->  {' '.join(f'1F{i} 1B{i}' for i in range(6))}"
        ),
        "puzzle 3: there is room for four, not for all six": (
            f"{STAGE_1}  ->  {' '.join(f'1{k}{i}' for k in 'FB' for i in range(6))}"
        ),
        "puzzle 3: every action of stages 0, 1 and 2 has to be there, once": [
            f"{STAGE_1}  ->  {STAGE_1.replace('1F', '2F').replace('1B', '2B')}",
            f"{STAGE_1}  ->  {STAGE_1} {' '.join(f'3F{i} 3B{i}' for i in range(6))}",
        ],
        "puzzle 3: backward is one action, B": f"{STAGE_1}  ->  {STAGE_1.replace('1B5', '1I5 1W5')}",
    },
)

ONE_BY_ONE = "f'{a}F{i} {b}F{i} {b}I{i} {b}W{i} {a}I{i} {a}W{i}' for i in range(4)"

EXERCISES["halved"] = Exercise(
    answers=("less_of_both",),
    cases=[{}],
    draw=draw_seed,
    draws=2,
    rtol=1e-6,
    mistakes={
        "ranks wait: start the next micro-batches before the first is back": [
            f"def less_of_both():\n    return [' '.join({row}) for a, b in {pairs}]"
            for row, pairs in (
                (ONE_BY_ONE, "((0, 5), (1, 4), (2, 3))"),
                (ONE_BY_ONE, "((0, 3), (1, 4), (2, 5))"),
                ("f'{a}F{i} {b}F{i} {b}B{i} {a}B{i}' for i in range(4)", "((0, 5), (1, 4), (2, 3))"),
            )
        ],
        "I comes before W": "0F2 0I0 0W0  ->  0F2 0W0 0I0",
        "every I has its W, on the same rank": "0I3 0W3  ->  0I3",
        "a W that is put off takes up room": "3W0 3W1 2F2 3F2  ->  2F2 3F2 3W0 3W1",
        "B in one comes too late for the stage before": "0I2 0W2 0I3 0W3  ->  0B2 0B3",
        "either B, or I and W": "0F2 0I0 0W0 0I1  ->  0F2 0B0 0I0 0W0 0I1",
        "every stage does each micro-batch": "2F0 3F0 2F1  ->  2F0 2F1",
    },
)
