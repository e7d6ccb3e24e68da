"""What an optimizer's formula is, a `Rule` on bare arrays; and the `Optimizer`, which applies rules to parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from typing import Any, Literal, Protocol

import numpy as np

from ..backend import can_launch, get_xp
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

    def init(self, data) -> Any:
        """Make the state for an array like `data` (None if the rule has none)."""

    def update(self, data, grad, state, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


@dataclass(frozen=True)
class ElementwiseRule:
    """A rule that treats every element by itself: hyperparameters in their range, one array of zeros as its state."""

    def __post_init__(self):
        for f in fields(self):
            value, name = getattr(self, f.name), type(self).__name__
            if f.name in ("eps", "weight_decay", "trust"):
                if not value >= 0:
                    raise ValueError(f"{name}: {f.name} is {value!r}, expected 0 or more")
            elif not 0 <= value < 1:
                raise ValueError(f"{name}: {f.name} is {value!r}, expected 0 <= {f.name} < 1")

    def init(self, data):
        return get_xp(data).zeros_like(data)


def check_rule(what: str, rule) -> None:
    """Raise unless something is a rule: not its class, and not an optimizer, which has one."""
    if isinstance(rule, type) or not (hasattr(rule, "init") and hasattr(rule, "update")):
        raise TypeError(f"{what}: rule is {rule!r}, expected a rule, such as Momentum()")


def needs_whole(rule: Rule) -> bool:
    """Say whether a rule must see whole parameters."""
    return getattr(rule, "whole", False)  # a user's rule may omit the attribute


@dataclass
class ParamGroup:
    """Parameters that share a rule and a learning rate."""

    params: list[Param]
    rule: Rule
    lr: Callable[[int], float]


class Optimizer:
    """Applies a rule to a list of parameters, or a rule to each of several groups of them.

    Parameters
    ----------
    params : iterable of Param, or list of dict
        Frozen ones are left alone. A dict is a group: `{"params": [...], "lr": 0.01, "weight_decay": 0.0}`. It may
        also hold "rule" and hyperparameters of the rule; what it leaves out is as for all groups.
    lr : float or callable
        Learning rate, or a schedule: a function of the step (from 0) that returns one.
    clip_norm : float, optional
        Clip the gradients, all groups as one vector, to this norm before every step (see `clip_by_norm`).

    Attributes
    ----------
    params : list of Param
        Those of all groups, one after another.
    weights : list of Param
        What the rules update: `params`, or full-precision copies of them.
    states : list
        What `rule.init` returned for each of `params`: the only place for a subclass to keep memory of its own.
    steps : int
        Steps done.
    scope : {"element", "parameter", "model"}, optional
        Class attribute of a subclass with a `step` of its own: how much that must see at once. If it treats every
        element by itself, it runs where a rank has parts of parameters (`TensorParallel`, `ZeRO`); if every parameter
        by itself, where a rank has some of them (`Pipeline`). One that does not say runs where ranks have all of them.
    norm : callable
        `norm(params) -> float`: the norm of all gradients; a strategy whose ranks have parts of them replaces it.

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.optim import SGD
    >>> w, b = Param(np.array([1.0])), Param(np.array([1.0]))
    >>> w.grad[:] = b.grad[:] = 2.0
    >>> Optimizer([{"params": [w], "weight_decay": 0.5}, {"params": [b]}], SGD(), lr=0.1).step()
    >>> float(w.data[0]), float(b.data[0])
    (0.75, 0.8)
    """

    scope: Scope | None = None
    counters: tuple[str, ...] = ("steps",)  # Attributes that are numbers, and part of the training state.

    def __init__(self, params, rule, lr, *, clip_norm=None):
        what = type(self).__name__
        check_rule(what, rule)
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"{what}: clip_norm is {clip_norm!r}, expected a norm above 0")
        self.rule, self.lr, self.clip_norm = rule, as_schedule(lr, what), clip_norm
        self.groups = _groups(params, rule, self.lr, what)
        self.params = [p for group in self.groups for p in group.params]
        self.weights = self.params
        self.flats = [
            Flat(group.params, group.rule) if on_gpu(group.params, group.rule) else None for group in self.groups
        ]
        self.states = [
            state
            for group, flat in zip(self.groups, self.flats, strict=True)
            for state in (flat.states if flat else [group.rule.init(p.data) for p in group.params])
        ]
        self.steps = 0
        self.norm = global_norm

    def __repr__(self):
        groups = f" in {len(self.groups)} groups" if len(self.groups) > 1 else ""
        size = f"{len(self.params)} parameters{groups}"
        return f"{type(self).__name__}({self.rule}, {self.lr}, {size}, {self.steps} steps done)"

    @property
    def needed_scope(self) -> Scope:
        """How much a step must see at once: single elements, whole parameters, or the whole model."""
        mine = self.scope or ("element" if type(self).step is Optimizer.step else "model")
        return max(mine, "parameter" if any(needs_whole(g.rule) for g in self.groups) else "element", key=SCOPES.index)

    def step(self) -> None:
        """Update every parameter from its gradient."""
        if self.clip_norm is not None:
            clip_by_norm(self.weights, self.clip_norm, self.norm)
        pairs = iter(zip(self.weights, self.states, strict=True))
        for group, flat in zip(self.groups, self.flats, strict=True):
            lr, parts = group.lr(self.steps), [(w.data, w.grad, state) for w, state in islice(pairs, len(group.params))]
            for part in flat.joined(parts) if flat else parts:
                apply_rule(group.rule, *part, lr, self.steps)
        self.steps += 1

    def scaled(self, loss):
        """Return the loss to train with; here the unchanged loss (`MixedPrecision` scales it)."""
        return loss

    def rebind(self, params_of_groups: list[list[Param]]) -> Optimizer:
        """Return an optimizer like this one, for what one rank has of its parameters.

        Parameters
        ----------
        params_of_groups : list of list of Param
            By group. States of this optimizer's own parameters are shared; for others they are initialized.
        """
        state_of = {id(p): state for p, state in zip(self.params, self.states, strict=True)}
        made = copy.copy(self)
        made.groups = [
            ParamGroup(list(params), group.rule, group.lr)
            for group, params in zip(self.groups, params_of_groups, strict=True)
        ]
        made.flats = [None] * len(made.groups)
        made.params = made.weights = [p for group in made.groups for p in group.params]
        made.states = [
            state_of[id(p)] if id(p) in state_of else group.rule.init(p.data)
            for group in made.groups
            for p in group.params
        ]
        return made

    def cost(self) -> tuple[int, int]:
        """Return what a step computes and moves: (flops, bytes).

        Per parameter a multiply-add for the weight and one for each array of the rule's state; gradients are read,
        weights and state are read and written.
        """
        flops = nbytes = 0
        for w, state in zip(self.weights, self.states, strict=True):
            arrays = w.data, *state_arrays(state)
            flops += 2 * len(arrays) * w.data.size
            nbytes += w.data.nbytes
            for array in arrays:
                nbytes += 2 * array.nbytes
        return flops, nbytes

    def zero_grad(self) -> None:
        for p in self.params:
            p.zero_grad()


def on_gpu(params: list[Param], rule: Rule) -> bool:
    """Say whether a rule of single elements runs by kernels here: then one launch for all parameters pays."""
    arrays = [p.data for p in params]
    return bool(arrays) and isinstance(rule, ElementwiseRule) and can_launch(*arrays, dtypes=("float32", "float64"))


class Flat:
    """Parameters on a GPU, their gradients and states in one array each, so that a rule is launched once for all."""

    def __init__(self, params: list[Param], rule: Rule):
        xp, like = get_xp(params[0].data), params[0].data
        ends = np.cumsum([-(-p.size // 4) * 4 for p in params])  # where a float4 may begin
        data, grad = (xp.zeros(int(ends[-1]), like.dtype) for _ in range(2))
        self.whole, self.parts = (data, grad, rule.init(data)), []
        for p, end in zip(params, ends, strict=True):
            begin = int(end) - -(-p.size // 4) * 4
            part = lambda a, p=p, begin=begin: a[begin : begin + p.size].reshape(p.data.shape)  # noqa: E731
            w, g = part(data), part(grad)
            w[...], g[...] = p.data, p.grad
            p.data, p.grad = w, g
            state = self.whole[2]
            state = tuple(map(part, state)) if isinstance(state, tuple) else None if state is None else part(state)
            self.parts.append((w, g, state))

    @property
    def states(self) -> list:
        return [state for *_, state in self.parts]

    def joined(self, parts) -> list[tuple]:
        """Return the whole arrays, if the parts of a step are still theirs: a strategy may have put others in place."""
        mine = all(
            a is b for one, other in zip(parts, self.parts, strict=True) for a, b in zip(one, other, strict=True)
        )
        return [self.whole] if mine else parts


def state_arrays(state) -> tuple:
    """Return the arrays of a rule's state for one parameter: none, one, or several."""
    return state if isinstance(state, tuple) else () if state is None else (state,)


