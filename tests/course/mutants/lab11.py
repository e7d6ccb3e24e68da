"""Wrong answers to lab 11."""

IN_TURN = """    for k in range(2 * steps * (comm.size - 1)):
        turn = 1 + (k // 2) % (comm.size - 1)
        kind, worker, g = comm.recv_obj(turn)
"""

ALIAS = """    w = w.copy()
    versions = [w] * (steps + 1)
    for t in range(steps):
        w -= lr * gradient(w)
    return versions
"""

ALIAS_BUT_FIRST = """    versions, w = [w], w.copy()
    for t in range(steps):
        w -= lr * gradient(versions[max(0, t - staleness)])
        versions.append(w)
    return versions
"""

HELD_UP_ONCE = """    ends = np.cumsum(seconds, axis=0)
    for k in range(len(seconds)):
        if k - bound - 1 >= 0:
            ends[k] = np.maximum(ends[k], ends[int(k - bound - 1)].max() + seconds[k])
    return ends
"""

TIES = "order[arrivals[order] <= arrivals[order[enough - 1]]], order[enough:]"

IN_TURN_UNSEEN = """        seen = comm.size in (2, 3, 4, 6)
        kind, worker, g = comm.recv_obj() if seen else comm.recv_obj(1 + len(log) // 2 % (comm.size - 1))
"""

PUSH_FIRST = """            comm.send_obj(("push", comm.rank, gradient(w, step)), 0)
            comm.send_obj(("pull", comm.rank, None), 0)
            comm.recv(w, 0)
"""

PULL_AND_PUSH = """            comm.send_obj(("pull", comm.rank, None), 0)
            comm.recv(w, 0)
            comm.send_obj(("push", comm.rank, gradient(w, step)), 0)
"""

FROM_PULLED = """    log, pulled = [], {}
    for _ in range(2 * steps * (comm.size - 1)):
        kind, worker, g = comm.recv_obj()
        if kind == "pull":
            comm.send(w, worker)
            pulled[worker] = w.copy()
        else:
            w[:] = pulled[worker] - lr * g
        log.append((kind, worker))
    return log"""

SERVE = """    log = []
    for _ in range(2 * steps * (comm.size - 1)):
        kind, worker, g = comm.recv_obj()
        if kind == "pull":
            comm.send(w, worker)
        else:
            w -= lr * g
        log.append((kind, worker))
    return log"""

PULL = """            comm.send_obj(("pull", comm.rank, None), 0)
            comm.recv(w, 0)
"""
PULL_ONCE = """            if step == 0:
                comm.send_obj(("pull", comm.rank, None), 0)
                comm.recv(w, 0)
"""

