"""The state of a training run: what has to be written down so that another process can go on from there.

Parameters (the running statistics of normalisation are among them: rank 0's, where every rank has its own), the
optimizer's memory, and the generators that draw dropout masks. All in the shapes of the serial model, so any number of
ranks can go on, with any strategy: data-parallel ranks hold the same, and strategies that deal the state out to ranks
put it together (`gather_state`) and take their parts of it again (`put_state`). The order of samples needs no state: it
depends on the seed and the epoch alone. What compressed gradients left out of the last step (error feedback) belongs to
one rank and is not saved: a run that goes on from a checkpoint loses it, once, and is equal to an undisturbed one only
up to that.
"""

from __future__ import annotations

import numpy as np

from ..backend import get_xp, to_numpy
from ..nn.base import walk
from ..optim.rule import memory_of

_SCALARS = ("steps", "scale", "skipped", "_good")
"""Attributes of optimizers that are numbers."""


def check_checkpointable(strategy) -> None:
    """Raise unless the state of the whole run can be had from the strategy."""
    if not getattr(strategy, "checkpointable", False):
        raise TypeError(
            f"{type(strategy).__name__} has no state that all ranks share: checkpoints need a strategy that has one "
            "(Serial, DataParallel, NaiveDataParallel, ElasticDataParallel, ZeRO, TensorParallel, OneWeirdTrick, "
            "Pipeline, Hybrid)"
        )


def _optimizer_arrays(optimizer) -> dict:
    """Return the optimizer's arrays by name: its memory, and master weights where it has them."""
    found = {}
    for p, state in zip(optimizer.params, optimizer.states, strict=True):
        found |= {f"optimizer/{p.name}/{i}": part for i, part in enumerate(memory_of(state))}
    return found | {f"master/{m.name}": m.data for m in getattr(optimizer, "master", ())}


def named_arrays(params, optimizer) -> dict:
    """Return parameters and the optimizer's memory by name: "param/0.W", "optimizer/0.W/0"; the arrays themselves."""
    found = {f"param/{p.name}": p.data for p in params}
    if len(found) < len(params):
        raise ValueError("two parameters of the model have the same name: their states could not be told apart")
    return found | _optimizer_arrays(optimizer)


def live_arrays(strategy) -> dict:
    """Return all arrays of the state that this rank holds, by name: the arrays themselves, not copies.

    Parameters
    ----------
    strategy : Strategy

    Raises
    ------
    TypeError
        If the strategy has no state that can be saved.
    """
    check_checkpointable(strategy)
    if hasattr(strategy, "own_state"):
        return strategy.own_state()
    return named_arrays(strategy.model.params, strategy.optimizer)


def generators(model) -> list[np.random.Generator]:
    """Return the random number generators of a model's layers, in order; None has none."""
    found = [getattr(layer, "rng", None) for layer in walk(model)] if model is not None else []
    return [rng for rng in found if isinstance(rng, np.random.Generator)]


def capture(strategy) -> tuple[dict[str, np.ndarray] | None, dict]:
    """Copy the state; where it is dealt out to ranks (`gather_state`), every rank must call.

    Returns
    -------
    arrays : dict of str to array
        NumPy copies in the shapes of the serial model; where the state is dealt out, None on all ranks but 0.
    scalars : dict
        The optimizer's counters, and the states of the layers' random number generators.
    """
    if hasattr(strategy, "gather_state"):
        arrays = strategy.gather_state()
    else:
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
    if hasattr(strategy, "put_state"):
        strategy.put_state(arrays)
    else:
        live = live_arrays(strategy)
        check_names(arrays, live)
        write([(array, whole(arrays, name, array.shape, array.dtype)) for name, array in live.items()])
    for name, value in scalars["optimizer"].items():
        setattr(strategy.optimizer, name, value)
    for rng, state in zip(generators(strategy.model), scalars["generators"], strict=False):
        rng.bit_generator.state = state


# -- what strategies put their state together and apart with


def check_names(arrays: dict, wanted) -> None:
    """Raise unless the arrays of a state are those that are wanted."""
    missing, extra = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
    if missing or extra:
        raise ValueError(
            f"the state is of another model or optimizer: it lacks {missing[:3]}, and has {extra[:3]} more"
        )


def whole(arrays: dict, name: str, shape, dtype):
    """Return an array of a state; raise unless it has the shape and the dtype that the serial model's has."""
    if name not in arrays:
        raise ValueError(f"the state is of another model or optimizer: it lacks {name}")
    if arrays[name].shape != tuple(shape) or arrays[name].dtype != dtype:
        raise ValueError(
            f"the state is of another model: {name} is {arrays[name].shape} {arrays[name].dtype}, "
            f"expected {tuple(shape)} {dtype}"
        )
    return arrays[name]


def write(pairs) -> None:
    """Copy values into live arrays."""
    for array, value in pairs:
        array[...] = get_xp(array).asarray(value)


def param_name(name: str) -> str:
    """Return the name of the parameter to which an array of a state belongs.

    Examples
    --------
    >>> param_name("param/0.W"), param_name("optimizer/0.W/1")
    ('0.W', '0.W')
    """
    kind, _, rest = name.partition("/")
    return rest.rpartition("/")[0] if kind == "optimizer" else rest
