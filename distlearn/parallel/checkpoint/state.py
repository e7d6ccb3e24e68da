"""The contents of a checkpoint: a strategy's arrays by name, and a fingerprint of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import to_numpy
from ...nn.container import check_unique_names
from ...nn.layer import unfit
from ...nn.recompute import generators
from ...optim.optimizer import state_arrays
from ..data.replicas import checksum
from ..sharding import ShardSpec, assemble, counting, of_rank

if TYPE_CHECKING:
    from ...nn.layer import Param
    from ...optim.optimizer import Optimizer

# -- state -------------------------------------------------------------------------------------------------------------
# The state of a training run, from which another process can continue.
#
# Parameters (the running statistics of normalisation are among them: rank 0's, where every rank has its own), the
# optimizer's state, and the generators that draw dropout masks. All in the shapes of the serial model, so any number
# of ranks can continue, with any strategy: `state_dict` returns a rank's part of each array, `unshard` puts them
# together, and `load_state_dict` takes a rank's part again. The order of samples needs no state: it depends on the
# seed and the epoch.
#
#     param/0.W   optimizer/0.W/0                   of the serial model
#     ranks/2/...                                   arrays of rank 2 alone
#
# Some strategies keep arrays that differ from rank to rank: replicas between two averages, errors of compressed
# gradients. The same number of ranks loads them and continues bit for bit; other numbers load the serial state.

_RANKS = "ranks/"


def named_arrays(params: Iterable[Param], optimizer: Optimizer) -> dict[str, Any]:
    """Return parameters and the optimizer's state by name: "param/0.W", "optimizer/0.W/0"; the arrays themselves."""
    check_unique_names(params)
    found = {f"param/{p.name}": p.data for p in params}
    for p, state in zip(optimizer.params, optimizer.states, strict=True):
        found |= {f"optimizer/{p.name}/{i}": array for i, array in enumerate(state_arrays(state))}
    return found


def param_name(name: str) -> str:
    """Return the name of the parameter to which an array of a state belongs."""
    kind, _, rest = name.partition("/")
    return rest.rpartition("/")[0] if kind == "optimizer" else rest


def state_layout(model, optimizer) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Return shapes and dtypes of the arrays of a serial model's state, by name."""
    arrays = named_arrays(model.params, optimizer)
    return {name: (tuple(a.shape), np.dtype(a.dtype)) for name, a in arrays.items()}


def check_state(arrays: dict[str, Any], layout: dict[str, Any]) -> None:
    """Raise unless a state has this layout: then all of it can be loaded, on every rank."""
    missing, extra = sorted(layout.keys() - arrays), sorted(arrays.keys() - layout)
    if missing or extra:
        raise ValueError(f"the state is of another model or optimizer: it lacks {missing[:3]}, has {extra[:3]}")
    for name, (shape, dtype) in layout.items():
        if arrays[name].shape != shape or arrays[name].dtype != dtype:
            found = f"{arrays[name].shape} {arrays[name].dtype}, expected {shape} {dtype}"
            raise ValueError(f"the state is of another model: {name} is {found}")
        if name.startswith("param/") and (why := unfit(arrays[name], dtype)):
            raise ValueError(f"the state cannot be trained on: {name} holds {why}")


