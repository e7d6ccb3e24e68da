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

MUTANTS = {
    "weighted_mean": [
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
