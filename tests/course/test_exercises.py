"""Checks made of results: tables are up to date, every mistake is named, and the cases let nothing else through."""

import nbformat
import numpy as np
import pytest
from distcourse import exercise
from distcourse.author import source_notebooks
from distcourse.author.exercise import Exercise, Solved, differs, edited
from distcourse.author.strength import survivors
from distcourse.check import CheckFailed
from nbformat.v4 import new_code_cell, new_notebook

from .conftest import COURSE, only_if_thorough

FOLDERS = {p.stem: p.parent for p in source_notebooks(COURSE) if (p.parent / "exercises.py").is_file()}
SOLVED = {lab: Solved(folder) for lab, folder in FOLDERS.items()}
EXERCISES = [(lab, name) for lab, solved in SOLVED.items() for name in solved.exercises]
OTHERWISE = {
    "weighted_mean": [
        "def weighted_mean(gradients, counts):\n"
        "    w = np.array(counts, gradients[0].dtype) / sum(counts)\n"
        "    return np.einsum('p,pd->d', w.astype(gradients[0].dtype), np.array(gradients))",
        "def weighted_mean(gradients, counts):\n"
        "    return np.average(gradients, axis=0, weights=counts).astype(gradients[0].dtype)",
    ],
    "scaled_lr": [
        "def scaled_lr(lr, batch_size, base_batch_size, warmup_steps=0):\n"
        "    k, W = np.float64(batch_size) / base_batch_size, warmup_steps\n"
        "    return lambda t: lr * k if t >= W else lr * (1 - t / W) + lr * k * t / W"
    ],
    "predicted_speedup": [
        "def predicted_speedup(t, m, p, c, a, b):\n"
        "    return np.array(1 / (max(1 / p, 1 / c) + (2 * (p - 1) * a + 2 * m * (p - 1) / p / b) / t))"
    ],
    "data_parallel_step": [
        "def data_parallel_step(comm, model, loss, optimizer, batch):\n"
        "    for p in model.params: p.grad[...] = 0\n"
        "    y, saved = model.forward(batch.x)\n"
        "    value, dy = loss(y, batch.y, batch.n)\n"
        "    model.backward(dy, saved)\n"
        "    works = [comm.iall_reduce(p.grad) for p in reversed(model.params)]\n"
        "    for work in works: work.wait()\n"
        "    optimizer.step()\n"
        "    return comm.all_reduce(np.array(value))"
    ],
    "step_bytes": [
        "def step_bytes(sizes, batch, arrays, itemsize=4):\n"
        "    n = sum(a * b + b for a, b in zip(sizes, sizes[1:])) * itemsize\n"
        "    held = {'saved': sum(sizes[1:]) * batch * itemsize, 'batch': sizes[0] * batch * itemsize + 8 * batch}\n"
        "    return {**held, 'optimizer': arrays * n, 'gradients': n, 'parameters': n}"
    ],
    "light_forward": [
        "def light_forward(block, x):\n"
        f"    return block.forward(x)[0], {kept}\n"
        "def light_backward(block, dy, kept):\n"
        f"    return block.backward(dy, block.forward({back})[1])"
        for kept, back in (
            ("{'x': x}", "kept['x']"),
            ("lambda: x", "kept()"),
            ("type('Kept', (), {'x': x})()", "kept.x"),
        )
    ],
    "plan": [
        "def plan(forward, inputs, saved, budget):\n"
        "    def best(i, j, room):\n"
        "        if sum(saved[i:j]) <= room: return 0, list(range(i, j))\n"
        "        found = 1e99, None\n"
        "        for k in reversed(range(i + 1, j)):\n"
        "            (b, right) = best(k, j, room - inputs[k]) if room >= inputs[k] else (1e99, None)\n"
        "            (a, left) = best(i, k, room) if b < 1e99 else (1e99, None)\n"
        "            found = min(found, (a + b + sum(forward[i:k]), (left, right)), key=lambda pair: pair[0])\n"
        "        return found\n"
        "    return best(0, len(saved), budget)[1]"
    ],
    "nvfp4": [
        "def nvfp4(x):\n"
        "    if x.ndim > 1: \n"
        "        big = abs(x).max()\n"
        "        return np.array([_rows(row, big) for row in x.reshape(-1, x.shape[-1])], 'float32').reshape(x.shape)\n"
        "    return _rows(x, abs(x).max())\n"
        "def _rows(x, big):\n"
        "    t, out = big / np.float32(2688) or np.float32(1), np.zeros_like(x)\n"
        "    for k in range(0, len(x), 16):\n"
        "        part = x[k : k + 16]\n"
        "        s = e4m3(np.float32([abs(part).max() / 6 / t]))[0] * t\n"
        "        if s == 0: continue\n"
        "        off = abs(abs(part / s)[:, None] - GRID) + np.arange(8) % 2 * 1e-12\n"
        "        out[k : k + 16] = np.copysign(GRID[off.argmin(axis=1)], part) * s\n"
        "    return out"
    ],
    "attend": [
        "def attend(q, k, v, causal=False):\n"
        "    s = np.einsum('...nd,...md->...nm', q / q.shape[-1] ** 0.5, k)\n"
        "    if causal:\n"
        "        s = s + np.where(np.arange(len(s.T)) > np.arange(len(s.T))[:, None], -np.inf, 0).astype(s.dtype)\n"
        "    p = np.exp(s - s.max(-1, keepdims=True))\n"
        "    p /= p.sum(-1, keepdims=True)\n"
        "    return np.einsum('...nm,...md->...nd', p, v), p",
        "from scipy.special import softmax\n"
        "def attend(q, k, v, causal=False):\n"
        "    if q.ndim > 2:\n"
        "        heads = [attend(*head, causal) for head in zip(q, k, v)]\n"
        "        return tuple(np.stack(parts) for parts in zip(*heads))\n"
        "    s = q.astype(float) @ k.T.astype(float) * q.shape[1] ** -0.5\n"
        "    for i in range(len(s) * causal):\n"
        "        s[i, i + 1 :] = -np.inf\n"
        "    p = softmax(s, axis=1)\n"
        "    return [(p @ v).astype(q.dtype), p.astype(q.dtype)]",
    ],
    "attend_backward": [
        "def attend_backward(dy, q, k, v, p):\n"
        "    root, dp = q.shape[-1] ** 0.5, np.einsum('...nd,...md->...nm', dy, v)\n"
        "    ds = p * dp - p * np.einsum('...nm,...nm->...n', p, dp)[..., None]\n"
        "    dq, dk = np.einsum('...nm,...md->...nd', ds, k), np.einsum('...nm,...nd->...md', ds, q)\n"
        "    return dq / root, dk / root, np.einsum('...nm,...nd->...md', p, dy)"
    ],
    "merge": [
        "def merge(a, b):\n"
        "    (m, l, o), (n, k, u) = a, b\n"
        "    top = np.where(m > n, m, n)\n"
        "    x, y = (np.where(side == top, 1, np.exp(side - top)).astype(o.dtype) for side in (m, n))\n"
        "    return [top, l * x + k * y, o * x + u * y]",
        "def merge(a, b):\n"
        "    top = np.maximum(a[0], b[0])\n"
        "    x, y = (np.exp(np.fmax(side[0] - top, -5e4)) for side in (a, b))\n"
        "    return top, x * a[1] + y * b[1], x * a[2] + y * b[2]",
    ],
    "flash": [
        "def flash():\n"
        "    return TILE + r'''extern \"C\" __global__ void flash(\n"
        "        const float* q, const float* k, const float* v, float* y, int n, int m) {\n"
        "    __shared__ float ks[B][D], vs[B][D];\n"
        "    int row = blockIdx.x * B + threadIdx.x;\n"
        "    float mine[D] = {}, out[D] = {}, s[B], top = NOTHING, total = 0;\n"
        "    if (row < n) for (int c = 0; c < D; c++) mine[c] = q[row * D + c] * 0.25f;\n"
        "    for (int first = 0; first < m; first += B) {\n"
        "        if (first) __syncthreads();\n"
        "        fetch(vs, v, first, m); fetch(ks, k, first, m);\n"
        "        __syncthreads();\n"
        "        int here = min(B, m - first);\n"
        "        float above = top;\n"
        "        for (int j = 0; j < here; j++) above = fmaxf(above, s[j] = dot(ks[j], mine));\n"
        "        float less = __expf(top - above);\n"
        "        total *= less, top = above;\n"
        "        for (int c = 0; c < D; c++) out[c] *= less;\n"
        "        for (int j = here - 1; j >= 0; j--) {\n"
        "            float e = expf(s[j] - top);\n"
        "            total += e;\n"
        "            for (int c = 0; c < D; c++) out[c] = fmaf(e, vs[j][c], out[c]);\n"
        "        }\n"
        "    }\n"
        "    if (row >= n) return;\n"
        "    for (int c = 0; c < D; c++) y[row * D + c] = out[c] * (1 / total);\n"
        "}'''"
    ],
    "ring_attend": [
        "def ring_attend(comm, q, k, v, where, merge):\n"
        "    p, r, both = comm.size, comm.rank, np.array([k, v])\n"
        "    seen = np.full((len(q), 1), -np.inf, q.dtype), np.zeros((len(q), 1), q.dtype), np.zeros_like(q)\n"
        "    for source in [(r - s) % p for s in range(p)]:\n"
        "        last = source == (r + 1) % p\n"
        "        coming = both.copy()\n"
        "        works = [] if last else [comm.isend(both, (r + 1) % p), comm.irecv(coming, r - 1 if r else p - 1)]\n"
        "        seen = merge(see(comm, q, *both, where[r], where[source]), seen)\n"
        "        for work in works: work.wait()\n"
        "        both = coming\n"
        "    m, l, o = seen\n"
        "    return o / l"
    ],
    "zigzag": [
        "def zigzag(n, p):\n"
        "    where, size = np.zeros((p, n // p), np.int32), n // p // 2\n"
        "    for r in range(p):\n"
        "        for i in range(size):\n"
        "            where[r, i], where[r, size + i] = r * size + i, n - (r + 1) * size + i\n"
        "    return where",
    ],
    "vector_add": [
        "def vector_add():\n"
        "    return r'''extern \"C\" __global__ void vector_add(const float* a, const float* b, float* c, int n) {\n"
        "    for (int i = threadIdx.x + blockDim.x * blockIdx.x; i < n; i += blockDim.x * gridDim.x)\n"
        "        *(c + i) = b[i] + *(a + i);\n"
        "}'''",
        "def vector_add():\n"
        "    return r'''extern \"C\" __global__ void vector_add(const float* a, const float* b, float* c, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    while (n > i) {\n"
        "        c[i] = __fadd_rn(a[i], b[i]);\n"
        "        i += gridDim.x * blockDim.x;\n"
        "    }\n"
        "}'''",
    ],
    "matmul": [
        "def matmul():\n"
        "    return r'''extern \"C\" __global__ void matmul(\n"
        "        const float* A, const float* B, float* C, int m, int n, int k) {\n"
        "    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;\n"
        "    if (r < m && c < n) {\n"
        "        double sum = 0;\n"
        "        for (int i = k - 1; i >= 0; i--) sum = fma((double)A[r * k + i], (double)B[i * n + c], sum);\n"
        "        C[r * n + c] = (float)sum;\n"
        "    }\n"
        "}'''",
    ],
    "tiled": [
        "def tiled():\n"
        "    return r'''extern \"C\" __global__ void tiled(\n"
        "        const float* A, const float* B, float* C, int m, int n, int k) {\n"
        "    __shared__ float a[256], b[16][16];\n"
        "    int x = threadIdx.x, y = threadIdx.y;\n"
        "    int r = blockIdx.y * 16 + y, c = blockIdx.x * 16 + x;\n"
        "    float sum = 0;\n"
        "    for (int tile = 0; tile < (k + 15) / 16; tile++) {\n"
        "        if (tile > 0) __syncthreads();\n"
        "        int i = tile * 16 + x, j = tile * 16 + y;\n"
        "        a[y * 16 + x] = (r < m && i < k) ? A[r * k + i] : 0;\n"
        "        b[y][x] = 0;\n"
        "        if (c < n && j < k) b[y][x] = B[j * n + c];\n"
        "        __syncthreads();\n"
        "        for (int i = 15; i >= 0; i--) sum = fmaf(b[i][x], a[y * 16 + i], sum);\n"
        "    }\n"
        "    if (r >= m || c >= n) return;\n"
        "    C[r * n + c] = sum;\n"
        "}'''",
    ],
    "block_sum": [
        "def block_sum():\n"
        "    return r'''extern \"C\" __global__ void block_sum(const float* x, float* out, int n) {\n"
        "    __shared__ float s[512];\n"
        "    unsigned t = threadIdx.x, h = blockDim.x, i = blockIdx.x * h + t;\n"
        "    float mine = i < n ? x[i] : 0;\n"
        "    s[t] = mine;\n"
        "    for (h >>= 1; h; h >>= 1) {\n"
        "        __syncthreads();\n"
        "        if (t < h) s[t] = mine = mine + s[t + h];\n"
        "    }\n"
        "    if (t == 0) out[blockIdx.x] = mine;\n"
        "}'''",
    ],
    "softmax": [
        "def softmax():\n"
        "    return COMBINE + r'''extern \"C\" __global__ void softmax(const float* z, float* p, int k) {\n"
        "    __shared__ float s[256];\n"
        "    z += blockIdx.x * k; p += blockIdx.x * k;\n"
        "    float top = -INFINITY, sum = 0;\n"
        "    for (int j = threadIdx.x; j < k; j += blockDim.x) top = max(top, z[j]);\n"
        "    top = combine(s, top, true);\n"
        "    for (int j = threadIdx.x; j < k; j += blockDim.x) sum += p[j] = expf(z[j] - top);\n"
        "    sum = 1 / combine(s, sum, false);\n"
        "    for (int j = threadIdx.x; j < k; j += blockDim.x) p[j] *= sum;\n"
        "}'''",
    ],
    "dense_forward": [
        "class Dense(dl.nn.Layer):\n"
        '    def __init__(self, d_in, d_out, rng=0, dtype="float32"):\n'
        "        W = np.random.default_rng(rng).normal(0, np.sqrt(2 / d_in), (d_in, d_out))\n"
        '        self.W = dl.nn.Param(W.astype(dtype), "W")\n'
        '        self.b = dl.nn.Param(np.zeros(d_out, dtype), "b")\n'
        "        self.params = [self.W, self.b]\n"
        "    def forward(self, x):\n"
        "        W, b = [p.data for p in self.params]\n"
        '        return [np.einsum("bi,io->bo", x, W) + b[None], x]',
    ],
    "cross_entropy": [
        "def softmax_cross_entropy(logits, labels, n=None):\n"
        "    n, shifted = n or len(labels), (logits.T - logits.max(axis=1)).T\n"
        "    lse = np.log(np.exp(shifted).sum(1))\n"
        "    right = np.eye(logits.shape[1], dtype=logits.dtype)[labels]\n"
        "    loss = lse.sum() - (shifted * right).sum()\n"
        "    return loss / n, (np.exp(shifted - lse[:, None]) - right) / n",
        "def softmax_cross_entropy(logits, labels, n=None):\n"
        "    from scipy.special import logsumexp, softmax\n"
        "    n, z = len(logits) if n is None else n, logits.astype(float)\n"
        "    p, loss = softmax(z, axis=1), 0\n"
        "    for i, label in enumerate(labels):\n"
        "        loss += logsumexp(z[i] - z[i].max()) - (z[i, label] - z[i].max())\n"
        "        p[i, label] -= 1\n"
        "    return np.array(loss / n), (p / n).astype(logits.dtype)",
    ],
    "numeric_gradient": [
        "def numeric_gradient(f, x, eps=1e-6):\n"
        "    gradient, flat = [], x.reshape(-1)\n"
        "    for k in range(x.size):\n"
        "        flat[k] += eps\n"
        "        above = f()\n"
        "        flat[k] -= 2 * eps\n"
        "        gradient.append((above - f()) / eps / 2)\n"
        "        flat[k] += eps\n"
        "    return np.array(gradient).reshape(x.shape)",
    ],
    "activations": [
        "class ReLU(dl.nn.Layer):\n"
        "    def forward(self, x):\n"
        "        return np.where(x > 0, x, 0).astype(x.dtype), x > 0\n"
        "    def backward(self, dy, saved):\n"
        "        dy[~saved] = 0\n"
        "        return dy\n"
        "class Sigmoid(dl.nn.Layer):\n"
        "    def forward(self, x):\n"
        "        y = ((1 + np.tanh(x / 2)) / 2).astype(x.dtype)\n"
        "        return y, y\n"
        "    def backward(self, dy, saved):\n"
        "        return dy * (saved - saved**2)",
    ],
    "dense_backward": [
        "def dense_backward(layer, dy, saved):\n"
        '    dx, ones = np.einsum("bo,io->bi", dy, layer.W.data), np.ones(len(dy), dy.dtype)\n'
        "    np.add(layer.b.grad, ones @ dy, out=layer.b.grad)\n"
        "    for row, gradient in zip(saved, dy):\n"
        "        layer.W.grad[...] = layer.W.grad + np.outer(row, gradient)\n"
        "    return dx",
    ],
    "sgd": [
        "class SGD:\n"
        "    def init(self, data):\n"
        "        pass\n"
        "    def update(self, data, grad, state, lr, step):\n"
        "        data[...] = data + grad * -lr",
        "class SGD:\n"
        "    def init(self, data): return None\n"
        "    def update(self, data, grad, state, lr, step):\n"
        "        for i in np.ndindex(data.shape):\n"
        "            data[i] -= lr * grad[i]\n"
        "        return data",
    ],
    ("lab01", "step"): [
        "class Trainer(dl.Serial):\n"
        "    def step(self, batch):\n"
        "        net, opt = self.model, self.optimizer\n"
        "        for p in net.params: p.grad[...] = 0\n"
        "        y, saved = net.forward(batch.x)\n"
        "        loss, dy = self.loss(y, batch.y, n=batch.n)\n"
        "        net.backward(dy, saved)\n"
        "        opt.step()\n"
        "        opt.zero_grad()\n"
        "        return float(loss)",
    ],
}
"""Answers that are as right as the solutions, by exercise; of those with one name by lab and exercise."""


