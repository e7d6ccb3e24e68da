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


BOTH = [("({} + {})", np.add), ("({} - {})", np.subtract), ("({} * {})", np.multiply)]
BITS = [("({} & {})", np.bitwise_and), ("({} | {})", np.bitwise_or), ("({} ^ {})", np.bitwise_xor)]
BITS += [("({} << ({} & 31))", lambda i, n: i << (n & i32(31))), ("({} >> ({} & 31))", lambda i, n: i >> (n & i32(31)))]
COMPARISONS = [("({} < {})", np.less), ("({} >= {})", np.greater_equal), ("({} == {})", np.equal),
               ("({} != {})", np.not_equal)]  # fmt: skip
EXPRESSIONS = {  # kind: its text, with a place for each part; the parts' kinds; its value from theirs
    "float": [
        ("(float)({})", "int", lambda i: i.astype(f32)), ("({} ? {} : {})", "condition float float", np.where),
        ("max({}, {})", "float float", np.fmax), ("min({}, {})", "float float", np.fmin),
        ("sqrtf(fabsf({}))", "float", lambda a: np.sqrt(np.abs(a))),
        *((text, "float float", value) for text, value in BOTH),
    ],
    "int": [
        ("(int)({})", "float", convert), ("__float2int_rz({})", "float", convert),
        *((text, "int int", value) for text, value in BOTH + BITS),
        *((f"({{}} / {n})", "int", lambda i, n=n: quotient(i, n)) for n in (3, 64)),
        *((f"({{}} % {n})", "int", lambda i, n=n: i - quotient(i, n) * i32(n)) for n in (5, 32)),
    ],
    "condition": [
        (text, parts, lambda a, b, value=value: value(a, b.astype(a.dtype)))
        for parts in ("float int", "int int") for text, value in COMPARISONS
    ],
}  # fmt: skip
NAMES = {"float": FLOATS, "int": (*INTS, "t", "block", "n")}
NUMBERS = {"float": (0.0, 1.0, -2.5, 0.1, 1e30, 3e-20, 7.0), "int": (0, 1, -1, 5, 31, 33, 1000, 2**31 - 1)}


class Generator:
    """Writes one kernel; `random` says what comes next."""

    def __init__(self, random):
        self.random = random

    def expression(self, kind, depth):
        """A float, an int or a condition: its text, and its value from the variables."""
        if kind == "condition" or (depth > 0 and self.random.random() < 0.7):
            text, kinds, value = self.random.choice(EXPRESSIONS[kind])
            parts = [self.expression(part, depth - 1) for part in kinds.split()]
            return text.format(*(t for t, _ in parts)), lambda v: value(*(of(v) for _, of in parts))
        pick = self.random.randrange(3)
        if pick == 0:
            number = self.random.choice(NUMBERS[kind])
            return f"({number!r}{'f' * (kind == 'float')})", lambda v: np.full_like(v[NAMES[kind][0]], number)
        if pick == 1 and kind == "float":
            text, index = self.expression("int", depth - 1)
            return f"x[(unsigned)({text}) % n]", lambda v: v["x"][index(v).view(np.uint32) % np.uint32(v["n"])]
        name = self.random.choice(NAMES[kind])
        return name, lambda v: np.broadcast_to(v[name], v["i"].shape)

    def assignment(self):
        name = self.random.choice(FLOATS + INTS)
        text, value = self.expression("float" if name in FLOATS else "int", 3)

        def run(v, mask):
            v[name] = np.where(mask, value(v), v[name])

        return [f"{name} = {text};"], run

    def branch(self):
        text, condition = self.expression("condition", 2)
        (then, run_then), (other, run_other) = self.block(2, flat=True), self.block(1, flat=True)

        def run(v, mask):
            taken = condition(v)
            run_then(v, mask & taken)
            run_other(v, mask & ~taken)

        return [f"if {text} {{", *then, "} else {", *other, "}"], run

    def loop(self):
        text, times = self.expression("int", 2)
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
        text, condition = self.expression("condition", 2)

        def run(v, _):
            votes = condition(v).reshape(len(v["i"]), -1, 32)
            mask = (votes.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(-1, dtype=np.uint32)
            v["i"] = np.repeat(mask.view(i32), 32, axis=1)

        return [f"i = (int)__ballot_sync(~0u, {text});"], run

    def atomic(self):
        (at, index), (text, value) = (self.expression("int", 2) for _ in range(2))

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
