"""One step of a gated recurrent unit between two matrix products, forward and back."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Variant, i32, per_element


def _step(u, c, state, gates, candidates, h, t):
    sizes = map(i32, (t, len(h), state.size, c.size))
    return per_element(state.size, (u, c, state, gates, candidates, h, *sizes))


def _back(parts, gates, candidates, h, state, dy, grads, t):
    sizes = map(i32, (t, len(dy), dy[0].size))
    state = np.uintp(0) if state is None else state
    return per_element(dy[0].size, (parts, gates, candidates, h, state, dy, grads, *sizes))


STEP = Variant("recurrent.cu", "gru_step", _step)
STEP_BACK = Variant("recurrent.cu", "gru_step_back", _back)

VARIANTS = [STEP, STEP_BACK]
