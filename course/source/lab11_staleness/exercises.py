"""The exercises of lab 11: cases of their checks, and the mistakes that the checks name."""

import numpy as np
from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

STALE = "version - pulled[worker])"

EXERCISES["staleness_of"] = Exercise(
    cases=[
        {"log": "aAaAaA"},
        {"log": "abzABaZbA"},
        {"log": "aAAbABcbCBBa"},
        {"log": "qabcdefghijklmnopABCDEFGHIJKLMNOPQ"},
        {"log": ""},
    ],
    draw=lambda rng: {
        "workers": rng.integers(1, 20),
        "length": rng.integers(0, 300),
        "seed": rng.integers(10**6),
    },
    mistakes={
        "a worker has the version of its last pull, not of its last push": (
            "pulled[worker] = version  ->  pass",
            f"{STALE}\n            version += 1"
            "  ->  version - pulled.get(worker, 0))\n            version += 1\n            pulled[worker] = version",
        ),
        "a number for each push, not for each worker": (
            "    return staleness"
            "  ->      return list(dict(zip([w for k, w in log if k == 'push'], staleness)).values())"
        ),
        "in the order of the pushes, not sorted": "    return staleness  ->      return sorted(staleness)",
        "in the order of the pushes, not one worker's after the other's": (
            "    return staleness  ->  "
            "    by = [w for k, w in log if k == 'push']\n"
            "    return [staleness[i] for i in sorted(range(len(by)), key=by.__getitem__)]"
        ),
        "a number for each push, none for a pull": [
            "pulled[worker] = version  ->  pulled[worker] = version; staleness.append(0)",
            (
                "pulled[worker] = version  ->  pulled[worker] = version; staleness.append(0)",
                f"{STALE}  ->  version + 1 - pulled[worker])",
            ),
        ],
        "the version that this worker has pulled, not the oldest": f"{STALE}  ->  version - min(pulled.values()))",
        "a push makes a version, a pull none": [
            (f"pulled[worker] = version  ->  {counted}", "            version += 1\n  ->  ")
            for counted in ("version += 1; pulled[worker] = version", "pulled[worker] = version; version += 1")
        ],
        "this counts up to the version after the update; take the one before": (
            f"{STALE}  ->  version + 1 - pulled[worker])"
        ),
        "a worker's latest pull counts, not its first": (
            "pulled[worker] = version  ->  pulled.setdefault(worker, version)"
        ),
        "a version is made by a push alone, not by a pull": (
            "pulled[worker] = version  ->  pulled[worker] = version; version += 1"
        ),
        "these are the versions that were pulled; how old are they?": (f"{STALE}  ->  pulled[worker])"),
        "each worker has a version of its own: remember them all": (
            "pulled[worker] = version  ->  pulled = dict.fromkeys(range(99), version)"
        ),
        "server version - version used, not the other way round": (f"{STALE}  ->  pulled[worker] - version)"),
        "every push makes a new version: do you count them?": "version += 1  ->  version += 0",
        "staleness has no upper limit": f"{STALE}  ->  min(3, version - pulled[worker]))",
        "a push is no pull: the worker has its old version until it pulls again": (
            "version += 1  ->  version += 1; pulled[worker] = version"
        ),
        "a worker's own push makes a new version, too, also for its next push": (
            "version += 1  ->  version += 1; pulled[worker] += 1"
        ),
        "count the versions, that is the pushes, that lie between; not all entries of the log": (
            "for kind, worker in log:\n  ->  for version, (kind, worker) in enumerate(log):\n",
            f"{STALE}  ->  version - pulled[worker] - 1)",
            "            version += 1\n  ->  ",
        ),
        "a worker may push twice after one pull: keep the version that it pulled": (
            "version - pulled[worker])  ->  version - pulled.pop(worker))"
        ),
        "return whole numbers": f"{STALE}  ->  float(version - pulled[worker]))",
        "did you forget `return`?": "    return staleness  ->      staleness",
        "the log is a tuple, which cannot be emptied": (
            "for kind, worker in log:  ->  for kind, worker in [log.pop(0) for _ in log[:]]:"
        ),
        "workers may have any number": [
            f"version, pulled, staleness = 0, {{}}, []  ->  version, pulled, staleness = 0, [0] * {n}, []"
            for n in ("6", "len(set(log))")
        ],
        "return a list: a function that yields makes none": ("            staleness.append(  ->              yield ("),
    },
    may_pass={
        "(1, {}, [])": "only differences of versions count",
        "(-1, {}, [])": "only differences of versions count",
    },
)

