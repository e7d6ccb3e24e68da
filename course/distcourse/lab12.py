"""Lab 12, failures: heartbeats, black boxes, a disk that may stop anywhere, stragglers, five bugs; its checks."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from numbers import Integral

import numpy as np

import distlearn as dl
from distlearn.parallel import young_interval

from .exercise import named

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


def run_watch(watch, timeout, arrivals=None, beats=0, seed=0):
    drawn = np.random.default_rng(seed).gamma(2.0, 0.8, beats).cumsum()
    return named(watch(drawn if arrivals is None else np.array(arrivals, float), timeout), "false alarms", "delay")


# -- section 2: the black box ------------------------------------------------------------------------------------------

CALLS = ("all_reduce", "broadcast", "barrier", "all_gather")


def black_boxes(size: int, missing, number: int, *, odd=None, silent=(), ahead=(), past=(), seed: int = 0) -> dict:
    """Make the records of a run that hangs: by rank, its last calls as (number, call, state), the oldest first.

    Ranks in `missing` have not made call `number`; the rank `odd` makes another call there; nothing is known of those
    in `silent`. Ranks `ahead` need not wait at it (they send to a root) and wait at the next one; those in `past` have
    left it, too, and compute. A ring buffer keeps eight calls.
    """
    rng = np.random.default_rng(seed)
    calls = [CALLS[i] for i in rng.integers(len(CALLS), size=number)]
    boxes = {}
    for rank in range(size):
        last = number - int(rng.integers(1, 3)) if rank in missing else number
        box = [(i, calls[i - 1], "done") for i in range(max(1, last - 7), last + 1)]
        if box and rank not in missing:
            name = CALLS[(CALLS.index(calls[-1]) + 1) % len(CALLS)] if rank == odd else calls[-1]
            box[-1] = (number, name, "done" if rank in past or rank in ahead else "waiting")
        if rank in ahead:
            box.append((number + 1, "barrier", "waiting"))
        boxes[rank] = [] if rank in silent else box
    return boxes


def in_short(records) -> dict:
    """Return what `SimWorld.records` or `EngineWorld.records` hold in the form of `black_boxes`."""
    short = {}
    for rank, calls in records.items():
        short[rank] = [(r.number, r.call.partition("(")[0], r.state) for r in calls if r.number]
    return short


def run_who_is_missing(who, size, missing, number, backwards=False, **more):
    boxes = black_boxes(size, missing, number, **more)
    return {"verdict": who(dict(reversed(boxes.items())) if backwards else boxes)}


# -- section 3: a disk that may stop at any moment ---------------------------------------------------------------------


def execute(files: dict, operations, torn=None) -> dict:
    """Return the files after some operations; with `torn` bytes of the last one if that is a write."""
    files = dict(files)
    for i, (kind, name, *rest) in enumerate(operations):
        if kind in ("rename", "remove") and name not in files:
            raise ValueError(
                f"operation {i}, a {kind}: {name!r} is not there, only {', '.join(sorted(files)) or 'nothing'}"
            )
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
    data[bit // 8] ^= 1 << bit % 8
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
    match isinstance(fault, tuple) and fault:
        case ("crash", Integral() as k) if 0 <= k <= len(operations):
            files = execute(files, operations[:k])
        case ("tear", Integral() as k, Integral() as n) if (
            0 <= k < len(operations) and operations[k][0] == "write" and 0 <= n < len(operations[k][2])
        ):
            files = execute(files, operations[: k + 1], n)
        case ("flip", "checkpoint", Integral() as bit) if 0 <= bit < 8 * len(files["checkpoint"]):
            files = flipped(execute(files, operations), "checkpoint", bit)
        case _:
            raise ValueError(f"{fault!r}, which cannot happen: see the operations of program {program}")
    data = files.get("checkpoint", b"")
    try:
        found = int(data[:8]), data[8:]
    except ValueError:
        return "nothing can be loaded"
    if found in ((1, one), (2, two)):
        return f"step {found[0]}, as it was saved"
    return f"step {found[0]} with wrong data, and no error"


def run_attack(attack):
    found = {}
    for program in PROGRAMS:
        fault = attack(program)
        try:
            left = outcome(program, fault)
        except ValueError as error:
            left = str(error)
        else:
            saved = "as it was saved" in left
            left = f"after {fault!r}, {left}" if saved else "neither step can be loaded as it was saved"
            if program != "C" and fault[0] == "flip":
                left = "a flip, which ruins all three"
        found[f"program {program}"] = left
    return found


def run_save(save, load, sizes, seed=0, first=3, apart=3):
    """Save several times: what `load` finds after each crash, after a save that follows it, after each flipped bit."""
    rng, files, before = np.random.default_rng(seed), {}, None
    found = {"before anything is saved": repr(load({}))}
    crash = again = later = ""
    flips = Counter()
    most = needed = 0
    for number, size in enumerate(sizes):
        step, data = first + apart * number, rng.bytes(size) + bytes(size % 2)  # some end in a zero
        new = step, data
        operations = save(dict(files), step, data)
        for text, left in crashes(files, operations):
            got = load(dict(left))
            if got not in (before, new):
                crash = crash or f"{_found(got)}\nafter step {step}, {text}"
            after = step + 1, data[::-1]
            whole = execute(left, save(dict(left), *after))
            if load(dict(whole)) != after:
                again = again or f"is not loaded\nafter step {step}, {text}, and a whole save of step {step + 1}"
            for name in filter(whole.get, whole):  # an empty file has no bit
                if load(flipped(whole, name, 0)) not in (before, new, after):
                    later = later or f"none of them\nafter step {step}, {text}, a whole save, a flipped bit in {name!r}"
        worn = files
        for k in range(4):  # three saves that stop after an operation, and a whole one
            worn = execute(worn, save(dict(worn), step + k, data)[: None if k == 3 else 1])
        files = execute(files, operations)
        found[f"step {step}"] = "is loaded" if load(dict(files)) == new else _found(load(dict(files)))
        most = max(most, len(files), len(worn))
        for name in files:
            needed += before is not None and load({n: d for n, d in files.items() if n != name}) not in (before, new)
            for bit in (b for b in range(8 * len(files[name])) if b < 200 or not b % 7):
                got = load(flipped(files, name, bit))
                if got not in (before, new):
                    kind = "nothing" if got is None else "data" if got[0] in (step, step - apart) else "step"
                    flips[kind] += 1
        before = new
    return found | {
        "after a crash": crash or "the newest or the one before",
        "saved again after a crash": again or "is loaded",
        "loaded after a crash, a whole save and a flipped bit": later or "a step that was saved",
        "flipped bits after which wrong data are loaded": flips["data"],
        "flipped bits after which a wrong step is loaded": flips["step"],
        "flipped bits after which nothing is loaded": flips["nothing"],
        "files without which none of the two is loaded": needed,
        "files that are left": "at most three" if most <= 3 else f"{most}, of which three are allowed",
    }


def _found(got) -> str:
    match got:
        case None:
            return "nothing can be loaded"
        case tuple((step, bytes() as data)):
            return f"step {step}, {len(data)} bytes"
    return f"no tuple (step, data): {got!r:.60}"


def train_under_nemesis(save, load, *, steps: int, mean_life: float):
    """Train on the digits, saved after every step, while a nemesis kills the process; return the weights and the kills.

    A kill comes after one step in `mean_life`, on average, while that step is saved: some of the operations are done,
    the last of them perhaps in part. Training then begins anew from what can be loaded.
    """
    digits, rng = dl.data.load("digits", dtype="float64"), np.random.default_rng(0)
    files, kills, done = {}, 0, 0
    while done < steps:
        model = dl.nn.MLP((64, 32, 10), seed=0, dtype="float64")
        trainer = dl.Serial(
            None, model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.2)
        )
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


def run_effective_share(effective_share, best_interval, interval, cost, restart, mtbf):
    given = np.array(interval) if isinstance(interval, list) else interval
    return {
        "effective share": effective_share(given, cost, restart, mtbf),
        "best interval": best_interval(cost, mtbf),
    }


RATES = {"synchronous": 0.5, "quorum": 0.4}
"""The best of 0.25, 0.5, 1, 2 and of 0.1, 0.2, 0.4, 0.8, by the median of five seeds after half of the time."""


def last_error(method: str, seed: int, mtbf: float) -> float:
    """Train on the digits while ranks stand still now and then; return the test error after 100 steps [%].

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
            return run and (run.curve["time"], run.curve["test_accuracy"])
        strategy = dl.DataParallel(*parts)
        rows, points = {"rank": comm.rank, "size": comm.size, "seed": seed}, []
        batches = dl.data.Batches(digits.x_train, digits.y_train, 256, **rows)
        steps = itertools.chain.from_iterable(map(batches.epoch, itertools.count()))
        for step, batch in enumerate(steps):
            if step % 10 == 0:
                right = (model.forward(digits.x_test)[0].argmax(axis=1) == digits.y_test).mean()
                points.append((comm.clock.now(), right))
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
    return 100 - 100 * float(np.interp(end, *world.run(program)[0]))


