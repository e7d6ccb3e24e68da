"""The state of a training run: what has to be written down so that another process can go on from there.

Parameters (the running statistics of normalisation are among them: rank 0's, where every rank has its own), the
optimizer's memory, and the generators that draw dropout masks. All in the shapes of the serial model: data-parallel
ranks hold the same, so any number of ranks can go on. The order of samples needs no state: it depends on the seed and
the epoch alone.
"""

from __future__ import annotations

import numpy as np

from ..backend import get_xp, to_numpy
from ..nn.base import walk
from ..optim.rule import memory_of

_SCALARS = ("steps", "scale", "skipped", "_good")
"""Attributes of optimizers that are numbers."""


def _check_checkpointable(strategy) -> None:
    """Raise unless every rank holds the whole state."""
    if not getattr(strategy, "checkpointable", False):
        raise TypeError(
            f"{type(strategy).__name__} deals parts of the model or of the optimizer's memory out to ranks: "
            "checkpoints need a strategy that keeps both whole on every rank (Serial, DataParallel)"
        )


def _optimizer_arrays(optimizer) -> dict:
    """Return the optimizer's arrays by name: its memory, and master weights where it has them."""
    found = {}
    for p, state in zip(optimizer.params, optimizer.states, strict=True):
        found |= {f"optimizer/{p.name}/{i}": part for i, part in enumerate(memory_of(state))}
    return found | {f"master/{m.name}": m.data for m in getattr(optimizer, "master", ())}


def live_arrays(strategy) -> dict:
    """Return all arrays of the state by name: the arrays themselves, not copies.

    Parameters
    ----------
    strategy : Strategy
        Serial or data-parallel.

    Raises
    ------
    TypeError
        If the strategy keeps no whole state on a rank.
    """
    _check_checkpointable(strategy)
    params = {f"param/{p.name}": p.data for p in strategy.model.params}
    if len(params) < len(strategy.model.params):
        raise ValueError("two parameters of the model have the same name: their states could not be told apart")
    return params | _optimizer_arrays(strategy.optimizer)


def generators(model) -> list[np.random.Generator]:
    """Return the random number generators of a model's layers, in order."""
    found = [getattr(layer, "rng", None) for layer in walk(model)]
    return [rng for rng in found if isinstance(rng, np.random.Generator)]


def capture(strategy) -> tuple[dict[str, np.ndarray], dict]:
    """Copy the state of this rank.

    Returns
    -------
    arrays : dict of str to array
        NumPy copies.
    scalars : dict
        The optimizer's counters, and the states of the layers' random number generators.
    """
    arrays = {name: to_numpy(array).copy() for name, array in live_arrays(strategy).items()}
    optimizer = strategy.optimizer
    numbers = {name: getattr(optimizer, name) for name in _SCALARS if hasattr(optimizer, name)}
    return arrays, {"optimizer": numbers, "generators": [g.bit_generator.state for g in generators(strategy.model)]}


def restore(strategy, arrays: dict, scalars: dict) -> None:
    """Put a captured state into a strategy, in place.

    Raises
    ------
    ValueError
        If it is that of another model or optimizer; nothing has been changed then.
    """
    live = live_arrays(strategy)
    missing, extra = sorted(set(live) - set(arrays)), sorted(set(arrays) - set(live))
    if missing or extra:
        raise ValueError(
            f"the state is of another model or optimizer: it lacks {missing[:3]}, and has {extra[:3]} more"
        )
    for name, array in live.items():
        if array.shape != arrays[name].shape or array.dtype != arrays[name].dtype:
            raise ValueError(
                f"the state is of another model: {name} is {arrays[name].shape} {arrays[name].dtype}, "
                f"expected {array.shape} {array.dtype}"
            )
    for name, array in live.items():
        array[...] = get_xp(array).asarray(arrays[name])
    for name, value in scalars["optimizer"].items():
        setattr(strategy.optimizer, name, value)
    for rng, state in zip(generators(strategy.model), scalars["generators"], strict=False):
        rng.bit_generator.state = state
