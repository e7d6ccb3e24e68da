"""The exercises of lab 07: cases of their checks, and the mistakes that the checks name."""

from distcourse.author.exercise import Exercise, rows

EXERCISES = {}

EXERCISES["weighted_mean"] = Exercise(
    cases=rows(
        "counts dtype", ([6, 4, 2],), ([6, 0, 3],), ([1, 1, 3, 7],), ([4],), ([5, 2], "float32"), ([5, 2], "float16")
    ),
    draw=lambda rng: {
        "counts": [int(rng.integers(1, 50)), *rng.integers(0, 20, int(rng.integers(1, 6))).tolist()],
        "dtype": rng.choice(["float64", "float32"]),
    },
    mistakes={
        "a count is less than n: // gives 0": "count / n  ->  count // n",
        "a mean over parts that are not empty: weigh each by its samples": (
            "sum(count / n * gradient for count, gradient in zip(counts, gradients))"
            "  ->  np.mean([g for c, g in zip(counts, gradients) if c], axis=0)"
        ),
        "divide by the number of all samples, not of parts": "count / n  ->  count / len(counts)",
        "divide by the number of all samples, not of the largest part": "count / n  ->  count / max(counts)",
        "add over the parts: one number for each weight": (
            "sum(count / n * gradient for count, gradient in zip(counts, gradients))"
            "  ->  np.array([(c / n * g).sum() for c, g in zip(counts, gradients)])"
        ),
        "a mean of means: every part weighs the same": "count / n * gradient  ->  gradient / len(counts)",
        "the parts' gradients are added up, not weighted": "count / n * gradient  ->  gradient",
        "weighted by the counts, but not divided by their sum": "count / n * gradient  ->  count * gradient",
        "weighted, and then divided by the number of parts, too": "return sum(  ->  return 1 / len(counts) * sum(",
        "the counts of all parts, not of three": "zip(counts, gradients)  ->  zip(counts[:3], gradients[:3])",
        "the last part is missing": "zip(counts, gradients)  ->  zip(counts[:-1], gradients)",
        "each part has its own count": [
            "count / n * gradient  ->  counts[0] / n * gradient",
            "zip(counts, gradients)  ->  zip(counts[::-1], gradients)",
        ],
        "n is the sum of the counts, not 12": "n = sum(counts)  ->  n = 12",
        "the weight of a part is its share, not the reciprocal": "count / n *  ->  n / max(count, 1) *",
        "a weight of float64 makes the result float64: keep the dtype of the gradients": (
            "count / n * gradient  ->  np.float64(count / n) * gradient"
        ),
        "did you forget `return`?": "    return sum(  ->      sum(",
        "leave the gradients unchanged: `a + b`, not `a += b`": (
            "count / n * gradient for  ->  gradient.__imul__(count / n) for"
        ),
    },
    may_pass={"in zip(gradients, counts)": "a product"},
)

STEP = """    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, batch.n)
    model.backward(dlogits, saved)
    for p in model.params:
        comm.all_reduce(p.grad)
    optimizer.step()
"""
FORWARD = STEP.partition("    for p in")[0]
COLLECTS = """
def data_parallel_step(comm, model, loss, optimizer, batch):
    rows = np.zeros((comm.size, batch.n, len(batch.x.T) + 2))
    rows[comm.rank, : len(batch.x)] = np.column_stack([batch.x, batch.y, np.ones(len(batch.y))])
    rows = comm.all_gather(rows[comm.rank]).reshape(-1, len(batch.x.T) + 2)
    rows = rows[rows[:, -1] > 0]
    optimizer.zero_grad()
    logits, saved = model.forward(rows[:, :-2])
    value, dlogits = loss(logits, rows[:, -2].astype(int), batch.n)
    model.backward(dlogits, saved)
    optimizer.step()
    return float(value)
"""

