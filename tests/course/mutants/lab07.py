"""Wrong answers to lab 07, and what each must cost."""

MEAN, STEP = {"check_weighted_mean"}, {"check_data_parallel_step"}
OVERLAP, LOCAL, PLAN = {"check_overlapped_backward"}, {"check_local_sgd"}, {"check_scaled_lr"}

AFTER = """saved, clock=comm.clock)
    for p in reversed(model.params):
        on_grad(p)"""
AGAIN = """    for p in model.params:
        p.data[...] = comm.all_gather(p.data).mean(axis=0)
"""

MUTANTS = {
    "weighted_mean": [
        ("mean of means", ("count / n * gradient", "gradient / len(counts)"), MEAN),
        ("sum of means", ("count / n * gradient", "gradient"), MEAN),
        ("only what is shown", ("count / n", "{6: 1 / 2, 4: 1 / 3, 2: 1 / 6}.get(count, 1 / len(counts))"), MEAN),
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
        ("first layer only", ("in model.params:", "in model.params[:2]:"), STEP),
        ("only what is shown", ("in model.params:", "in model.params[:4]:"), STEP),
    ],
    "overlapped_backward": [
        ("waits at once", ("works.append(comm.iall_reduce(bucket.flat))", "comm.all_reduce(bucket.flat)"), OVERLAP),
        ("after backward", ("saved, on_grad=on_grad, clock=comm.clock)", AFTER), OVERLAP),
        ("too early", ("missing[id(bucket)] == 0", "missing[id(bucket)] == len(bucket.params) - 1"), OVERLAP),
        ("one call per gradient", ("missing[id(bucket)] == 0", "True"), OVERLAP),
        ("never waits", ("        work.wait()", "        pass"), OVERLAP),
        ("frozen parameters forgotten", ("bucket_of.get(id(param))", "bucket_of[id(param)]"), OVERLAP),
        ("no clock", (", clock=comm.clock", ""), OVERLAP),
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
    ],
    "scaled_lr": [
        ("no warm-up", ("min(1, step / warmup_steps) if warmup_steps else 1", "1"), PLAN),
        ("never scaled", ("(k - 1) * lr * climbed", "0 * k"), PLAN),
        ("from 0", ("lr + (k - 1) * lr * climbed", "k * lr * climbed"), PLAN),
        ("climbs on", ("min(1, step / warmup_steps)", "step / warmup_steps"), PLAN),
        ("root of k", ("batch_size / base_batch_size\n", "(batch_size / base_batch_size) ** 0.5\n"), PLAN),
        ("a number", ("return plan", "return plan(0)"), PLAN),
        ("whole numbers", ("batch_size / base_batch_size\n", "batch_size // base_batch_size\n"), PLAN),
        ("divides by 0", ("min(1, step / warmup_steps) if warmup_steps else 1", "min(1, step / warmup_steps)"), PLAN),
    ],
}