PULL = """            comm.send_obj(("pull", comm.rank, None), 0)
            comm.recv(w, 0)
"""
PUSH = """            comm.send_obj(("push", comm.rank, gradient(w, step)), 0)
"""
TAKE = """    for _ in range(2 * steps * (comm.size - 1)):
        kind, worker, g = comm.recv_obj()
"""

EXERCISES["async_sgd"] = Exercise(
    inplace=True,
    cases=rows(
        "size steps lr d slow times",
        (2, 5, 0.1, 3),
        (4, 6, 0.07, 5, 3, 4.0),
        (3, 3, 0.23, 1, 1, 2.5),
        (6, 4, 0.05, 9, 2, 3.0),
    ),
    draw=lambda rng: {
        "size": (size := int(rng.integers(2, 10))),
        "steps": rng.integers(1, 7),
        "lr": rng.uniform(0.01, 0.1),
        "d": rng.integers(1, 12),
        "slow": rng.integers(1, size),
        "times": rng.uniform(1.5, 5),
        "seed": rng.integers(1000),
    },
    mistakes={
        "serve whichever comes first, not the workers in turn": (
            f"{TAKE}  ->  "
            "    for k in range(2 * steps * (comm.size - 1)):\n"
            "        kind, worker, g = comm.recv_obj(1 + k // 2 % (comm.size - 1))\n"
        ),
        "`w -= ...` changes the array itself, `w = w - ...` makes another": ("w -= lr * g  ->  w = w - lr * g"),
        "the gradient should be subtracted": "w -= lr * g  ->  w += lr * g",
        "the rate is lr, not its square": "w -= lr * g  ->  w -= lr * lr * g",
        "the rate is an argument: lr, not 0.1": "w -= lr * g  ->  w -= 0.1 * g",
        "the rate stays as it is": "w -= lr * g  ->  w -= lr / (1 + len(log)) * g",
        "every push is a whole step, not a share of one": ("w -= lr * g  ->  w -= lr * g / (comm.size - 1)"),
        "in each step a worker pulls, is sent the weights, and pushes: two messages to the server, one from it": [
            "range(2 * steps * (comm.size - 1))  ->  range(steps * (comm.size - 1))",
            f"{PULL}  ->  {PULL.replace('            comm', '            if step == 0: comm')}",
            "            comm.send(w, worker)  ->              pass",
        ],
        "log pulls as well, in the order in which they come": (
            "        log.append((kind, worker))  ->              log.append((kind, worker))"
        ),
        "the gradient is that of this step, not always of step 0": (
            "rank, gradient(w, step)  ->  rank, gradient(w, 0)"
        ),
        "gradient(w, step), in this order": "rank, gradient(w, step)  ->  rank, gradient(step, w)",
        "update with each push as it comes: this waits for a push of every worker": [
            (
                "    log = []  ->      log, got = [], []",
                "            w -= lr * g  ->  "
                "            got.append(g)\n"
                "            if len(got) == comm.size - 1:\n"
                f"                w -= lr * {total}\n"
                "                got = []",
            )
            for total in ("sum(got) / len(got)", "sum(got)")
        ],
        "update with each push as it comes, not after the last": (
            "    log = []  ->      log, total = [], 0.0",
            "w -= lr * g  ->  total = total + lr * g",
            "    return log  ->      w -= total\n    return log",
        ),
        "a worker asks for the steps 0, 1, ..., steps - 1": (
            "for step in range(steps)  ->  for step in range(1, steps + 1)"
        ),
        "for any number of workers": "(comm.size - 1)  ->  min(3, comm.size - 1)",
        "receive the weights first, then compute the gradient": (
            "            comm.recv(w, 0)\n  ->              g = gradient(w, step)\n            comm.recv(w, 0)\n",
            "comm.rank, gradient(w, step)), 0)  ->  comm.rank, g), 0)",
        ),
        "compute each gradient once": (
            "            comm.recv(w, 0)\n  ->              comm.recv(w, 0)\n            gradient(w, step)\n"
        ),
        "the rate is lr, whatever the number of steps": "w -= lr * g  ->  w -= lr * g / steps",
        "pull, compute, push, in this order": f"{PULL}{PUSH}  ->  {PUSH}{PULL}",
        "the server steps from its newest weights, not from those that the worker pulled": (
            (
                "            comm.send(w, worker)\n  ->              comm.send(w, worker); old[worker] = w.copy()\n",
                "w -= lr * g  ->  w[:] = old[worker] - lr * g",
                "    log = []  ->      log, old = [], {}",
            )
        ),
        "the server returns its log": "    return log  ->      return None",
        'the log holds pairs, such as ("pull", 1)': "log.append((kind, worker))  ->  log.append(kind)",
        "the log is a list": "    return log  ->      return tuple(log)",
        "a worker returns None": "        return None  ->          return []",
        "a worker takes the gradient at the weights that it has received": (
            "rank, gradient(w, step)  ->  rank, gradient(0 * w, step)"
        ),
        "all of the weights are sent": "comm.recv(w, 0)  ->  comm.recv(w[:4], 0)",
    },
    may_pass={"None), 0)  ->  comm.send_obj(('pull', comm.rank": "what a pull carries is not used"},
)

