"""Random kernels, each with the same computation in NumPy.

A generated kernel has four variables per thread, of which it computes new ones by assignments, branches, loops,
exchanges through shared memory, shuffles, votes and atomics. Each piece is its text and a function that does the same
for the variables of all threads of a launch, arrays of shape (blocks, threads).
"""

import numpy as np

f32, i32 = np.float32, np.int32
FLOATS, INTS = ("a", "b"), ("i", "j")


def convert(x):
    """What `(int)x` is on a card."""
    return np.nan_to_num(np.clip(np.trunc(x.astype(float)), -(2**31), 2**31 - 1), nan=0).astype(i32)


def quotient(a, n):
    return (np.sign(a.astype(np.int64)) * (np.abs(a.astype(np.int64)) // n)).astype(i32)


class Generator:
    """Writes one kernel; `random` says what comes next."""

    def __init__(self, random):
        self.random = random

    def float(self, depth):
        """A float expression: its text, and its value from the variables."""
        pick = self.random.randrange(10 if depth else 3)
        if pick == 0:
            name = self.random.choice(FLOATS)
            return name, lambda v: v[name]
        if pick == 1:
            value = self.random.choice([0.0, 1.0, -2.5, 0.1, 1e30, 3e-20, 7.0])
            return f"({value!r}f)", lambda v: np.full_like(v["a"], value)
        if pick == 2:
            text, index = self.int(depth - 1 if depth else 0)
            return f"x[(unsigned)({text}) % n]", lambda v: v["x"][index(v).view(np.uint32) % np.uint32(v["n"])]
        if pick == 3:
            text, value = self.int(depth - 1)
            return f"(float)({text})", lambda v: value(v).astype(f32)
        (s, p), (t, q) = self.float(depth - 1), self.float(depth - 1)
        if pick == 4:
            return f"max({s}, {t})", lambda v: np.fmax(p(v), q(v))
        if pick == 5:
            return f"fminf({s}, {t})", lambda v: np.fmin(p(v), q(v))
        if pick == 6:
            return f"sqrtf(fabsf({s}))", lambda v: np.sqrt(np.abs(p(v)))
        if pick == 7:
            c, condition = self.condition(depth - 1)
            return f"({c} ? {s} : {t})", lambda v: np.where(condition(v), p(v), q(v))
        sign = self.random.choice("+-*")
        operate = {"+": np.add, "-": np.subtract, "*": np.multiply}[sign]
        return f"({s} {sign} {t})", lambda v: operate(p(v), q(v))

    def int(self, depth):
        """An int expression."""
        pick = self.random.randrange(9 if depth else 3)
        if pick == 0:
            name = self.random.choice(INTS)
            return name, lambda v: v[name]
        if pick == 1:
            value = self.random.choice([0, 1, -1, 5, 31, 33, 1000, 2**31 - 1])
            return f"({value})", lambda v: np.full_like(v["i"], value)
        if pick == 2:
            name = self.random.choice(["t", "block", "n"])
            return name, lambda v: np.broadcast_to(v[name], v["i"].shape).astype(i32)
        if pick == 3:
            text, value = self.float(depth - 1)
            return f"(int)({text})", lambda v: convert(value(v))
        (s, p), (t, q) = self.int(depth - 1), self.int(depth - 1)
        if pick == 4:
            left = self.random.random() < 0.5
            operate = np.left_shift if left else np.right_shift
            return f"(({s}) {'<<' if left else '>>'} ({t} & 31))", lambda v: operate(p(v), q(v) & i32(31))
        if pick == 5:
            n = self.random.choice([2, 3, 7, 64])
            return f"(({s}) / {n})", lambda v: quotient(p(v), n)
        if pick == 6:
            n = self.random.choice([2, 5, 32])
            return f"(({s}) % {n})", lambda v: (p(v) - quotient(p(v), n) * i32(n)).astype(i32)
        sign = self.random.choice("+-*&|^")
        operate = {"+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or,
                   "^": np.bitwise_xor}[sign]  # fmt: skip
        return f"({s} {sign} {t})", lambda v: operate(p(v), q(v))

    def condition(self, depth):
        """A comparison."""
        (s, p), (t, q) = (self.float if self.random.random() < 0.5 else self.int)(depth), self.int(0)
        sign = self.random.choice(["<", ">=", "==", "!="])
        operate = {"<": np.less, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}[sign]

        def compare(v):
            left, right = p(v), q(v)
            return operate(left, right.astype(left.dtype))

        return f"({s} {sign} {t})", compare

    def assignment(self):
        name = self.random.choice(FLOATS + INTS)
        text, value = (self.float if name in FLOATS else self.int)(3)

        def run(v, mask):
            v[name] = np.where(mask, value(v), v[name])

        return [f"{name} = {text};"], run

    def branch(self):
        text, condition = self.condition(2)
        (then, run_then), (other, run_other) = self.block(2, flat=True), self.block(1, flat=True)

        def run(v, mask):
            taken = condition(v)
            run_then(v, mask & taken)
            run_other(v, mask & ~taken)

        return [f"if {text} {{", *then, "} else {", *other, "}"], run

    def loop(self):
        text, times = self.int(2)
        body, run_body = self.block(2, flat=True)

        def run(v, mask):
            turns = (times(v).view(np.uint32) % np.uint32(5)).astype(int)
            for turn in range(5):
                run_body(v, mask & (turn < turns))

        return [f"for (unsigned k = 0, turns = (unsigned)({text}) % 5; k < turns; k++) {{", *body, "}"], run

    def exchange(self):
        """Through shared memory: only where all threads come by."""
        name, step = self.random.choice(FLOATS), self.random.randrange(1, 200)

        def run(v, _):
            v[name] = v[name][:, (np.arange(v[name].shape[1]) + step) % v[name].shape[1]]

        swap = f"s[t] = {name}; __syncthreads(); {name} = s[(t + {step}) % blockDim.x]; __syncthreads();"
        return [swap], run

    def shuffle(self):
        name, lanes = self.random.choice(FLOATS + INTS), self.random.choice([1, 2, 5, 16, 31])

        def run(v, _):
            v[name] = v[name][:, np.arange(v[name].shape[1]) ^ lanes]

        return [f"{name} = __shfl_xor_sync(~0u, {name}, {lanes});"], run

    def vote(self):
        text, condition = self.condition(2)

        def run(v, _):
            votes = condition(v).reshape(len(v["i"]), -1, 32)
            mask = (votes.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(-1, dtype=np.uint32)
            v["i"] = np.repeat(mask.view(i32), 32, axis=1)

        return [f"i = (int)__ballot_sync(~0u, {text});"], run

    def atomic(self):
        (at, index), (text, value) = self.int(2), self.int(2)

        def run(v, _):
            np.add.at(v["sums"], (index(v).view(np.uint32) % np.uint32(8)).ravel(), value(v).ravel())

        return [f"atomicAdd(&sums[(unsigned)({at}) % 8], {text});"], run

    def block(self, length, flat=False):
        """Statements one after another; a `flat` block may stand where threads have gone different ways."""
        kinds = [self.assignment] * 3
        kinds += [] if flat else [self.branch, self.loop, self.exchange, self.shuffle, self.vote, self.atomic]
        parts = [self.random.choice(kinds)() for _ in range(length)]

        def run(v, mask):
            for _, step in parts:
                step(v, mask)

        return [line for lines, _ in parts for line in lines], run

    def kernel(self):
        """Return the source, and a function of (blocks, threads, x, n) that returns what y and sums hold after it."""
        lines, run = self.block(self.random.randrange(2, 9))
        source = "\n    ".join([
            'extern "C" __global__ void k(const float* x, float* y, int* sums, int n) {',
            "__shared__ float s[256]; s[threadIdx.x] = 0;",
            "int t = threadIdx.x, block = blockIdx.x, i = t * 3, j = block - t;",
            "float a = x[t % n], b = 0.5f;", *lines,
            "unsigned g = (block * blockDim.x + t) * 4;",
            "y[g] = a; y[g + 1] = b; y[g + 2] = (float)i; y[g + 3] = (float)j;",
        ]) + "\n}"  # fmt: skip

        def expected(blocks, threads, x, n):
            t = np.broadcast_to(np.arange(threads, dtype=i32), (blocks, threads))
            block = np.broadcast_to(np.arange(blocks, dtype=i32)[:, None], t.shape)
            v = {"t": t, "block": block, "n": i32(n), "x": x, "i": t * i32(3), "j": block - t, "a": x[t % n],
                 "b": np.full(t.shape, f32(0.5)), "sums": np.zeros(8, i32)}  # fmt: skip
            with np.errstate(all="ignore"):
                run(v, np.ones(t.shape, bool))
            return np.stack([v["a"], v["b"], v["i"].astype(f32), v["j"].astype(f32)], -1), v["sums"]

        return source, expected
