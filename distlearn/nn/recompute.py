"""Fewer bytes for more flops: saved activations are dropped, and recomputed for backward.

A plan for layers i to j - 1, whose input is stored:

    [i, ..., j - 1]   run them once and keep what they save
    (left, right)     run left, keep nothing of it; store its output, which is the input of right; do right;
                      when backward has come through right, do left again, from its input

So `([0, 1], ([2], [3, 4]))` keeps layers 3 and 4 and the inputs of 2 and 3, then runs 2 again, then 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array
from ..bounds import check_number
from .container import Container, Sequential, backward_of, layer_span
from .layer import Layer, walk

if TYPE_CHECKING:
    from ..trace import Clock

# -- plans -------------------------------------------------------------------------------------------------------------

UNITS = 20_000  # Number of budgets that `best_plan` distinguishes; sizes are rounded up to one.


def layers_of(plan) -> list[int]:
    """List the numbers of a plan's layers, in order."""
    return [i for part in plan for i in layers_of(part)] if isinstance(plan, tuple) else list(plan)


def as_plan(plan, n: int):
    """Return a plan as lists and tuples (a pair may be a list, too); raise unless it has all of n layers, in order."""

    def made(part):
        inner = [isinstance(p, (list, tuple)) for p in part] if isinstance(part, (list, tuple)) else []
        if len(inner) == 2 and all(inner):
            return tuple(map(made, part))
        if not inner or any(inner) or isinstance(part, tuple):
            raise ValueError(f"plan: {part!r}, expected a list of layer numbers or a pair (left, right) of plans")
        return part

    plan = made(plan)
    if layers_of(plan) != list(range(n)):
        raise ValueError(f"plan: its layers are {layers_of(plan)}, expected 0 to {n - 1} in order")
    return plan


def plan_cost(plan: Any, forward: Sequence[float], inputs: Sequence[int], saved: Sequence[int]) -> tuple[float, float]:
    """Return a plan's peak of memory, and the operations that it repeats.

    Parameters
    ----------
    plan : list or tuple
        As above.
    forward : sequence of float
        Operations of each layer's forward pass [flops].
    inputs : sequence of int
        Size of each layer's input [bytes]; that of the first, the batch, is there anyway and not counted.
    saved : sequence of int
        What keeping a layer adds [bytes].

    Returns
    -------
    peak : int
        Most that is stored at a time [bytes].
    again : float
        Operations of the layers that are run again [flops].

    Examples
    --------
    >>> plan_cost(([0, 1], [2, 3]), [1, 1, 1, 1], [8, 8, 8, 8], [8, 8, 8, 8])
    (24, 2)
    """

    def cost(part):
        if isinstance(part, list):
            return sum(saved[i] for i in part), 0
        first, second = layers_of(part[0]), layers_of(part[1])[0]
        (left, more), (right, rest) = cost(part[0]), cost(part[1])
        return max(inputs[second] + right, left), sum(forward[i] for i in first) + more + rest

    return cost(as_plan(plan, len(forward)))