@pytest.fixture
def check(monkeypatch):
    """Check an answer, as a notebook does in the folder of its lab; return the text of a failure, or ""."""

    def run(lab, name, text=None, hidden=False):
        monkeypatch.setattr(exercise, "FOLDER", FOLDERS[lab])
        try:
            exercise.check(lab[3:], name, SOLVED[lab].answers(name, text), hidden)
        except CheckFailed as error:
            return str(error)
        return ""

    return run


def test_tables_hold_no_line_of_a_solution():
    for lab, folder in FOLDERS.items():
        with np.load(folder / exercise.FILE) as file:
            kept = bytes(file["tables"]).decode()
            assert all(file[name].dtype.kind in "biufc" for name in file.files), "numbers alone"
        lines = [line.strip() for text in SOLVED[lab].texts.values() for line in text.splitlines()]
        code = [line for line in lines if len(line) > 20 and ("=" in line or line.startswith("return"))]
        assert len(code) > 10
        assert [line for line in code if line in kept] == []


def test_tables_are_small():  # that they are up to date is what `distlearn labs generate --check` says
    assert all((folder / exercise.FILE).stat().st_size < 300_000 for folder in FOLDERS.values())


@pytest.mark.parametrize(("stem", "name"), EXERCISES)
def test_the_solution_passes_and_every_mistake_is_named(stem, name, check):
    assert not check(stem, name)
    assert not check(stem, name, hidden=True)
    text = SOLVED[stem].texts[name]
    known = list(SOLVED[stem].exercises[name].wrong())
    for sentence, edit in known:
        assert sentence in check(stem, name, edited(text, edit)), f"{sentence}: {edit}"
    first = edited(text, known[0][1])
    assert any(check(stem, name, first, hidden=True) for _ in range(3)), "drawn cases find it nearly always"