OLD = "max(0, t - staleness)"

EXERCISES["delayed_descent"] = Exercise(
    cases=rows(
        "w lr staleness steps cubic",
        (np.array([1.0, -2.0]), 0.1, 0, 4),
        (np.array([1.5]), 0.5, 2, 7),
        (np.array([1.0, 2.0], "float32"), 0.04, 4, 6, 1.0),
        (np.array([-0.7, 0.3, 1.1]), 0.3, 9, 5, 0.2),
        (np.array([2.0, -1.0], "float16"), 0.2, 1, 3),
    ),
    draw=lambda rng: {
        "w": rng.normal(size=int(rng.integers(1, 5))),
        "lr": rng.uniform(0.05, 0.2),
        "staleness": rng.integers(0, 10),
        "steps": rng.integers(1, 41),
        "cubic": rng.uniform(0, 0.2),
    },
    mistakes={
        "the rate is lr, however old a gradient is": [
            "lr * gradient(  ->  lr / (staleness + 1) * gradient(",
            "lr * gradient(  ->  lr / max(1, staleness) * gradient(",
        ],
        "the rate stays as it is": "lr * gradient(  ->  lr / (t + 1) * gradient(",
        "a step takes one old gradient; staleness + 1 fresh ones are the control": (
            f"lr * gradient(versions[{OLD}])  ->  lr * (staleness + 1) * gradient(versions[t])"
        ),
        "call gradient: it need not be the weights": f"gradient(versions[{OLD}])  ->  versions[{OLD}]",
        "version 0 is used in the first steps only": f"{OLD}  ->  0",
        "each step has a gradient of its own, staleness versions old": f"{OLD}  ->  t - t % (staleness + 1)",
        "versions[-1] is the newest, 0 versions old": (
            f"versions[{OLD}]  ->  versions[-staleness if t >= staleness else 0]"
        ),
        "one version too old": f"{OLD}  ->  max(0, t - staleness - 1)",
        "one version too new": f"{OLD}  ->  max(0, t - staleness + 1)",
        "in the first steps version 0 is the oldest; `versions[-1]` is the last": (f"{OLD}  ->  t - staleness"),
        "this has no delay": f"{OLD}  ->  t",
        "at first the oldest counts, not the newest": (f"{OLD}  ->  t - staleness if t >= staleness else t"),
        "the first steps are taken, too, with version 0": ("- lr * gradient  ->  - lr * (t >= staleness) * gradient"),
        "the step starts from the newest version: only the gradient is old": (
            f"versions[t] - lr  ->  versions[{OLD}] - lr"
        ),
        "the versions are one array, which each step changes": (
            (
                "    versions = [w]\n  ->      w = w.copy(); versions = [w]\n",
                f"versions.append(versions[t] - lr * gradient(versions[{OLD}]))"
                f"  ->  w -= lr * gradient(versions[{OLD}]); versions.append(w)",
            )
        ),
        "all versions but the first are one array, which each step changes": (
            (
                "    versions = [w]\n  ->      versions, w = [w], w.copy()\n",
                f"versions.append(versions[t] - lr * gradient(versions[{OLD}]))"
                f"  ->  w -= lr * gradient(versions[{OLD}]); versions.append(w)",
            )
        ),
        "there are steps + 1 versions, w among them": [
            "range(steps)  ->  range(steps - 1)",
            "    return versions  ->      return versions[1:]",
        ],
        "the gradient should be subtracted": "- lr * gradient  ->  + lr * gradient",
        "the rate is an argument: lr, not 0.1": "- lr * gradient  ->  - 0.1 * gradient",
        "leave w as it is": "    versions = [w]  ->      versions = [w]; w *= 1.1",
        "staleness is any number": f"{OLD}  ->  max(0, t - min(2, staleness))",
        "in the dtype of w": "    versions = [w]  ->      versions = [w.astype(float)]",
        "return all versions, not the last one": "    return versions  ->      return versions[-1]",
        "did you forget `return`?": "    return versions  ->      versions",
    },
    may_pass={"max(t - staleness, 0)": "the same maximum", "arrays as lists": "a list holds the same numbers"},
)

