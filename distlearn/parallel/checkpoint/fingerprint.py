"""What determines a run, whatever the strategy and the world: saved with a checkpoint, compared when resuming."""

from __future__ import annotations

from dataclasses import is_dataclass
from hashlib import blake2b
from itertools import zip_longest

import numpy as np

from ...backend import to_numpy
from ...nn.fused import unfuse

STEPS = (0, 1, 10, 100, 1000, 10_000)
"""At these steps a learning-rate schedule is asked that cannot be told by its fields."""
LONGEST = 60


def run_fingerprint(model, loss, optimizer) -> dict:
    """Return what a strategy trains, and how, as values that JSON can hold."""
    groups = [
        {"parameters": [p.name for p in g.params], "rule": describe(g.rule), "lr": describe_schedule(g.lr)}
        for g in optimizer.groups
    ]
    return {
        "layers": [repr(layer) for layer in unfuse(model).children or [model]],
        "parameters": [f"{p.name} {list(p.data.shape)} {p.data.dtype}{' frozen' * p.frozen}" for p in model.params],
        "loss": describe(loss),
        "optimizer": type(optimizer).__name__,
        "groups": groups,
        "clip_norm": optimizer.clip_norm,
    }


def data_fingerprint(dataset, batch_size: int, seed: int) -> dict:
    """Return what a run is trained on, and in which order."""
    digest = blake2b(digest_size=8)
    for array in (dataset.x_train, dataset.y_train):
        digest.update(np.ascontiguousarray(to_numpy(array)).reshape(-1).view(np.uint8))
    return {
        "data": dataset.name,
        "samples": len(dataset.x_train),
        "checksum of the samples": digest.hexdigest(),
        "batch_size": int(batch_size),
        "seed": int(seed),
    }


def differences(saved: dict, now: dict) -> list[str]:
    """Say where two fingerprints differ, one line for each place: "clip_norm 1.0 (now None)".

    Parameters
    ----------
    saved, now : dict
        What `run_fingerprint` and `data_fingerprint` return; `saved` may have been JSON.

    Examples
    --------
    >>> differences({"clip_norm": 1.0, "layers": ["A", "B"]}, {"clip_norm": 1.0, "layers": ["A", "C", "D"]})
    ["layers[1] 'B' (now 'C')"]
    """
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
    """Describe a rule, a loss or a function by a name that is the same in every process.

    Examples
    --------
    >>> from distlearn.nn import SoftmaxCrossEntropy
    >>> from distlearn.optim import Momentum
    >>> describe(Momentum(0.5)), describe(SoftmaxCrossEntropy()), describe(len)
    ('Momentum(momentum=0.5, weight_decay=0.0)', 'SoftmaxCrossEntropy()', 'len')
    """
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


def describe_schedule(lr) -> str | dict:
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