@pytest.mark.parametrize(("stem", "name"), EXERCISES)
def test_no_change_and_no_wrapper_passes(stem, name, request):
    only_if_thorough(request, stem)
    assert survivors(SOLVED[stem], name) == []


@pytest.mark.parametrize(("stem", "name"), EXERCISES)
def test_answers_written_otherwise_pass(stem, name, check):
    for text in (*OTHERWISE.get(name, ()), *OTHERWISE.get((stem, name), ())):
        assert not check(stem, name, text)
        assert not check(stem, name, text, hidden=True)


def test_what_no_mistake_explains_is_diagnosed_by_its_numbers(check):
    factor = check(
        "lab07", "weighted_mean", edited(SOLVED["lab07"].texts["weighted_mean"], "return   ->  return -3 * ")
    )
    assert "3 times the reference, with the opposite sign" in factor
    odd = check("lab07", "scaled_lr", edited(SOLVED["lab07"].texts["scaled_lr"], "return lr +  ->  return 0.9 * lr +"))
    assert "largest difference" in odd
    unknown = "def scaled_lr(*args):\n    return lambda step: {'rate': 1}"
    assert "wanted" in check("lab07", "scaled_lr", unknown)
    stopped = check("lab07", "local_sgd", "def local_sgd(comm, *args):\n    return comm.no_such_thing")
    assert "no_such_thing" in stopped
    assert "not written yet" in check("lab07", "scaled_lr", "def scaled_lr(*args):\n    raise NotImplementedError()")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("np.full(5, np.nan)", "5 of 5 elements of gradient are NaN"),
        ("np.array(['a'] * 5)", "wanted an array of numbers"),
        ("np.array([{1: 2}] * 5)", "wanted an array of numbers"),
        ("10 ** 400", "wanted an array of numbers"),
        ("[10 ** 400] * 5", "wanted numbers, got a list of 5"),
        ("[gradients[0], 3]", "wanted numbers, got a list of 2"),
    ],
)
def test_what_is_no_array_of_numbers_fails_in_each_case(answer, said, check):
    found = check("lab07", "weighted_mean", f"def weighted_mean(gradients, counts):\n    return {answer}")
    assert said in found
    assert "0 of 6 checks passed" in found or "0 of 12 checks passed" in found


