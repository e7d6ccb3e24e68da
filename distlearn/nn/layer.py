"""The base of layers: parameters, a forward and a backward pass, and no state in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..backend import Array, get_xp, matmul, rounded
from ..trace import length


class Param:
    """A learned array and its gradient.

    Parameters
    ----------
    name : str
        Unique within a model after `Sequential` has prefixed the layer's position ("1.W").
    frozen : bool
        A frozen parameter takes part in forward and backward, but no optimizer changes it.
    grad : array, optional
        Zeros by default.

    Attributes
    ----------
    local_name : str
        The name within its layer ("W").
    grad : array
        Same shape and dtype as `data`; layers add into it, so it is cleared before every step.
        A strategy may replace it by a view into a flat bucket.
    """

    def __init__(self, data: Array, name: str = "", frozen: bool = False, grad: Array | None = None):
        if getattr(getattr(data, "dtype", None), "kind", "") != "f":
            raise TypeError(f"Param {name!r}: data is {data!r:.40}, expected an array of floating-point numbers")
        self.data, self.name, self.local_name, self.frozen = data, name, name, frozen
        self._grad = get_xp(data).zeros(data.shape, data.dtype) if grad is None else grad  # takes memory when written
        self._stale = False

    @property
    def grad(self) -> Array:
        if self._stale:
            self._grad[...] = 0
            self._stale = False
        return self._grad

    @grad.setter
    def grad(self, value):
        self._grad, self._stale = value, False

    def __array__(self, dtype=None, copy=None):
        name = f"the Param {self.name!r}" if self.name else "a Param"
        raise TypeError(f"{name} is not an array: its values are in .data, their gradient is in .grad")

    def zero_grad(self) -> None:
        """Clear the gradient; zeros are written only if something reads it before a product overwrites it.

        Code that reads the gradient's memory in other ways, as through a flat bucket, must clear that memory instead.
        """
        self._stale = True

    def add_product(self, a: Array, b: Array) -> None:
        """Add the matrix product `a @ b` to the gradient; a cleared gradient is overwritten without a temporary."""
        if self._stale:
            self._stale = False
            matmul(a, b, out=self._grad)
        else:
            self._grad += matmul(a, b)

    def add(self, values: Array) -> None:
        """Add an array of its shape to the gradient, rounded to its precision; a cleared gradient is overwritten."""
        values = rounded(values, self._grad.dtype)
        if self._stale:
            self._stale = False
            self._grad[...] = values
        else:
            self._grad += values

    def memory(self) -> tuple[Any, ...]:
        """Return the gradient's array, to be written, and whether it holds values to add to."""
        stale, self._stale = self._stale, False
        return self._grad, not stale

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def nbytes(self) -> int:
        """Bytes of the data (the gradient takes as many again)."""
        return self.data.nbytes

    def __repr__(self) -> str:
        frozen = ", frozen" if self.frozen else ""
        return f"Param({self.name!r}, {tuple(self.data.shape)} {self.data.dtype}{frozen})"


class Statistic(Param):
    """State that a layer keeps from batch to batch, such as a running mean, and changes itself in `backward`.

    It is frozen. Strategies whose ranks see different rows replace it, in every step, by its mean over ranks, weighted
    by their rows: so there is one model, whatever rank predicts, or saves it.
    """

    def __init__(self, data: Array, name: str = "", frozen: bool = True, grad: Array | None = None):
        super().__init__(data, name, frozen, grad)


