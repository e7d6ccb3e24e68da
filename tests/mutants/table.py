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
        "(self.alpha + nbytes / self.beta)\n            card.free = arrival - self.alpha\n            self.record(",
        "self.alpha\n            card.free = arrival - self.alpha\n            self.record(",
        "sim",
    ),
    Mutant(
        "sim: a card is never busy",
        "card.free = arrival - self.alpha\n            self.record(",
        "card.free = now\n            self.record(",
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
        "self.W.add_product(x.T, dy)\n            self.b.add(column_sums(dy))",
        "self.W.add_product(x.T, dy)\n            self.b.add(column_sums(dy) / len(dy))",
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
        "n, on_gpu = len(logits) if n is None else n, can_launch(logits)",
        "n, on_gpu = len(logits), can_launch(logits)",
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
        "parallel/test_accumulate.py",
    ),
    Mutant(
        "accumulation: the loss of the last piece",
        "self.reducer.sums[0] += loss\n            self.reducer.sums[1] += len(x)",
        "self.reducer.sums[0] = loss\n            self.reducer.sums[1] += len(x)",
        "parallel/test_accumulate.py",
    ),
    Mutant(
        "noise scale: weights of the parts",
        "self.reducer.squared_norm * batch.n / mine",
        "self.reducer.squared_norm * mine / batch.n",
        "optim",
    ),
    Mutant(
        "ZeRO: the gathered parameters stay",
        "            self.full = None\n            self.ledger.take(-self._full_bytes)",
        "            self.ledger.take(-self._full_bytes)",
        "parallel/test_zero.py",
    ),
    Mutant(
        "ZeRO: updated parts are not published",
        "self.full[...] = everything.reshape(-1)",
        "everything.reshape(-1)",
        "parallel/test_zero.py",
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
        "if self.sum_output or self.comm.rank == 0:\n            y += self.b.data",
        "if True:\n            y += self.b.data",
        "parallel/tensor",
    ),
    Mutant(
        "row parallel: no all-reduce",
        "        if self.sum_output:\n            self.comm.all_reduce(y)\n",
        "",
        "parallel/tensor",
    ),
    Mutant(
        "gather: backward keeps all shards' sum",
        "saved.parts[self.comm.rank]",
        "saved.parts[0]",
        "parallel/tensor",
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
        "_stop_if_diverged(loss, now.step + 1)",
        "_stop_if_diverged(0.0, now.step + 1)",
        "train",
    ),
    Mutant(
        "attention kernel: no rescaling of what was seen",
        "float less = expf(top - above), e = expf(s - above);",
        "float less = 1.0f, e = expf(s - above);",
        "cuda -k attention",
    ),
    Mutant("attention kernel: no mask", "(!causal || col <= row)", "(!causal || col <= m)", "cuda -k attention"),
]