def apply_rule(rule, data, grad, state, lr: float, step: int) -> None:
    """Update an array by a rule; large arrays on a CPU piece by piece."""
    # A rule makes several passes over its arrays; piece by piece, all but the first find them in the cache.
    if not 0 <= lr < np.inf:  # a schedule may return anything
        raise ValueError(f"the learning rate of step {step} is {lr!r}, expected a number of 0 or more")
    on_cpu, arrays = isinstance(data, np.ndarray), [data, grad, *state_arrays(state)]
    if not on_cpu or data.size <= 2 * PIECE or needs_whole(rule) or not all(a.flags.c_contiguous for a in arrays):
        rule.update(data, grad, state, lr, step)
    else:
        flat = [a.reshape(-1) for a in arrays]
        for i in range(0, data.size, PIECE):
            d, g, *s = (a[i : i + PIECE] for a in flat)
            rule.update(d, g, tuple(s) if isinstance(state, tuple) else s[0] if s else None, lr, step)
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


def _groups(params, rule: Rule, lr, what: str) -> list[ParamGroup]:
    """Turn the user's `params` into groups; a plain list is one group."""
    params = list(params)
    if not params:
        raise ValueError(f"{what}: the list of parameters is empty, so nothing would be trained")
    if not any(isinstance(entry, dict) for entry in params):
        params = [{"params": params}]
    if not all(isinstance(entry, dict) for entry in params):
        raise TypeError(f"{what}: expected either parameters or groups of them (dicts), got a mixture")
    groups = [_group(i, dict(entry), rule, lr, what) for i, entry in enumerate(params)]
    seen = set()
    for p in (p for group in groups for p in group.params):
        if id(p) in seen:
            raise ValueError(f"{what}: parameter {p.name!r} is in the list twice: it would be updated twice")
        seen.add(id(p))
    return groups