def test_of_a_text_the_first_line_is_compared_and_all_is_shown(check):
    text = SOLVED["lab15"].texts["flash"]
    said = check("lab15", "flash", edited(text, "__syncthreads();   // the tiles are there  ->  \n"))
    assert "wanted no errors, got race\n" in said
    assert "no barrier lies between" in said
    assert "a barrier is missing: all must have fetched" in said


def test_a_sentence_needs_more_than_the_same_kind_of_error_in_other_cases(check):
    text = SOLVED["lab04"].texts["block_sum"]
    said = check("lab04", "block_sum", edited(text, "__shared__ float s[256]  ->  __shared__ float s[128]"))
    assert "wanted no errors, got out-of-bounds\n" in said
    assert "->" not in said, "what is known to go out of bounds does so in other cases, or in another array"


def test_what_is_changed_on_a_rank_is_said_and_a_list_is_no_array_of_whole_numbers(check):
    text = SOLVED["lab15"].texts["ring_attend"]
    writes = edited(text, "keys = arriving  ->  keys = arriving\n            k[...], v[...] = keys")
    assert "arguments: changed: k, v" in check("lab15", "ring_attend", writes)
    assert exercise.wrong_in({"a": [1, 2]}, {"a": np.array([1, 2])}) == ["a"]