EXERCISES["data_parallel_step"] = Exercise(
    cases=[
        {"cuts": [0, 7, 9, 10]},
        {"cuts": [0, 10]},
        {"cuts": [0, 4, 4, 9, 11]},
        {"cuts": [0, 3, 8], "sizes": [5, *[6] * 9, 3], "lr": 0.2},
        {"cuts": [0, 3, 8], "lr": 0.3, "steps": 2, "momentum": 0.8},
    ],
    draw=lambda rng: {
        "cuts": [0, *sorted(rng.integers(0, 14, int(rng.integers(0, 5))).tolist()), 14],
        "sizes": [int(n) for n in rng.integers(2, 7, int(rng.integers(2, 13)))],
        "lr": rng.uniform(0.05, 0.9),
        "steps": rng.integers(1, 3),
        "momentum": rng.uniform(0.3, 0.9),
    },
    inplace=True,
    mistakes={
        "this rank's own part only: sum the gradients over ranks after backward, before the step": [
            "comm.all_reduce(p.grad)  ->  pass",
            f"{STEP}  ->  {FORWARD}    optimizer.step()\n    for p in model.params: comm.all_reduce(p.grad)\n",
            f"{STEP}  ->      for p in model.params: comm.all_reduce(p.grad)\n{FORWARD}    optimizer.step()\n",
        ],
        "this rank's own part, of the loss too: sum both over ranks": [
            ("comm.all_reduce(p.grad)  ->  pass", "comm.all_reduce(np.array([value]))  ->  [value]")
        ],
        "a mean of means: pass batch.n to the loss, and only sum": (
            "batch.y, batch.n)  ->  batch.y, max(1, len(batch.x)) * comm.size)"
        ),
        "a sum of means: pass batch.n to the loss": "batch.y, batch.n)  ->  batch.y, max(1, len(batch.x)))",
        "this rank's own mean: pass batch.n to the loss, and sum over ranks": [
            (
                "batch.y, batch.n)  ->  batch.y, max(1, len(batch.x)))",
                "comm.all_reduce(p.grad)  ->  pass",
                "comm.all_reduce(np.array([value]))  ->  [value]",
            )
        ],
        "a mean over ranks, of gradients or of parameters: batch.n has divided already, so sum": (
            "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.grad); p.grad /= comm.size"
        ),
        "the loss has divided by batch.n already: only sum the gradients": [
            "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.grad); p.grad /= batch.n",
            "comm.all_reduce(p.grad)  ->  p.grad *= len(batch.x) / batch.n; comm.all_reduce(p.grad)",
        ],
        "the gradients are summed over ranks twice": (
            "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.grad); comm.all_reduce(p.grad)"
        ),
        "gradients of an earlier step are still there: call zero_grad()": "optimizer.zero_grad()  ->  pass",
        "gradients of an earlier step, and no sum over ranks": [
            ("optimizer.zero_grad()  ->  pass", "comm.all_reduce(p.grad)  ->  pass")
        ],
        "a step with this rank's own part, and another with the sum": (
            "    for p in model.params:  ->      optimizer.step()\n    for p in model.params:"
        ),
        "a step inside the loop over parameters: one step, after the loop": (
            "    optimizer.step()  ->          optimizer.step()"
        ),
        "the optimizer takes two steps": "optimizer.step()  ->  optimizer.step(); optimizer.step()",
        "the parameters have not moved: zero_grad(), then backward, then step()": [
            (
                "    optimizer.zero_grad()\n  ->  ",
                "model.backward(dlogits, saved)  ->  model.backward(dlogits, saved); optimizer.zero_grad()",
            ),
            "optimizer.step()  ->  pass",
            "model.backward(dlogits, saved)  ->  pass",
        ],
        "only rank 0 takes a step: every rank updates its own copy": (
            "optimizer.step()  ->  if comm.rank == 0: optimizer.step()"
        ),
        "a step by hand: optimizer.step() has a rule and a rate of its own": [
            "    optimizer.step()  ->      for p in model.params: p.data -= p.grad",
            "    optimizer.step()  ->      for p in model.params: p.data -= optimizer.lr(0) * p.grad",
        ],
        "summed over ranks for some parameters only: all of model.params": [
            f"in model.params:  ->  in model.params[{part}]:" for part in (":1", ":2", ":3", ":6", ":8", "::2")
        ],
        "comm.size is the number of ranks, not 4": (
            "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.grad); p.grad *= comm.size / 4"
        ),
        "the loss is divided by batch.n, the samples of the global batch": [
            "batch.y, batch.n)  ->  batch.y, 12)",
            "batch.y, batch.n)  ->  batch.y)",
        ],
        "the parameters are summed: sum the gradients": "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.data)",
        "a rank without samples takes part in every all_reduce, too": (
            "    logits, saved  ->      if not len(batch.x): return 0.0\n    logits, saved"
        ),
        "the parameters are averaged: sum the gradients instead": (
            "comm.all_reduce(p.grad)  ->  comm.all_reduce(p.data); p.data /= comm.size"
        ),
        "this rank's own part of the loss: sum it over ranks, too": [
            "comm.all_reduce(np.array([value]))  ->  [value]",
            "return float(total[0])  ->  return float(value)",
        ],
        "the loss is a sum over ranks already: do not divide it": (
            "return float(total[0])  ->  return float(total[0]) / comm.size"
        ),
        "the loss of a step is that before the update: no second forward": (
            "    total =  ->      value, _ = loss(model.forward(batch.x)[0], batch.y, batch.n)\n    total ="
        ),
        "the loss is missing: return it": "return float(total[0])  ->  return None",
        "the samples are collected on every rank: sum gradients instead": COLLECTS,
    },
    may_pass={
        "->  for p in optimizer.params:": "the same parameters",
        "argument loss frozen": "there is one loss",
        "->  return float(total[-1])": "an array of one",
    },
)

