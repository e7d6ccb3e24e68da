"""Cut a model into stages of consecutive layers, so that the slowest stage is as fast as it can be."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import accumulate, pairwise

from ...nn import Sequential
from ...nn.layer import Layer, walk


def balance(costs: Sequence[float], n_stages: int, *, together: int = 1) -> list[slice]:
    """Cut layers into stages of consecutive layers; no other cut has a cheaper slowest stage.

    A pipeline is as slow as its slowest stage. Among equally good cuts, it takes the one whose stages differ least (sum
    of squares).

    Parameters
    ----------
    costs : sequence of float
        Of each layer, 0 or more; only their ratios matter.
    n_stages : int
        At most as many as there are layers: no stage is empty.
    together : int
        Number of first layers that must stay on one stage.

    Returns
    -------
    stages : list of slice
        Of the layers.

    Notes
    -----
    Dynamic programming over (number of stages, layers before the cut), O(n_stages n_layers^2): exact.

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, section 3.1.

    Examples
    --------
    >>> balance([1, 1, 1, 1, 4], 2)
    [slice(0, 4, None), slice(4, 5, None)]
    """
    costs = [float(c) for c in costs]
    most = len(costs) - together + 1
    if not 1 <= n_stages <= most:
        which = f", of which the first {together} stay together" if together > 1 else ""
        raise ValueError(f"balance: {n_stages} stages of {len(costs)} layers{which}, expected 1 to {most} stages")
    if not all(0 <= c < float("inf") for c in costs):
        raise ValueError(f"balance: costs are {costs}, expected 0 or more for each layer")
    costs = [sum(costs[:together]), *costs[together:]]
    before = [0.0, *accumulate(costs)]
    slowest, _ = _best(before, n_stages, lambda total, stage: max(total, stage))
    room = slowest * (1 + 1e-12)  # sums of the same costs in another order may differ in the last bit
    _, cuts = _best(before, n_stages, lambda total, stage: total + stage * stage if stage <= room else float("inf"))
    return [slice(a, b) for a, b in pairwise([0, *(c + together - 1 for c in cuts[1:])])]


def _best(before: list[float], n_stages: int, join) -> tuple[float, list[int]]:
    """Find the cuts that minimize `join(value of the stages before, cost of a stage)`."""
    n = len(before) - 1
    worth = [[0.0] + [float("inf")] * n]
    origin = []
    for k in range(1, n_stages + 1):
        row, at = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(k, n + 1):
            row[end], at[end] = min(
                (join(worth[-1][start], before[end] - before[start]), start) for start in range(k - 1, end)
            )
        worth.append(row)
        origin.append(at)
    cuts = [n]
    for at in reversed(origin):
        cuts.append(at[cuts[-1]])
    return worth[-1][n], cuts[::-1]


def layer_costs(model: Sequential, shape: tuple[int, ...]) -> list[int]:
    """Return the operations of each layer, forward and backward, for an input of a shape.

    Parameters
    ----------
    shape : tuple of int
        Of the model's input, the batch included.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> layer_costs(MLP((784, 100, 10)), (1, 784))
    [313600, 300, 6000]
    """
    return [layer.flops(s) + layer.backward_flops(s) for layer, s in model.parts(tuple(shape))]


def inseparable(model: Sequential) -> int:
    """Return how many layers must be on the first stage: up to the last without a gradient of its input."""
    return max((i + 1 for i, layer in enumerate(model.layers) if not _gives_gradient(layer)), default=1)


def _gives_gradient(layer: Layer) -> bool:
    """Say whether a layer, with all layers in it, computes the gradient of its input."""
    return all(part.input_gradient for part in walk(layer))


def as_stages(stages, model: Sequential, n_stages: int, shape=None) -> list[slice]:
    """Convert a choice of stages to slices of a model's layers; balanced by default."""
    if not isinstance(model, Sequential):
        raise TypeError(f"stages: expected a Sequential, whose layers can be cut apart, got a {type(model).__name__}")
    n = len(model.layers)
    if stages is None:
        sizes = [sum(p.size for p in layer.params) for layer in model.layers]
        stages = sizes if shape is None else layer_costs(model, shape)
    if isinstance(stages, str) or not hasattr(stages, "__len__") or not len(stages):
        raise ValueError(f"stages: {stages!r}, expected a list: slices of the layers, or a cost for each layer")
    stages = list(stages)
    if not isinstance(stages[0], slice):
        if len(stages) != n:
            raise ValueError(f"stages: {len(stages)} costs for the {n} layers of the model, expected one for each")
        return balance(stages, n_stages, together=inseparable(model))
    if len(stages) != n_stages:
        raise ValueError(f"stages: {len(stages)} slices, but the schedule has {n_stages} stages")
    covered = [i for s in stages for i in range(*s.indices(n))]
    if covered != list(range(n)) or any(not range(*s.indices(n)) for s in stages):
        raise ValueError(f"stages: {stages}, expected slices that hold the layers 0 to {n - 1} once, in order")
    return [slice(*s.indices(n)[:2]) for s in stages]


def cut(model: Sequential, part: slice) -> Sequential:
    """Return some consecutive layers as a model of their own; layers and parameters keep the names they have.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> [p.name for p in cut(MLP((4, 3, 2)), slice(2, 3)).params]
    ['2.W', '2.b']
    """
    stage = copy.copy(model)  # not a new Sequential, which would number the layers again
    stage.layers = model.layers[part]
    mine = {id(p) for layer in stage.layers for p in layer.params}
    stage.params = [p for p in model.params if id(p) in mine]
    return stage
