"""One mistake in a right kernel of shared memory, shuffles and barriers: each is named at the line it stands in."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel

RIGHT = """extern "C" __global__ void normalise(const float* x, float* y, int n) {
    __shared__ float part[4], total, row[128];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int i = blockIdx.x * 128 + t;
    float v = i < n ? x[i] : 0.0f;
    row[t] = v;
    float sum = v * v;
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (t == 0) {
        float all = 0.0f;
        for (int w = 0; w < 4; w++)
            all += part[w];
        total = rsqrtf(all + 1.0f);
    }
    __syncthreads();
    float left = row[(t + 127) % 128];
    if (i < n) y[i] = (v + left) * total;
}"""
MUTANTS = [  # a piece of the text, what it becomes, kind and line of the finding (of a loop: several)
    ("i < n ? x[i] : 0.0f", "x[i]", "out-of-bounds", 5),
    ("if (i < n) y", "y", "out-of-bounds", 20),
    ("row[t] = v", "row[t + 1] = v", "out-of-bounds", 6),
    ("w < 4", "w <= 4", "out-of-bounds", 15),
    ("(t + 127) % 128", "t + 1", "out-of-bounds", 19),
    ("x[i] : 0", "x[i * 1000003] : 0", "out-of-bounds", 5),
    ("    __syncthreads();\n    if", "\n    if", "race", 15),
    ("    __syncthreads();\n    float left", "\n    float left", "race", 20),
    ("if (lane == 0) part", "part", "race", 10),
    ("y[i]", "y[i / 2]", "race", 20),
    ("y[i]", "y[t]", "race-between-blocks", 20),
    ("row[t] = v", "row[t / 2] = v", "race", 6),
    ("lane == 0", "lane == 0 && warp < 3", "uninitialised", 15),
    ("total = rsqrtf", "if (all < 0) total = rsqrtf", "uninitialised", 20),
    ("    row[t] = v", "    if (t) row[t] = v", "uninitialised", 19),
    ("0xffffffffu", "0x0000ffffu", "missing-lanes", 9),
    ("for (int d", "if (t != 5) for (int d", "missing-lanes", 9),
    (
        "(0xffffffffu, sum, d)",
        "(0xffffffffu, sum, 32 - d) + (lane < d ? __shfl_sync(~0u, sum, 3) : 0)",
        "missing-lanes",
        9,
    ),
    ("if (t == 0) {", "if (t == 0) { __syncthreads();", "divergent-barrier", 12),
    ("d > 0", "d >= 0", "infinite-loop", (8, 9)),
    ("x[i] :", "(float)*(const double*)(x + i) :", "misaligned", 5),
    ("t / 32", "t / (t - t)", "division-by-zero", 3),
    ("all = 0.0f;", "all = 0.0f; assert(n < 100);", "assertion-failed", 13),
    ("row[t] = v;", "row[t] = v; ((float*)x)[i % n] = v;", "write-through-const", 6),
]  # fmt: skip


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize(("old", "new", "kind", "line"), MUTANTS, ids=[new.strip()[:40] for _, new, _, _ in MUTANTS])
def test_mutant(old, new, kind, line):
    assert RIGHT.count(old) == 1
    x = np.random.default_rng(0).random(200, dtype=np.float32)
    kernel = RawKernel(RIGHT.replace(old, new), "normalise")
    report = kernel.check((2,), (128,), (x, np.zeros(200, np.float32), np.int32(200)), time_limit=0.5)
    assert report.errors[0].kind == kind, str(report)
    assert report.errors[0].line in np.atleast_1d(line), str(report)


def test_without_a_mistake():
    x = np.random.default_rng(0).random(200, dtype=np.float32)
    report = RawKernel(RIGHT, "normalise").check((2,), (128,), (x, np.zeros(200, np.float32), np.int32(200)))
    assert report.errors == report.warnings == []
