"""One training step of every model against PyTorch eager; the four convolutions; what keeping freed memory buys.

A step is forward, loss, backward, and the SGD update, on the same data, from the same weights (both losses are compared
before anything is timed), with the same number of threads. The harness sets one BLAS thread; PyTorch gets as many.
Times are processor time, so that other programs on the machine count for neither side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

import numpy as np

from distlearn import nn
from distlearn.optim import SGD, Optimizer
from distlearn.train.torch_ddp import torch_model

from . import optional, paired, quick, record

torch = optional("torch")

SYMBOLS, TIME = 128, 64
STEPS = [("mlp", 32, 1.05), ("mlp", 128, 1.05), ("mlp", 512, 1.05), ("cnn", 64, 0.75), ("cnn", 256, 0.75)]
STEPS += [("lenet", 64, 0.85), ("gru", 32, 0.9)]
"""Model, batch, and the goal for the fused model's time / PyTorch's."""
PRODUCTS = {32: 0.65, 128: 0.72, 512: 0.85}
"""What share of the fused MLP's step its matrix products take at least, by batch; the rest is what we may lose."""

WHERE = {
    "mlp": "the rest is the update, a pass over weights and gradients, and some 30 calls of a few microseconds",
    "cnn": "the second convolution with its pooling takes two thirds of our step, half of that in products",
    "lenet": "each convolution with its pooling takes somewhat less than half of our step, products half of that",
    "gru": "half is the products of single steps, (32, 128) by (128, 384), one after the other",
}
"""Where our time goes; for the MLP the benchmark itself measures what products alone would take."""


def batch_of(name: str, n: int):
    """Random samples and labels."""
    rng = np.random.default_rng(0)
    if name == "gru":
        return rng.integers(SYMBOLS, size=(n, TIME)), rng.integers(SYMBOLS, size=(n, TIME))
    return rng.random((n, *nn.MODELS[name].sample), dtype=np.float32), rng.integers(10, size=n)


def our_step(model, x, y):
    """Return a function that takes one step and returns the loss."""
    loss, optimizer = nn.SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.01)

    def step():
        optimizer.zero_grad()
        out, saved = model.forward(x)
        value, dy = loss(out, y)
        model.backward(dy, saved)
        optimizer.step()
        return value

    return step


