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


STEP = Variant("recurrent.cu", "gru_step", _step, gru_step_reference)
STEP_BACK = Variant("recurrent.cu", "gru_step_back", _back, gru_step_back_reference)

VARIANTS = [STEP, STEP_BACK]