class Layer:
    """Base of all layers; subclasses define `forward` and `backward`.

    A layer stores no state of a pass: `forward` returns what `backward` will need, so that several
    micro-batches can be in flight, activation memory is `nbytes(saved)`, and recomputation is dropping `saved`.

    Attributes
    ----------
    params : list of Param
        In construction order: the same on every rank.
    name : str
        Shown in traces, tables and parameter names.
    spans_itself : bool
        Its passes do more than compute, so it records their spans itself; `Sequential` records those of other layers.
    input_gradient : bool
        Whether `backward` returns the gradient of the input, or None: a first layer does not need it.
    splits : bool
        `backward(dy, saved, later)` appends to the list `later` a function and its arguments that add the gradients of
        the parameters, instead of adding them: pipelines do that when there is nothing better to do.
    costs : (int, int)
        Operations a value of the input, forward and backward, of a layer that works value by value.
    rng : Generator or None
        Source of its random numbers, if it draws any: part of a checkpoint.
    """

    params: list[Param] = []  # noqa: RUF012  (a layer with parameters sets its own list)
    name: str = ""
    spans_itself: bool = False
    input_gradient: bool = True
    splits: bool = False
    costs: tuple[int, int] = (0, 0)
    rng: np.random.Generator | None = None

    def forward(self, x: Array) -> tuple[Array, object]:
        """Return the layer's output and what `backward` needs.

        Returns
        -------
        saved : object
            Pass it to `backward` unchanged, once: containers free it on the way.
        """
        raise NotImplementedError

    def backward(self, dy: Array, saved: Any) -> Array | None:
        """Add this batch's gradients into `p.grad` of every parameter and return the gradient of the input.

        Parameters
        ----------
        dy : array, shape of the output
            Gradient of the loss with respect to the output. The layer may overwrite it.
        saved : object
            What `forward` returned.
        """
        raise NotImplementedError

    def eval(self) -> Layer:
        """Return the layer for prediction; most layers are the same in both modes and return themselves."""
        # The mode is a property of the object that is called, not a flag that could be forgotten: `model.forward(x)`
        # trains, `model.eval().forward(x)` predicts. What `eval` returns shares the parameters, so it is never out of
        # date and costs nothing to make.
        return self

    @property
    def children(self) -> list[Layer]:
        """Layers inside a container; none for a plain layer."""
        return []

    def parts(self, shape: tuple[int, ...]) -> list[tuple[Layer, tuple[int, ...]]]:
        """`children`, each with the shape of its input when the container's input has `shape`."""
        return []

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the output for an input of `shape` (batch included); raises if the input does not match."""
        return shape

    def flops(self, shape: tuple[int, ...]) -> int:
        """Floating-point operations of `forward` on an input of `shape` (a multiply-add counts as two)."""
        return self.costs[0] * math.prod(shape)

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        """Floating-point operations of `backward` for an input of `shape`."""
        if self.costs[1]:
            return self.costs[1] * math.prod(shape)
        return self.flops(shape) * (2 if self.input_gradient else 1)  # products: for the parameters, for the input

    def bytes_moved(self, shape: tuple[int, ...], itemsize: int = 4) -> int:
        """Bytes that `forward` must at least move: input and parameters read once, output written once."""
        if not self.params and not self.flops(shape):  # a view of its input
            return 0
        values = math.prod(shape) + math.prod(self.output_shape(shape))
        return itemsize * values + sum(p.nbytes for p in self.params)

    def __repr__(self) -> str:
        # Checkpoints compare it: a layer with another setting is another model.
        plain = (bool, int, float, str)
        shown = (f"{k}={v!r}" for k, v in vars(self).items() if k[0] != "_" and k != "name" and isinstance(v, plain))
        return f"{type(self).__name__}({', '.join(shown)})"


def describe(layer: Layer) -> str:
    """Describe a layer in an error message: its type, and its place in the model."""
    return f"{layer!r}" + (f" (layer {layer.name})" if layer.name else "")


def check_shape(layer: Layer, shape, *axes) -> None:
    """Raise unless `shape` fits."""
    # *axes: One per axis: a number must match, a name matches any size. A leading "..." matches any number of axes, but
    # at least the batch.
    tail = axes[1:] if axes[0] == "..." else axes
    fits = len(shape) > len(tail) if axes[0] == "..." else len(shape) == len(tail)
    for axis, n in zip(reversed(tail), reversed(shape), strict=False):
        fits = fits and (isinstance(axis, str) or axis == n)
    if not fits:
        want = axes
        if axes[0] == "...":
            want = ("batch", "...", *tail) if len(shape) > len(tail) + 1 else ("batch", *tail)
        raise ValueError(
            f"{describe(layer)}: expected an input of shape ({', '.join(map(str, want))}), got {tuple(shape)}"
        )


def unfit(array, dtype) -> str | None:
    """Return the reason why an array cannot become weights of a type; None where it can."""
    if array.dtype.kind != "f":
        return f"{array.dtype}, expected floating-point numbers"
    with np.errstate(over="ignore"):
        if np.isfinite(array.astype(dtype)).all():
            return None
    return f"numbers {f'beyond {dtype}' if np.isfinite(array).all() else 'that are not finite'}"


def check_input(layer: Layer, x) -> None:
    """Raise unless `x` has a shape that fits, and the parameters' precision: two would silently become the larger."""
    layer.output_shape(x.shape)
    if not hasattr(x.dtype, "kind"):  # of PyTorch
        raise TypeError(f"{describe(layer)}: the input is a {type(x).__name__}, expected an array: x.numpy()")
    want = layer.params[0].data.dtype
    if x.dtype != want:
        scaled = {"u": " / 255, pixels from 0 to 1", "i": ", scaled to about 0 to 1"}.get(x.dtype.kind, "")
        advice = f"pass x.astype({str(want)!r}){scaled}"
        raise TypeError(f"{describe(layer)}: the input is {x.dtype}, the parameters are {want}; {advice}")