def serial_part(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the serial model's part of a state, without arrays of single ranks."""
    return {name: array for name, array in arrays.items() if not name.startswith(_RANKS)}


def part_of_rank(arrays: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the arrays of one rank alone, by its own names; none if there was no such rank."""
    mine = of_rank(rank, "")
    return {name.removeprefix(mine): array for name, array in arrays.items() if name.startswith(mine)}


# -- saving and restoring ----------------------------------------------------------------------------------------------


def check_checkpointable(strategy) -> None:
    """Raise unless the strategy can give the state of the whole run."""
    if not strategy.checkpointable:
        raise TypeError(f"{type(strategy).__name__} has no state that all ranks share, so it cannot save checkpoints")


def local_state(strategy) -> tuple[Any, ...]:
    """Copy this rank's state: array shards, rank-local arrays, random-number states, shared counters."""
    check_checkpointable(strategy)
    own = {name: to_numpy(array).copy() for name, array in strategy.own_state().items()}
    drawn = {
        "part": strategy.rank,
        "states": {place: rng.bit_generator.state for place, rng in all_generators(strategy).items()},
    }
    state = strategy.state_dict()
    same = {name: a for name, (a, spec) in state.items() if spec == ShardSpec(spec.shape, counts=spec.counts)}
    sums = {name: checksum(a) for name, a in same.items() if strategy.size > 1 and name not in own}
    return counting(state), own, drawn, (strategy.optimizer.steps, strategy.layout), sums


def capture(strategy) -> tuple[dict[str, np.ndarray] | None, dict]:
    """Copy the state to rank 0: arrays in the shapes of the serial model, and values for JSON; all must call."""
    states = strategy.world.gather_obj(local_state(strategy))
    if states is None:
        return None, {}
    held, alone, generators, shared, sums = zip(*states, strict=True)
    for rank, theirs in enumerate(sums):
        for name in (name for name, found in theirs.items() if found != sums[0].get(name, found)):
            raise ValueError(
                f"{name} on rank {rank} is not what it is on rank 0, which would be saved for all: a strategy whose "
                "ranks differ returns parallel.named_arrays(self.model.params, self.optimizer) from own_state(), and "
                "passes arrays | parallel.part_of_rank(arrays, self.rank) to super().load_state_dict; if they should "
                "not differ, check_replicas(comm, params) after each step finds when they begin to"
            )
    arrays = assemble(held)
    for rank, theirs in enumerate(alone):
        arrays |= {of_rank(rank, name): array for name, array in theirs.items()}
    steps, layout = shared[0]
    return arrays, {"steps": steps, "generators": list(generators), "layout": layout}


def restore(strategy, arrays: dict[str, Any], scalars: dict[str, Any]) -> None:
    """Put a captured state into a strategy, in place; every rank must call, with all arrays."""
    strategy.load_state_dict(arrays)
    steps, states = scalars["steps"], _states_of(strategy, scalars)
    strategy.optimizer.steps = steps
    for i, (place, rng) in enumerate(all_generators(strategy).items()):
        new = np.random.default_rng([steps, strategy.rank, i]).bit_generator.state
        rng.bit_generator.state = states.get(place, new)


def _states_of(strategy, scalars: dict[str, Any]) -> dict[str, Any]:
    """Choose this rank's states of generators: of a layer those with which the same part of the batch was drawn."""
    by_rank, world, states = scalars["generators"], strategy.world, {}
    if len({held["part"] for held in by_rank}) == strategy.size:
        for held in by_rank:
            states |= held["states"] if held["part"] == strategy.rank else {}
    if len(by_rank) == world.size and scalars["layout"] == strategy.layout:
        states |= by_rank[world.rank]["states"]
    return states


def all_generators(strategy) -> dict[str, np.random.Generator]:
    """Return generators by place: of the layers, in the whole model; of the strategy (random rounding)."""
    places = {id(rng): str(i) for i, rng in enumerate(strategy.model_generators)}
    found = {places.get(id(rng), f"new {i}"): rng for i, rng in enumerate(generators(strategy.model))}
    return found | {f"own {i}": rng for i, rng in enumerate(strategy.generators)}


# -- fingerprint -------------------------------------------------------------------------------------------------------
# Model, optimizer and data, whatever the strategy and the world: saved with a checkpoint, compared when resuming.

STEPS = (0, 1, 10, 100, 1000, 10_000)
"""Steps at which a learning-rate schedule without fields is evaluated."""
LONGEST = 60


def run_fingerprint(model, loss, optimizer) -> dict[str, Any]:
    """Return the layers, parameters, loss and optimizer of a strategy, as values that JSON can hold."""
    return {
        "layers": [repr(layer) for layer in model.children or [model]],
        "parameters": [f"{p.name} {list(p.data.shape)} {p.data.dtype}{' frozen' * p.frozen}" for p in model.params],
        "loss": describe(loss),
        "optimizer": type(optimizer).__name__,
        "trained": [p.name for p in optimizer.params],
        "rule": describe(optimizer.rule),
        "lr": describe_schedule(optimizer.lr),
        "clip_norm": optimizer.clip_norm,
    }


def data_fingerprint(dataset, batch_size: int, seed: int) -> dict[str, Any]:
    """Return the data of a run, and their order."""
    digest = blake2b(digest_size=8)
    for array in (getattr(dataset.x_train, "identity", dataset.x_train), dataset.y_train):
        digest.update(np.ascontiguousarray(to_numpy(array)).reshape(-1).view(np.uint8))
    return {
        "data": dataset.name,
        "samples": len(dataset.x_train),
        "checksum of the samples": digest.hexdigest(),
        "batch_size": int(batch_size),
        "seed": int(seed),
    }


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say where two fingerprints, of which one may have been JSON, differ: "clip_norm 1.0 (now None)"."""
    found = []
    for key in [*now, *(key for key in saved if key not in now)]:
        place = _difference(key, saved.get(key), now.get(key))
        if place is not None:
            found.append("{} {} (now {})".format(*place))
    return found


def _difference(where: str, saved, now):
    """Return the first place where two values differ, and both values there; None where they agree."""
    if isinstance(saved, dict) and isinstance(now, dict):
        parts = ((f"{where}.{key}", saved.get(key), now.get(key)) for key in saved | now)
    elif isinstance(saved, list) and isinstance(now, list):
        pairs = zip_longest(saved, now)
        parts = ((f"{where}[{i}]", a, b) for i, (a, b) in enumerate(pairs))
    else:
        return None if saved == now or (saved != saved and now != now) else (where, _short(saved), _short(now))
    return next(filter(None, (_difference(*part) for part in parts)), None)


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def describe(thing) -> str:
    """Describe a rule, a loss or a function by a name that is the same in every process."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return repr(thing)
    if hasattr(thing, "__qualname__"):
        return thing.__qualname__
    fields = {
        name: value
        for name, value in getattr(thing, "__dict__", {}).items()
        if isinstance(value, (bool, int, float, str))
    }
    return f"{type(thing).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def describe_schedule(lr) -> str | dict[str, Any]:
    """Describe a learning-rate schedule: by its fields, or, for any other function, by some of its rates."""
    if is_dataclass(lr):
        return repr(lr)
    rates = {}
    for step in STEPS:
        try:
            rates[str(step)] = float(lr(step))
        except (LookupError, ValueError, ArithmeticError):  # a table that ends earlier
            break
    return {"function": describe(lr), "at step": rates}