BEFORE = "ends[int(k - bound - 1)].max()"

EXERCISES["ssp_ends"] = Exercise(
    cases=[
        {"seconds": np.array([[1, 1, 3], [1, 2, 3], [5, 1, 3], [1, 1, 3], [2, 1, 3.0]] * times), "bound": bound}
        for bound, times in ((0, 1), (np.inf, 30), (1, 1))
    ]
    + [
        {"seconds": np.array([[4.5, 1.25]] * 7), "bound": 2},
        {"seconds": np.array([[0.5, 2.25, 1.0, 0.75], [3.0, 0.5, 0.25, 1.5]]), "bound": 9},
        {"seconds": np.array([[2, 7, 1], [1, 0.5, 6], [4, 1, 3], [0.25, 9, 1], [1, 2, 0.5]]), "bound": 1},
        {"seconds": np.arange(33.0).reshape(11, 3) * [7, 5, 2] % 13 + [20, 0.5, 1], "bound": 6},
        {"seconds": np.array([[2.5], [0.75], [1.25]]), "bound": 0},
    ],
    draw=lambda rng: {
        "seconds": rng.lognormal(size=(int(rng.integers(1, 20)), int(rng.integers(1, 8)))),
        "bound": int(rng.integers(0, 6)) if rng.random() < 0.8 else np.inf,
    },
    mistakes={
        "the maximum is when a step may start: its seconds come on top": (
            "    ends = np.zeros_like(seconds)  ->      ends = np.cumsum(seconds, axis=0)",
            "    ends[k] = start + seconds[k]  ->      pass",
            f"start = np.maximum(start, {BEFORE})  ->  ends[k] = np.maximum(ends[k], {BEFORE})",
        ),
        "a step ends seconds[k] after its start: add": [
            "ends[k] = start + seconds[k]  ->  ends[k] = np.maximum(start, seconds[k])",
            "ends[k] = start + seconds[k]  ->  ends[k] = seconds[k]",
        ],
        "while k - bound - 1 is below 0 there is no such step, and nobody waits": (
            "if k - bound - 1 >= 0  ->  if bound != np.inf"
        ),
        "workers may first have to wait at k = bound + 1, not at k = bound": (
            "if k - bound - 1 >= 0  ->  if k - bound >= 0 and k > 0",
            "ends[int(k - bound - 1)]  ->  ends[max(0, int(k - bound - 1))]",
        ),
        "a row is a step, a column a worker": [
            f"{BEFORE}  ->  ends[:, int(min(k - bound - 1, seconds.shape[1] - 1))].max()",
            "    return ends  ->      return np.cumsum(seconds, axis=1)",
            ("    ends = np  ->      seconds = seconds.T\n    ends = np", "    return ends  ->      return ends.T"),
        ],
        "the bound counts steps, not seconds": (
            "if k - bound - 1 >= 0  ->  if k > 0",
            f"{BEFORE}  ->  ends[k - 1].max() - bound",
        ),
        "the bound holds in every step, not only in each (bound + 1)-th": (
            "if k - bound - 1 >= 0  ->  if 0 < bound + 1 <= k and k % (bound + 1) == 0",
            "ends[int(k - bound - 1)]  ->  ends[k - 1]",
        ),
        "a start waits for an end, a time since the beginning, not for the seconds of a step": (
            f"{BEFORE}  ->  seconds[int(k - bound - 1)].max()"
        ),
        "these are the starts: a step ends seconds[k] later": "    return ends  ->      return ends - seconds",
        "all wait for all in every step: that is a bound of 0": (
            "if k - bound - 1 >= 0  ->  if k > 0",
            "ends[int(k - bound - 1)]  ->  ends[k - 1]",
        ),
        "a worker also waits for the end of its own step before": (
            "ends[k - 1] if k > 0 else np.zeros(seconds.shape[1])  ->  0",
            "np.maximum(start, ends[int(k - bound - 1)].max())  ->  ends[int(k - bound - 1)].max()",
        ),
        "at most `bound` ahead: all have ended step k - bound - 1, not k - bound": (
            "if k - bound - 1 >= 0  ->  if k - bound >= 0 and k > 0",
            "ends[int(k - bound - 1)]  ->  ends[int(k - bound)]",
        ),
        "step 0 must have ended, too: k - bound - 1 may be 0": "if k - bound - 1 >= 0  ->  if k - bound - 1 > 0",
        "no worker waits for the slowest": (["if k - bound - 1 >= 0:  ->  if False:", ".max())  ->  .min())"]),
        "one step too strict": (
            "  ends = np.zeros_like(seconds)  ->    ends, bound = np.zeros_like(seconds), max(0, bound - 1)"
        ),
        "one step too loose": (
            "    ends = np.zeros_like(seconds)  ->      ends, bound = np.zeros_like(seconds), bound + 1"
        ),
        "a worker must have ended its own previous step, too": (f"np.maximum(start, {BEFORE})  ->  {BEFORE}"),
        "the slowest has waited, too: its step ends at `ends`, not at the sum of its seconds": (
            f"{BEFORE}  ->  np.cumsum(seconds, axis=0)[int(k - bound - 1)].max()"
        ),
        "the maximum over all workers, not a mean": f"{BEFORE}  ->  {BEFORE[:-5]}mean()",
        "the later of the two counts, not their sum": f"np.maximum(start, {BEFORE})  ->  start + {BEFORE}",
        "the later of the two counts, not the earlier": f"np.maximum(start, {BEFORE})  ->  np.minimum(start, {BEFORE})",
        "the row k - bound - 1 counts, not every row above": f"{BEFORE}  ->  ends[:k].max()",
        "these are the starts": "ends[k] = start + seconds[k]  ->  ends[k] = start",
        "for any number of workers": "np.zeros(seconds.shape[1])  ->  np.zeros(3)",
        "for every bound": "k - bound - 1 >= 0  ->  k - bound - 1 >= 0 and bound <= 1",
        "a worker that was held up starts its next steps later, too": (
            (
                "    ends = np.zeros_like(seconds)  ->      ends = np.cumsum(seconds, axis=0)",
                "    ends[k] = start + seconds[k]  ->      pass",
                f"start = np.maximum(start, {BEFORE})  ->  ends[k] = np.maximum(ends[k], {BEFORE} + seconds[k])",
            )
        ),
        "each worker has an end of its own": ("ends[k] = start + seconds[k]  ->  ends[k] = (start + seconds[k]).max()"),
        "the bound may be np.inf, of which there is no int": (
            "if k - bound - 1 >= 0:  ->  if int(k - bound - 1) >= 0:"
        ),
        "seconds are no whole numbers": "np.zeros_like(seconds)  ->  np.zeros(seconds.shape, int)",
        "in float64, as the seconds": "    return ends  ->      return ends.astype('float32')",
        "return an array, not a list": "    return ends  ->      return ends.tolist()",
        "for any number of steps": "range(len(seconds))  ->  range(min(5, len(seconds)))",
        "the slowest may be any worker, not only the last": (f"{BEFORE}  ->  ends[int(k - bound - 1), -1]"),
        "make an array of your own: this writes into seconds": ("np.zeros_like(seconds)  ->  seconds"),
        "return a row for each step": "    return ends  ->      return ends[-1]",
        "did you forget `return`?": "    return ends  ->      ends",
    },
    may_pass={
        "len(ends)": "as many steps",
        "ends.shape[1]": "as many workers",
        "bound + 1 >= 0": "the last row is zero as yet",
        "bound - 0 >= 0": "the last row is zero as yet",
        ">= -1": "the last row is zero as yet",
        "if k > -1": "the last row is zero as yet",
        "if k >= 0": "the last row is zero as yet",
        "if bound > 0": ("the last row is zero as yet; with bound 0 all start with the slowest's end"),
        "if True else": "the last row is zero as yet",
        "np.maximum(ends": "the same maximum",
    },
)