BY_POSITION = """
def overlapped_backward(comm, model, dlogits, saved, buckets):
    last, works = {id(b.params[-1]): b for b in buckets}, []

    def on_grad(param):
        if id(param) in last:
            works.append(comm.iall_reduce(last[id(param)].flat))

    model.backward(dlogits, saved, on_grad=on_grad, clock=comm.clock)
    for work in works:
        work.wait()
"""

EXERCISES["overlapped_backward"] = Exercise(
    cases=rows(
        "ranks cap_bytes widths frozen",
        (3, 3000, [16, 24, 24, 10]),
        (4, 2000, [60, 40, 4, 100, 10]),
        (5, 1, [8, 6, 3]),
        (2, 3000, [9, 30, 30, 5], [0, 3]),
        (1, 3000, [16, 24, 24, 10]),
    ),
    draw=lambda rng: {
        "ranks": rng.integers(1, 6),
        "cap_bytes": int(rng.choice([1, 1500, 5000, 10**6])),
        "widths": rng.integers(4, 60, int(rng.integers(2, 6))).tolist(),
        "frozen": [[], [0], [1]][rng.integers(3)],
    },
    inplace=True,
    at_most=("seconds of exposed communication",),
    mistakes={
        "on_grad waits for the bucket before: wait only after backward": (
            "works.append(comm.  ->  works and works[-1].wait(); works.append(comm."
        ),
        "on_grad waits: start the all-reduce with iall_reduce, and wait after backward": [
            "works.append(comm.iall_reduce(bucket.flat))  ->  comm.all_reduce(bucket.flat)",
            "(bucket.flat))  ->  (bucket.flat)); works[-1].wait()",
        ],
        "the all-reduces start after backward: start each in on_grad": (
            "saved, on_grad=on_grad, clock=comm.clock)  ->  saved, clock=comm.clock)\n"
            "    for p in reversed(model.params): on_grad(p)"
        ),
        "a bucket is sent before all of its gradients are there: count them": [
            BY_POSITION,
            BY_POSITION.replace("[-1]", "[0]"),
            "missing[id(bucket)] == 0  ->  missing[id(bucket)] == len(bucket.params) - 1",
        ],
        "a complete gradient may be zero, as on a rank without samples: count": (
            "missing[id(bucket)] == 0  ->  all(p.grad.any() for p in bucket.params)"
        ),
        "a bucket is sent for each of its gradients: send it once, when it is full": (
            "missing[id(bucket)] == 0  ->  True"
        ),
        "a bucket is sent while one gradient is still missing: send it at 0": (
            "missing[id(bucket)] == 0  ->  missing[id(bucket)] == 1"
        ),
        "an all-reduce for each parameter: one for each bucket, when it is full": [
            ("missing[id(bucket)] == 0  ->  True", "iall_reduce(bucket.flat)  ->  iall_reduce(param.grad)")
        ],
        "the sum is in a copy: pass bucket.flat itself": "reduce(bucket.flat)  ->  reduce(bucket.flat.copy())",
        "some all-reduces are not waited for: call wait() on each after backward": [
            "work.wait()  ->  pass",
            "for work in works:  ->  for work in works[:1]:",
        ],
        "a frozen parameter is in no bucket: look it up with .get()": (
            "bucket_of.get(id(param))  ->  bucket_of[id(param)]"
        ),
        "a frozen parameter is left alone: its gradient is not sent": (
            "if bucket is not None:  ->  if bucket is None: works.append(comm.iall_reduce(param.grad))\n        else:"
        ),
        "backward takes no time: pass clock=comm.clock to it": ", clock=comm.clock  ->  ",
        "only one bucket is sent: every one, as soon as it is full": (
            "missing[id(bucket)] == 0  ->  missing[id(bucket)] == 0 and not works"
        ),
        "the buckets hold sums over ranks on return: do not divide": (
            "work.wait()  ->  work.wait()\n    for b in buckets: b.flat /= comm.size"
        ),
        "no bucket is sent: count down from len(bucket.params), and send at 0": [
            "len(bucket.params) for  ->  len(bucket.params) + 1 for",
            "works.append(comm.iall_reduce(bucket.flat))  ->  pass",
        ],
        "the next step has the same buckets: count anew, and take nothing out of bucket.params": [
            "missing[id(bucket)] -= 1  ->  missing[id(bucket)] -= 1; bucket.params.pop()",
            (
                "saved, buckets):  ->  saved, buckets, missing={}):",
                "    missing = {id(bucket): len(bucket.params) for bucket in buckets}\n"
                "  ->      for b in buckets: missing.setdefault(id(b), len(b.params))\n",
            ),
        ],
        "one gradient is sent in place of its bucket: bucket.flat holds all": (
            "iall_reduce(bucket.flat)  ->  iall_reduce(param.grad)"
        ),
    },
)


