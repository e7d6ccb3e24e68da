"""Attention: forward and backward against PyTorch eager, and block by block against the whole matrix of scores."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np

from distlearn import nn
from distlearn.nn.attention import attend, attend_backward, online_attend, online_attend_backward

from . import optional, paired, record

torch = optional("torch")

WIDTH, HEADS, LENGTH, BATCH = 128, 4, 256, 8
LONG = 4096


def our_layer():
    """Return a function that runs the layer forward and backward."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS, range(4), rotary=False)
    x, dy = np.random.default_rng(0).normal(size=(2, BATCH, LENGTH, WIDTH)).astype("float32")

    def step():
        y, saved = layer.forward(x)
        for p in layer.params:
            p.zero_grad()
        layer.backward(dy.copy(), saved)
        return y

    return step, layer, x, dy


def torch_layer(layer, x, dy):
    """Return a function that does the same in PyTorch, with the same weights."""
    torch.set_num_threads(1)
    weights = [torch.tensor(p.data, requires_grad=True) for p in layer.params]
    x, dy = torch.tensor(x, requires_grad=True), torch.tensor(dy)
    later = torch.triu(torch.full((LENGTH, LENGTH), -math.inf), 1)

    def step():
        for t in (x, *weights):
            t.grad = None
        q, k, v = (
            (x @ weights[2 * i] + weights[2 * i + 1]).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for i in range(3)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH / HEADS) + later
        heads = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        y = heads @ weights[6] + weights[7]
        y.backward(dy)
        return y

    return step


def peak(run) -> int:
    """Largest memory of NumPy arrays during a call [bytes]."""
    tracemalloc.start()
    run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def records():
    """The layer beside PyTorch's; time and memory of both ways at length 4,096."""
    ours, layer, x, dy = our_layer()
    theirs = torch_layer(layer, x, dy) if torch else None
    if theirs:
        np.testing.assert_allclose(ours(), theirs().detach().numpy(), atol=1e-4)
    ratio = paired(ours, theirs, repeats=25)
    what = f"attention forward and backward, width {WIDTH}, {HEADS} heads, length {LENGTH}, batch {BATCH}"
    rows = [
        record(
            what, "ms", ratio.ours * 1e3, ratio.peer and ratio.peer * 1e3, ratio=ratio, goal="ratio <= 1", note="eager"
        )
    ]
    q, k, v, dy = np.random.default_rng(1).normal(size=(4, 1, HEADS, LONG, WIDTH // HEADS)).astype("float32")

    def naive():
        attend_backward(dy, attend(q, k, v)[1])

    def online():
        online_attend_backward(dy, online_attend(q, k, v)[1])

    ratio = paired(online, naive, repeats=7)
    note = "peer: with all scores in memory"
    what = f"attention block by block, length {LONG:,}"
    rows.append(record(what, "ms", ratio.ours * 1e3, ratio.peer * 1e3, ratio=ratio, goal="ratio <= 1.5", note=note))
    ours, theirs = peak(online) / 1e6, peak(naive) / 1e6
    rows.append(record(f"{what}, memory", "MB", ours, theirs, ratio=ours / theirs, goal="ratio <= 0.1", note=note))
    return rows
