"""Lab 12, failures: heartbeats, black boxes, a disk that may stop anywhere, stragglers, five bugs; its checks."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np

import distlearn as dl
from distlearn.parallel import young_interval

# -- section 1: heartbeats ---------------------------------------------------------------------------------------------


def heartbeats(n: int, *, seed: int = 0) -> np.ndarray:
    """Simulate n heartbeats over a busy network; return when they arrive [s].

    Between two beats a rank works, for a time that varies by a log-normal factor, as where machines are shared.
    """

    def program(comm):
        arrivals, buffer = [], np.zeros(1)
        for _ in range(n):
            if comm.rank == 0:
                with comm.clock.span("work", flops=1.0):
                    pass
                comm.send(buffer, 1)
            else:
                comm.recv(buffer, 0)
                arrivals.append(comm.clock.now())
        return np.array(arrivals)

    world = dl.SimWorld(2, dl.Network(alpha=1e-3, beta=1e9), dl.Roofline(peak=1.0), jitter=0.5, seed=seed)
    return world.run(program)[1]


def check_watch(check, watch, arrivals, timeout):
    """False alarms, and the mean time from a death to its detection."""
    gaps = np.diff(arrivals)
    seen, total = np.minimum(gaps, timeout), gaps.sum()
    alarms, delay = int((gaps > timeout).sum()), float((timeout * seen - seen**2 / 2).sum() / total)
    mean = (timeout - gaps / 2).mean()
    name = f"{len(arrivals)} heartbeats, timeout {timeout:.3g} s"
    got = check.call(watch, arrivals, timeout)
    check.equal(f"false alarms, {name}", int(got[0]), alarms, suspects={
        "these are the gaps that raise no alarm": len(gaps) - alarms,
        "the gaps count, not the times of arrival": int((arrivals > timeout).sum()),
    })  # fmt: skip
    check.close(f"delay, {name}", got[1], delay, suspects={
        "a death comes between two beats, on average half a gap after one": timeout,
        "long gaps hold more of the moments at which a node can die: weight by the gap": mean,
        "weight by the gap: a node dies in a long gap more often": float((timeout - seen / 2).mean()),
        "in a gap longer than the timeout the alarm comes first: min(gap, timeout)": float(
            (timeout * gaps - gaps**2 / 2).sum() / total
        ),
        "divide by the time that was watched": float((timeout * seen - seen**2 / 2).sum()),
        "the integral of u is half of a square": float((timeout * seen - seen**2).sum() / total),
        "the silence before the death counts, too: subtract it": float((timeout * seen + seen**2 / 2).sum() / total),
    })  # fmt: skip


# -- section 2: the black box ------------------------------------------------------------------------------------------

CALLS = ("all_reduce", "broadcast", "barrier", "all_gather")


def black_boxes(size: int, missing, number: int, *, odd=None, silent=(), ahead=(), seed: int = 0) -> dict:
    """Make the records of a run that hangs: by rank, its last calls as (number, call, state), the oldest first.

    Ranks in `missing` have not made call `number`; the rank `odd` makes another call there; nothing is known of those
    in `silent`. Ranks `ahead` need not wait at it (they send to a root) and wait at the next one. A ring buffer keeps
    eight calls.
    """
    rng = np.random.default_rng(seed)
    calls = [CALLS[i] for i in rng.integers(len(CALLS), size=number)]
    boxes = {}
    for rank in range(size):
        last = number - int(rng.integers(1, 3)) if rank in missing else number
        box = [(i, calls[i - 1], "done") for i in range(max(1, last - 7), last + 1)]
        if box and rank not in missing:
            name = CALLS[(CALLS.index(calls[-1]) + 1) % len(CALLS)] if rank == odd else calls[-1]
            box[-1] = (number, name, "waiting")
        if rank in ahead:
            box[-1:] = [(number, calls[-1], "done"), (number + 1, "barrier", "waiting")]
        boxes[rank] = [] if rank in silent else box
    return boxes


def in_short(records) -> dict:
    """Return what `SimWorld.records` or `EngineWorld.records` hold in the form of `black_boxes`."""
    short = {}
    for rank, calls in records.items():
        short[rank] = [(r.number, r.call.partition("(")[0], r.state) for r in calls if r.number]
    return short


def check_missing(check, who, boxes, want, what):
    """The verdict on records: ("missing" or "mismatch", ranks, number of the call)."""
    kind, ranks, number = want
    got = check.call(who, boxes)
    last = {rank: max((n for n, *_ in box), default=0) for rank, box in boxes.items()}
    waiting = sorted(rank for rank, box in boxes.items() if box and box[-1][2] == "waiting")
    known = [rank for rank in ranks if boxes[rank]]
    check.equal(what, got, want, suspects={
        "these ranks wait: who keeps them waiting?": (kind, waiting, number),
        "take the smallest number at which a rank waits: some may have gone on": (kind, sorted(set(boxes) - {
            r for r, n in last.items() if n == max(last.values())}), max(last.values())),
        "a rank without records is missing, too": (kind, known, number),
        "the missing rank made this call: at which one is it missing?": (kind, ranks, min(last.values())),
        "ranks in order, a list": (kind, ranks[::-1], number),
        "ranks is a list": (kind, tuple(ranks), number),
        "no rank is named: if all have come, do they make the same call?": ("missing", [], number),
        "the odd rank is the one whose call differs": (kind, [r for r in waiting if r not in ranks], number),
        "one rank has not come: nothing says that its call will differ": ("mismatch", ranks, number),
    })  # fmt: skip


# -- section 3: a disk that may stop at any moment ---------------------------------------------------------------------


def execute(files: dict, operations, torn=None) -> dict:
    """Return the files after some operations; with `torn` bytes of the last one if that is a write."""
    files = dict(files)
    for i, (kind, name, *rest) in enumerate(operations):
        if kind == "write":
            files[name] = rest[0][:torn] if torn is not None and i == len(operations) - 1 else rest[0]
        elif kind == "rename":
            files[rest[0]] = files.pop(name)
        elif kind == "remove":
            del files[name]
        else:
            raise ValueError(f"operation {i} is {kind!r}, expected 'write', 'rename' or 'remove'")
    return files


def crashes(files: dict, operations):
    """Every state that a crash can leave: after each operation, and in the middle of each write."""
    for k in range(len(operations) + 1):
        yield f"a crash after {k} of {len(operations)} operations", execute(files, operations[:k])
        if k < len(operations) and operations[k][0] == "write":
            for torn in sorted({0, 1, len(operations[k][2]) // 2, len(operations[k][2]) - 1}):
                text = f"a crash after {torn} bytes of {operations[k][1]!r}"
                yield text, execute(files, operations[: k + 1], torn)


def flipped(files: dict, name: str, bit: int) -> dict:
    """Return the files with one bit of one of them changed."""
    data = bytearray(files[name])
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return files | {name: bytes(data)}


def overwrite(files, step, data):
    """Program A: one file, written anew."""
    return [("write", "checkpoint", f"{step:08d}".encode() + data)]


def remove_first(files, step, data):
    """Program B: a new file, which takes the place of the old one."""
    old = [("remove", "checkpoint")] if "checkpoint" in files else []
    return [("write", "new", f"{step:08d}".encode() + data), *old, ("rename", "new", "checkpoint")]


def rename_over(files, step, data):
    """Program C: a new file is renamed onto the old one."""
    return [("write", "new", f"{step:08d}".encode() + data), ("rename", "new", "checkpoint")]


PROGRAMS = {"A": overwrite, "B": remove_first, "C": rename_over}


def outcome(program: str, fault) -> str:
    """Save step 1 and then step 2 with a program, let a fault strike, and say what can be loaded."""
    one, two = b"weights of step 1", b"weights of step 2"
    files = execute({}, PROGRAMS[program]({}, 1, one))
    operations = PROGRAMS[program](files, 2, two)
    kind, *where = fault
    if kind == "crash":
        files = execute(files, operations[: where[0]])
    elif kind == "tear":
        files = execute(files, operations[: where[0] + 1], where[1])
    elif kind == "flip":
        files = flipped(execute(files, operations), *where)
    else:
        raise ValueError(f"{kind!r}, expected 'crash', 'tear' or 'flip'")
    data = files.get("checkpoint", b"")
    try:
        found = (int(data[:8]), data[8:]) if len(data) >= 8 else None
    except ValueError:
        return "nothing can be loaded"
    if found in ((1, one), (2, two)):
        return f"step {found[0]}, as it was saved"
    return "nothing can be loaded" if found is None else f"step {found[0]} with wrong data, and no error"


def check_attack(check, attack):
    """One fault for each program, after which the last good checkpoint is lost, or wrong data are loaded."""
    for program, text in PROGRAMS.items():
        fault = check.call(attack, program)
        ok = isinstance(fault, tuple) and len(fault) > 1 and fault[0] in ("crash", "tear", "flip")
        if not ok:
            check.true(f"program {program}", False, f"got {fault!r}, expected such as ('crash', 1): see the table")
            continue
        try:
            found = outcome(program, fault)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            check.true(f"program {program}", False, f"{fault!r} cannot happen: {type(error).__name__} {error}")
            continue
        check.true(f"program {program} ({text.__name__}), {fault!r}", "as it was saved" not in found,
                   f"{found} can be loaded: it survives this fault")  # fmt: skip


def check_save(check, save, load, sizes, seed=0):
    """Save several times; after every crash and every flipped bit `load` gives the newest good checkpoint."""
    rng, files, before = np.random.default_rng(seed), {}, None
    check.equal("nothing saved", check.call(load, {}), None)
    for step, size in enumerate(sizes, 1):
        step, data = 3 * step, rng.bytes(size)
        operations = check.call(save, dict(files), step, data)
        shown = [op[:2] for op in operations]
        allowed = [before, (step, data)]
        for text, left in crashes(files, operations):
            got = check.call(load, left)
            if got not in allowed:
                wrong = "nothing can be loaded" if got is None else f"it loads step {got[0]}, {len(got[1])} bytes"
                check.true(f"step {step}, {text}", False, f"{wrong}; operations: {shown}")
                return
        files = execute(files, operations)
        check.equal(f"step {step}, saved", check.call(load, dict(files)), (step, data), suspects={
            "this is the one before; if names are sorted as text, 'step-9' comes after 'step-12'": before or (),
            "nothing that save wrote is accepted; if there is a checksum, is it one of the same bytes?": None,
        })  # fmt: skip
        if before is not None:
            newest = [
                name for name in files if check.call(load, {n: d for n, d in files.items() if n != name}) == before
            ]
            for name in newest:
                for bit in rng.integers(0, 8 * len(files[name]), 5):
                    got = check.call(load, flipped(files, name, int(bit)))
                    if got not in (before, (step, data)):
                        told = "nothing" if got is None else "wrong data, without an error"
                        check.true(
                            f"step {step}, bit {bit} of {name!r} flipped", False, f"it loads {told}: keep a checksum"
                        )
                        return
            check.true(f"step {step}: an older checkpoint is kept", bool(newest), "a flipped bit would leave nothing")
        many = f"{len(files)} files are left: remove old ones, the two newest are enough"
        check.true(f"step {step}: at most three files", len(files) <= 3, many)
        before = step, data


def train_under_nemesis(save, load, *, steps: int, mean_life: float):
    """Train on the digits, saved after every step, while a nemesis kills the process; return the weights and the kills.

    A kill comes after one step in `mean_life`, on average, while that step is saved: some of the operations are done,
    the last of them perhaps in part. Training then begins anew from what can be loaded.
    """
    digits, rng = dl.data.load("digits", dtype="float64"), np.random.default_rng(0)
    files, kills, done = {}, 0, 0
    while done < steps:
        model = dl.nn.MLP((64, 32, 10), seed=0, dtype="float64")
        trainer = dl.Serial(model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.2))
        done, saved = load(dict(files)) or (0, b"")
        at = 0
        for p in model.params if saved else ():
            p.data[...] = np.frombuffer(saved, count=p.size, offset=8 * at).reshape(p.data.shape)
            at += p.size
        while done < steps:
            done += 1
            rows = np.random.default_rng([7, done]).integers(len(digits.x_train), size=64)
            trainer.step(dl.data.Batch(digits.x_train[rows], digits.y_train[rows], 64))
            operations = save(dict(files), done, np.concatenate([p.data.ravel() for p in model.params]).tobytes())
            if rng.random() < 1 / mean_life:
                files = execute(files, operations[: rng.integers(len(operations) + 1)], torn=int(rng.integers(200)))
                kills, done = kills + 1, 0
                break
            files = execute(files, operations)
    return [p.data for p in model.params], kills


# -- section 4: how often to save --------------------------------------------------------------------------------------


def check_effective(check, effective_share, interval, cost, restart, mtbf):
    """The first-order share of time that is useful work."""
    saving, lost, restarting = cost / interval, interval / 2 / mtbf, restart / mtbf
    want = 1 - saving - lost - restarting
    what = f"interval {interval} s, cost {cost:g} s, restart {restart:g} s, MTBF {mtbf:g} s"
    check.close(what, check.call(effective_share, interval, cost, restart, mtbf), want, suspects={
        "this is the share that is lost": 1 - want,
        "a failure undoes half an interval on average, not all of it": 1 - saving - 2 * lost - restarting,
        "every failure needs a restart": 1 - saving - lost,
        "work is lost with every failure": 1 - saving - restarting,
        "a checkpoint costs time once in an interval": 1 - lost - restarting,
        "half an interval for each failure: divide by the MTBF": 1 - saving - interval / 2 - restarting,
    })  # fmt: skip


def check_interval(check, best_interval, cost, mtbf):
    """Young's interval."""
    want = young_interval(cost, mtbf)
    check.close(f"cost {cost:g} s, MTBF {mtbf:g} s", check.call(best_interval, cost, mtbf), want, suspects={
        "set the derivative of C / tau + tau / (2 M) to zero: where does the 2 go?": math.sqrt(cost * mtbf),
        "it follows from cost and mtbf: not always ten minutes": 600,
        "half an interval is lost, not a whole one": math.sqrt(cost * mtbf / 2),
        "this is tau squared": want**2,
        "the derivative of C / tau is -C / tau^2": 2 * mtbf * cost / (cost + mtbf),
    })  # fmt: skip