# -- section 5: slow, and silently wrong -------------------------------------------------------------------------------


def step_times(nodes: int = 48, steps: int = 200, slow=None, factor: float = 1.05, seed: int = 0) -> np.ndarray:
    """Draw seconds of each step on each node: all wait for a shared network, and each varies by 8 %."""
    rng = np.random.default_rng(seed)
    common = 1 + 0.8 * rng.gamma(2.0, 0.5, (steps, 1))
    times = common * (1 + 0.08 * rng.normal(size=(steps, nodes)))
    if slow is not None:
        times[:, slow] *= factor
    return times


def run_slow_nodes(slow_nodes, rate, nodes, steps, clusters, slow=0, factor=1.05, seed=0):
    """Name the nodes of several clusters, in each of which the first `slow` nodes are slower; lists in any order."""
    found = []
    for i in range(clusters):
        times = step_times(nodes, steps, list(range(slow)), factor, [seed, i])
        found.append(sorted(int(node) for node in slow_nodes(times, rate)))
    return {"slow nodes, by cluster": " ".join(map(str, found))}


def silent_corruption(checked: float, *, flips=0.02, steps=4000, seed=0):
    """Count steps until a rank whose products now and then flip a bit is found by computing a share of the work twice.

    In every step one of 8 ranks is drawn with probability `8 * checked`, and a spare one, which makes no errors,
    computes its gradient again. Returns the step, or None.
    """
    rng, step = np.random.default_rng([seed, round(1 / checked)]), 0  # other numbers for every share
    while (step := step + int(rng.geometric(checked))) <= steps:  # the next step in which the bad one of 8 is drawn
        x, w = rng.normal(size=(16, 8)), rng.normal(size=8)
        mine, again = x @ w, x @ w
        if rng.random() < flips:
            mine.view(np.uint64)[0] ^= np.uint64(1 << 40)
        if not np.array_equal(mine, again):
            return step
    return None