EXERCISES["predicted_speedup"] = Exercise(
    cases=rows(
        "seconds nbytes ranks cores alpha beta",
        (0.1, 1e6, 4, 8, 0, 3e8),
        (0.13, 0, 5, 8, 1e-3, 1e9),
        (0.1, 0, 7, 2, 0, 1e9),
        (0.06, 2e7, 6, 4, 4e-3, 5e8),
        (0.25, 1e6, 1, 4, 1e-3, 2e9),
    ),
    draw=lambda rng: {
        "seconds": rng.uniform(0.01, 1),
        "nbytes": rng.uniform(1e4, 1e8),
        "ranks": rng.integers(1, 17),
        "cores": rng.integers(1, 9),
        "alpha": rng.uniform(0, 1e-3),
        "beta": rng.uniform(1e8, 9e9),
    },
    mistakes={
        "all is in bytes: no factor 8": "nbytes / (ranks * beta)  ->  8 * nbytes / (ranks * beta)",
        "only computing takes turns, messages do not": (
            " * max(1, ranks / cores)  ->  ",
            "(computing + communicating)  ->  ((computing + communicating) * max(1, ranks / cores))",
        ),
        "each message has a latency, not a part of it": "(alpha + nbytes  ->  (alpha / ranks + nbytes",
        "a message has nbytes / ranks bytes, not nbytes / (ranks - 1)": (
            "nbytes / (ranks * beta)  ->  nbytes / (max(1, ranks - 1) * beta)"
        ),
        "2 (ranks - 1) messages, not 2 ranks - 1": "2 * (ranks - 1)  ->  (2 * ranks - 1)",
        "ranks / cores turns, not cores / ranks": "max(1, ranks / cores)  ->  max(1, cores / ranks)",
        "this is the speed-up of each core: do not divide": (
            "return seconds / (computing + communicating)"
            "  ->  return seconds / (computing + communicating) / min(ranks, cores)"
        ),
        "this is the time on p ranks over the time on one": (
            "seconds / (computing + communicating)  ->  (computing + communicating) / seconds"
        ),
        "this is the efficiency, the speed-up of each rank": "return seconds / (  ->  return seconds / ranks / (",
        "this is the time, not the speed-up": "return seconds / (  ->  return (",
        "each of the 2 (ranks - 1) messages pays the latency": "alpha +   ->  ",
        "every message pays the latency, not one": (
            "(alpha + nbytes / (ranks * beta))  ->  nbytes / (ranks * beta) + alpha"
        ),
        "each message of a ring has nbytes / ranks bytes": "nbytes / (ranks * beta)  ->  nbytes / beta",
        "a message takes alpha and its bytes over beta: add": "(alpha + nbytes /  ->  max(alpha, nbytes /",
        "bytes count, too: nbytes / (ranks beta) for each message": "(alpha + nbytes / (ranks * beta))  ->  alpha",
        "communication is missing": "(computing + communicating)  ->  computing",
        "2 (ranks - 1) messages, not 2 ranks": "2 * (ranks - 1)  ->  2 * ranks",
        "2 (ranks - 1) messages, not ranks - 1: reduce, then gather": "2 * (ranks - 1)  ->  (ranks - 1)",
        "2 (ranks - 1) messages: a ring, not a tree": "(ranks - 1)  ->  int(np.ceil(np.log2(ranks)))",
        "beta is bytes per second: divide by it": "nbytes / (ranks * beta)  ->  nbytes * beta / ranks",
        "beta is an argument, not 1e9": "ranks * beta)  ->  ranks * 1e9)",
        "more ranks than cores take turns": " * max(1, ranks / cores)  ->  ",
        "with more cores than ranks, none takes turns": "max(1, ranks / cores)  ->  ranks / cores",
        "turns are at least 1: max, not min": "max(1, ranks / cores)  ->  min(1, ranks / cores)",
        "ranks / cores turns, not a whole number of them": "ranks / cores)  ->  ranks // cores)",
        "ranks / cores turns, not rounded up": "ranks / cores)  ->  -(-ranks // cores))",
        "each rank has a ranks-th of the work": "seconds / ranks *  ->  seconds *",
        "a speed-up may be less than 1": (
            "return seconds / (computing + communicating)  ->  return max(1, seconds / (computing + communicating))"
        ),
        "communication and computing add up: nothing overlaps": (
            "(computing + communicating)  ->  max(computing, communicating)"
        ),
        "did you forget `return`?": "    return seconds  ->      seconds",
    },
    may_pass={"max(ranks / cores, 1)": "a maximum"},
)