RATES = {"synchronous": 0.5, "quorum": 0.4}
"""The best of 0.25, 0.5, 1, 2 and of 0.1, 0.2, 0.4, 0.8, by the median of five seeds after half of the time."""


def error_against_time(method: str, seed: int, *, mtbf: float = 18.0):
    """Train on the digits while ranks stand still now and then; return times [steps] and test errors [%].

    Once in `mtbf` steps, on average, one of 8 ranks stops for 10. Methods: "synchronous", and "quorum": a merge as soon
    as 6 of 8 learners have taken 10 steps.
    """
    rng, digits, rate, end, learners = np.random.default_rng(seed), dl.data.load("digits"), RATES[method], 100.0, 8
    first, when, failures = int(method == "quorum"), 0.0, {}  # the syncer comes first, and does not fail
    while (when := when + rng.exponential(mtbf)) < 2 * end:
        rank = first + int(rng.integers(learners))
        if rank not in failures or when > failures[rank][-1].until:
            failures.setdefault(rank, []).append(dl.Failure(rank, when, "hang", when + 10))

    def program(comm):
        model = dl.nn.MLP((64, 32, 10), seed=seed)
        parts = comm, model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), rate)
        if method == "quorum":
            run = dl.QuorumDiLoCo(*parts, every=10, quorum=6).train(digits, batch_size=256, seconds=end, seed=seed)
            return run and (run.curve["time"], 100 - 100 * run.curve["test_accuracy"])
        strategy = dl.DataParallel(*parts)
        rows, points = {"rank": comm.rank, "size": comm.size, "seed": seed}, []
        batches = dl.data.Batches(digits.x_train, digits.y_train, 256, **rows)
        steps = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
        for step, batch in enumerate(steps):
            if step % 10 == 0:
                right = (model.forward(digits.x_test)[0].argmax(axis=1) == digits.y_test).mean()
                points.append((comm.clock.now(), 100 - 100 * right))
                if comm.all_reduce(np.array([comm.clock.now()]), "max") > end:
                    return np.array(points).T
            strategy.step(batch)

    model = dl.nn.MLP((64, 32, 10))
    compute = dl.Roofline(model.flops((32, 64)) + model.backward_flops((32, 64)))  # a step takes a second
    world = dl.SimWorld(
        learners + first,
        dl.Network(1e-3, 1e9),
        compute,
        failures=list(itertools.chain(*failures.values())),
        detection=1e9,
    )
    return world.run(program)[0]