ENOUGH = "int(np.ceil(gamma * len(arrivals)))"
ORDER = 'np.argsort(arrivals, kind="stable")'
IN_TIME = "arrivals[order] <= arrivals[order[enough - 1]]"
UPDATE = "gradients[used].mean(axis=0), float(arrivals[used[-1]]), sorted(late.tolist())"


def update_of(arrivals, gamma, d=3, seed=0):
    return {"arrivals": np.array(arrivals, float), "gamma": gamma, "d": d, "seed": seed}


EXERCISES["backup_update"] = Exercise(
    cases=[
        update_of([2, 9, 1, 1.5], 0.65, 2, 1),
        update_of([2, 9, 1, 1.5], 0.6, 3, 2),
        update_of([3, 2, 9, 1, 8], 0.4, 5, 3),
        update_of([4, 1, 1, 1, 7, 1], 0.15, 1, 4),
        update_of(range(100, 0, -1), 0.555, 1, 5),
        update_of([0.7], 1.0, 4, 6),
        update_of([10 if worker in (4, 9, 15) else 1 for worker in range(20)], 0.6, 1, 7),
    ],
    draw=lambda rng: update_of(
        rng.permutation(n := int(rng.integers(1, 41))) * rng.choice([0.3, 1]) // rng.choice([0.1, 1]) + rng.random(),
        float(rng.uniform(0.1, 1)),
        int(rng.integers(1, 6)),
        n,
    ),
    mistakes={
        "count gradients: a quantile lies between two arrivals": """def backup_update(arrivals, gradients, gamma):
    used = arrivals <= (limit := np.quantile(arrivals, gamma))
    return gradients[used].mean(axis=0), float(limit), np.flatnonzero(~used).tolist()
""",
        "gamma is a share of the gradients, not of the time": """def backup_update(arrivals, gradients, gamma):
    used = arrivals <= gamma * max(arrivals)
    return gradients[used].mean(axis=0), float(arrivals[used].max()), np.flatnonzero(~used).tolist()
""",
        "m are in time, the other n - m are late": f"{ENOUGH}  ->  len(arrivals) - {ENOUGH}",
        "a mean has no further factor": ".mean(axis=0), float  ->  .mean(axis=0) * gamma, float",
        "when the last of those in time arrives: neither a mean nor a sum": [
            "float(arrivals[used[-1]])  ->  float(arrivals[used].mean())",
            "float(arrivals[used[-1]])  ->  float(arrivals[used].sum())",
        ],
        "the list of those late, not their number": "sorted(late.tolist())  ->  len(late)",
        "the earliest come first": f"{ORDER}  ->  np.argsort(-arrivals, kind='stable')",
        "this waits for all": f"{ENOUGH}  ->  len(arrivals)",
        "a share of a worker is rounded up: 2.4 are 3": [
            f"{ENOUGH}  ->  max(1, int(gamma * len(arrivals)))",
        ],
        "where gamma * n is a whole number, so many are enough": (
            f"{ENOUGH}  ->  min(len(arrivals), int(gamma * len(arrivals)) + 1)"
        ),
        "the mean over workers: one number for each weight": [
            ".mean(axis=0), float  ->  .mean(), float",
            ".mean(axis=0), float  ->  .mean(axis=1), float",
        ],
        "the update is made when the last of those in time arrives, not the next one": (
            "float(arrivals[used[-1]])  ->  float(arrivals[order[min(enough, len(order) - 1)]])"
        ),
        "the late workers' numbers, not when they came": "sorted(late.tolist())  ->  sorted(arrivals[late].tolist())",
        "use the order itself, not each worker's place in it": (f"{ORDER}  ->  np.argsort({ORDER})"),
        "rounded up, not to the nearest": f"{ENOUGH}  ->  round(gamma * len(arrivals))",
        "the mean, not the sum": ".mean(axis=0), float  ->  .sum(axis=0), float",
        "the first by time, not by number": f"{ORDER}  ->  np.arange(len(arrivals))",
        "divide by the number of those in time, not of all workers": (
            ".mean(axis=0), float  ->  .sum(axis=0) / len(arrivals), float"
        ),
        "the update is made when the last of those in time arrives, not the last of all": (
            "float(arrivals[used[-1]])  ->  float(max(arrivals))"
        ),
        "these are the late ones' gradients": "gradients[used]  ->  gradients[late]",
        "the third result lists those that were too late": "sorted(late.tolist())  ->  sorted(used.tolist())",
        "m gradients and no more, also where some tie": [
            f"order[:enough], order[enough:]  ->  order[{IN_TIME}], order[{others}]"
            for others in ("enough:", f"~({IN_TIME})")
        ],
        "the m-th gradient is in time, too": (
            "order[:enough], order[enough:]  ->  "
            f"order[{IN_TIME.replace('<=', '<')}], order[{IN_TIME.replace('<=', '>=')}]",
            "float(arrivals[used[-1]])  ->  float(arrivals[order[enough - 1]])",
        ),
        "of those that tie, smaller numbers are first": (
            f"{ORDER}  ->  np.lexsort((-np.arange(len(arrivals)), arrivals))"
        ),
        "in ascending order": "sorted(late.tolist())  ->  late.tolist()",
        "late is a list": "sorted(late.tolist())  ->  np.sort(late)",
        "gamma says how many are enough": [
            f"{ENOUGH}  ->  min(3, len(arrivals))",
            f"{ENOUGH}  ->  max(1, len(arrivals) - 1)",
        ],
        "sort the arrivals first": "float(arrivals[used[-1]])  ->  float(arrivals[enough - 1])",
        "leave the gradients as they are": (
            "    return gradients[used]  ->      gradients[late] = 0\n    return gradients[used]"
        ),
        "leave the arrivals as they are": (
            "    return gradients[used]  ->      arrivals.sort()\n    return gradients[used]"
        ),
        "return three: gradient, seconds, those late": [
            ", float(arrivals[used[-1]]), sorted(late.tolist())  ->  ",
            f"{UPDATE}  ->  float(arrivals[used[-1]]), gradients[used].mean(axis=0), sorted(late.tolist())",
            f"{UPDATE}  ->  gradients[used].mean(axis=0), sorted(late.tolist()), float(arrivals[used[-1]])",
        ],
        "did you forget `return`?": "    return gradients[used]  ->      gradients[used]",
    },
    may_pass={"len(gradients)": "as many as arrivals"},
)