def test_what_knows_the_visible_cases_alone_fails_in_drawn_ones(check):
    known = SOLVED["lab07"].right("predicted_speedup", SOLVED["lab07"].exercises["predicted_speedup"].cases)
    pairs = {tuple(case.values()): r["speed-up"] for case, r in zip(known.cases, known.right, strict=True)}
    text = f"def predicted_speedup(*args):\n    return {pairs!r}.get(args, float('nan'))"
    assert not check("lab07", "predicted_speedup", text)
    assert "0 of 5 checks passed" in check("lab07", "predicted_speedup", text, hidden=True)


def test_a_mistake_in_some_cases_alone_is_named_if_it_explains_all_that_failed(check):
    text = SOLVED["lab07"].texts["scaled_lr"]
    never_below = edited(text, "batch_size / base_batch_size\n  ->  max(1, batch_size / base_batch_size)\n")
    said = check("lab07", "scaled_lr", never_below)
    assert said.count("k may be less than 1") == 1
    assert "4 of 5 checks passed" in said


FIRST = "import numpy as np\ndef first(x, k, m=2):\n    return x[:k] * m"


def small(tmp_path, **more):
    """A lab of one exercise, whose results are those of a plain call."""
    told = {"grade_id": "first", "solution": True, "grade": False, "locked": False, "schema_version": 3, "task": False}
    nbformat.write(new_notebook(cells=[new_code_cell(FIRST, metadata={"nbgrader": told})]), tmp_path / "lab99.ipynb")
    (tmp_path / "exercises.py").write_text("EXERCISES = {}")
    solved = Solved(tmp_path)
    cases = [{"x": np.arange(5.0), "k": 3}, {"x": np.arange(2.0, 6.0), "k": 1}]
    solved.exercises["first"] = Exercise(
        **{
            "cases": cases,
            "draw": lambda rng: {"x": rng.normal(size=6), "k": int(rng.integers(1, 6)), "m": float(rng.normal())},
            "mistakes": {},
        }
        | more
    )
    return solved