# -- section 5: slow, and silently wrong -------------------------------------------------------------------------------


def step_times(nodes: int = 48, steps: int = 200, slow=None, factor: float = 1.05, seed: int = 0) -> np.ndarray:
    """Draw seconds of each step on each node: all wait for a shared network, and each varies by 8 %."""
    rng = np.random.default_rng(seed)
    common = 1 + 0.8 * rng.gamma(2.0, 0.5, (steps, 1))
    times = common * (1 + 0.08 * rng.normal(size=(steps, nodes)))
    if slow is not None:
        times[:, slow] *= factor
    return times


def check_three(check, slow_nodes, seed=77):
    """Three nodes of 48 are 6, 20 and 100 % slower than the others, and one is faster: most mistakes miss some."""
    times = step_times(seed=seed)
    times[:, [5, 20, 31, 40]] *= 1.06, 1.2, 2.0, 0.9
    check.equal("slower by 6, 20 and 100 %", list(check.call(slow_nodes, times, 1e-6)), [5, 20, 31], suspects={
        "if every step is divided by its median, and the limit is no fixed percentage, 6 % shows": [20, 31],
        "only the slowest: if means are compared, their error is the steps' divided by the root of the steps": [31],
        "this one is faster": [40],
        "nobody: is the limit one that healthy nodes pass in a share `rate` of clusters?": [],
    })  # fmt: skip


