"""A data set in memory: arrays of samples and labels, and their splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..backend import to_device
from ..bounds import check_number

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# -- checks ------------------------------------------------------------------------------------------------------------
# Checks of arguments that several modules share.


def check_arrays(where: str, **arrays) -> None:
    """Raise unless these are arrays, of NumPy or CuPy."""
    for name, value in arrays.items():
        masked = isinstance(value, np.ma.MaskedArray)  # what it hides would be read
        if not hasattr(getattr(value, "dtype", None), "kind") or masked or isinstance(value, np.matrix):
            way = f"{name}.filled(value)" if masked else f"np.array({name})"
            raise TypeError(f"{where}: {name} is a {type(value).__name__}, expected an array, such as {way}")
        if value.dtype.kind == "c":
            raise TypeError(f"{where}: {name} holds {value.dtype}, expected real numbers: abs({name}), {name}.real")


# -- dataset -----------------------------------------------------------------------------------------------------------
# A data set in memory: train, validation and test split.


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with labels, split into train, validation and test.

    Parameters
    ----------
    x_train, x_val, x_test : (n, features) or (n, height, width, channels) array
        Samples; the three differ in n alone.
    y_train, y_val, y_test : (n, ...) array
        Index of each sample's class (of each position's, in sequences), or the targets of a regression.
    classes : tuple of str
        Names of the classes; empty where there are none.
    source : str
        Where the data came from: a folder or a package.
    image_shape : tuple of int, optional
        (height, width, channels) of a sample if it is an image: `x.reshape(-1, *image_shape)` are images, flat or not.
    value_range : (float, float)
        Stored values that became 0 and 1.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    source: str
    image_shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self):
        for split, x, y in self.splits():
            check_arrays(f"Dataset {self.name!r}", **{f"x_{split}": x, f"y_{split}": y})
            if len(x) != len(y):
                raise ValueError(f"Dataset {self.name!r}: {len(x)} samples in x_{split}, {len(y)} labels in y_{split}")
            if x.shape[1:] != self.shape:
                raise ValueError(f"Dataset {self.name!r}: x_{split} has samples of {x.shape[1:]}, not {self.shape}")
            if self.classes and len(y) and y.dtype.kind in "iu" and not (y.min() >= 0 and y.max() < self.n_classes):
                labels = f"{y.min()} to {y.max()}, expected 0 to {self.n_classes - 1}"
                raise ValueError(f"Dataset {self.name!r}: labels of y_{split} run from {labels}")

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        *,
        val: float = 0.1,
        test: float = 0.2,
        name: str = "arrays",
        classes: Sequence[str] | None = None,
        dtype: DTypeLike = np.float32,
        seed: int = 0,
    ) -> Dataset:
        """Split samples and their labels at random into train, validation and test.

        Parameters
        ----------
        x : (n, ...) array
            Samples, converted to `dtype`; nothing is scaled.
        y : (n, ...) array
            Indices of classes as integers, or the targets of a regression.
        val, test : float
            Shares of the samples.
        classes : sequence of str, optional
            Their names: "0", "1", ... by default if the labels are integers.

        Raises
        ------
        ValueError
            If the lengths differ, nothing is left to train on, or a label is no class.

        Examples
        --------
        >>> Dataset.from_arrays(np.zeros((50, 3)), np.arange(50) % 4)
        Dataset('arrays', train (35, 3), val (5, 3), test (10, 3), float32, 4 classes, from arrays)
        """
        check_arrays("from_arrays", x=x, y=y)
        if len(x) != len(y):
            raise ValueError(f"from_arrays: {len(x)} samples, but {len(y)} labels")
        if y.dtype.kind not in "iufb":
            numbers = "number them, names, y = np.unique(y, return_inverse=True), and give classes=names"
            raise TypeError(f"from_arrays: labels have dtype {y.dtype}, expected indices of classes: {numbers}")
        if not (val >= 0 and test >= 0 and (n := len(x) - round(val * len(x)) - round(test * len(x))) > 0):
            raise ValueError(f"from_arrays: val={val!r}, test={test!r} of {len(x)} samples leave none to train on")
        if y.dtype.kind in "iu" and classes is None and y.max() >= 1 << 20:
            remedy = "number them from 0: np.unique(y, return_inverse=True)[1]; targets of a regression are floats"
            raise ValueError(f"from_arrays: labels up to {y.max()} would be as many classes; {remedy}")
        if classes is None:
            classes = map(str, range(int(y.max()) + 1)) if y.dtype.kind in "iu" else ()
        rows = np.split(np.random.default_rng(seed).permutation(len(x)), [n, len(x) - round(test * len(x))])
        arrays = [array for part in rows for array in (x[part].astype(dtype), y[part])]
        return cls(name, *arrays, classes=tuple(classes), source="arrays")

    def splits(self) -> tuple[tuple[str, np.ndarray, np.ndarray], ...]:
        return (
            ("train", self.x_train, self.y_train),
            ("val", self.x_val, self.y_val),
            ("test", self.x_test, self.y_test),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x_train.shape[1:]

    @property
    def n_features(self) -> int:
        return math.prod(self.shape)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def on(self, device: str) -> Dataset:
        """Return the data set with its arrays on a device: "cpu", "gpu", or the index of a GPU."""
        return self._changed(
            lambda _, array: array.but(device=device) if hasattr(array, "but") else to_device(array, device)
        )

    def _changed(self, change, axes: str = "xy") -> Dataset:
        """Return the data set with `change(split, array)` in the place of each array of samples and labels."""
        parts = [(axis, split, a) for split, *xy in self.splits() for axis, a in zip("xy", xy, strict=True)]
        return replace(self, **{f"{axis}_{split}": change(split, a) for axis, split, a in parts if axis in axes})

    def astype(self, dtype: DTypeLike) -> Dataset:
        """Return the data set with its samples in another floating-point type; labels stay as they are."""
        return self._changed(
            lambda _, x: x.but(dtype=np.dtype(dtype)) if hasattr(x, "but") else x.astype(dtype), axes="x"
        )

    def take(self, n_train: int, n_test: int | None = None) -> Dataset:
        """Return a smaller data set: the first samples of each split."""
        # `load` shuffles the training split, so its first samples are a random choice. Nothing is copied.
        # n_train: Training samples to keep; the validation split shrinks in proportion, but not to nothing.
        # n_test: Test samples to keep; all by default.
        n_test = len(self.x_test) if n_test is None else n_test
        check_number("take", whole=True, least=1, most=len(self.x_train), n_train=n_train)
        check_number("take", whole=True, least=0, most=len(self.x_test), n_test=n_test)
        n_val = -(-len(self.x_val) * n_train // len(self.x_train))  # rounded up: one sample stays if there was one
        kept = {"train": n_train, "val": n_val, "test": n_test}
        return self._changed(lambda split, array: array[: kept[split]])

    def __repr__(self) -> str:
        shapes = ", ".join(f"{split} {x.shape}" for split, x, _ in self.splits())
        return f"Dataset({self.name!r}, {shapes}, {self.x_train.dtype}, {self.n_classes} classes, from {self.source})"