def test_a_table_is_refused_where_it_would_not_tell(tmp_path):
    with pytest.raises(ValueError, match="no case finds the mistake 'only floats'"):
        small(tmp_path, mistakes={"only floats": "* m  ->  * float(m)"}).table("first")
    with pytest.raises(ValueError, match="no case tells 'b' from 'a'"):
        small(tmp_path, mistakes={"a": "* m  ->  * 3", "b": "x[:k] * m  ->  3 * x[:k]"}).table("first")
    solved = small(tmp_path)
    solved.texts["first"] = FIRST + " + np.random.rand()"
    with pytest.raises(ValueError, match="differ from call to call"):
        solved.table("first")
    solved.texts["first"] = FIRST + " + 1 // 0"
    with pytest.raises(ValueError, match="the solution raises ZeroDivisionError"):
        solved.table("first")
    with pytest.raises(ValueError, match="the mistake 'a' is no Python"):
        small(tmp_path, mistakes={"a": "return  ->  return )"}).table("first")
    with pytest.raises(ValueError, match="occurs 0 times"):
        small(tmp_path, mistakes={"a": "* 7  ->  * 3"}).table("first")


def test_weak_cases_are_found(tmp_path):
    weak = [{"x": np.array([0.0, 1.0, 2.0]), "k": 2}, {"x": np.array([0.0, 3.0, 1.0]), "k": 2, "m": 2}]
    found = survivors(small(tmp_path, cases=weak, draw=lambda rng: weak[0]), "first")
    assert "return x[:k] * m  ->  return x[:m] * m" in found
    assert "return x[:k] * m  ->  return x[:k] * k" in found
    assert not any("frozen" in what and " x " not in what for what in found), "the others are never another value"
    assert survivors(small(tmp_path), "first") == []


