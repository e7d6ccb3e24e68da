"""A `Rule`, which is an optimizer's formula on bare arrays, and the `Optimizer`, which applies rules to parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import numpy as np

from ..backend import Array, get_xp, has_values, norm, rounded, single
from ..bounds import check_number
from ..cuda.flat import flat_group
from ..nn.layer import Param
from .schedules import as_schedule

Scope = Literal["element", "parameter", "model"]
SCOPES = ("element", "parameter", "model")

# Elements that are updated at a time: a rule's arrays then stay in the cache from one operation to the next.
PIECE = 1 << 16
FLUSH = 64  # Updates between two searches of the state for subnormal values.


class Rule(Protocol):
    """An optimizer's formula for one array.

    A rule that uses more than one element at a time says `whole = True`: it must see a parameter as a whole.
    """

    def init(self, data: Array) -> Any:
        """Make the state for an array like `data` (None if the rule has none)."""
        return None

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


@dataclass(frozen=True)
class ElementwiseRule:
    """A rule that treats every element separately: hyperparameters in their range, one array of zeros as its state."""

    def __post_init__(self):
        for f in fields(self):
            kind, given = type(self).__name__, {f.name: getattr(self, f.name)}
            if f.name == "eps":  # with 0 an element whose gradient is 0, as of a dead unit, would become 0 / 0
                check_number(kind, above=0, below=np.inf, **given)
            else:
                check_number(kind, least=0, below=np.inf if f.name in ("weight_decay", "trust") else 1, **given)

    def init(self, data: Array) -> Any:
        return get_xp(data).zeros_like(data)


def check_rule(what: str, rule) -> None:
    """Raise unless something is a rule: not its class, and not an optimizer, which has one."""
    if isinstance(rule, type) or not (hasattr(rule, "init") and hasattr(rule, "update")):
        raise TypeError(f"{what}: rule is {rule!r}, expected a rule, such as Momentum()")


def needs_whole(rule: Rule) -> bool:
    """Say whether a rule must see whole parameters."""
    return getattr(rule, "whole", False)  # a user's rule may omit the attribute


class Optimizer:
    """Applies a rule to a list of parameters.

    Parameters
    ----------
    params : iterable of Param
        Frozen ones are left alone.
    lr : float or callable
        Learning rate, or a schedule: a function of the step (from 0) that returns one.
    clip_norm : float, optional
        Clip the gradients as one vector to this norm before every step (see `clip_by_norm`).

    Attributes
    ----------
    params : list of Param
        Those that are not frozen.
    states : list
        The state that `rule.init` returned for each of `params`: the only place for a subclass to keep memory of
        its own.
    steps : int
        Steps done.
    scope : {"element", "parameter", "model"}, optional
        Class attribute of a subclass with a `step` of its own: how much it must see at once. If it treats every
        element separately, it runs where a rank has parts of parameters (`TensorParallel`, `ZeRO`); if every parameter
        separately, where a rank has some of them (`Pipeline`). One that does not say runs where ranks have all of them.
    norm : callable
        `norm(params) -> float`: the norm of all gradients; a strategy whose ranks have parts of them replaces it.

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.optim import SGD
    >>> w = Param(np.array([1.0]))
    >>> w.grad[:] = 2.0
    >>> Optimizer([w], SGD(weight_decay=0.5), lr=0.1).step()
    >>> float(w.data[0])
    0.75
    """

    scope: Scope | None = None

    def __init__(self, params: Any, rule: Rule, lr: float | Callable[[int], float], *, clip_norm: float | None = None):
        what = type(self).__name__
        check_rule(what, rule)
        check_number(what, above=0, clip_norm=1 if clip_norm is None else clip_norm)
        params = _given(params, what)
        self.rule, self.lr, self.clip_norm = rule, as_schedule(lr, what), clip_norm
        self.params = [p for p in params if not p.frozen]
        self._given = [(p, p.frozen) for p in params]
        self._flat = None if needs_whole(rule) else flat_group(self.params, rule)
        self._take_states()
        self.steps = 0
        self.norm = global_norm

    def __setattr__(self, name, value):
        if name in ("rule", "lr", "clip_norm") and name in vars(self):  # a strategy may have made copies for parts
            what = "give a function of the step, or make another optimizer (and strategy)"
            raise AttributeError(f"{type(self).__name__}: {name} cannot be changed: {what}")
        super().__setattr__(name, value)

    def _take_states(self) -> None:
        flat = self._flat
        self.states = [s for *_, s in flat.parts] if flat else [self.rule.init(p.data) for p in self.params]

    def __repr__(self):
        size = f"{len(self.params)} parameters"
        return f"{type(self).__name__}({self.rule!r}, {self.lr!r}, {size}, {self.steps} steps done)"

    def check_params(self) -> None:
        """Raise if parameters were frozen, or no longer are, since the optimizer was made."""
        for p, frozen in self._given:
            if p.frozen != frozen:
                what = "was frozen after" if p.frozen else "is no longer frozen, as it was when"
                raise ValueError(f"{p.name!r} {what} its optimizer was made: make another one (and strategy)")

    @property
    def needed_scope(self) -> Scope:
        """How much a step must see at once: single elements, whole parameters, or the whole model."""
        mine = self.scope or ("element" if type(self).step is Optimizer.step else "model")
        return max(mine, "parameter" if needs_whole(self.rule) else "element", key=SCOPES.index)

    def step(self) -> None:
        """Update every parameter from its gradient."""
        self.check_params()
        if self.clip_norm is not None:
            clip_by_norm(self.params, self.clip_norm, self.norm)
        lr, pairs = self.lr(self.steps), list(zip(self.params, self.states, strict=True))
        wholes = self._flat and self._flat.arrays(pairs)
        for data, grad, state in wholes or ((p.data, p.grad, state) for p, state in pairs):
            apply_rule(self.rule, data, grad, state, lr, self.steps)
        self.steps += 1

    def follow(self, buckets: Any) -> None:
        """Before the first step: let parameters and states lie, on a GPU, as gradients lie in flat buckets."""
        if type(self) is not Optimizer or self.steps or not self._flat:
            return
        mine = {id(p) for p in self.params}
        inside = [b for b in buckets if mine.issuperset(map(id, b.params))]
        if sum(len(b.params) for b in inside) == len(mine):
            self._flat = flat_group(self.params, self.rule, inside)
            self._take_states()

    def rebind(self, params: list[Param]) -> Optimizer:
        """Return an optimizer like this one for one rank's part of its parameters, with the states that it has."""
        state_of = {id(p): state for p, state in zip(self.params, self.states, strict=True)}
        made = copy.copy(self)
        made.params, made._flat = params, None
        made.states = [state_of[id(p)] if id(p) in state_of else self.rule.init(p.data) for p in params]
        return made

    def cost(self) -> tuple[int, int]:
        """Return the cost of a step: (flops, bytes).

        Per parameter a multiply-add for the weight and one for each array of the rule's state; gradients are read,
        weights and state are read and written.
        """
        flops = nbytes = 0
        for w, state in zip(self.params, self.states, strict=True):
            arrays = w.data, *state_arrays(state)
            flops += 2 * len(arrays) * w.data.size
            nbytes += w.data.nbytes
            for array in arrays:
                nbytes += 2 * array.nbytes
        return flops, nbytes

    def zero_grad(self) -> None:
        for p in self.params:
            p.zero_grad()