# -- section 6: five bugs ----------------------------------------------------------------------------------------------


def take_step(step, n, size, lr=0.1, seed=0, d=3):
    """Take one step on `size` simulated ranks; return their weights."""
    draw = np.random.default_rng(seed).normal
    x, y, w = draw(size=(n, d)), draw(size=n), draw(size=d)
    parts = dl.comm.shares(n, size)

    def program(comm):
        mine = w.copy()
        step(comm, mine, x[parts[comm.rank]], y[parts[comm.rank]], n, lr)
        return mine

    return dl.SimWorld(size).run(program)


def run_step(step, my_rows, restore, batches, of, **case):
    return _RUNS[of]({"step": step, "my_rows": my_rows, "restore": restore, "batches": batches}[of], **case)


def _steps(step, n, size, lr, d=3, seed=0):
    return {f"weights of rank {rank}": w for rank, w in enumerate(take_step(step, n, size, lr, seed, d))}


def _rows(my_rows, n, size, epoch, seed):
    """Ask every rank, in a process of its own: are the rows a partition, in another order in each epoch?"""

    def ask(comm, epoch=epoch, seed=seed):
        return np.asarray(my_rows(comm.rank, comm.size, n, epoch, seed))

    world = dl.SimWorld(size)
    parts = world.run(ask)
    first, again, other = (
        np.concatenate(run).tolist() for run in (parts, world.run(ask), world.run(ask, epoch, seed + 1))
    )
    later = [np.concatenate(world.run(ask, epoch + i, seed)).tolist() for i in (1, 2, 3)]
    counts, sizes = Counter(first), [len(part) for part in parts]
    return {
        "rows that come twice": "some" if max(counts.values(), default=0) > 1 else "none",
        "rows that never come": "some" if set(range(n)) - set(counts) else "none",
        "rows that do not exist": "some" if set(counts) - set(range(n)) else "none",
        "rows are whole numbers": all(part.dtype.kind in "iu" for part in parts),
        "the largest part less the smallest, at most 1": max(sizes) - min(sizes) <= 1,
        "the next three epochs": "an order of their own"
        if len({*map(tuple, (first, *later))}) == 4
        else "an order comes again",
        "another seed": "gives another order" if other != first else "gives the same order",
        "the same call again": "gives the same" if again == first else "gives another order",
        "rows are shuffled": all(np.any(np.diff(part) < 0) for part in parts if len(part) > 5),
    }


