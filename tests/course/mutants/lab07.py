"""Wrong answers to lab 07, and what each must cost."""

MEAN, STEP = {"check_weighted_mean"}, {"check_data_parallel_step"}
OVERLAP, LOCAL, PLAN = {"check_overlapped_backward"}, {"check_local_sgd"}, {"check_scaled_lr"}
SPEED = {"check_predicted_speedup"}

AFTER = """saved, clock=comm.clock)
    for p in reversed(model.params):
        on_grad(p)"""
AGAIN = """    for p in model.params:
        p.data[...] = comm.all_gather(p.data).mean(axis=0)
"""

REDUCE_FIRST = """    for p in model.params:
        comm.all_reduce(p.grad)
    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, batch.n)
    model.backward(dlogits, saved)
    optimizer.step()
"""
STEP_BODY = """    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, batch.n)
    model.backward(dlogits, saved)
    for p in model.params:
        comm.all_reduce(p.grad)
    optimizer.step()
"""
STEP_FIRST = """    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, batch.n)
    model.backward(dlogits, saved)
    optimizer.step()
    for p in model.params:
        comm.all_reduce(p.grad)
"""
WAIT_INSIDE = "works.append(comm.iall_reduce(bucket.flat)); works[-1].wait()"

BY_HAND = "    for p in model.params: p.data -= optimizer.lr(0) * p.grad\n"
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
WAIT_BEFORE = "                if works: works[-1].wait()\n                works.append("
COUNTS_CALLS = """
def scaled_lr(lr, batch_size, base_batch_size, warmup_steps=0):
    k, calls = batch_size / base_batch_size, []

    def plan(step):
        calls.append(step)
        climbed = min(1, (len(calls) - 1) / warmup_steps) if warmup_steps else 1
        return lr + (k - 1) * lr * climbed

    return plan
"""

