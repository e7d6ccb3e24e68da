"""The state of a training run: what has to be written down so that another process can go on from there.

Parameters (the running statistics of normalisation are among them: rank 0's, where every rank has its own), the
optimizer's memory, and the generators that draw dropout masks. All in the shapes of the serial model, so any number of
ranks can go on, with any strategy: data-parallel ranks hold the same, and strategies that deal the state out to ranks
put it together (`gather_state`) and take their parts of it again (`put_state`). The order of samples needs no state: it
depends on the seed and the epoch alone.

Some strategies keep what differs from rank to rank: replicas between two averages, what compressed gradients have left
out. For as many ranks, which go on bit for bit, that is saved rank by rank under names of its own ("ranks/0/...");
others take what it comes to for all (`serial_part`, and "residual/..." of compression).
"""

from __future__ import annotations

import numpy as np

from ...backend import get_xp, to_numpy
from ...nn.layer import walk
from ...optim.rule import memory_of

_SCALARS = ("steps", "scale", "skipped", "_good")
"""Attributes of optimizers that are numbers."""
_RANKS = "ranks/"
"""Begins the names of what one rank has alone."""
RESIDUAL = "residual/"
"""Begins the names of what compression has left out of the gradients so far, in the serial model's shapes."""


def check_checkpointable(strategy) -> None:
    """Raise unless the state of the whole run can be had from the strategy."""
    if not getattr(strategy, "checkpointable", False):
        raise TypeError(
            f"{type(strategy).__name__} has no state that all ranks share: checkpoints need a strategy that has one "
            "(Serial, DataParallel, NaiveDataParallel, ElasticDataParallel, LocalSGD, ZeRO, TensorParallel, "
            "OneWeirdTrick, Pipeline, PipeDream, Hybrid)"
        )


def _optimizer_arrays(optimizer) -> dict:
    """Return the optimizer's arrays by name: its memory, and master weights where it has them."""
    found = {}
    for p, state in zip(optimizer.params, optimizer.states, strict=True):
        found |= {f"optimizer/{p.name}/{i}": part for i, part in enumerate(memory_of(state))}
    if optimizer.weights is optimizer.params:
        return found
    return found | {f"master/{m.name}": m.data for m in optimizer.weights}


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


def all_generators(strategy) -> list[np.random.Generator]:
    """Return the random number generators of a strategy's layers, then those of its own (random rounding)."""
    return generators(strategy.model) + list(getattr(strategy, "generators", ()))


def capture(strategy) -> tuple[dict[str, np.ndarray] | None, dict]:
    """Copy the state; where ranks have to put it together (`gather_state`), every rank must call.

    Returns
    -------
    arrays : dict of str to array
        NumPy copies in the shapes of the serial model; where ranks put the state together, None on all but rank 0.
    scalars : dict
        The optimizer's counters, and the states of this rank's random number generators.
    """
    arrays = strategy.gather_state() if hasattr(strategy, "gather_state") else copies(live_arrays(strategy))
    states = [rng.bit_generator.state for rng in all_generators(strategy)]
    return arrays, {"optimizer": counters(strategy.optimizer), "generators": states}


def restore(strategy, arrays: dict, scalars: dict) -> None:
    """Put a captured state into a strategy, in place; every rank must call.

    Raises
    ------
    ValueError
        If it is that of another model or optimizer; nothing has been changed then.
    """
    if hasattr(strategy, "put_state"):
        strategy.put_state(arrays)
    else:
        put(live_arrays(strategy), arrays)
    set_counters(strategy.optimizer, scalars["optimizer"])
    for rng, state in zip(all_generators(strategy), scalars["generators"], strict=False):
        rng.bit_generator.state = state


# -- what strategies put their state together and apart with


def copies(live: dict) -> dict:
    """Copy arrays by name into the host's memory."""
    return {name: to_numpy(array).copy() for name, array in live.items()}


def put(live: dict, arrays: dict) -> None:
    """Write the serial part of a state into live arrays of the same names; nothing is changed if they do not fit."""
    arrays = serial_part(arrays)
    check_names(arrays, live)
    write([(array, whole(arrays, name, array.shape, array.dtype)) for name, array in live.items()])


def counters(optimizer) -> dict:
    """Return an optimizer's numbers by name."""
    return {name: getattr(optimizer, name) for name in _SCALARS if hasattr(optimizer, name)}


def set_counters(optimizer, numbers: dict) -> None:
    """Put an optimizer's numbers back."""
    for name, value in numbers.items():
        setattr(optimizer, name, value)


def serial_part(arrays: dict) -> dict:
    """Return what the serial model has of a state: without what belongs to ranks, and what is owed to gradients."""
    return {name: array for name, array in arrays.items() if not name.startswith((_RANKS, RESIDUAL))}


def gather_by_rank(comm, own: dict) -> dict | None:
    """Return what each rank has alone, under names that say whose it is, on rank 0; None elsewhere; one gather.

    Parameters
    ----------
    comm : Communicator
    own : dict of str to array
    """
    everybody = comm.gather_obj(copies(own))
    if everybody is None:
        return None
    return {f"{_RANKS}{rank}/{name}": array for rank, theirs in enumerate(everybody) for name, array in theirs.items()}


def part_of_rank(arrays: dict, rank: int) -> dict:
    """Return what one rank had alone, by the names that it gave; nothing if there was no such rank."""
    mine = f"{_RANKS}{rank}/"
    return {name.removeprefix(mine): array for name, array in arrays.items() if name.startswith(mine)}


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