def test_a_table_is_kept_as_it_was_made(tmp_path):
    solved = small(tmp_path, mistakes={"three times": "* m  ->  * 3"})
    exercise.save({"first": solved.table("first")}, tmp_path)
    assert not differs({"first": solved.table("first")}, tmp_path)
    table = exercise.load(tmp_path)["first"]
    np.testing.assert_array_equal(table.cases[0]["x"], np.arange(5.0))
    np.testing.assert_array_equal(table.right[0]["result"], [0, 2, 4])
    solved.exercises["first"].mistakes["four times"] = "* m  ->  * 4"
    assert differs({"first": solved.table("first")}, tmp_path)
    solved.texts["first"] = edited(FIRST, "* m  ->  * m * 1.001")
    solved.exercises["first"].mistakes.clear()
    assert differs({"first": solved.table("first")}, tmp_path)


def test_an_answer_that_does_not_end_or_changes_its_arguments_is_said_to(tmp_path, check, monkeypatch):
    monkeypatch.setattr(exercise, "LIMIT", 0.2)
    endless = check("lab07", "scaled_lr", "def scaled_lr(*args):\n    while True: pass")
    assert "no result after 0.2 s: does every loop end?" in endless
    swallows = "def scaled_lr(*args):\n    for _ in range(2):\n        try:\n            while True: pass\n"
    assert "checks passed" in check("lab07", "scaled_lr", swallows + "        except Exception: pass")
    pops = edited(SOLVED["lab07"].texts["weighted_mean"], "n = sum(counts)  ->  n = sum(counts); counts.pop()")
    assert "arguments: changed: counts" in check("lab07", "weighted_mean", pops)


def test_a_table_that_is_missing_or_old_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(exercise, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no results\.npz .* beside its notebook"):
        exercise.find("first")
    np.savez(tmp_path / exercise.FILE, tables=np.frombuffer(b'{"first": [[], [], []]}', np.uint8))
    with pytest.raises(ValueError, match="belongs to another version of distlearn"):
        exercise.find("first")
    exercise.save({"first": small(tmp_path).table("first")}, tmp_path)
    with pytest.raises(ValueError, match="no exercise 'second', expected one of first"):
        exercise.find("second")