def best_plan(forward: Sequence[float], inputs: Sequence[int], saved: Sequence[int], budget: float) -> Any:
    r"""Return the plan with the fewest repeated operations within a budget of memory.

    Parameters
    ----------
    forward, inputs, saved
        As for `plan_cost`.
    budget : float
        Most that may be stored at a time [bytes].

    Raises
    ------
    ValueError
        If no plan fits.

    Notes
    -----
    By dynamic programming over all intervals of layers and all budgets: exact for a chain of layers (where sizes are
    multiples of a 20,000th of the budget). Where the savings of one layer at a time fit beside s inputs, all layers
    alike, it is the schedule of Griewank and Walther: :math:`t n - \binom{s + t}{s + 1}` layers are run without
    saving, t the smallest with :math:`\binom{s + t}{s} \ge n`.

    References
    ----------
    A. Griewank, A. Walther (2000), Algorithm 799: revolve, ACM TOMS 26(1). O. Beaumont et al. (2019), Optimal
    checkpointing for heterogeneous chains, INRIA research report 9302.

    Examples
    --------
    >>> best_plan([1, 1, 1, 1], [8, 8, 8, 8], [8, 8, 8, 8], 24)
    ([0, 1], [2, 3])
    """
    n, (room, unit) = len(forward), _units(inputs, saved, budget)
    inputs, saved = ([-(-int(size) // unit) for size in sizes] for sizes in (inputs, saved))
    before = np.concatenate([[0], np.cumsum(forward)])
    kept = np.concatenate([[0], np.cumsum(saved)])
    again, split = {}, {}  # by interval: operations and the place of the cut (0: none), for every budget from 0 to room
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j = i + length
            fits = np.arange(room + 1) >= kept[j] - kept[i]
            least, cut = np.where(fits, 0.0, math.inf), np.zeros(room + 1, int)
            for k in range(i + 1, j):
                right = np.full(room + 1, math.inf)
                right[inputs[k] :] = again[k, j][: max(0, room + 1 - inputs[k])]
                found = before[k] - before[i] + right + again[i, k]
                better = found < least
                least[better], cut[better] = found[better], k
            again[i, j], split[i, j] = least, cut
    if math.isinf(again[0, n][room]):
        raise ValueError(f"best_plan: budget is {budget:,.0f} bytes, and no plan of these {n} layers fits into it")

    def plan(i, j, m):
        k = int(split[i, j][m])
        return (plan(i, k, m), plan(k, j, m - inputs[k])) if k else list(range(i, j))

    return plan(0, n, room)


def _units(inputs, saved, budget) -> tuple[int, int]:
    """Return the budget in units, and the unit [bytes]."""
    check_number("best_plan", least=0, below=math.inf, budget=budget)
    if not len(inputs) == len(saved) or min(*inputs, *saved) < 0:
        raise ValueError(f"best_plan: inputs {inputs}, saved {saved}, budget {budget}, expected sizes of 0 or more")
    unit = max(math.gcd(*map(int, inputs[1:]), *map(int, saved)), math.ceil(budget / UNITS), 1)
    return int(budget // unit), unit


# -- layers ------------------------------------------------------------------------------------------------------------


class Planned(Sequential):
    """Layers one after another, which keep the activations that a plan says, and recompute the others for backward.

    Parameters
    ----------
    *layers : Layer
        No two of them may share a parameter.
    plan : list or tuple
        Such as `best_plan` returns.

    Notes
    -----
    Shapes: those of the layers. `Dropout` drops the same values again. Strategies that take a model apart (`Pipeline`,
    `ZeRO`, `TensorParallel`) run its layers without the plan.

    Examples
    --------
    >>> from distlearn.nn import Linear, Tanh
    >>> Planned(Linear(4, 4, 0), Tanh(), Linear(4, 2, 1), plan=([0, 1], [2])).output_shape((8, 4))
    (8, 2)
    """

    splits = False

    def __init__(self, *layers: Layer, plan: Any):
        super().__init__(*layers)
        self.plan = as_plan(plan, len(layers))

    def part(self, layers: list[Layer]) -> Sequential:
        made = super().part(layers)
        made.__class__ = Sequential  # the plan is one for all layers
        return made

    def forward(self, x: Array, clock: Clock | None = None) -> tuple[Array, Any]:
        pending = []
        return self._run(self.plan, x, pending, clock), pending

    def _run(self, plan, x, pending, clock):
        """Run forward; append to `pending` what backward will need, the last layer's last."""
        while isinstance(plan, tuple):
            left, plan = plan
            pending.append((left, x, states(self)))
            for i in layers_of(left):
                x = self._forward(i, x, clock)[0]
        for i in plan:
            like = x.shape, x.dtype.itemsize
            x, saved = self._forward(i, x, clock)
            pending.append((i, saved, like))
        return x

    def _forward(self, i, x, clock):
        layer = self.layers[i]
        with layer_span(None if layer.spans_itself else clock, layer, "forward", x.shape, x.dtype.itemsize):
            return layer.forward(x)

    def backward(
        self,
        dy: Array,
        saved: Any,
        later: list[Any] | None = None,
        *,
        on_grad: Callable[..., Any] | None = None,
        clock: Clock | None = None,
    ) -> Array | None:
        while saved:
            what, kept, about = saved.pop()
            if not isinstance(what, int):  # layers whose savings are needed next
                with drawing_from(self, about):
                    self._run(what, kept, saved, clock)
                continue
            layer = self.layers[what]
            with layer_span(None if layer.spans_itself else clock, layer, "backward", *about):
                dy = dy if dy is None else backward_of(layer, dy, kept, about[0])
            for p in reversed(layer.params) if on_grad is not None else ():
                on_grad(p)
        return dy


class Recompute(Container):
    """A layer that discards its saved activations and recomputes them for backward: less memory, more time.

    Cut a deep network into about sqrt(depth) such blocks, and activation memory falls from the depth to its square
    root, for one more forward pass. `best_plan` knows better cuts where layers differ.

    Notes
    -----
    Shapes: those of the body. Backward costs the body's forward in addition. Saves the input, and the state of random
    generators, so that `Dropout` drops the same values again.

    References
    ----------
    T. Chen, B. Xu, C. Zhang, C. Guestrin (2016), Training deep nets with sublinear memory cost, arXiv:1604.06174.
    """

    def __init__(self, body: Layer):
        super().__init__([body])

    def forward(self, x: Array) -> tuple[Array, Any]:
        before = states(self)
        return self.layers[0].forward(x)[0], (x, before)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, before = saved
        with drawing_from(self, before):
            _, kept = self.layers[0].forward(x)
        return backward_of(self.layers[0], dy, kept, x.shape)

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        return self.layers[0].backward_flops(shape) + self.layers[0].flops(shape)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.layers[0].output_shape(shape)


def generators(layer) -> list[Any]:
    """List the random generators of a layer and of all layers inside it, each once."""
    return list({id(part.rng): part.rng for part in walk(layer) if part.rng is not None}.values())


def states(layer) -> list[Any]:
    """Return the states of a layer's random generators."""
    return [rng.bit_generator.state for rng in generators(layer)]


@contextmanager
def drawing_from(layer, before):
    """Draw a layer's random numbers from given states; afterwards the generators are where they were."""
    now = states(layer)
    for rng, state in zip(generators(layer), before, strict=True):
        rng.bit_generator.state = state
    yield
    for rng, state in zip(generators(layer), now, strict=True):
        rng.bit_generator.state = state
