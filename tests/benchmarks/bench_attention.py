"""Attention: forward and backward against PyTorch eager."""

from __future__ import annotations

import math

import numpy as np

from distlearn import nn

from . import optional, paired, record

torch = optional("torch")

WIDTH, HEADS, LENGTH, BATCH = 128, 4, 256, 8


def our_layer():
    """Return a function that runs the layer forward and backward."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS, range(4))
    layer.rotate = lambda x, back=False: x  # PyTorch's, below, has no positions
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


def records():
    """Time the layer beside PyTorch's."""
    ours, layer, x, dy = our_layer()
    theirs = torch_layer(layer, x, dy) if torch else None
    if theirs:
        np.testing.assert_allclose(ours(), theirs().detach().numpy(), atol=1e-4)
    ratio = paired(ours, theirs, repeats=25)
    what = f"attention forward and backward, width {WIDTH}, {HEADS} heads, length {LENGTH}, batch {BATCH}"
    peer, note = ratio.peer and ratio.peer * 1e3, "eager"
    return [record(what, "ms", ratio.ours * 1e3, peer, ratio=ratio, goal="ratio <= 1", note=note)]
