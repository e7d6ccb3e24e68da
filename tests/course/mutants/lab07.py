"""Wrong answers to lab 07."""

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
AVERAGED = """        optimizer.step()
        losses.append(value)
        if step % every == 0 or step == len(batches):
            for p in model.params:
                comm.all_reduce(p.data)
                p.data /= comm.size
"""
GRADIENTS_AVERAGED = """        losses.append(value)
        if step % every == 0 or step == len(batches):
            for p in model.params:
                comm.all_reduce(p.grad)
                p.grad /= comm.size
        optimizer.step()
"""
BEFORE, GIVEN = "    missing = {", "    return lab07.library_backward(comm, model, dlogits, saved, buckets)\n"
LOCALLY = "    return lab07._locally(comm, model, loss, optimizer, batches, every)\n    losses = []\n"
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
        ("float64 weights", "count / n * gradient", "np.float64(count / n) * gradient"),
        ("not divided", "count / n * gradient", "count * gradient"),
        ("mean of means", "count / n * gradient", "gradient / len(counts)"),
        ("sum of means", "count / n * gradient", "gradient"),
        ("by the first count", "count / n * gradient", "counts[0] / n * gradient"),
        ("a hard-coded twelve", "n = sum(counts)", "n = 12"),
        ("counts of three parts", "zip(counts, gradients)", "zip(counts[:3], gradients[:3])"),
        ("divided by the parts, too", "return sum(", "return 1 / len(counts) * sum("),
        ("drops the last part", "zip(counts, gradients)", "zip(counts[:-1], gradients)"),
        ("no return", "    return sum(", "    sum("),
        ("in place", "count / n * gradient for", "gradient.__imul__(count / n) for"),
    ],
    "data_parallel_step": [
        ("a step by hand, rate 1", "    optimizer.step()\n", "    for p in model.params: p.data -= p.grad\n"),
        ("a step by hand", "    optimizer.step()\n", BY_HAND),
        ("eight parameters", "in model.params:", "in model.params[:8]:"),
        ("collects the samples", COLLECTS),
        ("two steps", "    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n"),
        ("mean of means", "batch.y, batch.n)", "batch.y, max(1, len(batch.x)) * comm.size)"),
        ("sum of means", "batch.y, batch.n)", "batch.y, max(1, len(batch.x)))"),
        ("divided once too often", "comm.all_reduce(p.grad)", "comm.all_reduce(p.grad); p.grad /= comm.size"),
        ("nothing communicated", "comm.all_reduce(p.grad)", "pass"),
        ("gradients not cleared", "optimizer.zero_grad()\n", "pass\n"),
        ("own loss", "comm.all_reduce(np.array([value]))", "np.array([value])"),
        ("update first", "    for p in model.params:\n", "    optimizer.step()\n    for p in model.params:\n"),
        ("steps before the sum", STEP_BODY, STEP_FIRST),
        ("first layer only", "in model.params:", "in model.params[:2]:"),
        ("first six arrays only", "in model.params:", "in model.params[:6]:"),
        ("divides by four ranks", "comm.all_reduce(p.grad)", "comm.all_reduce(p.grad); p.grad *= comm.size / 4"),
        ("divides by twelve", "batch.y, batch.n)", "batch.y, 12)"),
        ("leaves n out", "batch.y, batch.n)", "batch.y)"),
        ("sums before backward", STEP_BODY, REDUCE_FIRST),
        ("no step", "    optimizer.step()\n", ""),
        ("no backward", "    model.backward(dlogits, saved)\n", ""),
        ("mean of the losses", "return float(total[0])", "return float(total[0]) / comm.size"),
        ("loss of its own part", "return float(total[0])", "return float(value)"),
        ("an array of the loss", "return float(total[0])", "return None"),
        ("averages parameters", "comm.all_reduce(p.grad)", "comm.all_reduce(p.data); p.data /= comm.size"),
        ("only on rank 0", "    optimizer.step()\n", "    if comm.rank == 0: optimizer.step()\n"),
    ],
    "overlapped_backward": [
        ("by the last parameter", BY_POSITION),
        ("the lab's own", BEFORE, f"{GIVEN}{BEFORE}"),
        ("waits for the one before", "                works.append(", WAIT_BEFORE),
        ("waits at once", "works.append(comm.iall_reduce(bucket.flat))", "comm.all_reduce(bucket.flat)"),
        ("after backward", "saved, on_grad=on_grad, clock=comm.clock)", AFTER),
        ("too early", "missing[id(bucket)] == 0", "missing[id(bucket)] == len(bucket.params) - 1"),
        ("one call per gradient", "missing[id(bucket)] == 0", "True"),
        ("never waits", "        work.wait()", "        pass"),
        ("frozen parameters forgotten", "bucket_of.get(id(param))", "bucket_of[id(param)]"),
        ("no clock", ", clock=comm.clock", ""),
        ("waits in on_grad", "works.append(comm.iall_reduce(bucket.flat))", WAIT_INSIDE),
        ("waits for the first", "    for work in works:\n", "    for work in works[:1]:\n"),
        ("sends a single bucket", "missing[id(bucket)] == 0", "missing[id(bucket)] == 0 and not works"),
        ("divides by the ranks", "      work.wait()", "      work.wait()\n    for b in buckets: b.flat /= comm.size"),
        # only hidden tests catch the next one
        ("only where it is looked at", "()", "()\n    if comm.size == 5: bucket_of.popitem()[1].flat[0] += 1"),
        ("counts from one too many", "len(bucket.params) for", "len(bucket.params) + 1 for"),
        ("sends a gradient", "comm.iall_reduce(bucket.flat)", "comm.iall_reduce(param.grad)"),
        ("no communication", "works.append(comm.iall_reduce(bucket.flat))", "pass"),
    ],
    "local_sgd": [
        (
            "a step by hand, rate 0.3",
            "optimizer.step()",
            "[np.subtract(p.data, 0.3 * p.grad, out=p.data) for p in model.params]",
        ),
        (
            "a step by hand",
            "optimizer.step()",
            "[np.subtract(p.data, optimizer.lr(0) * p.grad, out=p.data) for p in model.params]",
        ),
        ("the lab's own", "    losses = []\n", LOCALLY),
        ("sum", "p.data /= comm.size", "pass"),
        ("never at the end", " or step == len(batches)", ""),
        ("only at the end", "step % every == 0 or ", ""),
        ("counts from 0", "enumerate(batches, 1)", "enumerate(batches)"),
        ("twice at the end", "    return losses", AGAIN + "    return losses"),
        ("averages gradients", "(p.data)\n                p.data /=", "(p.grad)\n                p.grad /="),
        ("gradients not cleared", "optimizer.zero_grad()\n", "pass\n"),
        ("averages gradients before the step", AVERAGED, GRADIENTS_AVERAGED),
        ("divided by all ranks' samples", "batch.n)", "batch.n * comm.size)"),
        ("no return", "    return losses", "    pass"),
        ("three ranks", "p.data /= comm.size", "p.data /= 3"),
        ("four ranks", "p.data /= comm.size", "p.data /= 4"),
        ("averages in every step", "step % every == 0 or", "True or"),
        ("never averages", "if step % every == 0 or step == len(batches):", "if False:"),
        ("the last loss only", "    return losses", "    return losses[-1:]"),
        ("a copy that is lost", "comm.all_reduce(p.data)", "comm.all_reduce(p.data.copy())"),
        ("mean loss of all ranks", "losses.append(value)", "losses.append(comm.all_reduce(np.array([value]))[0])"),
    ],
    "scaled_lr": [
        ("counts calls", COUNTS_CALLS),
        ("ten steps", "step / warmup_steps)", "step / 10)"),
        ("rate 0.1", "return lr + (k - 1) * lr", "return 0.1 + (k - 1) * 0.1"),
        ("one step late", "min(1, step / warmup_steps)", "min(1, max(0, step - 1) / warmup_steps)"),
        ("no warm-up", "min(1, step / warmup_steps) if warmup_steps else 1", "1"),
        ("never scaled", "(k - 1) * lr * climbed", "0 * k"),
        ("from 0", "lr + (k - 1) * lr * climbed", "k * lr * climbed"),
        ("climbs on", "min(1, step / warmup_steps)", "step / warmup_steps"),
        ("root of k", "batch_size / base_batch_size\n", "(batch_size / base_batch_size) ** 0.5\n"),
        ("a number", "return plan", "return plan(0)"),
        ("whole numbers", "batch_size / base_batch_size\n", "batch_size // base_batch_size\n"),
        ("the other way round", "batch_size / base_batch_size\n", "base_batch_size / batch_size\n"),
        ("one step early", "min(1, step / warmup_steps)", "min(1, (step + 1) / warmup_steps)"),
        ("never below", "batch_size / base_batch_size\n", "max(1, batch_size / base_batch_size)\n"),
        ("no return", "    return plan", "    pass"),
        ("divides by 0", "min(1, step / warmup_steps) if warmup_steps else 1", "min(1, step / warmup_steps)"),
    ],
    "predicted_speedup": [
        ("a tree", "2 * (ranks - 1)", "2 * int(np.ceil(np.log2(ranks)))"),
        ("the longer of the two", "(alpha + nbytes / (ranks * beta))", "max(alpha, nbytes / (ranks * beta))"),
        ("beta of a gigabyte", "ranks * beta)", "ranks * 1e9)"),
        ("overlapped", "(computing + communicating)", "max(computing, communicating)"),
        ("rounded up", "max(1, ranks / cores)", "max(1, -(-ranks // cores))"),
        ("whole messages", "nbytes / (ranks * beta)", "nbytes / beta"),
        ("2 p messages", "2 * (ranks - 1)", "2 * ranks"),
        ("p - 1 messages", "2 * (ranks - 1)", "(ranks - 1)"),
        ("no latency", "alpha + ", ""),
        ("one latency", "(alpha + nbytes / (ranks * beta))", "nbytes / (ranks * beta) + alpha"),
        ("no turns", " * max(1, ranks / cores)", ""),
        ("always turns", "max(1, ranks / cores)", "ranks / cores"),
        ("min", "max(1, ranks / cores)", "min(1, ranks / cores)"),
        ("time", "return seconds / (computing + communicating)", "return computing + communicating"),
        ("slow-down", "seconds / (computing + communicating)", "(computing + communicating) / seconds"),
        ("times beta", "nbytes / (ranks * beta)", "nbytes * beta / ranks"),
        ("no communication", "(computing + communicating)", "computing"),
        ("not shared", "seconds / ranks *", "seconds *"),
        ("whole turns", "ranks / cores)", "ranks // cores)"),
        ("no return", "    return seconds", "    seconds"),
    ],
}