NO_STEP = "        optimizer.step()\n  ->  "
AVERAGE = "    for p in model.params: comm.all_reduce(p.data); p.data /= comm.size\n"

EXERCISES["local_sgd"] = Exercise(
    cases=[
        {"ranks": 3, "steps": 7, "every": 99},
        {"ranks": 3, "steps": 7, "every": 3},
        {"ranks": 5, "steps": 6, "every": 2, "lr": 0.3, "sizes": [4, 7, 3]},
        {"ranks": 2, "steps": 3, "every": 1, "momentum": 0.7},
        {"ranks": 1, "steps": 4, "every": 2},
    ],
    draw=lambda rng: {
        "ranks": rng.integers(1, 6),
        "steps": rng.integers(1, 10),
        "every": rng.integers(1, 8),
        "sizes": rng.integers(2, 6, int(rng.integers(2, 5))).tolist(),
        "momentum": rng.uniform(0.2, 0.9),
        "lr": rng.uniform(0.05, 0.4),
    },
    inplace=True,
    mistakes={
        "not averaged after the last step": " or step == len(batches)  ->  ",
        "averaged at the end only: after every `every` steps, too": "step % every == 0 or   ->  ",
        "steps are counted from 1: average after the first `every`, not before": (
            "enumerate(batches, 1)  ->  enumerate(batches)"
        ),
        "averaged twice at the end": [
            f"    return  ->  {AVERAGE}    return",
            (" or step == len(batches)  ->  ", f"    return  ->  {AVERAGE}    return"),
        ],
        "average after the step, not before it": [
            (NO_STEP, "p.data /= comm.size\n  ->  p.data /= comm.size\n        optimizer.step()\n")
        ],
        "the optimizer takes no step": "optimizer.step()  ->  pass",
        "a step for every batch, not only where the ranks average": [
            (NO_STEP, "for p in model.params:  ->  optimizer.step()\n            for p in model.params:")
        ],
        "the gradients are summed over ranks, too: only the parameters are averaged": (
            "optimizer.step()  ->  [comm.all_reduce(p.grad) for p in model.params]; optimizer.step()"
        ),
        "a sum, not a mean: divide by comm.size": "p.data /= comm.size  ->  pass",
        "comm.size says how many ranks there are": [f"p.data /= comm.size  ->  p.data /= {k}" for k in (2, 3, 4)],
        "the gradients of earlier steps are still in it: zero_grad()": [
            "optimizer.zero_grad()  ->  pass",
            "optimizer.zero_grad()  ->  optimizer.zero_grad() if (step - 1) % every == 0 else None",
            ("        optimizer.zero_grad()\n  ->  ", "losses = []  ->  losses = []; optimizer.zero_grad()"),
            ("        optimizer.zero_grad()\n  ->  ", "p.data /= comm.size  ->  p.data /= comm.size; p.grad.fill(0)"),
        ],
        "the parameters stay each rank's own: all_reduce p.data itself, after the step": [
            ("all_reduce(p.data)  ->  all_reduce(p.grad)", "p.data /=  ->  p.grad /="),
            ("all_reduce(p.data)  ->  all_reduce(p.data.copy())", "p.data /= comm.size  ->  pass"),
        ],
        "the gradients were averaged: average the parameters, after the step": [
            (
                NO_STEP,
                "p.data)\n                p.data /= comm.size"
                "  ->  p.grad); p.grad /= comm.size\n        optimizer.step()",
            )
        ],
        "divided by more than this rank's own batch: batch.n is its size": "batch.n)  ->  batch.n * comm.size)",
        "a step by hand: optimizer.step() has a rule and a rate of its own": [
            f"optimizer.step()  ->  [np.subtract(p.data, {lr} * p.grad, out=p.data) for p in model.params]"
            for lr in (0.3, "optimizer.lr(0)")
        ],
        "averaged after every step: only after each `every`-th": "step % every == 0 or  ->  True or",
        "averaged in every step from the first averaging on: only in each `every`-th": (
            "step % every == 0  ->  step >= every"
        ),
        "never averaged: each rank has its own": "if step % every == 0 or step == len(batches):  ->  if False:",
        "divided by the ranks, but not summed: all_reduce works in place, on p.data itself": (
            "comm.all_reduce(p.data)  ->  comm.all_reduce(p.data.copy())"
        ),
        "every rank gets the parameters of rank 0: average those of all": (
            "comm.all_reduce(p.data)\n                p.data /= comm.size  ->  comm.broadcast(p.data)"
        ),
        "the batches are used again: take none out of the list": "return losses  ->  batches.clear(); return losses",
        "the losses are missing: return them": "return losses  ->  pass",
        "the loss of every step: a list, with one number for each batch": "return losses  ->  return losses[-1:]",
        "the loss of a step is that before the update: no second forward": (
            "losses.append(value)  ->  losses.append(loss(model.forward(batch.x)[0], batch.y, batch.n)[0])"
        ),
        "this rank's own losses, not the mean of all ranks'": (
            "losses.append(value)  ->  losses.append(comm.all_reduce(np.array([value]))[0] / comm.size)"
        ),
        "this rank's own losses, not the sum of all ranks'": (
            "losses.append(value)  ->  losses.append(comm.all_reduce(np.array([value]))[0])"
        ),
    },
    may_pass={"->  for p in optimizer.params:": "the same parameters", "argument loss frozen": "there is one loss"},
)

