"""Weights to and from PyTorch's `state_dict`, for the layers that both libraries have; without importing PyTorch.

The two have different memory layouts. Here images are channels-last and a matrix maps rows, (d_in, d_out); there
images are channels-first and a matrix maps columns, (d_out, d_in). A dense layer behind a `Flatten` therefore also has
its inputs in another order, for which the size of the image must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..backend import get_xp, to_numpy
from .container import Container, Sequential
from .conv import Conv2d
from .layer import Layer, Param, describe, unfit
from .linear import Embedding, Linear
from .norm import BatchNorm, LayerNorm, RMSNorm
from .recurrent import RNN, Recurrent
from .shape import Flatten


def to_torch_state(model: Layer, sample: tuple[int, ...] | None = None) -> dict[str, np.ndarray]:
    """Return a model's parameters as the `state_dict` of the same model in PyTorch, its layers at the same places.

    Parameters
    ----------
    sample : tuple of int, optional
        Shape of one sample of the model's input, such as (28, 28, 1); needed if there is a `Flatten`.

    Returns
    -------
    state : dict of str to array
        `{name: torch.from_numpy(a) for name, a in state.items()}` goes into `load_state_dict`.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> {name: array.shape for name, array in to_torch_state(MLP((784, 32, 10))).items()}
    {'0.weight': (32, 784), '0.bias': (32,), '2.weight': (10, 32), '2.bias': (10,)}
    """
    return {
        key: np.array(array, order="C")
        for entry in _entries(model, sample)
        for key, array in zip(entry.keys, entry.to_torch([to_numpy(p.data) for p in entry.params]), strict=True)
    }


def load_torch_state(model: Layer, state: Mapping, sample: tuple[int, ...] | None = None) -> None:
    """Set a model's parameters from a `state_dict` of the same model in PyTorch, in place; a wrong one changes nothing.

    Parameters
    ----------
    state : mapping of str to array
        PyTorch's tensors, or NumPy arrays such as safetensors reads; or the module itself.
    sample
        As for `to_torch_state`.

    Notes
    -----
    Arrays alone are read: that eps, strides, activations and dropout are equal is up to the caller. A recurrent layer
    has one bias where PyTorch trains two, whose sum moves twice as far in a step: outputs agree, training does not.
    """
    state = state.state_dict() if hasattr(state, "state_dict") else state
    state = {key: _array(key, value) for key, value in state.items() if not key.endswith("num_batches_tracked")}
    entries = _entries(model, sample)
    keys = [key for entry in entries for key in entry.keys if not key.endswith("num_batches_tracked")]
    missing, unknown = [k for k in keys if k not in state], [k for k in state if k not in set(keys)]
    if missing or unknown:
        raise ValueError(
            f"load_torch_state: the state lacks {', '.join(missing) or 'nothing'}, and it has "
            f"{', '.join(unknown) or 'nothing'} for which the model has no place"
        )
    found: dict[int, tuple[Param, np.ndarray, str]] = {}
    for entry in entries:
        arrays = [state[key] for key in entry.keys if key in state]
        here = entry.to_torch([to_numpy(p.data) for p in entry.params])
        for key, array, want in zip(entry.keys, arrays, here, strict=False):  # the count of batches is not read
            if array.shape != want.shape:
                raise ValueError(f"load_torch_state: {key} has shape {array.shape}, expected {tuple(want.shape)}")
            if why := unfit(array, want.dtype):
                raise ValueError(f"load_torch_state: {key} holds {why}")
        for p, array in zip(entry.params, entry.from_torch(arrays), strict=True):
            _, known, where = found.setdefault(id(p), (p, array, entry.keys[0]))
            if not np.array_equal(known, array, equal_nan=True):
                places = f"{where} and {entry.keys[0]}"
                raise ValueError(f"load_torch_state: {places} share {p.name}, but have different values")
    for p, array, _ in found.values():
        p.data[...] = get_xp(p.data).asarray(array, dtype=p.data.dtype)


def _array(key, value) -> np.ndarray:
    if hasattr(value, "detach"):  # of PyTorch; a parameter needs its gradient, and NumPy has no bfloat16
        if not value.is_floating_point():
            raise ValueError(f"load_torch_state: {key} holds {value.dtype}, expected floating-point numbers")
        value = value.detach().cpu()
        value = value.float() if value.element_size() < 4 else value
    return np.asarray(value)


class _Entry(NamedTuple):
    """One layer's parameters here, their keys in PyTorch, and the ways between the two."""

    params: list[Param]
    keys: list[str]
    to_torch: Callable[..., Any]  # Of the parameters' arrays: the arrays of `keys`.
    from_torch: Callable[..., Any]  # The way back.


def _entries(model, sample):
    found = []
    _visit(model, None if sample is None else (1, *sample), "", None, found)
    return found