def torch_language_model(model):
    """Build the same embedding, GRU stack and dense layer in PyTorch, with the same weights."""
    embedding, *stack, head = model.layers
    peer = torch.nn.Module()
    peer.embedding = torch.nn.Embedding(embedding.n_symbols, embedding.d_out)
    peer.gru = torch.nn.GRU(stack[0].d_in, stack[0].d_hidden, len(stack), batch_first=True)
    peer.head = torch.nn.Linear(head.d_in, head.d_out)
    _copy(peer.embedding.weight, embedding.W.data, peer.head.weight, head.W.data.T, peer.head.bias, head.b.data)
    for i, gru in enumerate(stack):
        weights = [getattr(peer.gru, f"{kind}_l{i}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        values = gru.W.data.T, gru.U.data.T, gru.b.data, np.concatenate([np.zeros(2 * gru.d_hidden), gru.c.data])
        _copy(*(v for both in zip(weights, values, strict=True) for v in both))
    peer.forward = lambda x: peer.head(peer.gru(peer.embedding(x))[0])
    return peer


def _copy(*pairs):
    """Copy weights: tensor, array, tensor, array, ..."""
    with torch.no_grad():
        for tensor, array in zip(pairs[::2], pairs[1::2], strict=True):
            tensor.copy_(torch.tensor(np.ascontiguousarray(array)))


def torch_body(model, x, y, device="cpu"):
    """Return a function that takes one step in PyTorch and returns the loss where it was computed."""
    language = isinstance(model.layers[0], nn.Embedding)
    peer = torch_language_model(model) if language else torch_model(model, x.shape[1:])
    peer.to(device)
    x, y = torch.tensor(x if language else x.reshape(len(x), -1)), torch.tensor(y).reshape(-1)
    x, y = x.to(device), y.to(device)
    loss, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(peer.parameters(), 0.01)

    def step():
        optimizer.zero_grad()
        out = peer(x)
        value = loss(out.reshape(-1, out.shape[-1]), y)
        value.backward()
        optimizer.step()
        return value

    return step


def torch_step(model, x, y, device="cpu"):
    """Return a function that takes one step in PyTorch eager and returns the loss."""
    step = torch_body(model, x, y, device)
    return lambda: step().item()


def check_same_loss(name, ours: float, theirs: float) -> None:
    """Raise if the two sides do not compute the same: then their times say nothing."""
    if not abs(ours - theirs) < 1e-3 * abs(theirs):
        raise AssertionError(f"{name}: the first loss is {ours}, PyTorch's {theirs}: the two do not compute the same")


def products_of(model, n: int):
    """Return a function that computes the matrix products of one step of dense layers and nothing else.

    No library that leaves them to a BLAS as fast as this one can take a step in less time.
    """
    rng, work = np.random.default_rng(0), []
    for layer in (layer for layer in model.layers if isinstance(layer, nn.Linear)):
        sizes = (n, layer.d_in), (layer.d_in, layer.d_out), (n, layer.d_out)
        x, W, dy = (rng.random(size, dtype=np.float32) for size in sizes)
        for a, b in [(x, W), (x.T, dy)] + [(dy, W.T)] * layer.input_gradient:
            work.append((a, b, np.empty((len(a), b.shape[1]), np.float32)))
    return lambda: [np.matmul(a, b, out=out) for a, b, out in work]


def step_records(name: str, n: int, goal: float) -> list[dict]:
    """Time one model at one batch size, fused and PyTorch's in turns, and plain beside fused."""
    model, (x, y) = nn.build(name), batch_of(name, n)
    theirs = torch_step(model, x, y) if torch else None
    plain = our_step(model, x, y)
    ours = our_step(nn.fuse(nn.build(name)), x, y)
    if torch:
        first = theirs()
        check_same_loss(name, ours(), first)
        check_same_loss(name, plain(), first)
    repeats = 9 if n > 128 or name == "gru" else 25
    ratio = paired(ours, theirs, repeats=repeats, warmup=3, clock=time.process_time)
    slower = paired(plain, ours, repeats=repeats, clock=time.process_time)
    note = f"the plain model takes {slower:.2f} of the fused one's time; {WHERE[name]}"
    rows = [
        record(
            f"{name} step, batch {n}, fused",
            "ms",
            ratio.ours * 1e3,
            ratio.peer and ratio.peer * 1e3,
            ratio=ratio,
            goal=f"ratio <= {goal}",
            note=note if torch else f"PyTorch is not installed (the extra 'bench'); {note}",
        ),
        record(f"{name} step, batch {n}, plain", "ms", slower.ours * 1e3, slower.peer * 1e3, note="peer: fused"),
    ]
    if name == "mlp":
        share = paired(products_of(model, n), ours, repeats=repeats, clock=time.process_time)
        goal = f"ours >= {100 * PRODUCTS[n]:.0f}"
        rows.append(record(f"mlp step, batch {n}, share of its products", "%", 100 * float(share), goal=goal))
    return rows


CONVOLUTIONS = [
    ("28x28, 1 to 16, 3x3", (64, 28, 28, 1), 16, 3),
    ("14x14, 16 to 32, 3x3", (64, 14, 14, 16), 32, 3),
    ("28x28, 64 to 64, 3x3", (16, 28, 28, 64), 64, 3),
    ("28x28, 32 to 32, 11x11", (16, 28, 28, 32), 32, 11),
]


def convolution_records() -> list[dict]:
    """Forward and backward of every algorithm beside im2col's, with the ratio of work that the table predicts."""
    rows = []
    for label, shape, c_out, k in CONVOLUTIONS:
        x = np.random.default_rng(0).random(shape, dtype=np.float32)
        runs = {
            name: _convolution(x, c_out, k, name)
            for name in [*nn.ALGORITHMS, "fused"]
            if k == 3 or "winograd" not in name
        }
        for name, run in runs.items():
            ratio = paired(run, runs["im2col"], repeats=3 if quick() else 7, warmup=1, clock=time.process_time)
            predicted = _work(name, shape, c_out, k) / _work("im2col", shape, c_out, k)
            note = f"{ratio:.2f} of im2col's time, {predicted:.2f} of its work"
            rows.append(
                record(f"conv {label}, {name}", "ms", ratio.ours * 1e3, ratio.peer * 1e3, ratio=ratio, note=note)
            )
    return rows


def _convolution(x, c_out, k, algorithm):
    """Return a function that runs one convolution forward and backward."""
    options = {} if algorithm == "fused" else {"algorithm": algorithm}
    layer = nn.Conv2d(x.shape[-1], c_out, k, padding="same", **options)
    layer = nn.fuse(layer) if algorithm == "fused" else layer
    dy = np.random.default_rng(1).random(layer.output_shape(x.shape), dtype=np.float32)

    def run():
        _, saved = layer.forward(x)
        layer.backward(dy, saved)

    return run


def _work(algorithm, shape, c_out, k) -> float:
    """Multiply-adds by the work-depth table."""
    n, h, w, c_in = shape
    if algorithm.startswith("winograd"):
        return nn.conv_cost("winograd", n, c_in, c_out, h, w, k, int(algorithm[-1])).work
    return nn.conv_cost("fft" if algorithm == "fft" else "im2col", n, c_in, c_out, h, w, k).work


CHILD = """
import sys, time; sys.path.insert(0, {root!r})
from statistics import median
from tests.benchmarks import bench_layers as b, seconds
from distlearn import nn
nn.keep_memory()
step = b.our_step(nn.fuse(nn.build("cnn")), *b.batch_of("cnn", 64))
[step() for _ in range(5)]
print(median(seconds(step, time.process_time) for _ in range(20)))
"""


def memory_record() -> dict:
    """The CNN's step with the allocator told to keep freed memory, and without, in fresh processes, turn by turn."""
    times = {"1": [], "0": []}
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for _ in range(1 if quick() else 3):
        for keep, found in times.items():
            run = subprocess.run(
                [sys.executable, "-c", CHILD.format(root=root)],
                env={**os.environ, "DISTLEARN_KEEP_MEMORY": keep},
                capture_output=True,
                text=True,
                check=True,
            )
            found.append(float(run.stdout) * 1e3)
    note = "peer: the same with DISTLEARN_KEEP_MEMORY=0"
    return record("cnn step, batch 64, freed memory kept", "ms", median(times["1"]), median(times["0"]), note=note)


def product_record() -> dict:
    """The matrix product that everything rests on; the bound for what a large batch can gain."""
    a = np.random.default_rng(0).random((1024, 1024), dtype=np.float32)
    out = np.empty_like(a)
    ours = lambda: np.matmul(a, a, out=out)  # noqa: E731
    theirs = None
    if torch:
        t, result = torch.tensor(a), torch.empty(1024, 1024)
        theirs = lambda: torch.matmul(t, t, out=result)  # noqa: E731
    ratio = paired(ours, theirs, repeats=15, clock=time.process_time)
    flops, peer = 2 * 1024**3 / 1e9, ratio.peer and 2 * 1024**3 / 1e9 / ratio.peer
    kind = os.environ.get("OPENBLAS_CORETYPE", "as OpenBLAS finds it")
    note = f"1024 x 1024, processor type: {kind}"
    return record("matrix product", "Gflop/s", flops / ratio.ours, peer, ratio=1 / ratio, note=note)


def records():
    """All rows; PyTorch uses as many threads as NumPy's BLAS."""
    if torch:
        torch.set_num_threads(int(os.environ.get("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))))
    nn.keep_memory()
    rows = [row for case in STEPS for row in step_records(*case)]
    return [*rows, product_record(), memory_record(), *convolution_records()]