MINE = "1, False, lead >= 0, staleness + 10.0"

EXERCISES["my_policy"] = Exercise(
    cases=[{"mixes": [1, 2]}],
    draw=lambda rng: {"mixes": [11, 12]},  # not drawn anew: a lead depends on the mixes, and a grade must not
    draws=1,
    mistakes={
        "this is BSP": f"{MINE}  ->  workers, True, lead >= 0, np.ones(1000)",
        "this is ASP, at whatever rate": [
            "staleness + 10.0  ->  np.ones(1000)",
            "staleness + 10.0  ->  np.full(1000, 0.087)",
        ],
        "a bound on the lead, as in SSP": [
            f"lead >= 0, staleness + 10.0  ->  lead <= {bound}, np.ones(1000)" for bound in (4, 32, 48)
        ],
        "with backup workers slow ones are never heard": (
            f"{MINE}  ->  12, True, lead >= 0, np.where(staleness == 0, 1, 0)"
        ),
        "where old gradients count less, or not at all, so do the data of slow workers": [
            "staleness + 10.0  ->  np.where(staleness <= 30, 1, 0)",
            "staleness + 10.0  ->  1 / (1 + staleness)",
        ],
        "old gradients count far too much": "staleness + 10.0  ->  (staleness + 1.0) ** 3",
        "a worker that is level with the slowest must be able to start": "lead >= 0  ->  lead > 0",
        "four things, in this order": ("1, False, lead >= 0, staleness + 10.0  ->  1, False, staleness + 10.0"),
        "weights are 0 or more, and that of a fresh gradient is above 0": [
            "staleness + 10.0  ->  0.0 * staleness",
            "staleness + 10.0  ->  staleness * 1.0",
            "staleness + 10.0  ->  5.0 - staleness",
        ],
        "an array for the weight, one number for each staleness": [
            "staleness + 10.0  ->  0.065",
            "staleness + 10.0  ->  np.ones(workers)",
        ],
        "weights are finite": "staleness + 10.0  ->  np.exp(staleness)",
        "the quorum is a number of gradients": "1, False, lead  ->  0.5, False, lead",
        "starts says True or False for each lead": "lead >= 0,  ->  lead,",
        "did you forget `return`?": f"    return {MINE}  ->      {MINE}",
    },
    may_pass={
        "lead": "many policies win",
        "staleness": "many policies win",
        "return (": "many policies win",
        "workers": "the number of workers is the same in every race",
        "floats": "many policies win",
        "rounded": "many policies win",
        "kept by the shapes": "it is asked once",
        "arrays as lists": "a list of weights is as good",
    },
)