def _visit(layer, shape, path, image, found):
    """Collect the entries of a layer and of those inside it; return the image whose values the output has in one row.

    `shape` is that of the input, None if unknown; `image` is (h, w, c) of the input of the `Flatten` before.
    """
    if isinstance(layer, Container):
        out = []
        parts = [s for _, s in layer.parts(shape)] if shape is not None else [None] * len(layer.layers)
        for i, (child, inner) in enumerate(zip(layer.layers, parts, strict=True)):
            before = out[-1] if out and isinstance(layer, Sequential) else image
            out.append(_visit(child, inner, f"{path}.{i}" if path else str(i), before, found))
        last = out[-1] if out else image
        if not isinstance(layer, Sequential) and len(out) > 1 and any(i is not None for i in out):
            raise ValueError(f"torch state: {describe(layer)} joins images that are flattened; flatten after it")
        return last
    if isinstance(layer, Flatten):
        if shape is None:
            raise ValueError(f"torch state: {describe(layer)} reorders an image; give sample, the input's shape")
        return shape[1:] if len(shape) == 4 else image
    if not layer.params:
        return image if shape is None or len(shape) == 2 else None
    if image is not None and not isinstance(layer, Linear):
        raise ValueError(f"torch state: {describe(layer)} stands between a Flatten and a dense layer; put it before")
    keys, to_torch, from_torch = _ways(layer, image)
    found.append(_Entry(layer.params, [f"{path}.{key}" if path else key for key in keys], to_torch, from_torch))
    return None


def _ways(layer, image):
    """Return the keys of a layer in PyTorch, and the functions there and back."""
    if hasattr(layer, "torch_ways"):  # a layer of one's own, also if it is a subclass of one of ours
        keys, there, back = layer.torch_ways()
        arrays = [to_numpy(p.data) for p in layer.params]
        made = list(there(arrays))
        shapes, due = [np.shape(a) for a in back(made)], [a.shape for a in arrays]
        if len(made) != len(keys) or shapes != due:
            raise TypeError(
                f"torch state: {describe(layer)}.torch_ways() gives {len(keys)} keys for {len(made)} arrays, and back "
                f"{shapes}, expected {due}: there(list of arrays) -> list, one for each key; back(list) is the way back"
            )
        return keys, there, back
    if isinstance(layer, Linear):
        return ["weight", "bias"], *_dense(image)
    if isinstance(layer, Conv2d):
        there, back = _first(lambda W: W.transpose(3, 2, 0, 1)), _first(lambda W: W.transpose(2, 3, 1, 0))
        return ["weight", "bias"], there, back
    if isinstance(layer, BatchNorm):
        keys = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
        return keys, lambda arrays: [*arrays, np.zeros((), np.int64)], list
    if isinstance(layer, (LayerNorm, RMSNorm)):
        return ["weight", "bias"][: len(layer.params)], list, list
    if isinstance(layer, Embedding):
        return ["weight"], list, list
    if isinstance(layer, Recurrent):
        keys = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
        return keys, *((_rnn_to, _rnn_from) if isinstance(layer, RNN) else (_gru_to, _gru_from))
    known = "has parameters, and no counterpart in PyTorch is known; its torch_ways() -> (keys, there, back) would say"
    raise TypeError(f"torch state: {describe(layer)} {known} the names there, and convert the arrays both ways")


def _first(change):
    return lambda arrays: [change(arrays[0]), *arrays[1:]]


def _dense(image):
    """A dense layer's ways: transposed, and behind a flattened image of (h, w, c) with the channels first."""
    if image is None:
        return _first(lambda W: W.T), _first(lambda W: W.T)
    h, w, c = image
    to_torch = _first(lambda W: W.reshape(h, w, c, -1).transpose(3, 2, 0, 1).reshape(-1, c * h * w))
    from_torch = _first(lambda W: W.reshape(-1, c, h, w).transpose(2, 3, 1, 0).reshape(h * w * c, -1))
    return to_torch, from_torch


def _rnn_to(arrays):
    W, U, b = arrays
    return [W.T, U.T, b, 0 * b]


def _rnn_from(arrays):
    W, U, b, of_state = arrays  # PyTorch adds two biases where one does
    return [W.T, U.T, b + of_state]


def _gru_to(arrays):
    """Both have the gates in the order r, z, n; only in n is the second bias not redundant."""
    W, U, b, c = arrays
    none = 0 * b[: 2 * len(c)]
    return [W.T, U.T, b, get_xp(b).concatenate([none, c])]


def _gru_from(arrays):
    W, U, b, of_state = arrays
    n = len(b) // 3
    return [W.T, U.T, np.concatenate([b[: 2 * n] + of_state[: 2 * n], b[2 * n :]]), of_state[2 * n :]]
