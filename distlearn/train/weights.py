"""Trained weights in a safetensors file, which other programs read as well, and models rebuilt from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..backend import Array, to_numpy
from ..data import Dataset
from ..files import whole_file
from ..nn.container import check_unique_names
from ..nn.layer import Layer, unfit
from .program import make_model
from .settings import Settings

FILE = "model.safetensors"
"""Name of the weights in a folder of results."""


_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class WeightsError(ValueError):
    """A file of weights cannot be read, or does not match the model."""


@dataclass
class Trained:
    """A trained classifier, with its settings, classes and image format."""

    model: Layer
    settings: Settings  # of the run that trained it
    n_features: int
    classes: tuple[str, ...]
    image_shape: tuple[int, ...] | None  # (height, width, channels) of the images that it was trained on
    value_range: tuple[float, float]  # stored values of a pixel that became 0 and 1

    def predict(self, x: Array, batch_size: int = 1024) -> np.ndarray:
        """Return the probability of every class, (n, classes).

        Parameters
        ----------
        x : (n, features) or (n, height, width[, channels]) array
            Scaled as in training, to 0..1.
        """
        x, shape = np.asarray(x), self.image_shape
        shapes = [(self.n_features,)]
        if shape is not None:
            shapes += [shape, *([shape[:2]] if shape[2] == 1 else [])]
        if x.shape[1:] not in shapes:  # only the number of features would let through channels that stand first
            known = " or ".join(f"(samples, {', '.join(map(str, shape))})" for shape in shapes)
            raise ValueError(f"x has shape {x.shape}, expected {known}")
        if x.dtype.kind != "f":
            low, high = self.value_range
            way = f"(x - {low:g}) / {high - low:g}, as the pixels in training"
            raise ValueError(f"predict: x is {x.dtype}, expected fractions of 0 to 1: {way}")
        x, model = x.reshape(len(x), self.n_features).astype(self.settings.dtype), self.model.eval()
        parts = [to_numpy(model.forward(x[i : i + batch_size])[0]) for i in range(0, len(x), batch_size)]
        logits = np.concatenate(parts or [np.zeros((0, len(self.classes)))]).astype(np.float64)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


def save_weights(model: Layer | dict[str, np.ndarray], path: str | Path) -> Path:
    """Save a model's parameters, running statistics included, for `load_weights` and other readers of safetensors.

    Parameters
    ----------
    model : Layer or dict of str to array
        Such as what `Strategy.gather_params` returns on rank 0.
    path : path
        Of the file; it replaces an older one when it is complete.
    """
    if model is None:
        raise TypeError(
            "save_weights: model is None: gather_params returns parameters on rank 0 alone; save them there"
        )
    if isinstance(model, Layer):
        check_unique_names(model.params)
        model = {p.name: p.data for p in model.params}
    return _write(model, path, {})


def save_trained(path, params: dict[str, np.ndarray], settings: Settings, dataset: Dataset) -> Path:
    """Save trained parameters (`Strategy.gather_params`), and the settings and data from which to rebuild the model."""
    about = {
        "settings": {name: value for name, value in settings.as_dict().items() if not callable(value)},
        "data": dataset.name,
        "classes": dataset.classes,
        "n_features": dataset.n_features,
        "image_shape": dataset.image_shape,
        "value_range": dataset.value_range,
    }
    return _write(params, path, {"distlearn": json.dumps(about)})


def _write(params: dict[str, Any], path, metadata: dict[str, str]) -> Path:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(to_numpy(value)) for name, value in params.items()}
    with whole_file(path) as fresh:
        fresh.write_bytes(save(arrays, metadata))
    return Path(path)


def load(path: str | Path) -> Trained:
    """Load a network trained by `distlearn train`.

    Parameters
    ----------
    path : path
        A folder of results, or a file of weights in it.

    Examples
    --------
    >>> import distlearn as dl
    >>> trained = dl.load("runs/digits-mlp-local1")                                     # doctest: +SKIP
    >>> trained.predict(images).argmax(axis=1)                                          # doctest: +SKIP
    """
    path, arrays, metadata = _read(path)
    if "distlearn" not in metadata:
        raise WeightsError(f"{path}: was not written by `distlearn train`; see `load_weights(model, path)`")
    about = json.loads(metadata["distlearn"])
    settings = Settings(**about["settings"] | {"device": "cpu"})
    model = make_model(settings, about["n_features"], len(about["classes"]))
    _take(model, arrays, path)
    classes, value_range, shape = (
        about[name] and tuple(about[name]) for name in ("classes", "value_range", "image_shape")
    )
    return Trained(model, settings, about["n_features"], classes, shape, value_range)


def load_weights(model: Layer, path: str | Path) -> None:
    """Load weights into a model, by name; if a name, a shape or a value does not fit, nothing is changed.

    Parameters
    ----------
    path : path
        A folder of results, or any safetensors file with the model's names and shapes, of floating-point numbers of 16
        bits (bfloat16 too) or more.
    """
    path, arrays, _ = _read(path)
    _take(model, arrays, path)


def _read(path) -> tuple[Path, dict[str, np.ndarray], dict[str, str]]:
    """Read a file of weights, or that in a folder; return its path, the arrays, and the metadata."""
    from safetensors import SafetensorError, deserialize

    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of weights")
    data, arrays = path.read_bytes(), {}
    try:
        stored = deserialize(data)
    except SafetensorError as error:
        raise WeightsError(f"{path}: is not a complete safetensors file: {error}") from None
    for name, about in stored:
        dtype = about["dtype"]
        if dtype not in _DTYPES:
            raise WeightsError(
                f"{path}: holds {name} of {dtype}, expected floating-point numbers: {', '.join(_DTYPES)}"
            )
        array = np.frombuffer(about["data"], _DTYPES[dtype]).reshape(about["shape"])
        arrays[name] = (array.astype("u4") << 16).view("f4") if dtype == "BF16" else array  # half of a float32
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return path, arrays, header.get("__metadata__", {})


def _take(model: Layer, arrays: dict[str, np.ndarray], path: Path) -> None:
    """Copy arrays into the model's parameters, after checking that all of them match."""
    params = {p.name: p for p in model.params}
    missing, extra = sorted(params.keys() - arrays), sorted(arrays.keys() - params)
    wrong = [f"no {name}" for name in missing] + [f"{name}, which the model does not have" for name in extra]
    for name in (name for name in params if name in arrays):
        found, data = arrays[name], params[name].data
        if found.shape != data.shape:
            wrong.append(f"{name} of shape {found.shape}, expected {data.shape}")
        elif why := unfit(found, data.dtype):
            wrong.append(f"{name} of {why}")
    if wrong:
        raise WeightsError(f"{path}: holds {'; '.join(wrong[:4])}{' ...' if len(wrong) > 4 else ''}")
    for name, p in params.items():
        p.data[...] = arrays[name]