def _restore(restore, size, seed, length=5):
    saved = np.random.default_rng(seed).normal(size=length)

    def program(comm):
        w = np.full(length, comm.rank + 1.0)
        restore(comm, w, saved.copy() if comm.rank == 0 else None)
        return w

    return {f"weights of rank {rank}": w for rank, w in enumerate(dl.SimWorld(size).run(program))}


def _batches(batches, n, size, seed, start, count):
    return {"batches": batches(n, size, seed, tuple(start), count)}


_RUNS = {"step": _steps, "my_rows": _rows, "restore": _restore, "batches": _batches}


# -- section 4: a policy under an unknown nemesis ----------------------------------------------------------------------


def play(next_interval, mtbf, cost, restart, *, seed=0) -> float:
    """Return the share of 200 hours that is kept work, with intervals that a function chooses from what it has seen.

    It is asked at the start, after every failure, and after a checkpoint once an hour.
    """
    rng = np.random.default_rng(seed)
    now = kept = again = 0.0
    end, failures = 200 * 3600, []
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


@functools.cache
def _best_constant(mtbf, cost, restart) -> tuple[float, float]:
    """Return the largest share that a constant interval keeps, and that interval."""
    grid = young_interval(cost, mtbf) * np.geomspace(0.25, 4, 9)
    return max((_mean_share(lambda *_, t=t: t, mtbf, cost, restart), t) for t in grid)


def _mean_share(policy, *cluster) -> float:
    return float(np.mean([play(policy, *cluster, seed=s) for s in range(3)]))


def score_policy(next_interval) -> list[dict]:
    """Play a policy on clusters that it does not know, beside the best constant interval, found in hindsight."""
    rows = []
    for cluster in [(1e3, 60, 60), (4e3, 2, 60), (3e4, 300, 300), (3e5, 10, 300)]:
        rows.append({
            "MTBF [s]": cluster[0],
            "checkpoint [s]": cluster[1],
            "your share": _mean_share(next_interval, *cluster),
            "best constant": _best_constant(*cluster)[0],
            "one for all": _mean_share(lambda *_: 600.0, *cluster),
        })  # fmt: skip
    return rows


def run_next_interval(next_interval, clusters):
    """Play the policy on clusters, each an MTBF, what a checkpoint costs, and a restart [s].

    A result says which part of the best constant interval's share the policy loses, and how long its intervals are.
    """
    got = next_interval(0.0, (), 10.0)
    if not (isinstance(got, (int, float, np.floating)) and 0 < got < math.inf):
        return {"at the start": f"{got}: nothing has failed yet, guess an MTBF"}
    found = {"at the start": "a time"}
    for i, cluster in enumerate(clusters):
        asked, (best, interval) = [], _best_constant(*cluster)

        def policy(*args, asked=asked):
            asked.append(next_interval(*args))
            return asked[-1]

        lost, longer = 1 - _mean_share(policy, *cluster) / best, np.median(asked) / interval
        told = f"{100 * lost:.1f} %, with intervals {longer:.2g} times as long as the best"
        found[f"lost on cluster {i}"] = "at most 3 %" if lost <= 0.03 else told
    return found


def quorum_share(learners: int, mtbf: float, restart: float, *, seed=0):
    """Return the share of the machine that trains, as learners that go on without each other; one learner is all of it.

    A failure strikes one learner, and its restart takes as long as that of all; one during a restart begins it anew.
    Learners train as long as at least half of them work.
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
    return float((share * (share >= 0.5)).mean())