def check_slow(check, slow_nodes, rate, *, nodes=48, steps=200, factor=1.05, seed=0):
    """Slow nodes are found, and healthy clusters raise alarms as rarely as was asked for."""
    rng, runs = np.random.default_rng(seed), 200
    alarms = found = others = 0
    for run in range(runs):
        healthy = step_times(nodes, steps, seed=[seed, run])
        alarms += len(check.call(slow_nodes, healthy, rate)) > 0
        if run % 4 == 0:
            slow = int(rng.integers(nodes))
            got = list(check.call(slow_nodes, step_times(nodes, steps, slow, factor, [seed, run, 1]), rate))
            found += slow in got
            others += len(set(got) - {slow}) > 0
    what, tried = f"{nodes} nodes, {steps} steps, rate {rate:g}", -(-runs // 4)
    most, few = (
        m + 5 * math.sqrt(m) + 2 for m in (1.5 * rate * runs, 1.5 * rate * tried)
    )  # a right answer never fails
    text = (
        f"{alarms} of {runs} healthy clusters raise an alarm, expected about {rate * runs:g}; is the limit one that a "
    )
    text += "node passes with probability rate / nodes?"
    check.true(f"false alarms, {what}", alarms <= most, text)
    check.true(f"a node {factor - 1:.0%} slower, {what}", found >= 0.95 * tried,
               f"found in {found} of {tried} clusters; is each step divided by its median, "
               "and the limit a number of standard errors?")  # fmt: skip
    check.true(f"no other node accused, {what}", others <= few, f"in {others} of {tried} clusters")


def silent_corruption(checked: float, *, flips=0.02, steps=4000, seed=0):
    """Count steps until a rank whose products now and then flip a bit is found by computing a share of the work twice.

    In every step one rank is drawn with probability `8 * checked`, and its neighbour computes its gradient again;
    results that differ in a bit name the pair. Returns the step, or None.
    """
    rng = np.random.default_rng(seed)
    for step in range(steps):
        if rng.random() >= 8 * checked or int(rng.integers(8)) != 3:  # of 8 ranks, 3 is bad
            continue
        x, w = rng.normal(size=(16, 8)), rng.normal(size=8)
        mine, again = x @ w, x @ w
        if rng.random() < flips:
            mine.view(np.uint64)[0] ^= np.uint64(1 << 40)
        if not np.array_equal(mine, again):
            return step + 1
    return None


# -- section 6: five bugs ----------------------------------------------------------------------------------------------


def gradient(w, x, y):
    """The gradient of half the squared error, summed over rows."""
    return x.T @ (x @ w - y)


def problem(n, d=3, seed=0):
    """Draw rows, targets and first weights."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)


def run_step(step, n, size, lr=0.1, seed=0):
    """Take one step on `size` simulated ranks; return their weights."""
    x, y, w = problem(n, seed=seed)
    parts = dl.comm.shares(n, size)

    def program(comm):
        mine = w.copy()
        step(comm, mine, x[parts[comm.rank]], y[parts[comm.rank]], n, lr)
        return mine

    return dl.SimWorld(size).run(program)


def check_steps(check, step, name, n, size, seed=0):
    """A data-parallel step is the serial one, on every rank, also where a rank has no rows."""
    x, y, w = problem(n, seed=seed)
    g = gradient(w, x, y)
    wrong = {"divided twice: by n, and by the number of ranks": w - 0.1 * g / n / size,
             "not divided by n": w - 0.1 * g, "the gradient has not been used": w}  # fmt: skip
    own = [gradient(w, x[part], y[part]) for part in dl.comm.shares(n, size)]
    counts = [max(1, len(x[part])) for part in dl.comm.shares(n, size)]
    wrong["every rank divides by its own rows: divide by n"] = w - 0.1 * sum(map(np.divide, own, counts))
    for rank, got in enumerate(run_step(step, n, size, seed=seed)):
        alone = {"the gradient of this rank's rows alone: sum over ranks": w - 0.1 * own[rank] / n}
        check.close(f"{name}, {n} rows on {size} ranks, rank {rank}", got, w - 0.1 * g / n, suspects=wrong | alone)


def check_rows(check, my_rows, n, size, epoch, seed):
    """The ranks' rows are a partition, in another order in every epoch."""
    parts = [np.asarray(check.call(my_rows, rank, size, n, epoch, seed)) for rank in range(size)]
    counts = Counter(np.concatenate(parts).tolist())
    twice, never = sum(c > 1 for c in counts.values()), n - len(counts)
    what = f"{n} rows, {size} ranks, epoch {epoch}"
    check.true(what, not twice and not never, f"{twice} rows come twice, {never} never: "
               + ("do all ranks shuffle alike?" if twice else "n need not be a multiple of the ranks"))  # fmt: skip
    other = np.concatenate([check.call(my_rows, rank, size, n, epoch + 1, seed) for rank in range(size)])
    moved = n < 10 or not np.array_equal(np.concatenate(parts), other)
    check.true(f"{what}: the next epoch", moved, "is in the same order")


def check_restore(check, restore, size, seed):
    """After a restart every rank has the saved weights, which only rank 0 can read."""
    saved = np.random.default_rng(seed).normal(size=5)

    def program(comm):
        w = np.full(5, float(comm.rank))
        restore(comm, w, saved.copy() if comm.rank == 0 else None)
        return w

    for rank, got in enumerate(dl.SimWorld(size).run(program)):
        check.close(f"restore, rank {rank} of {size}", got, saved, suspects={
            "it still has its old weights": float(rank),
            "`saved` is None here: rank 0 must send it": np.nan,
            "the ranks' weights are added up: send those of rank 0": saved + sum(range(1, size)),
        })  # fmt: skip


def check_resume(check, batches, n, size, seed, start):
    """A loader that resumes at (epoch, index) continues as one that never stopped."""
    epoch, index = start
    each = -(-n // size)
    at = epoch * each + index
    whole = [np.asarray(b) for b in check.call(batches, n, size, seed, (0, 0), at + 2 * each)]
    got = [np.asarray(b) for b in check.call(batches, n, size, seed, start, 2 * each)]
    same = lambda k, start: k > 0 and all(map(np.array_equal, got[:k], whole[start:]))  # noqa: E731
    advice = "is it the order of that epoch?"
    if epoch and same(each - index, index):
        advice = "this is the order of epoch 0: the order depends on (seed, epoch)"
    elif index and same(each, epoch * each):
        advice = "it begins with the first batch of that epoch"
    elif index and same(each - index, at):
        advice = "the next epoch begins with its first batch"
    ok = len(whole) == at + 2 * each and len(got) == 2 * each
    wrong = (
        f"{len(whole)} and {len(got)} batches, expected {at + 2 * each} and {2 * each}; after an epoch comes the next"
    )
    check.true(
        f"{n} rows by {size}, from epoch {epoch}, batch {index}", ok and same(2 * each, at), advice if ok else wrong
    )
    for e in range(epoch + 1):
        order = np.random.default_rng([seed, e]).permutation(n)
        rows = np.concatenate(whole[e * each : (e + 1) * each]) if ok else None
        check.true(f"the order of epoch {e}", np.array_equal(rows, order), "it is that of `default_rng([seed, epoch])`")


# -- section 7: a policy under an unknown nemesis ----------------------------------------------------------------------


def play(next_interval, mtbf, cost, restart, *, hours=200.0, seed=0) -> float:
    """Return the share of time that is kept work, with intervals that a function chooses from what it has seen.

    It is asked at the start, after every failure, and after a checkpoint once an hour.
    """
    rng = np.random.default_rng(seed)
    now = kept = 0.0
    end, failures, again = hours * 3600, [], 0.0
    following = rng.exponential(mtbf)
    while now < end:
        if now >= again:
            interval, again = max(1.0, float(next_interval(now, tuple(failures), cost))), now + 3600
        if now + interval + cost <= following:
            now, kept = now + interval + cost, kept + interval
            continue
        failures.append(following)
        now = again = following + restart
        following = now + rng.exponential(mtbf)
    return kept / now


def score_policy(next_interval, *, clusters=None) -> list[dict]:
    """Play a policy on clusters that it does not know, beside the best constant interval, found in hindsight."""
    rows = []
    for mtbf, cost, restart in clusters or [(1e3, 60, 60), (4e3, 2, 60), (3e4, 300, 300), (3e5, 10, 300)]:
        mean = lambda f, m=mtbf, c=cost, r=restart: float(np.mean([play(f, m, c, r, seed=s) for s in range(3)]))  # noqa: E731
        grid = young_interval(cost, mtbf) * np.geomspace(0.25, 4, 9)
        rows.append({
            "MTBF [s]": mtbf,
            "checkpoint [s]": cost,
            "your share": mean(next_interval),
            "best constant": max(mean(lambda *_, t=t: t) for t in grid),
            "one for all": mean(lambda *_: 600.0),
        })  # fmt: skip
    return rows


def check_policy(check, next_interval, clusters=None):
    """The policy keeps nearly what the best constant interval of each cluster keeps."""
    got = check.call(next_interval, 0.0, (), 10.0)
    ok = isinstance(got, int | float) and 0 < got < math.inf
    check.true("a time at the start", ok, f"got {got!r}: nothing has failed yet, guess an MTBF; is there a return?")
    if not ok:
        return
    for row in score_policy(next_interval, clusters=clusters):
        share, best = row["your share"], row["best constant"]
        text = f"keeps {share:.1%}, the best constant interval {best:.1%}; wanted 97% of that"
        what = f"MTBF {row['MTBF [s]']:,.0f} s, checkpoint {row['checkpoint [s]']:g} s"
        check.true(what, share >= 0.97 * best, text)


def quorum_share(learners: int, mtbf: float, restart: float, *, least: float = 0.5, seed=0):
    """Return the share of the machine that trains, as learners that go on without each other; one learner is all of it.

    A failure strikes one learner, and its restart takes as long as that of all; one during a restart begins it anew.
    Learners train as long as at least a share of them works.
    """
    rng = np.random.default_rng(seed)
    end = 200 * 3600.0
    times = np.cumsum(rng.exponential(mtbf, int(2 * end / mtbf) + 50))
    times = times[times < end]
    steps = np.linspace(0, end, 20_000, endpoint=False)
    busy = np.ones((learners, len(steps)), bool)
    for t, i in zip(times, rng.integers(learners, size=len(times)), strict=True):
        busy[i, np.searchsorted(steps, t) : np.searchsorted(steps, t + restart)] = False
    share = busy.mean(axis=0)
    return float(np.where(share >= least, share, 0.0).mean())