def check_classes(what: str, outputs, targets, *, read: bool = True) -> None:
    """Raise unless there is a class for every row of scores; without `read`, its value is not looked at."""
    if outputs.ndim < 2:
        raise ValueError(f"{what}: logits have shape {outputs.shape}, expected (batch, ..., classes)")
    if not hasattr(targets, "shape"):
        raise _no_array(what, "labels", targets)
    if targets.shape != outputs.shape[:-1]:
        hint = "; of one-hot rows labels.argmax(axis=-1)" if targets.shape == outputs.shape else ""
        raise ValueError(f"{what}: labels have shape {targets.shape}, expected {outputs.shape[:-1]}: one a row{hint}")
    if targets.dtype.kind not in "iu":
        names = "np.unique(labels, return_inverse=True)[1]" if targets.dtype.kind in "US" else "labels.astype(int)"
        wanted = f"expected integers, the index of a class each: {names}"
        raise TypeError(f"{what}: labels have dtype {targets.dtype}, {wanted}")
    if read and targets.size and not (int(targets.min()) >= 0 and int(targets.max()) < outputs.shape[-1]):
        span = f"{int(targets.min())} to {int(targets.max())}, expected class indices from 0 to {outputs.shape[-1] - 1}"
        raise ValueError(f"{what}: labels run from {span}")


def check_same_shape(what: str, outputs, targets) -> None:
    """Raise unless there is a target for every value."""
    if not hasattr(targets, "shape"):
        raise _no_array(what, "targets", targets)
    if outputs.shape != targets.shape:
        raise ValueError(f"{what}: targets have shape {targets.shape}, expected that of the outputs, {outputs.shape}")
    if outputs.dtype.kind != "f" or targets.dtype.kind not in "fiub":
        kinds = f"outputs are {outputs.dtype} and targets {targets.dtype}"
        raise TypeError(f"{what}: {kinds}, expected numbers, and the outputs as floats: y.astype('float32')")


def _no_array(what: str, name: str, targets) -> TypeError:
    return TypeError(f"{what}: {name} are a {type(targets).__name__}, expected an array: np.array({name})")


def nbytes(saved: Any) -> int:
    """Bytes of memory that the arrays in what `forward` saved keep alive; arrays that share memory count once."""
    spans, without_data = [], {}

    def visit(x):
        if hasattr(x, "block"):  # a meta array has no address
            without_data[id(x.block)] = max(x.nbytes, without_data.get(id(x.block), 0))
        elif hasattr(x, "strides"):
            spans.append(_memory(x))
        elif isinstance(x, dict):
            for v in x.values():
                visit(v)
        elif isinstance(x, (list, tuple)):
            for v in x:
                visit(v)

    visit(saved)
    return length(spans) + sum(without_data.values())


def _memory(x) -> tuple[int, int]:
    if x.size == 0:
        return 0, 0
    pointer = x.data.ptr if hasattr(x.data, "ptr") else x.__array_interface__["data"][0]
    steps = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    return pointer + sum(s for s in steps if s < 0), pointer + sum(s for s in steps if s > 0) + x.itemsize


def walk(model: Layer) -> Iterator[Layer]:
    """Yield a layer and all layers inside it, outermost first."""
    yield model
    for child in model.children:
        yield from walk(child)


def parameter_count(model: Layer) -> int:
    """Number of learned values (running statistics and other frozen parameters are not learned)."""
    return sum(math.prod(p.data.shape) for p in model.params if not p.frozen)


def move(model: Layer, convert: Callable[[Array], Array]) -> Layer:
    """Replace every parameter's array by `convert(array)`, in place; return the model.

    Parameters
    ----------
    convert : callable
        Such as `lambda a: to_device(a, "gpu")`, or a change of precision. Do it before an optimizer or a strategy is
        made: both keep references to the arrays.
    """
    for p in model.params:
        p.data = convert(p.data)
        p.grad = get_xp(p.data).zeros_like(p.data)
    return model
