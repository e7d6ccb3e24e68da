"""One step of a gated recurrent unit between two matrix products, forward and back."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32


def gru_step_reference(u, c, state, gates, candidates, h, t):
    """Compute gates, candidate and state of step t from U's product with the state before."""
    r, z = (0.5 * np.tanh(0.5 * (gates[k, t] + u[k])) + f32(0.5) for k in (0, 1))
    candidates[t] = u[2] + c
    new = np.tanh(gates[2, t] + r * candidates[t])
    gates[:, t] = r, z, new
    h[t] = (state - new) * z + new


def gru_step_back_reference(parts, gates, candidates, h, state, dy, grads, t):
    """Complete the gradient of step t's state, and compute those of its gates."""
    if t + 1 < len(dy):
        dy[t] += parts.sum(axis=0) + dy[t + 1] * gates[1, t + 1]
    (r, z, n), before = gates[:, t], h[t - 1] if t else 0 if state is None else state
    dn = dy[t] * (1 - n * n) * (1 - z)
    grads[:, t] = dn * r, dn * candidates[t] * (1 - r) * r, dy[t] * (before - n) * z * (1 - z), dn


def _step(u, c, state, gates, candidates, h, t):
    sizes = map(i32, (t, len(h), state.size, c.size))
    return Launch(blocks(state.size), (256,), (u, c, state, gates, candidates, h, *sizes))


def _back(parts, gates, candidates, h, state, dy, grads, t):
    sizes = map(i32, (t, len(dy), dy[0].size))
    state = np.uintp(0) if state is None else state
    return Launch(blocks(dy[0].size), (256,), (parts, gates, candidates, h, state, dy, grads, *sizes))


def _normal(rng, *shape):
    return rng.normal(size=shape).astype(f32)


def _step_example(rng):
    steps, batch, n = 3, 8, 32
    u, c, state = _normal(rng, 3, batch, n), _normal(rng, n), _normal(rng, batch, n)
    return u, c, state, _normal(rng, 3, steps, batch, n), *(np.zeros((steps, batch, n), f32) for _ in range(2)), 1


def _back_example(rng):
    shape = 3, 8, 32
    stacks = _normal(rng, 3, *shape), _normal(rng, *shape), _normal(rng, *shape), _normal(rng, 8, 32)
    return _normal(rng, 3, 8, 32), *stacks, _normal(rng, *shape), np.zeros((4, *shape), f32), 1


STEP = Variant(
    "recurrent.cu", "gru_step", _step, gru_step_reference, _step_example, {("gates", "read"): 4, ("h", "write"): 4}
)
STEP_BACK = Variant(
    "recurrent.cu", "gru_step_back", _back, gru_step_back_reference, _back_example,
    {("parts", "read"): 4, ("grads", "write"): 4},
)  # fmt: skip

VARIANTS = [STEP, STEP_BACK]