def _group(i: int, entry: dict, rule: Rule, lr, what: str) -> ParamGroup:
    where = f"{what}: group {i}"
    if "params" not in entry:
        raise ValueError(f"{where} has no 'params', only {', '.join(map(repr, entry)) or 'nothing'}")
    params = entry.pop("params")
    params = [params] if isinstance(params, Param) else list(params)
    for p in params:
        if not isinstance(p, Param):
            raise TypeError(f"{what}: expected a Param, got a {type(p).__name__}")
    lr = as_schedule(entry.pop("lr"), where) if "lr" in entry else lr
    rule = entry.pop("rule", rule)
    check_rule(where, rule)
    known = [f.name for f in fields(rule)] if is_dataclass(rule) else []
    for name in entry:
        if name not in known:
            has = ", ".join(map(repr, known)) or "no hyperparameters that a group could set"
            raise ValueError(f"{where} has {name!r}; beside 'params', 'lr' and 'rule', {type(rule).__name__} has {has}")
    return ParamGroup([p for p in params if not p.frozen], replace(rule, **entry) if entry else rule, lr)


# -- clipping ----------------------------------------------------------------------------------------------------------


def global_norm(params: Iterable[Param]) -> float:
    """Norm of all gradients as one vector, summed in float64."""
    return sum(float((p.grad * p.grad).sum(dtype=np.float64)) for p in params) ** 0.5


def clip_by_norm(params: Iterable[Param], max_norm: float, norm: Callable[[list[Param]], float] = global_norm) -> float:
    r"""Scale the gradients, all by the same factor, to a norm of at most `max_norm`.

    .. math:: g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)

    The direction is kept. On several ranks, clip after the gradients have been summed: then all ranks clip alike.

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
    if not max_norm > 0:
        raise ValueError(f"clip_by_norm: max_norm is {max_norm!r}, expected a number above 0")
    params = list(params)
    length = norm(params)
    if length > max_norm:
        for p in params:
            p.grad *= max_norm / length
    return length