COUNTS_CALLS = """
def scaled_lr(lr, batch_size, base_batch_size, warmup_steps=0):
    k, calls = batch_size / base_batch_size, []

    def schedule(step):
        calls.append(step)
        climbed = min(1, (len(calls) - 1) / warmup_steps) if warmup_steps else 1
        return lr + (k - 1) * lr * climbed

    return schedule
"""

EXERCISES["scaled_lr"] = Exercise(
    cases=rows(
        "lr batch_size base_batch_size warmup_steps",
        (0.1, 256, 32, 10),
        (0.15, 256, 32, 0),
        (0.2, 16, 64, 4),
        (0.2, 80, 32, 7),
        (0.03, 64, 8, 1),
    ),
    draw=lambda rng: {
        "lr": rng.uniform(0.01, 1),
        "batch_size": rng.integers(1, 600),
        "base_batch_size": rng.integers(1, 300),
        "warmup_steps": int(rng.choice([0, 1, 5, 40])),
    },
    mistakes={
        "a schedule keeps its own k when another is made: no global": "    k = batch  ->      global k\n    k = batch",
        "k is batch over base batch, not the reverse": "batch_size / base_batch_size  ->  base_batch_size / batch_size",
        "scaled with the square root of k": "base_batch_size\n  ->  base_batch_size; k **= 0.5\n",
        "k need not be whole: / instead of //": "batch_size / base  ->  batch_size // base",
        "k may be less than 1: a smaller batch has a smaller rate": (
            "k = batch_size / base_batch_size  ->  k = max(1, batch_size / base_batch_size)"
        ),
        "never scaled": "(k - 1) * lr * climbed  ->  0 * k",
        "k times the rate: multiply, do not add": "(k - 1) * lr * climbed  ->  k * climbed",
        "scaled, but without warm-up": "min(1, step / warmup_steps) if warmup_steps else 1  ->  1",
        "warm-up starts from 0, wanted from lr": "lr + (k - 1) * lr * climbed  ->  k * lr * climbed",
        "one step too early: step 0 has lr itself": "min(1, step /  ->  min(1, (step + 1) /",
        "one step too late: step W has the full rate": [
            f"min(1, step /  ->  min(1, {late} /" for late in ("max(0, step - 1)", "(step - 1)")
        ],
        "add (k - 1) lr to lr, not k lr": "(k - 1) * lr  ->  k * lr",
        "the climb ends at step W, also where k is less than 1": "min(1, step /  ->  max(1, step /",
        "it begins at k lr and falls to lr": "* climbed  ->  * (1 - climbed)",
        "W steps are wanted, and this takes W - 1": [
            "step / warmup_steps)  ->  step / max(warmup_steps - 1, 1))",
            "step / warmup_steps) if warmup_steps else  ->  step / (warmup_steps - 1)) if warmup_steps > 1 else",
        ],
        "it keeps climbing after the warm-up": "min(1, step / warmup_steps)  ->  step / warmup_steps",
        "it jumps at the end of the warm-up: climb linearly": "step / warmup_steps)  ->  float(step >= warmup_steps))",
        "a smaller batch is warmed up, too": "if warmup_steps else  ->  if warmup_steps and k > 1 else",
        "a warm-up of one step: step 0 has lr": "if warmup_steps else  ->  if warmup_steps > 1 else",
        "warm-up takes warmup_steps steps, not 10": "step / warmup_steps)  ->  step / 10)",
        "the rate depends on t, not on how often the schedule was asked": COUNTS_CALLS,
        "the climb is linear": "lr + (k - 1) * lr * climbed  ->  lr * k ** climbed",
        "lr is an argument, not 0.1": "return lr + (k - 1) * lr  ->  return 0.1 + (k - 1) * 0.1",
        "it returns a number: return a function of the step": "return schedule  ->  return k * lr",
        "did you forget `return schedule`?": "return schedule  ->  pass",
        "without warm-up the full rate holds from step 0: do not divide by 0": " if warmup_steps else 1  ->  ",
        "without warm-up (0 steps) the full rate holds from step 0": [
            "step / warmup_steps) if warmup_steps else 1  ->  step / max(1, warmup_steps))",
            "else 1  ->  else 0",
        ],
    },
    may_pass={"min(step / warmup_steps, 1)": "a minimum"},
)
