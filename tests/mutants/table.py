"""The faults: what is wrong, the text of the library, what it becomes, and the tests that must turn red."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    old: str
    """Stands once in the library, so that the table needs no paths."""
    new: str
    tests: str
    """What pytest is given, below tests/."""


MUTANTS = [
    # collectives and costs
    Mutant("ring: reduces the wrong share", "incoming = parts[r - step - 1]", "incoming = parts[r - step - 2]", "comm"),
    Mutant(
        "ring: one round too few",
        "for step in range(p - 1):\n        incoming",
        "for step in range(p - 2):\n        incoming",
        "comm",
    ),
    Mutant(
        "ring: first share off",
        "first = right if holds is None else holds",
        "first = r if holds is None else holds",
        "comm",
    ),
    Mutant("ring all-gather: own row lost", "rows[comm.rank] = x\n", "rows[comm.rank - 1] = x\n", "comm"),
    Mutant(
        "tree: the root's children in send order",
        "        REDUCTIONS[op](x, received, out=x)\n    if parent is None:",
        "        REDUCTIONS['sum'](x, received, out=x)\n    if parent is None:",
        "comm",
    ),
    Mutant(
        "shares: the rest to the last ranks", "start = rank * each + min(rank, extra)", "start = rank * each", "comm"
    ),
    Mutant("cost: rounds for a power of two", "return (p - 1).bit_length()", "return p.bit_length()", "comm"),
    Mutant(
        "sim: bandwidth is ignored",
        "arrival = start + (self.alpha + nbytes / self.beta)",
        "arrival = start + self.alpha",
        "sim",
    ),
    Mutant(
        "sim: a network card is never busy",
        "nic.free = arrival - self.alpha",
        "nic.free = now",
        "sim",
    ),
    Mutant(
        "sim: eager messages share the sender's buffer",
        "op = SendOp(fibre, channel, x.copy() if eager else x, arrival)",
        "op = SendOp(fibre, channel, x, arrival)",
        "sim",
    ),
    # layers and losses
    Mutant(
        "linear: the bias gets the mean",
        "self.W.add_product(x.T, dy)\n                self.b.add(column_sums(dy))",
        "self.W.add_product(x.T, dy)\n                self.b.add(column_sums(dy) / len(dy))",
        "nn",
    ),
    Mutant("batch norm: biased running variance", "var * (n / (n - 1))", "var", "nn"),
    Mutant(
        "batch norm: backward without the mean",
        "dy -= dbeta / n\n        dy -= normal * (dgamma / n)",
        "dy -= normal * (dgamma / n)",
        "nn",
    ),
    Mutant(
        "loss: divided by the local rows",
        "n = len(logits) if n is None else n",
        "n = len(logits)",
        "nn",
    ),
    Mutant(
        "loss: logits are not shifted",
        "z = logits - logits.max(axis=1, keepdims=True)",
        "z = logits - logits.mean(axis=1, keepdims=True)",
        "nn",
    ),
    Mutant(
        "attention: merge without rescaling",
        "return Partial(top, x * a.total + y * b.total, x * a.out + y * b.out)",
        "return Partial(top, a.total + b.total, a.out + b.out)",
        "nn",
    ),
    Mutant(
        "attention: divides by d",
        "s *= 1 / math.sqrt(q.shape[-1])\n    if hidden is not None:",
        "s *= 1 / q.shape[-1]\n    if hidden is not None:",
        "nn",
    ),
    # optimizers
    Mutant(
        "Adam: squares decay with beta1",
        "squares *= self.beta2\n        squares += (1 - self.beta2) * (grad * grad)",
        "squares *= self.beta1\n        squares += (1 - self.beta1) * (grad * grad)",
        "optim",
    ),
    Mutant(
        "AdamW: decay without the rate", "data *= 1 - lr * self.weight_decay", "data *= 1 - self.weight_decay", "optim"
    ),
    Mutant(
        "momentum: decay is dropped",
        "state *= self.momentum\n        state += decayed(grad, data, self.weight_decay)\n        data -= lr * state",
        "state *= self.momentum\n        state += grad\n        data -= lr * state",
        "optim",
    ),
    Mutant("Nesterov is momentum", "data -= lr * (grad + self.momentum * state)", "data -= lr * state", "optim"),
    Mutant("RMSprop: sum for mean", "state += (1 - self.rho) * (grad * grad)", "state += grad * grad", "optim"),
    # strategies
    Mutant(
        "accumulation: reduces after the first piece",
        "self.reducer.on_grad if i == len(pieces) else None",
        "self.reducer.on_grad if i == 1 else None",
        "parallel/test_data_parallel.py",
    ),
    Mutant(
        "accumulation: the loss of the last piece",
        "total, rows = total + loss, rows + len(x)",
        "total, rows = loss, rows + len(x)",
        "parallel/test_differential.py",
    ),
    Mutant(
        "ZeRO: the gathered parameters stay",
        'p.data = HeldElsewhere(p, "ZeRO")\n            self.full = None',
        'p.data = HeldElsewhere(p, "ZeRO")',
        "parallel/test_zero.py",
    ),
    Mutant(
        "ZeRO: updated parts are not published",
        "self.full[...] = self.comm.all_gather(self.own.data).reshape(-1)",
        "self.comm.all_gather(self.own.data)",
        "parallel/test_zero.py tests/parallel/test_statistics.py",
    ),
    Mutant(
        "half precision code: no clipping",
        "xp.clip(x, -65504.0, 65504.0).astype(np.float16)",
        "x.astype(np.float16)",
        "parallel/test_compress.py",
    ),
    Mutant(
        "GPipe: backward of one micro-batch is missing",
        "for i in range(n_microbatches):\n            yield Action(kind, i)",
        "for i in range(n_microbatches):\n            yield Action(kind, i * (kind == 'F'))",
        "parallel/pipeline",
    ),
    Mutant(
        "policy: staleness one too small",
        "self.version - used, self.clocks[worker], self.slowest",
        "self.version - used - 1, self.clocks[worker], self.slowest",
        "parallel/asynchronous",
    ),
    Mutant(
        "policy: bound workers are released",
        "if w not in bound and policy.may_start",
        "if policy.may_start",
        "parallel/asynchronous",
    ),
    Mutant(
        "policy: the slowest worker is not recounted",
        "            del workers_at[self.slowest]\n            if workers_at:",
        "            del workers_at[self.slowest]\n            if not workers_at:",
        "parallel/asynchronous",
    ),
    # tensor parallelism, data, training, kernels
    Mutant(
        "row parallel: every rank adds the bias",
        "        y = self.comm.all_reduce(y)\n        y += self.b.data\n",
        "        y += self.b.data\n        y = self.comm.all_reduce(y)\n",
        "parallel/tensor",
    ),
    Mutant(
        "row parallel: no all-reduce",
        "        y = self.comm.all_reduce(y)\n",
        "",
        "parallel/tensor",
    ),
    Mutant(
        "gather: backward keeps all shards' sum", "saved.parts[self.comm.rank]", "saved.parts[0]", "parallel/tensor"
    ),
    Mutant(
        "network: latency is ignored",
        "return self.alpha + nbytes / self.beta  # as in",
        "return nbytes / self.beta  # as in",
        "comm",
    ),
    Mutant(
        "batches: the last one is lost",
        "return -(-len(self.x) // self.batch_size)",
        "return len(self.x) // self.batch_size",
        "data",
    ),
    Mutant(
        "fit: a diverged run goes on",
        "if not math.isfinite(loss):  # every later",
        "if False:  # every later",
        "train",
    ),
    Mutant(
        "attention kernel: no rescaling of what was seen",
        "float less = expf(top - above), e = expf(s - above);",
        "float less = 1.0f, e = expf(s - above);",
        "cuda -k attention",
    ),
    Mutant("attention kernel: no mask", "(!causal || col <= row)", "(!causal || col <= m)", "cuda -k attention"),
    # added before the tests of strategies and layers were thinned
    Mutant(
        "local SGD: ranks count alike",
        "self._samples += part\n",
        "self._samples += 1\n",
        "parallel/test_local_sgd.py tests/parallel/test_differential.py",
    ),
    Mutant(
        "naive: the loss of a rank's own part",
        "        update(self.optimizer, self.clock)\n        return float(sums[0])",
        "        update(self.optimizer, self.clock)\n        return loss",
        "parallel/test_differential.py",
    ),
    Mutant(
        "buckets: an assigned gradient stays outside",
        "                view[...] = p.grad\n                p.grad = view",
        "                p.grad = view",
        "parallel/test_misuse.py",
    ),
    Mutant(
        "ZeRO: every rank clips by its own norm",
        "self.optimizer.norm = lambda params: summed_norm(params, [comm], self.groups[0].own.data)",
        "pass",
        "parallel/test_differential.py",
    ),
    Mutant(
        "ZeRO: a tied layer's gradient leaves at its first use",
        "[group for group in piece.groups if group.pending == 0]",
        "list(piece.groups)",
        "parallel/test_zero.py tests/parallel/test_differential.py",
    ),
    Mutant(
        "pipeline: stages do not sum what they share",
        "        self._run(batch, report)\n        self._stage_params.sum_tied()\n",
        "        self._run(batch, report)\n",
        "parallel/test_differential.py",
    ),
    Mutant(
        "pipeline: a shared parameter counts twice in the norm",
        "return summed_norm(self.counted(params), [self.comm], self.like)",
        "return summed_norm(params, [self.comm], self.like)",
        "parallel/test_differential.py tests/parallel/pipeline",
    ),
    Mutant(
        "zero bubble: the first weight gradient is lost",
        "for add, *about in self._saved.pop((action.stage, action.microbatch)):",
        "for add, *about in self._saved.pop((action.stage, action.microbatch))[1:]:",
        "parallel/test_differential.py tests/parallel/pipeline",
    ),
    Mutant(
        "hybrid: whole parameters count once a rank in the norm",
        "mine = [p for p in self.pipeline.counted(params) if self.mesh.tp.rank == 0 or p.name in self.specs]",
        "mine = self.pipeline.counted(params)",
        "parallel/test_differential.py",
    ),
    Mutant(
        "ring attention: gradients of keys stay one rank short",
        "            if self.comm.size > 1:\n                sent,",
        "            if source != (self.comm.rank + 1) % self.comm.size:\n                sent,",
        "parallel/sequence tests/parallel/test_differential.py",
    ),
    Mutant(
        "sequence: the mean is over a rank's positions",
        "Batch(x, labels, batch.n * self.comm.size)",
        "Batch(x, labels, batch.n)",
        "parallel/sequence tests/parallel/test_differential.py",
    ),
    Mutant(
        "heads: every rank adds the bias",
        "out.b = Param(get_xp(self.b.data).zeros_like(self.b.data))",
        "out.b = Param(self.b.data.copy())",
        "parallel/tensor tests/parallel/test_differential.py",
    ),
    Mutant(
        "checkpoints: later ones count among those kept",
        "for old in [s for s in self.steps if s <= step][: -self.keep]:",
        "for old in self.steps[: -self.keep]:",
        "parallel/test_checkpoint.py",
    ),
    Mutant(
        "state: masks of ranks that saw other samples",
        'if len(by_rank) == world.size and scalars["layout"] == strategy.layout:',
        "if len(by_rank) == world.size:",
        "parallel/test_checkpoint_sharded.py tests/parallel/test_state.py",
    ),
    Mutant(
        "codes: the error of what was sent before is forgotten",
        "x = x + self.errors[which]",
        "x = x + 0 * self.errors[which]",
        "parallel/test_compress.py",
    ),
    Mutant(
        "codes: what they have left out is not saved",
        "return {place + which: e for place, reducer in self._places() for which, e in reducer.errors.items()}",
        "return {}",
        "parallel/test_checkpoint_ranks.py",
    ),
    Mutant(
        "recompute: backward draws new masks",
        "        with drawing_from(self, before):\n            _, kept = self.layers[0].forward(x)\n",
        "        _, kept = self.layers[0].forward(x)\n",
        "nn/test_layers.py",
    ),
    Mutant(
        "best_plan: the input of what comes later takes no memory",
        "right[inputs[k] :] = again[k, j][: max(0, room + 1 - inputs[k])]",
        "right[:] = again[k, j]",
        "nn/test_recompute.py",
    ),
    Mutant(
        "ZeRO: the last layer's parameters are let go before backward",
        "            if group not in kept:",
        "            if True:",
        "parallel/test_zero.py",
    ),
    Mutant(
        "meta arrays: a copy is a view",
        '    def copy(self, order: str = "C") -> MetaArray:\n        return MetaArray(self.shape, self.dtype)',
        '    def copy(self, order: str = "C") -> MetaArray:\n        return self',
        "parallel/test_memory.py",
    ),
    Mutant(
        "dropout: no scale",
        "        x *= 1 / (1 - self.p)\n        return x",
        "        return x",
        "nn/test_layers.py tests/nn/test_devices.py",
    ),
]