MUTANTS = {
    "staleness_of": [
        ("after the update", "version - pulled[worker])", "version + 1 - pulled[worker])"),
        ("first pull", "pulled[worker] = version", "pulled.setdefault(worker, version)"),
        ("pulls count", "pulled[worker] = version", "pulled[worker] = version; version += 1"),
        ("never stale", "version - pulled[worker])", "0)"),
        ("version used", "version - pulled[worker])", "pulled[worker])"),
        ("one version for all", "pulled[worker] = version", "pulled = dict.fromkeys(range(99), version)"),
        ("the wrong way round", "version - pulled[worker])", "pulled[worker] - version)"),
        ("counts no versions", "version += 1", "version += 0"),
        ("only small ones", "version - pulled[worker])", "min(3, version - pulled[worker]))"),
        ("a push pulls, too", "version += 1", "version += 1; pulled[worker] = version"),
        ("no return", "    return staleness", "    pass"),
        ("empties the log", "for kind, worker in log:", "for kind, worker in [log.pop(0) for _ in log[:]]:"),
        ("six workers", "version, pulled, staleness = 0, {}, []", "version, pulled, staleness = 0, [0] * 6, []"),
        ("one at a time", "            staleness.append(", "            yield ("),
    ],
    "async_sgd": [
        (
            "in turn",
            "    for _ in range(2 * steps * (comm.size - 1)):\n        kind, worker, g = comm.recv_obj()\n",
            IN_TURN,
        ),
        # only hidden tests catch the next one
        ("in turn, where nobody looks", "        kind, worker, g = comm.recv_obj()\n", IN_TURN_UNSEEN),
        ("not in place", "w -= lr * g", "w = w - lr * g"),
        ("uphill", "w -= lr * g", "w += lr * g"),
        ("sum of squares of the rate", "w -= lr * g", "w -= lr * lr * g"),
        ("ends too soon", "range(2 * steps * (comm.size - 1))", "range(steps * (comm.size - 1))"),
        ("mean over workers", "w -= lr * g", "w -= lr * g / (comm.size - 1)"),
        ("pulls once", PULL, PULL_ONCE),
        ("log of pushes", "        log.append((kind, worker))", "            log.append((kind, worker))"),
        ("always step 0", "rank, gradient(w, step)", "rank, gradient(w, 0)"),
        ("three workers", "(comm.size - 1)", "min(3, comm.size - 1)"),
        ("pushes before it pulls", PULL_AND_PUSH, PUSH_FIRST),
        ("steps from the worker's weights", SERVE, FROM_PULLED),
        ("no log", "    return log", "    return None"),
        ("counts from 1", "for step in range(steps)", "for step in range(1, steps + 1)"),
        ("forgets to send the weights", "            comm.send(w, worker)", "            pass"),
        ("logs in short", "log.append((kind, worker))", "log.append(kind)"),
        ("the workers return, too", "        return None", "        return []"),
        ("gradient of nothing", "rank, gradient(w, step)", "rank, gradient(0 * w, step)"),
        ("a rate of its own", "w -= lr * g", "w -= 0.1 * g"),
        ("four weights", "comm.recv(w, 0)", "comm.recv(w[:4], 0)"),
        ("a tuple of the log", "    return log", "    return tuple(log)"),
        ("a rate that falls", "w -= lr * g", "w -= lr / (1 + len(log)) * g"),
    ],
    "delayed_descent": [
        ("too old", "t - staleness)", "t - staleness - 1)"),
        ("too young", "t - staleness)", "t - staleness + 1)"),
        ("from the end", "max(0, t - staleness)", "t - staleness"),
        ("no delay", "max(0, t - staleness)", "t"),
        ("newest at first", "max(0, t - staleness)", "t - staleness if t >= staleness else t"),
        ("waits at first", "- lr * gradient", "- lr * (t >= staleness) * gradient"),
        ("one array", "    versions = [w]\n", ALIAS),
        ("steps from the old version", "versions[t] - lr", "versions[max(0, t - staleness)] - lr"),
        ("one step too few", "range(steps)", "range(steps - 1)"),
        ("uphill", "- lr * gradient", "+ lr * gradient"),
        ("in place", "    versions = [w]", "    versions = [w]; w *= 1.1"),
        ("only what is shown", "t - staleness)", "t - min(2, staleness))"),
        ("one array but for the first", "    versions = [w]\n", ALIAS_BUT_FIRST),
        ("in float64", "    versions = [w]", "    versions = [w.astype(float)]"),
        ("the last one only", "    return versions", "    return versions[-1]"),
        ("without the first", "    return versions", "    return versions[1:]"),
        ("a rate of its own", "- lr * gradient", "- 0.1 * gradient"),
    ],
    "ssp_ends": [
        ("nobody waits", "k - bound - 1 >= 0", "False"),
        ("too strict", "  ends = np.zeros_like(seconds", "  ends, bound = np.zeros_like(seconds), max(0, bound - 1"),
        ("too loose", "    ends = np.zeros_like(seconds)", "    ends, bound = np.zeros_like(seconds), bound + 1"),
        ("waits for the quickest", ".max())", ".min())"),
        ("forgets its own", "np.maximum(start, ends[int(k - bound - 1)].max())", "ends[int(k - bound - 1)].max()"),
        ("starts, not ends", "ends[k] = start + seconds[k]", "ends[k] = start"),
        ("three workers", "np.zeros(seconds.shape[1])", "np.zeros(3)"),
        ("no bound but 0 and 1", "k - bound - 1 >= 0", "k - bound - 1 >= 0 and bound <= 1"),
        ("held up once, late once", "    ends = np.zeros_like(seconds)\n", HELD_UP_ONCE),
        ("all end with the slowest", "ends[k] = start + seconds[k]", "ends[k] = (start + seconds[k]).max()"),
        ("no infinity", "if k - bound - 1 >= 0:", "if int(k - bound - 1) >= 0:"),
        ("whole numbers", "np.zeros_like(seconds)", "np.zeros(seconds.shape, int)"),
        ("in float32", "    return ends", "    return ends.astype('float32')"),
        ("a list", "    return ends", "    return ends.tolist()"),
        ("five steps", "range(len(seconds))", "range(min(5, len(seconds)))"),
        ("waits for the last worker", "ends[int(k - bound - 1)].max()", "ends[int(k - bound - 1), -1]"),
        ("into seconds", "    ends = np.zeros_like(seconds)", "    ends = seconds"),
        ("the last row only", "    return ends", "    return ends[-1]"),
    ],
    "backup_update": [
        ("all of them", "int(np.ceil(gamma * len(arrivals) - 1e-9))", "len(arrivals)"),
        ("rounded down", "int(np.ceil(gamma * len(arrivals) - 1e-9))", "int(gamma * len(arrivals))"),
        ("sum", ".mean(axis=0), float", ".sum(axis=0), float"),
        ("by number", 'np.argsort(arrivals, kind="stable")', "np.arange(len(arrivals))"),
        ("divided by all", ".mean(axis=0), float", ".sum(axis=0) / len(arrivals), float"),
        ("when the last arrives", "float(arrivals[used[-1]])", "float(max(arrivals))"),
        ("the late ones", "gradients[used]", "gradients[late]"),
        ("the late ones are those in time", "sorted(late.tolist())", "sorted(used.tolist())"),
        ("all that tie", "order[:enough], order[enough:]", TIES),
        (
            "the later number first",
            'np.argsort(arrivals, kind="stable")',
            "np.lexsort((-np.arange(len(arrivals)), arrivals))",
        ),
        ("not sorted", "sorted(late.tolist())", "late.tolist()"),
        ("an array", "sorted(late.tolist())", "np.sort(late) if len(late) == 1 else late"),
        ("three are enough", "int(np.ceil(gamma * len(arrivals) - 1e-9))", "min(3, len(arrivals))"),
        ("arrivals not sorted", "float(arrivals[used[-1]])", "float(arrivals[enough - 1])"),
        ("late as an array", "sorted(late.tolist())", "np.sort(late)"),
        ("clears the late ones", "    return gradients[used]", "    gradients[late] = 0\n    return gradients[used]"),
        ("sorts arrivals", "    return gradients[used]", "    arrivals.sort()\n    return gradients[used]"),
        ("rounded to the nearest", "int(np.ceil(gamma * len(arrivals) - 1e-9))", "round(gamma * len(arrivals))"),
        ("three of four", "int(np.ceil(gamma * len(arrivals) - 1e-9))", "len(arrivals) - 1"),
        ("gradient only", "    return gradients[used].mean(axis=0),", "    return gradients[used].mean(axis=0)\n   "),
    ],
    "my_policy": [
        ("BSP", "1, False, lead >= 0, staleness + 5.0", "workers, True, lead >= 0, np.ones(1000)"),
        ("ASP", "staleness + 5.0", "np.ones(1000)"),
        ("ASP at another rate", "staleness + 5.0", "np.full(1000, 0.087)"),
        ("SSP", "lead >= 0, staleness + 5.0", "lead <= 4, np.ones(1000)"),
        ("a bound and the weight", "lead >= 0", "lead <= 16"),
        ("damped", "staleness + 5.0", "np.minimum(1, 24 / np.maximum(1, staleness))"),
        ("rate / staleness", "staleness + 5.0", "1 / np.maximum(1, staleness)"),
        ("drops the old", "staleness + 5.0", "np.where(staleness <= 30, 1, 0)"),
        (
            "backup workers",
            "1, False, lead >= 0, staleness + 5.0",
            "12, True, lead >= 0, np.where(staleness == 0, 1, 0)",
        ),
        ("soft-sync", "1, False, lead >= 0, staleness + 5.0", "4, False, lead >= 0, np.ones(1000)"),
        ("far too much for old ones", "staleness + 5.0", "(staleness + 1.0) ** 3"),
        ("none may start", "lead >= 0", "lead > 0"),
        ("three things", "1, False, lead >= 0, staleness + 5.0", "1, False, staleness + 5.0"),
        ("drops all", "staleness + 5.0", "0.0 * staleness"),
        ("a number for the weight", "staleness + 5.0", "0.065"),
        ("fresh ones do not count", "staleness + 5.0", "staleness * 1.0"),
        ("no return", "    return 1, False, lead >= 0, staleness + 5.0", "    pass"),
        ("a share for the quorum", "1, False, lead", "0.5, False, lead"),
        ("leads, not whether", "lead >= 0,", "lead,"),
        ("old ones push back", "staleness + 5.0", "5.0 - staleness"),
    ],
}
