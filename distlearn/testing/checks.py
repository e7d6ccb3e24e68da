"""Checks that a right implementation passes: the library's tests, the labs, and whoever writes pieces of his own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backend import Array, get_xp, has_gpu, to_device, to_numpy
from ..data import Batch
from ..nn import Conv2d, Flatten, Linear, MockDeviceArray, ReLU, Reshape, Sequential, SoftmaxCrossEntropy, Tanh, walk
from ..nn.layer import Layer, Param, Statistic
from ..nn.metrics import make_metric
from ..nn.recompute import generators
from ..optim import Momentum, Optimizer
from ..optim.optimizer import needs_whole, state_arrays
from ..parallel import Serial
from ..parallel.checkpoint.state import capture, restore
from ..parallel.meta import meta_copy
from ..sim import MetaArray, SimWorld

if TYPE_CHECKING:
    from ..nn.loss import Loss
    from ..nn.metrics import Metric
    from ..optim.optimizer import Rule

TOLERANCE = 1e-7  # Largest error of a gradient, relative to max(1, |gradient|).


class Rules:
    """What is asked of a piece: the first rule that is broken is an error that says how to mend it."""

    def __init__(self, piece):
        self.piece = piece

    def hold(self, kept: bool, rule: str, found: str, remedy: str) -> None:
        if not kept:
            raise AssertionError(f"{self.piece!r} breaks the rule {rule!r}: {found}; {remedy}")

    def left_alone(self, arrays, copies, when: str) -> None:
        """Hold inputs to be what they were."""
        remedy = "compute into a new array, without out= and without x += ..."
        self.same(arrays, copies, "inputs are left alone", when, remedy, 0)

    def same(self, got, want, rule: str, what: str, remedy: str, tol: float = 1e-10) -> None:
        """Hold two lists of arrays to be equal, relative to the largest value."""
        for a, b in zip(map(to_numpy, got), map(to_numpy, want), strict=True):
            self.hold(a.shape == b.shape, rule, f"{what}: shape {a.shape}, expected {b.shape}", remedy)
            fits = np.allclose(a, b, rtol=0, atol=tol * max(1, np.abs(b).max(initial=0.0)), equal_nan=True)
            error = np.nanmax(np.abs(np.subtract(a, b, dtype="f8")), initial=0.0)
            self.hold(fits, rule, f"{what}: values differ by {error:.3g}", remedy)


class GradientError(NamedTuple):
    """How far one analytic gradient is from the numeric one."""

    name: str  # "dx", or the parameter's name.
    error: float  # Largest |analytic - numeric| / max(1, |analytic|, |numeric|).
    index: tuple[int, ...]  # Where that is.
    analytic: float
    numeric: float


def numeric_gradient(f: Callable[[], float], x: Array) -> Array:
    """Differentiate `f` with respect to every element of `x` by central differences."""
    # f: Returns a float, or an array whose sum is differentiated: then what `x` does not change adds no rounding. Reads
    # `x`, which is changed in place and restored.
    # TypeError: If `x` is not float64.
    if str(x.dtype) != "float64":  # in single precision the two points would be one
        raise TypeError(f"numeric_gradient: x is {x.dtype}, expected float64; pass x.astype('float64')")
    gradient = get_xp(x).zeros_like(x)
    for place in np.ndindex(x.shape):  # not x.reshape(-1): of an array with gaps, that is a copy
        kept = float(x[place])
        step = 1e-6 * max(1.0, abs(kept))  # an error of O(step^2) from the curve, of O(1e-16 / step) from rounding
        x[place] = kept + step
        above = f()
        x[place] = kept - step
        below = f()
        x[place] = kept
        gradient[place] = np.sum(above - below) / (2 * step)
    return gradient


def gradient_check(layer: Layer, x: Array, *, seed: int = 0) -> list[GradientError]:
    """Compare a layer's backward pass with central differences of its forward pass.

    The scalar that is differentiated is sum(R * forward(x)) for a fixed random R, so that dy = R.

    Parameters
    ----------
    layer : Layer
        With parameters in float64.
    x : array
        Input; its gradient is checked when it is float64 and `backward` returns one.
    seed : int
        Of R.

    Returns
    -------
    errors : list of GradientError
        One for the input and one per parameter, each at most 1e-7.

    Raises
    ------
    AssertionError
        Naming the tensor, the element, and both values. Also if `output_shape` does not say the shape of the output:
        ranks without samples rely on it.
    TypeError
        If the layer computes in another precision, in which differences say nothing.
    """
    rules, states = Rules(layer), [(rng, rng.bit_generator.state) for rng in generators(layer)]
    y, saved = layer.forward(x)
    promised = tuple(layer.output_shape(x.shape))
    remedy = "define output_shape(shape), batch included: ranks without samples rely on it"
    found = f"output_shape says {promised} for input {x.shape}, forward gave {y.shape}"
    rules.hold(promised == y.shape, "shapes", found, remedy)
    xp = get_xp(y)
    r = xp.asarray(np.random.default_rng(seed).normal(size=y.shape))

    def terms():
        for rng, state in states:  # every pass draws the same masks
            rng.bit_generator.state = state
        return layer.forward(x)[0] * r

    before = [p.grad.copy() for p in layer.params]
    dx = layer.backward(r.copy(), saved)
    analytic = [(p.name, p.data, p.grad - g) for p, g in zip(layer.params, before, strict=True)]
    if dx is not None and x.dtype.kind == "f":
        found = f"backward returned {dx.shape} for an input {x.shape}"
        rules.hold(dx.shape == x.shape, "shapes", found, "return the gradient of x, or None")
        analytic.insert(0, ("dx", x, dx))
    errors = [_compare(name, to_numpy(g), to_numpy(numeric_gradient(terms, data))) for name, data, g in analytic]
    bad = [e for e in errors if not e.error <= TOLERANCE]
    if bad:
        lines = [
            f"{e.name}{list(e.index)}: backward says {e.analytic:.9g}, differences say {e.numeric:.9g} "
            f"(error {e.error:.2g})"
            for e in bad
        ]
        raise AssertionError(f"{layer!r}: gradient check failed (tolerance {TOLERANCE:g})\n  " + "\n  ".join(lines))
    return errors


def _compare(name, analytic, numeric) -> GradientError:
    """Find the element that differs most."""
    if analytic.size == 0:
        return GradientError(name, 0.0, (), 0.0, 0.0)
    error = np.abs(analytic - numeric) / np.maximum(1, np.maximum(np.abs(analytic), np.abs(numeric)))
    error = np.where(np.isnan(error), np.inf, error)
    index = np.unravel_index(int(error.argmax()), error.shape)
    place = tuple(int(i) for i in index)
    return GradientError(name, float(error[index]), place, float(analytic[index]), float(numeric[index]))


# -- pieces of one's own -----------------------------------------------------------------------------------------------


def _pass(layer, x, seed: int):
    """Run forward; return what is left: backward with a random gradient, which gives dx if there is one."""
    y, saved = layer.forward(x)
    dy = np.random.default_rng(seed).normal(size=y.shape).astype(y.dtype)

    def back():
        dx = layer.backward(dy if isinstance(y, np.ndarray) else type(y)(dy), saved)
        return [] if dx is None else [dx]

    return y, back


def _grads(layer, clear: bool = False) -> list[Any]:
    found = [p.grad.copy() for p in layer.params]
    for p in layer.params if clear else []:
        p.grad[...] = 0
    return found


def _converted(layer, convert):
    """Copy a layer with other arrays: also of parameters that `params` leaves out."""
    layer = copy.deepcopy(layer)
    for part in walk(layer):
        for p in vars(part).values():
            if isinstance(p, Param):
                p.data, p.grad = convert(p.data), convert(p.grad)
    return layer


def _on_devices(rules: Rules, run: Callable[..., Any], remedy: str) -> Iterator[Any]:
    """Yield `run(move)` on arrays that refuse implicit conversion, and on a GPU if there is one."""
    for move in (MockDeviceArray, lambda a: to_device(a, "gpu"))[: 1 + has_gpu()]:
        try:
            yield run(lambda a, move=move: move(np.array(a)))
        except TypeError as error:
            rules.hold(False, "device arrays", str(error), remedy)


def check_layer(layer: Layer, x: Array) -> list[GradientError]:
    """Check all that strategies, the simulator and devices rely on in a layer; the layer is left as it is.

    Parameters
    ----------
    layer : Layer
        With parameters in float64.
    x : array
        Input in float64, or of integers; several samples of different values find more.

    Returns
    -------
    errors : list of GradientError
        What `gradient_check` returns.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "inputs are left alone", "gradients are added", "no state on
        self" (two forward passes, then their backward passes in either order), "all parameters in params", "forward
        changes nothing", "statistics", "shapes", "costs", "dtypes", "meta arrays", "device arrays", or the gradient
        that is wrong.
    TypeError
        If input or parameters are in single precision, in which differences say nothing.

    Examples
    --------
    >>> import distlearn as dl
    >>> x = np.random.default_rng(0).normal(size=(4, 6))
    >>> [e.name for e in dl.testing.check_layer(dl.nn.Linear(6, 5, 0, dtype="float64"), x)]
    ['dx', 'W', 'b']
    """
    for name, a in (("x", x), *((p.name, p.data) for p in layer.params)):
        if a.dtype.kind == "f" and a.dtype != np.float64:
            raise TypeError(f"check_layer: {name} is {a.dtype}, expected float64: {layer!r} with dtype='float64'")
    rules, layer = Rules(layer), copy.deepcopy(layer)
    for p in layer.params:
        p.grad[...] = 0
    inputs = [x, np.flip(x) * (1 if x.dtype.kind in "iu" else 0.75)]

    def run(order: str, clear: bool = False, layer=layer, inputs=inputs):
        """Passes in an order such as "F0 F1 B1 B0": outputs, dx, gradients after all (or after each backward)."""
        layer, ys, dxs, backs, grads = copy.deepcopy(layer), {}, {}, {}, []
        for action in order.split():
            i = int(action[1])
            if action[0] == "F":
                ys[i], backs[i] = _pass(layer, inputs[i], i)
                ys[i] = ys[i].copy()
            else:
                dxs[i] = backs[i]()
                grads += [_grads(layer, clear)] if clear else []
        return ys, dxs, grads or _grads(layer)

    kept = [x.copy() for x in inputs]
    ys, dxs, parts = run("F0 B0 F1 B1", clear=True)
    rules.left_alone(inputs, kept, "x after forward and backward")
    total = [a + b for a, b in zip(*parts, strict=True)]
    remedy = "write p.grad += ..., not p.grad = ...: micro-batches and shared layers add to it"
    rules.same(run("F0 B0 F1 B1")[2], total, "gradients are added", "p.grad after two batches", remedy)
    remedy = "return what backward needs as `saved`, and keep nothing on self: several micro-batches are in flight"
    if any(isinstance(p, Statistic) for p in layer.params):
        remedy += "; in training use the batch's values: a Statistic is read in eval() alone"
    for order in ("F0 F1 B0 B1", "F0 F1 B1 B0"):
        _, others, sums = run(order)
        rules.same(sums, total, "no state on self", f"p.grad after {order}", remedy)
        for i in (0, 1):
            rules.same(others[i], dxs[i], "no state on self", f"dx of batch {i} after {order}", remedy)
    _check_state(rules, layer, x)
    costs = [layer.flops(x.shape), layer.backward_flops(x.shape), layer.bytes_moved(x.shape, 8)]
    remedy = "define flops(shape): operations of forward, a multiply-add is two"
    rules.hold(min(costs) >= 0, "costs", f"flops, backward_flops, bytes_moved are {costs}", remedy)
    copied = np.array_equal(np.ravel(ys[0])[: x.size], np.ravel(x)[: ys[0].size])
    silent = type(layer).flops is Layer.flops and x.dtype.kind == "f" and not costs[0] and not copied
    rules.hold(not silent, "costs", "flops is 0, so the simulator says that it costs nothing", remedy)
    errors = gradient_check(copy.deepcopy(layer), x)
    rules.left_alone([x], kept[:1], "x after all passes")

    single = [x.astype("float32") if x.dtype.kind == "f" else x for x in inputs]
    low = run("F0 B0", layer=_converted(layer, lambda a: a.astype("float32")), inputs=single)
    kinds = sorted({str(a.dtype) for a in (low[0][0], *low[1][0], *low[2])} - {"float32"})
    remedy = "make arrays with the dtype of x or of the parameters, and scalars with float()"
    rules.hold(not kinds, "dtypes", f"float32 became {', '.join(kinds)}", remedy)
    with suppress(TypeError, AttributeError):  # one that reads values can be trained, and not planned
        outline = meta_copy(layer).forward(MetaArray(x.shape, x.dtype))[0]
        found = f"forward of a MetaArray gives {outline!r}, of an array {ys[0].shape} {ys[0].dtype}"
        fits = (outline.shape, outline.dtype) == (ys[0].shape, ys[0].dtype)
        rules.hold(fits, "meta arrays", found, "use xp = get_xp(x): plans and `record_memory` run layers on them")
    if not generators(layer):  # masks drawn on a device are other masks
        remedy = "use xp = get_xp(x), of distlearn.backend, and no np.asarray: data stay where they are"
        here = run("F0 B0")

        def on_device(move):
            return run("F0 B0", layer=_converted(layer, move), inputs=[move(x) for x in inputs])

        for there in _on_devices(rules, on_device, remedy):
            found, want = ([r[0][0], *r[1][0], *r[2]] for r in (there, here))
            away = all(not isinstance(a, np.ndarray) and a.dtype == b.dtype for a, b in zip(found, want, strict=True))
            rules.hold(away, "device arrays", "a result is in host memory, or of another dtype", remedy)
            rules.same([a.get() for a in found], want, "device arrays", "results there and here", remedy)
    return errors


def _check_state(rules: Rules, layer: Layer, x: Array) -> None:
    """Check that all parameters are known, and that what a layer keeps from batch to batch is a `Statistic`."""
    layer, before = copy.deepcopy(layer), copy.deepcopy(layer)
    listed = {id(p) for p in layer.params}
    for name, p in [item for part in walk(layer) for item in vars(part).items() if isinstance(item[1], Param)]:
        rule, remedy = "all parameters in params", "append it to self.params: optimizers and checkpoints read these"
        rules.hold(id(p) in listed or isinstance(p, Statistic), rule, f"{name} is missing", remedy)

    _, back = _pass(layer, x, 0)
    remedy = "change a Statistic in backward: a forward pass that is computed again would count the batch twice"
    for p, was in zip(layer.params, before.params, strict=True):
        rules.hold(np.array_equal(p.data, was.data), "forward changes nothing", f"{p.name} changed in forward", remedy)
    back()
    remedy = "what lasts from batch to batch is an nn.Statistic in params: it is saved, and averaged over ranks"
    for p, was in zip(layer.params, before.params, strict=True):
        kept = isinstance(p, Statistic) or np.array_equal(p.data, was.data)
        rules.hold(kept, "statistics", f"{p.name} changed in backward", remedy)
    for part, was in zip(walk(layer), walk(before), strict=True):
        for name, now in vars(part).items():
            if isinstance(now, (int, float, np.ndarray)):
                old = vars(was).get(name)
                rules.hold(np.array_equal(now, old), "statistics", f"self.{name} changed from {old} to {now}", remedy)


def check_rule(rule: Rule) -> None:
    """Check what optimizers and strategies rely on in an update rule.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "gradients are left alone", "changed in place", "dtypes",
        "state is of the parameter's shape", "no state on self", "element by element" (or the class says
        `whole = True`), "device arrays".

    Examples
    --------
    >>> import distlearn as dl
    >>> dl.testing.check_rule(dl.optim.Adam(weight_decay=0.01))
    """
    rules, rng = Rules(rule), np.random.default_rng(3)
    start = rng.normal(size=(4, 3)).astype("float32")
    grads = (rng.normal(size=(6, *start.shape)) * [1, 0.01, 10]).astype("float32")
    grads[3, 0] = 0

    def trained(parts, make=np.array):
        """Parameters that are parts of one array, after each step of one optimizer."""
        params = [Param(make(start[part])) for part in parts]
        optimizer = Optimizer(params, rule, 0.05)
        arrays = [p.data for p in params]  # which it lays into one piece on a GPU
        states = [
            (p, array) for p, state in zip(params, optimizer.states, strict=True) for array in state_arrays(state)
        ]
        for p, array in states:
            remedy = "init(data) returns None, an array like data, or a tuple of them"
            found = f"{array.shape} for a parameter {p.data.shape}"
            rules.hold(array.shape == p.data.shape, "state is of the parameter's shape", found, remedy)
            found = f"{array.dtype} for {p.data.dtype}"
            rules.hold(array.dtype == p.data.dtype, "dtypes", found, "make the state with zeros_like(data)")
        for g in grads:
            given = [make(g[part]) for part in parts]
            for p, part in zip(params, given, strict=True):
                p.grad[...] = part
            optimizer.step()
            same = all(bool((p.grad == part).all()) for p, part in zip(params, given, strict=True))
            rules.hold(same, "gradients are left alone", "grad changed", "write grad = grad + ..., not grad += ...")
        kept = all(p.data is array for p, array in zip(params, arrays, strict=True))
        rules.hold(kept, "changed in place", "data is another array", "write data -= ..., or data[...] = ...")
        return [p.data for p in params]

    (whole,) = trained([slice(None)])
    rules.hold(not np.array_equal(whole, start), "changed in place", "data is what it was", "update(...) changes data")
    halves = [slice(2), slice(2, None)]
    together, alone = trained(halves), [trained([part])[0] for part in halves]
    rules.same(together, alone, "no state on self", "two parameters and each alone", "keep it in the state", 0)
    if not needs_whole(rule):
        remedy = "say whole = True in the class: strategies that hold parts of parameters then refuse it"
        rules.same([np.concatenate(together)], [whole], "element by element", "parts and the whole", remedy, 1e-6)
    remedy = "use xp = get_xp(data) for array functions"
    for there in _on_devices(rules, lambda move: trained([slice(None)], move), remedy):
        rules.same([a.get() for a in there], [whole], "device arrays", "there and here", remedy, 1e-6)


def check_loss(loss: Loss, outputs: Array, targets: Array) -> None:
    """Check what strategies rely on in a loss: `loss(outputs, targets, n) -> (value, gradient)`.

    Parameters
    ----------
    outputs : (batch, ...) array
        In float64, of two samples or more.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "inputs are left alone", "divided by n", "parts add up",
        "gradient", "dtypes", "device arrays".
    """
    rules, n = Rules(loss), len(outputs)
    kept = outputs.copy(), targets.copy()
    value, dy = loss(outputs, targets, n)
    rules.left_alone((outputs, targets), kept, "after the call")
    remedy = "divide value and gradient by n, the size of the global batch, and not by len(outputs)"
    twice, half = loss(outputs, targets, 2 * n)
    rules.same([np.array(2 * twice), 2 * half], [np.array(value), dy], "divided by n", "at twice the n", remedy)
    parts = [loss(outputs[s], targets[s], n) for s in (slice(1), slice(1, None))]
    sums = [np.array(sum(v for v, _ in parts)), np.concatenate([d for _, d in parts])]
    rules.same(sums, [np.array(value), dy], "parts add up", "two parts with the n of the whole", remedy)
    slope = numeric_gradient(lambda: loss(outputs, targets, n)[0], outputs)
    rules.same([dy], [slope], "gradient", "to central differences", "derive the value by outputs", TOLERANCE)
    low = loss(*(a.astype("float32") if a.dtype.kind == "f" else a for a in (outputs, targets)), n)[1].dtype
    rules.hold(low == np.float32, "dtypes", f"float32 gave a gradient of {low}", "return dy.astype(outputs.dtype)")
    remedy = "use xp = get_xp(outputs) for array functions, and float(value)"
    for there, dz in _on_devices(rules, lambda move: loss(move(outputs), move(targets), n), remedy):
        rules.same([np.array(float(there)), dz.get()], [np.array(value), dy], "device arrays", "there and here", remedy)


def check_metric(metric: Metric | str | Callable[..., float], outputs: Array, targets: Array) -> None:
    """Check what evaluation in parts and on ranks relies on in a metric, given as `fit` takes it.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "inputs are left alone", "sums add up", "none is NaN".
    """
    rules, metric, kept = Rules(metric), make_metric(metric), (outputs.copy(), targets.copy())
    whole = np.array(metric.count(outputs, targets), float)
    rules.left_alone((outputs, targets), kept, "after count")
    remedy = "count returns sums over samples, numerator and denominator; value(sums) divides"
    for cut in range(1, len(outputs)):
        parts = [np.array(metric.count(outputs[s], targets[s]), float) for s in (slice(cut), slice(cut, None))]
        rules.same([sum(parts)], [whole], "sums add up", f"samples before and after {cut}", remedy)
    empty = metric.value(metric.count(outputs[:0], targets[:0]))
    rules.hold(bool(np.isnan(empty)), "none is NaN", f"of no samples it is {empty}", "return nan where n is 0")


def check_collective(
    call: Callable[..., Any],
    want: Callable[..., Any],
    *,
    sizes: Sequence[int] = (1, 2, 3, 4, 7, 8),
    shape: Callable[..., Any] = lambda size: (5,),
) -> list[Any]:
    """Check a collective on simulated ranks, with data and without.

    Parameters
    ----------
    call : callable
        `call(comm, x)` on every rank, with its x; returns the result, or x itself if it works in place.
    want : callable
        `want(xs, rank)`: what the rank gets, where `xs[i]` is what rank i passes.
    sizes : sequence of int
        Numbers of ranks.
    shape : callable
        `shape(size)`: of x.

    Returns
    -------
    worlds : list of SimWorld
        After the call, one for each size: their traces hold the messages.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "result", "dtypes", "inputs are left alone", "meta arrays".
    RankError
        What a rank raised, or who waits for whom.
    """
    rules, worlds = Rules(call), []
    for size in sizes:
        rng = np.random.default_rng([size, *shape(size)])
        xs = rng.integers(1, 4, (size, *shape(size))).astype("f8")  # adds without rounding

        def program(comm, xs=xs):
            x = xs[comm.rank].copy()
            found = call(comm, x)
            return found, found is x, np.array_equal(x, xs[comm.rank])

        world = SimWorld(size)
        results = world.run(program)
        in_place = any(itself for _, itself, _ in results)
        for rank, (found, _, kept) in enumerate(results):
            expected, on = want(xs, rank), f"rank {rank} of {size}"
            got, due = (f"{np.shape(a)} {np.asarray(a).dtype}: {a}" for a in (found, expected))
            alike = np.shape(found) == np.shape(expected)
            remedy = "compare what is sent, by rank" if alike and size > 1 else "return what want(xs, rank) returns"
            right = np.array_equal(found, expected)
            rules.hold(right, "result", f"{on} got {got}, expected {due}", remedy)
            rules.hold(kept or in_place, "inputs are left alone", on, "copy x before you add to it, or return x itself")
        outline = SimWorld(size)
        outline.run(lambda comm, size=size: call(comm, MetaArray(shape(size), "f8")))
        sent = [(m.source, m.dest, m.nbytes) for m in outline.trace.messages]
        same = sorted(sent) == sorted((m.source, m.dest, m.nbytes) for m in world.trace.messages)
        remedy = "what is sent must depend on shapes alone; use xp = get_xp(x)"
        rules.hold(same, "meta arrays", f"on {size} ranks other messages are sent without data", remedy)
        worlds.append(world)
    low = SimWorld(size).run(program, xs.astype("f4"))
    kinds = {str(np.asarray(found).dtype) for found, *_ in low if found is not None} - {"float32"}
    rules.hold(not kinds, "dtypes", f"float32 became {', '.join(kinds)}", "make arrays with x.dtype")
    return worlds


# -- strategies --------------------------------------------------------------------------------------------------------

_X, _Y = np.random.default_rng(5).normal(size=(12, 16)), np.random.default_rng(6).integers(0, 3, 12)
_BATCHES = (12, 12, 12, 1)


def _small_model() -> Sequential:
    f8 = {"dtype": "float64"}
    layers = Reshape(4, 4, 1), Conv2d(1, 2, 3, 1, **f8), ReLU(), Flatten()
    model = Sequential(*layers, Linear(8, 6, 2, **f8), Tanh(), Linear(6, 3, 3, **f8))
    model.params[2].frozen = True
    return model


class _Run(NamedTuple):
    params: dict[str, Any] | None
    losses: list[Any]
    outputs: np.ndarray
    saved: bool


def _trained(comm, make, rule, resumed: bool = False) -> _Run:
    """Train on parts that are even, then grow with the rank (the first is empty), at last of one sample."""

    def made():
        model = _small_model()
        return make(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, 0.3))

    strategy, losses = made(), []
    for step, n in enumerate(_BATCHES):
        if resumed and step == 2:
            arrays, scalars = comm.broadcast_obj(capture(strategy))
            strategy = made()
            restore(strategy, arrays, scalars)
        weights = np.arange(strategy.size) if step == 1 and strategy.size > 1 else np.ones(strategy.size)
        bounds = np.round(np.cumsum([0, *weights]) / weights.sum() * n).astype(int)
        part = slice(bounds[strategy.rank], bounds[strategy.rank + 1])
        losses.append(float(strategy.step(Batch(_X[part], _Y[part], n))))
    strategy.finish()
    return _Run(strategy.gather_params(), losses, to_numpy(strategy.predict(_X)), strategy.checkpointable)


def check_strategy(
    make: Callable[..., Any],
    *,
    exact: bool | Callable[..., Any] = True,
    rule: Rule | None = None,
    sizes: Sequence[int] = (1, 2, 3, 4),
) -> None:
    """Check a strategy on simulated ranks: that it trains as `Serial` does, and that a resumed run is the same run.

    Parameters
    ----------
    make : callable
        `make(comm, model, loss, optimizer)`, such as the class itself.
    exact : bool or callable
        It promises parameters, losses and outputs of serial training, to 1e-12 in float64. Without: that parameters
        change, losses are finite, frozen parameters stay, and a resumed run is the same bit for bit. What it promises
        instead, such as ranks that stay close, is asked of a function `exact(outputs, losses)` of every rank's
        predictions, (ranks, samples, classes), and losses, (ranks, steps), after training: whether they keep it.
    rule : Rule, optional
        Momentum by default.
    sizes : sequence of int
        Numbers of ranks; batches are split evenly, unevenly with an empty part, and into a single sample.

    Raises
    ------
    AssertionError
        Naming the rule that is broken, and how to mend it: "equal to serial training", "parameters change", "frozen
        parameters stay", "losses are finite", "parameters are gathered", "a resumed run is the same run".
    RankError
        What a rank raised, with its traceback, or who waits for whom.

    Examples
    --------
    >>> import distlearn as dl
    >>> dl.testing.check_strategy(dl.DataParallel, sizes=(1, 2))
    """
    rules, rule = Rules(make), Momentum() if rule is None else rule
    before = {p.name: (p.data, p.frozen) for p in _small_model().params}
    (want,) = SimWorld(1).run(_trained, Serial, rule)
    for size in sizes:
        runs = SimWorld(size).run(_trained, make, rule)
        first, on = runs[0], f"on {size} ranks"
        found = f"{on} gather_params gives {[None if r.params is None else list(r.params) for r in runs]}"
        gathered = first.params is not None and list(first.params) == list(before)
        rules.hold(
            gathered and all(r.params is None for r in runs[1:]),
            "parameters are gathered",
            found,
            f"return {list(before)} on rank 0, None elsewhere",
        )
        for name, (data, frozen) in before.items():
            same = np.array_equal(first.params[name], data)
            if frozen:
                remedy = "change those of the optimizer alone"
                rules.hold(same, "frozen parameters stay", f"{on} {name} changed", remedy)
            else:
                remedy = "call self.optimizer.step() in step"
                rules.hold(not same, "parameters change", f"{on} {name} is what it was", remedy)
        finite = all(np.isfinite(r.losses).all() for r in runs)
        rules.hold(finite, "losses are finite", f"{on} {[r.losses for r in runs]}", "return the loss of the batch")
        if callable(exact):
            kept = exact(np.array([r.outputs for r in runs]), np.array([r.losses for r in runs]))
            rules.hold(bool(kept), "what it promises", f"{on} exact(outputs, losses) is {kept}", "look at both")
        elif exact:
            remedy = (
                "sum gradients over ranks, of a loss that is divided by batch.n, and take part with empty parts too; "
                "what is no serial training on purpose is checked with exact=False"
            )
            for rank, run in enumerate(runs):
                what = f"{on} rank {rank}"
                if rank == 0:
                    got = list(run.params.values())
                    rules.same(got, list(want.params.values()), _EQUAL, f"{on} parameters", remedy, 1e-12)
                rules.same([np.array(run.losses)], [np.array(want.losses)], _EQUAL, f"{what}: losses", remedy, 1e-12)
                rules.same([run.outputs], [want.outputs], _EQUAL, f"{what}: predictions", remedy, 1e-11)
        if not first.saved:
            continue
        remedy = (
            "return in own_state() all that ranks hold alone, and take it back in load_state_dict(arrays); "
            "gradients are no state: call self.optimizer.zero_grad() first in step"
        )
        for rank, (run, again) in enumerate(zip(runs, SimWorld(size).run(_trained, make, rule, True), strict=True)):
            arrays = [[*(r.params or {}).values(), r.outputs, np.array(r.losses)] for r in (again, run)]
            rules.same(*arrays, "a resumed run is the same run", f"{on} rank {rank}", remedy, 0)


_EQUAL = "equal to serial training"