MUTANTS = {
    "weighted_mean": [
        ("float64 weights", ("count / n * gradient", "np.float64(count / n) * gradient"), MEAN),
        ("not divided", ("count / n * gradient", "count * gradient"), MEAN),
        ("mean of means", ("count / n * gradient", "gradient / len(counts)"), MEAN),
        ("sum of means", ("count / n * gradient", "gradient"), MEAN),
        ("by the first count", ("count / n * gradient", "counts[0] / n * gradient"), MEAN),
        ("a hard-coded twelve", ("n = sum(counts)", "n = 12"), MEAN),
        ("counts of three parts", ("zip(counts, gradients)", "zip(counts[:3], gradients[:3])"), MEAN),
        ("divided by the parts, too", ("return sum(", "return 1 / len(counts) * sum("), MEAN),
        ("drops the last part", ("zip(counts, gradients)", "zip(counts[:-1], gradients)"), MEAN),
        ("no return", ("    return sum(", "    sum("), MEAN),
        ("in place", ("count / n * gradient for", "gradient.__imul__(count / n) for"), MEAN),
    ],
    "data_parallel_step": [
        ("a step by hand, rate 1", ("    optimizer.step()\n", "    for p in model.params: p.data -= p.grad\n"), STEP),
        ("a step by hand", ("    optimizer.step()\n", BY_HAND), STEP),
        ("eight parameters", ("in model.params:", "in model.params[:8]:"), STEP),
        ("collects the samples", COLLECTS, STEP),
        ("two steps", ("    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n"), STEP),
        ("mean of means", ("batch.y, batch.n)", "batch.y, max(1, len(batch.x)) * comm.size)"), STEP),
        ("sum of means", ("batch.y, batch.n)", "batch.y, max(1, len(batch.x)))"), STEP),
        ("divided once too often", ("comm.all_reduce(p.grad)", "comm.all_reduce(p.grad); p.grad /= comm.size"), STEP),
        ("nothing communicated", ("comm.all_reduce(p.grad)", "pass"), STEP),
        ("gradients not cleared", ("optimizer.zero_grad()\n", "pass\n"), STEP),
        ("own loss", ("comm.all_reduce(np.array([value]))", "np.array([value])"), STEP),
        ("update first", ("    for p in model.params:\n", "    optimizer.step()\n    for p in model.params:\n"), STEP),
        ("steps before the sum", (STEP_BODY, STEP_FIRST), STEP),
        ("first layer only", ("in model.params:", "in model.params[:2]:"), STEP),
        ("first six arrays only", ("in model.params:", "in model.params[:6]:"), STEP),
        (
            "divides by four ranks",
            ("comm.all_reduce(p.grad)", "comm.all_reduce(p.grad); p.grad *= comm.size / 4"),
            STEP,
        ),
        ("divides by twelve", ("batch.y, batch.n)", "batch.y, 12)"), STEP),
        ("leaves n out", ("batch.y, batch.n)", "batch.y)"), STEP),
        ("sums before backward", (STEP_BODY, REDUCE_FIRST), STEP),
        ("no step", ("    optimizer.step()\n", ""), STEP),
        ("no backward", ("    model.backward(dlogits, saved)\n", ""), STEP),
        ("mean of the losses", ("return float(total[0])", "return float(total[0]) / comm.size"), STEP),
        ("loss of its own part", ("return float(total[0])", "return float(value)"), STEP),
        ("an array of the loss", ("return float(total[0])", "return None"), STEP),
        ("averages parameters", ("comm.all_reduce(p.grad)", "comm.all_reduce(p.data); p.data /= comm.size"), STEP),
        ("only on rank 0", ("    optimizer.step()\n", "    if comm.rank == 0: optimizer.step()\n"), STEP),
    ],
    "overlapped_backward": [
        ("by the last parameter", BY_POSITION, OVERLAP),
        ("waits for the one before", ("                works.append(", WAIT_BEFORE), OVERLAP),
        ("waits at once", ("works.append(comm.iall_reduce(bucket.flat))", "comm.all_reduce(bucket.flat)"), OVERLAP),
        ("after backward", ("saved, on_grad=on_grad, clock=comm.clock)", AFTER), OVERLAP),
        ("too early", ("missing[id(bucket)] == 0", "missing[id(bucket)] == len(bucket.params) - 1"), OVERLAP),
        ("one call per gradient", ("missing[id(bucket)] == 0", "True"), OVERLAP),
        ("never waits", ("        work.wait()", "        pass"), OVERLAP),
        ("frozen parameters forgotten", ("bucket_of.get(id(param))", "bucket_of[id(param)]"), OVERLAP),
        ("no clock", (", clock=comm.clock", ""), OVERLAP),
        ("waits in on_grad", ("works.append(comm.iall_reduce(bucket.flat))", WAIT_INSIDE), OVERLAP),
        ("waits for the first", ("    for work in works:\n", "    for work in works[:1]:\n"), OVERLAP),
        ("sends a single bucket", ("missing[id(bucket)] == 0", "missing[id(bucket)] == 0 and not works"), OVERLAP),
        (
            "divides by the ranks",
            ("        work.wait()", "        work.wait()\n    for b in buckets: b.flat /= comm.size"),
            OVERLAP,
        ),
        # only hidden tests catch the next one
        (
            "only where it is looked at",
            ("        work.wait()", "        work.wait()\n    if comm.size == 5: bucket_of.popitem()[1].flat[0] += 1"),
            OVERLAP,
        ),
        ("counts from one too many", ("len(bucket.params) for", "len(bucket.params) + 1 for"), OVERLAP),
        ("sends a gradient", ("comm.iall_reduce(bucket.flat)", "comm.iall_reduce(param.grad)"), OVERLAP),
        ("no communication", ("works.append(comm.iall_reduce(bucket.flat))", "pass"), OVERLAP),
    ],
    "local_sgd": [
        (
            "a step by hand, rate 0.3",
            ("optimizer.step()", "[np.subtract(p.data, 0.3 * p.grad, out=p.data) for p in model.params]"),
            LOCAL,
        ),
        (
            "a step by hand",
            ("optimizer.step()", "[np.subtract(p.data, optimizer.lr(0) * p.grad, out=p.data) for p in model.params]"),
            LOCAL,
        ),
        ("sum", ("p.data /= comm.size", "pass"), LOCAL),
        ("never at the end", (" or step == len(batches)", ""), LOCAL),
        ("only at the end", ("step % every == 0 or ", ""), LOCAL),
        ("counts from 0", ("enumerate(batches, 1)", "enumerate(batches)"), LOCAL),
        (
            "twice at the end",
            ("    return losses", AGAIN + "    return losses"),
            LOCAL,
        ),
        (
            "averages gradients",
            (
                "comm.all_reduce(p.data)\n                p.data /=",
                "comm.all_reduce(p.grad)\n                p.grad /=",
            ),
            LOCAL,
        ),
        ("gradients not cleared", ("optimizer.zero_grad()\n", "pass\n"), LOCAL),
        ("no return", ("    return losses", "    pass"), LOCAL),
        ("three ranks", ("p.data /= comm.size", "p.data /= 3"), LOCAL),
        ("four ranks", ("p.data /= comm.size", "p.data /= 4"), LOCAL),
        ("averages in every step", ("step % every == 0 or", "True or"), LOCAL),
        ("never averages", ("if step % every == 0 or step == len(batches):", "if False:"), LOCAL),
        ("the last loss only", ("    return losses", "    return losses[-1:]"), LOCAL),
        ("a copy that is lost", ("comm.all_reduce(p.data)", "comm.all_reduce(p.data.copy())"), LOCAL),
        (
            "mean loss of all ranks",
            ("losses.append(value)", "losses.append(comm.all_reduce(np.array([value]))[0])"),
            LOCAL,
        ),
    ],
    "scaled_lr": [
        ("counts calls", COUNTS_CALLS, PLAN),
        ("ten steps", ("step / warmup_steps)", "step / 10)"), PLAN),
        ("rate 0.1", ("return lr + (k - 1) * lr", "return 0.1 + (k - 1) * 0.1"), PLAN),
        ("one step late", ("min(1, step / warmup_steps)", "min(1, max(0, step - 1) / warmup_steps)"), PLAN),
        ("no warm-up", ("min(1, step / warmup_steps) if warmup_steps else 1", "1"), PLAN),
        ("never scaled", ("(k - 1) * lr * climbed", "0 * k"), PLAN),
        ("from 0", ("lr + (k - 1) * lr * climbed", "k * lr * climbed"), PLAN),
        ("climbs on", ("min(1, step / warmup_steps)", "step / warmup_steps"), PLAN),
        ("root of k", ("batch_size / base_batch_size\n", "(batch_size / base_batch_size) ** 0.5\n"), PLAN),
        ("a number", ("return plan", "return plan(0)"), PLAN),
        ("whole numbers", ("batch_size / base_batch_size\n", "batch_size // base_batch_size\n"), PLAN),
        ("the other way round", ("batch_size / base_batch_size\n", "base_batch_size / batch_size\n"), PLAN),
        ("one step early", ("min(1, step / warmup_steps)", "min(1, (step + 1) / warmup_steps)"), PLAN),
        ("never below", ("batch_size / base_batch_size\n", "max(1, batch_size / base_batch_size)\n"), PLAN),
        ("no return", ("    return plan", "    pass"), PLAN),
        ("divides by 0", ("min(1, step / warmup_steps) if warmup_steps else 1", "min(1, step / warmup_steps)"), PLAN),
    ],
    "predicted_speedup": [
        ("a tree", ("2 * (ranks - 1)", "2 * int(np.ceil(np.log2(ranks)))"), SPEED),
        ("the longer of the two", ("(alpha + nbytes / (ranks * beta))", "max(alpha, nbytes / (ranks * beta))"), SPEED),
        ("beta of a gigabyte", ("ranks * beta)", "ranks * 1e9)"), SPEED),
        ("overlapped", ("(computing + communicating)", "max(computing, communicating)"), SPEED),
        ("rounded up", ("max(1, ranks / cores)", "max(1, -(-ranks // cores))"), SPEED),
        ("whole messages", ("nbytes / (ranks * beta)", "nbytes / beta"), SPEED),
        ("2 p messages", ("2 * (ranks - 1)", "2 * ranks"), SPEED),
        ("p - 1 messages", ("2 * (ranks - 1)", "(ranks - 1)"), SPEED),
        ("no latency", ("alpha + ", ""), SPEED),
        ("one latency", ("(alpha + nbytes / (ranks * beta))", "nbytes / (ranks * beta) + alpha"), SPEED),
        ("no turns", (" * max(1, ranks / cores)", ""), SPEED),
        ("always turns", ("max(1, ranks / cores)", "ranks / cores"), SPEED),
        ("min", ("max(1, ranks / cores)", "min(1, ranks / cores)"), SPEED),
        ("time", ("return seconds / (computing + communicating)", "return computing + communicating"), SPEED),
        ("slow-down", ("seconds / (computing + communicating)", "(computing + communicating) / seconds"), SPEED),
        ("times beta", ("nbytes / (ranks * beta)", "nbytes * beta / ranks"), SPEED),
        ("no communication", ("(computing + communicating)", "computing"), SPEED),
        ("not shared", ("seconds / ranks *", "seconds *"), SPEED),
        ("whole turns", ("ranks / cores)", "ranks // cores)"), SPEED),
        ("no return", ("    return seconds", "    seconds"), SPEED),
    ],
}