def state_arrays(state) -> tuple[Any, ...]:
    """Return the arrays of a rule's state for one parameter: none, one, or several."""
    return state if isinstance(state, tuple) else () if state is None else (state,)


def _like(state, arrays: list[Any]):
    """Return a state of other arrays, in the form of `state`."""
    return tuple(arrays) if isinstance(state, tuple) else arrays[0] if arrays else None


def apply_rule(rule, data, grad, state, lr: float, step: int) -> None:
    """Update an array by a rule; large arrays on a CPU piece by piece."""
    # A rule makes several passes over its arrays; piece by piece, all but the first find them in the cache.
    if lr is None or not 0 <= lr < np.inf:  # a schedule may return anything
        raise ValueError(f"the learning rate of step {step} is {lr!r}, expected a number of 0 or more")
    if data.dtype.char == "e" and has_values(data):
        if getattr(rule, "eps", 0) and not data.dtype.type(rule.eps):
            raise ValueError(
                f"{type(rule).__name__}: eps is {rule.eps!r}, which is 0 in float16, as are the squares of small "
                "gradients: use a larger eps, such as 1e-4, or float32 parameters"
            )
        # in single, or the product of the rate and a gradient would be rounded on the way
        wide = [single(a) for a in (data, grad, *state_arrays(state))]
        apply_rule(rule, wide[0], wide[1], _like(state, wide[2:]), lr, step)
        for narrow, a in zip((data, *state_arrays(state)), (wide[0], *wide[2:]), strict=True):
            narrow[...] = rounded(a, narrow.dtype)
        return
    on_cpu, arrays = isinstance(data, np.ndarray), [data, grad, *state_arrays(state)]
    if not on_cpu or data.size <= 2 * PIECE or needs_whole(rule) or not all(a.flags.c_contiguous for a in arrays):
        rule.update(data, grad, state, lr, step)
    else:
        flat = [a.reshape(-1) for a in arrays]
        for i in range(0, data.size, PIECE):
            d, g, *s = (a[i : i + PIECE] for a in flat)
            rule.update(d, g, _like(state, s), lr, step)
    if on_cpu and step % FLUSH == FLUSH - 1:
        flush_subnormals(state)


def flush_subnormals(state) -> None:
    """Set to zero, in place, values so small that their products are subnormal numbers."""
    for s in state_arrays(state):
        if s.dtype in (np.float32, np.float64):
            limits = np.finfo(s.dtype)
            s[abs(s) < limits.tiny / limits.eps] = 0


def decayed(grad, data, weight_decay: float):
    """Return the gradient with the weight decay's pull towards zero added."""
    return grad + weight_decay * data if weight_decay else grad


def _given(params, what: str) -> list[Param]:
    """Return the user's parameters as a list; raise unless each is one, once, and some are to be trained."""
    if hasattr(params, "params"):
        raise TypeError(f"{what}: params is a {type(params).__name__}, expected what it has: model.params")
    params, seen = list(params), set()
    for p in params:
        if not isinstance(p, Param):
            raise TypeError(f"{what}: expected a Param, got a {type(p).__name__}")
        if id(p) in seen:
            raise ValueError(f"{what}: parameter {p.name!r} is in the list twice: it would be updated twice")
        seen.add(id(p))
    if all(p.frozen for p in params):
        found = f"{len(params)} parameters are given, all of them frozen" if params else "the list is empty"
        raise ValueError(f"{what}: nothing would be trained: {found}")
    return params


# -- clipping ----------------------------------------------------------------------------------------------------------


def global_norm(params: Iterable[Param]) -> float:
    """Norm of all gradients as one vector; infinite or NaN where one of them is."""
    with np.errstate(over="ignore"):
        return math.hypot(*[norm(p.grad) for p in params])


def clip_by_norm(params: Iterable[Param], max_norm: float, norm: Callable[[list[Param]], float] = global_norm) -> float:
    r"""Scale the gradients, all by the same factor, to a norm of at most `max_norm`.

    .. math:: g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)

    The direction is kept. On several ranks, clip after the gradients have been summed: then all ranks clip alike.
    A gradient that is not finite has no direction: that is an error.

    Parameters
    ----------
    max_norm : float
        c.
    norm : callable
        `norm(params) -> float`: the norm before clipping; over all ranks, where each has a part.

    Returns
    -------
    norm : float
        The norm before clipping.

    References
    ----------
    R. Pascanu, T. Mikolov, Y. Bengio (2013), On the difficulty of training recurrent neural networks, ICML, algorithm
    1.
    """
    check_number("clip_by_norm", above=0, max_norm=max_norm)
    params = list(params)
    length = norm(params)
    if not length < math.inf and params and has_values(params[0].grad):
        bad = next((p.name for p in params if not get_xp(p.grad).isfinite(p.grad).all()), None)
        whose = "on another rank" if bad is None else f"that of {bad!r}"
        raise FloatingPointError(f"clip_by_norm: a gradient is not finite, {whose}: their norm is {length}")
    if length > max_norm:
        for p in params:
            grad = single(p.grad)  # the factor may be too small for half precision
            grad *= max_norm / length
            if grad is not p.grad:
                p.grad[...] = rounded(grad, p.grad.dtype)
    return length
