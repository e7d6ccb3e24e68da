"""The interface of all ways to train: a `Strategy` takes one step at a time.

    batch --> forward --> loss --> backward --> (communicate) --> update --> loss of the global batch

`fit` runs any of them; they differ in which rank holds which part of the model and of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, get_xp, has_values, rounded, single, to_numpy, views_like
from ..comm.point_to_point import LocalComm
from ..nn.container import check_unique_names
from ..nn.layer import Statistic
from ..nn.recompute import generators
from ..optim.optimizer import SCOPES, Optimizer, Scope, global_norm, needs_whole, state_arrays
from ..trace import Clock
from .checkpoint.state import (
    check_state,
    differences,
    named_arrays,
    param_name,
    run_fingerprint,
    serial_part,
    state_layout,
)
from .checks import check_model, checked
from .data.replicas import checksum
from .sharding import HeldElsewhere, Sharded, ShardSpec, load_into, unshard

if TYPE_CHECKING:
    from ..comm.base import Communicator
    from ..data.batches import Batch
    from ..nn.container import Sequential
    from ..nn.loss import Loss


class Strategy:
    """One way to train a model on one or many ranks; a subclass defines `step` and overrides defaults.

    Parameters
    ----------
    model : Sequential
        The same on every rank: rank 0's parameters are broadcast, so they are certain to be equal. Strategies that
        shard it reuse its layers: do not train it afterwards.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, both divided by n, the size of the *global* batch.
    optimizer : Optimizer
        Of the model's parameters, or some of them. Where a rank holds parts of these, `strategy.optimizer` is one like
        it for the rank's parts.

    Attributes
    ----------
    rank, size : int
        Which part of the *data* this rank takes: where ranks work on the same batch, all of them are rank 0 of 1.
    world : Communicator
        Of all ranks; `comm` may be that of some.
    """

    rank = 0
    size = 1
    generators: Sequence[Any] = ()  # of the strategy's own random numbers
    checkpointable = True  # the run's state can be saved and resumed
    specs: dict[str, Any] = MappingProxyType({})  # by name: the shards of parameters that not all ranks hold whole
    elsewhere: Sequence[Any] = ()  # parameters of the model that it was given, of which it holds shards
    batches_compared = False  # ranks that work on the same batch have compared theirs

    def __init__(self, comm: Communicator, model: Sequential, loss: Loss, optimizer: Optimizer):
        what = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{what}: optimizer is {optimizer!r}, expected Optimizer(model.params, Momentum(), 0.1)")
        for p in model.params:
            if isinstance(p.data, HeldElsewhere):
                raise ValueError(f"{what}: parameter {p.name!r} belongs to a {p.data.holder}; make another model")
        optimizer.check_params()
        known = {id(p) for p in model.params}
        for p in optimizer.params:
            if id(p) not in known:
                raise ValueError(f"{what}: parameter {p.name!r} of the optimizer does not belong to the model")
        check_model(model)
        self.comm = self.world = comm
        self.clock = comm.clock
        self.model, self.loss, self.optimizer = model, checked(loss), optimizer
        self.fingerprint, self.state_layout = run_fingerprint(model, loss, optimizer), state_layout(model, optimizer)
        self.model_generators = generators(model)  # of all layers, of which `self.model` may hold some
        share_params(comm, model, self.fingerprint)

    def hold_in_shards(self, model: Sequential, held: Sequential) -> None:
        """Refuse from now on the use of the parameters of `model` that the sharded model `held` does not share."""
        here = {id(p.data) for p in held.params}
        self.elsewhere = [p for p in model.params if id(p.data) not in here]
        for p in self.elsewhere:
            p.data, p.grad = HeldElsewhere(p, type(self).__name__), None

    def step(self, batch: Batch) -> float:
        """Train on this rank's part of a global batch (`x`, `y`, `n`); return the loss of the whole one.

        Pass the clock to what computes, `self.model.forward(batch.x, clock=self.clock)` and `backward` alike: the
        simulator takes time for spans alone.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no step(batch) -> loss")

    def predict(self, x: Array) -> Array:
        """Return the model's output (logits) for `x`; ranks that hold parts of the model must call together."""
        return self.model.eval().forward(x)[0]

    def total(self, values: Array) -> Array:
        """Return the small array `values` summed over the ranks among which the data are sharded."""
        return self.comm.all_reduce(values) if self.size > 1 else values

    def evaluating(self) -> AbstractContextManager[Any]:
        """Return a context in which the model is what `evaluate` measures; all ranks must enter it."""
        return nullcontext()

    def finish(self) -> None:
        """Finish after the last step; `fit` calls it on every rank."""

    @property
    def layout(self) -> str:
        return type(self).__name__

    def gather_params(self) -> dict[str, Any] | None:
        """Return the trained parameters by their serial names on rank 0 of the world, None elsewhere; all must call."""
        HeldElsewhere.check(self.elsewhere)
        state = {name: held for name, held in self.state_dict().items() if name.startswith("param/")}
        found = unshard(state, self.world)
        order = [name for name in self.state_layout if name.startswith("param/")]
        return None if found is None else {name.removeprefix("param/"): found[name] for name in order}

    def state_dict(self) -> dict[str, Sharded]:
        """Return this rank's part of each array of the serial model's state: the arrays themselves, not copies."""
        return sharded_state(self.model.params, self.optimizer, self.spec)

    def spec(self, name: str, shape: tuple[int, ...]) -> ShardSpec:
        """Return this rank's shard of a parameter, and so of the optimizer's state for it."""
        return self.specs.get(name) or ShardSpec(tuple(shape), counts=self.world.rank == 0)

    def own_state(self) -> dict[str, Any]:
        """Return the arrays that only this rank has, so that the same number of ranks continues bit for bit."""
        return {}

    def load_state_dict(self, arrays: dict[str, Any]) -> None:
        """Take this rank's part of a state, of which every rank is given all; change nothing if it does not fit."""
        serial = serial_part(arrays)
        check_state(serial, self.state_layout)
        load_into(self.state_dict(), serial)


def sharded_state(params, optimizer, spec) -> dict[str, Sharded]:
    """Return a state whose arrays are sharded like their parameters, as `spec(name, shape)` says."""
    arrays = named_arrays(params, optimizer)
    return {name: Sharded(array, spec(param_name(name), array.shape)) for name, array in arrays.items()}


def share_params(comm, model, fingerprint: dict[str, Any]) -> None:
    """Broadcast rank 0's parameters, so that they are certain to be equal; every rank must call."""
    check_unique_names(model.params)
    if comm.size == 1:
        return
    mine = [f"{p.name} {tuple(p.data.shape)} {p.data.dtype}{' frozen' * p.frozen}" for p in model.params]
    theirs, fingerprint_there = comm.broadcast_obj((mine, fingerprint))
    if mine != theirs:
        here, there = next((a, b) for a, b in zip_longest(mine, theirs, fillvalue="nothing more") if a != b)
        raise ValueError(f"rank {comm.rank}: the model has {here} where that of rank 0 has {there}")
    for found in differences(fingerprint_there, fingerprint):
        found = found.replace(" (now ", f" (rank {comm.rank}: ")
        raise ValueError(f"rank {comm.rank} does not train what rank 0 trains: {found}")
    for p in model.params:
        comm.broadcast(p.data)


def statistics_of(params) -> list[Statistic]:
    """Return the running statistics among parameters."""
    return [p for p in params if isinstance(p, Statistic)]


def average_statistics(comm, kept: list[Statistic], rows: int, n: int) -> None:
    """Replace statistics by their mean over the ranks, weighted by each one's rows of the n."""
    if comm.size == 1 or not n:
        return
    arrays = [p.data for p in kept]
    unpack(comm.all_reduce(pack(arrays, rows / n)), arrays)


def pack(arrays, factor: float, numbers=()):
    """Return one flat array of all `arrays` times `factor`, with a few numbers at its end; half precision as single."""
    arrays = [single(x).reshape(-1) for x in arrays]  # products with a number of samples may be too large for half
    xp, dtype = (get_xp(arrays[0]), arrays[0].dtype) if arrays else (np, np.float64)
    return xp.concatenate([x * factor for x in arrays] + [xp.asarray(numbers, dtype)])


def unpack(flat, arrays, divisor: float = 1.0) -> None:
    """Write a flat array, divided by `divisor`, into `arrays`."""
    for x, view in zip(arrays, views_like(flat, arrays), strict=True):
        x[...] = rounded(view / divisor, x.dtype)


def check_global_rows(comm, rows: float, n: int) -> None:
    """Raise unless the parts of a batch that the ranks were given add up to the `n` that losses divide by."""
    if abs(rows - n) > 1e-6 * n:  # in single precision the sum of millions of rows is rounded
        together = f"rank {comm.rank}: the parts of the {comm.size} ranks hold {rows:.0f} rows together"
        raise ValueError(f"{together}, but n is {n}: every rank must be given its own part of the batch")


def check_whole(strategy, batch, *comms) -> None:
    """Raise unless the ranks of `comms` were all given the whole batch; compare it at the first step."""
    HeldElsewhere.check(strategy.elsewhere)
    if len(comms) == 1 and len(batch.x) != batch.n:
        got = f"{type(strategy).__name__} got {len(batch.x)} of a batch of {batch.n} samples"
        raise ValueError(f"rank {comms[0].rank}: {got}, expected all of them on every rank")
    if strategy.batches_compared or not has_values(batch.x):
        return
    strategy.batches_compared = True
    text = f"whole batch with checksums {checksum(batch.x):x}, {checksum(batch.y):x}"
    for comm in comms:
        comm.state(text)


def require_scope(what: str, optimizer, scope: Scope, held: str) -> None:
    """Raise if an optimizer's step must see more at once than a rank holds."""
    needed = optimizer.needed_scope
    if SCOPES.index(needed) <= SCOPES.index(scope):
        return
    if needed == "model":
        raise ValueError(
            f"{what}: {type(optimizer).__name__} overrides `step` and does not say what it must see at once, but "
            f"{held}; give it scope = 'element' if it treats every element by itself ('parameter': every parameter), "
            "or use DataParallel"
        )
    kind = type(optimizer.rule if needs_whole(optimizer.rule) else optimizer).__name__
    raise ValueError(
        f"{what}: {kind} needs every parameter as a whole, but {held}; "
        "use an optimizer that works element by element, or DataParallel"
    )


def check_state_shapes(what: str, optimizer) -> None:
    """Raise unless an optimizer's state has the shapes of its parameters, with which it is sharded."""
    for p, state in zip(optimizer.params, optimizer.states, strict=True):
        for array in state_arrays(state):
            if array.shape != p.data.shape:
                raise ValueError(f"{what}: the optimizer's state of {p.name!r} has another shape: {array.shape}")


def sub_optimizer(what: str, optimizer: Optimizer, params, size: int, specs=MappingProxyType({})) -> Optimizer:
    """Make an optimizer like another one for a rank's parameters, with their states; of those in `specs` it has shards.

    `size` is the number of ranks that hold the optimizer's parameters together.
    """
    sharded = [p.name for p in optimizer.params if p.name in specs and specs[p.name].is_sharded]
    scope, held = "model" if size == 1 else "parameter", "a rank holds some of the parameters"
    if sharded:
        scope, held = "element", f"{sharded[0]} is sharded over {size} ranks"
    require_scope(what, optimizer, scope, held)
    here = {p.name: p for p in params}
    made = optimizer.rebind([here[p.name] for p in optimizer.params if p.name in here])
    if sharded:
        check_state_shapes(what, optimizer)
        state = sharded_state([], made, lambda name, shape: specs.get(name) or ShardSpec(tuple(shape)))
        load_into(state, named_arrays([], optimizer))
    return made


def summed_norm(params: list[Any], comms, like) -> float:
    """Return the length of the gradients of several ranks as one vector: one all-reduce over each communicator."""
    squared = get_xp(like).array([global_norm(params) ** 2], dtype=np.float64)
    for comm in comms:
        comm.all_reduce(squared)
    return float(squared[0]) ** 0.5


class Replicated(Strategy):
    """Base of the strategies whose ranks all hold the whole model, each with a part of the data.

    Checkpoints hold rank 0's arrays for all ranks; where others differ, saving is refused, unless the strategy defines

    - `own_state()`: return `named_arrays(self.model.params, self.optimizer)`, each rank's
    - `load_state_dict(arrays)`: pass `arrays | part_of_rank(arrays, self.rank)` to `super().load_state_dict`
    """

    def __init__(self, comm: Communicator, model: Sequential, loss: Loss, optimizer: Optimizer):
        super().__init__(comm, model, loss, optimizer)
        self.rank, self.size = comm.rank, comm.size
        self.statistics = statistics_of(model.params)

    def gather_params(self) -> dict[str, Array] | None:
        """Return copies of rank 0's parameters on rank 0, None elsewhere; nothing is sent."""
        return {p.name: to_numpy(p.data).copy() for p in self.model.params} if self.world.rank == 0 else None


def update(optimizer, clock: Clock) -> None:
    """Let an optimizer take its step, as a span with its cost."""
    flops, nbytes = optimizer.cost()
    with clock.span("update", flops=flops, nbytes=nbytes):
        optimizer.step()


class Serial(Strategy):
    """Plain training on one rank, the reference for all others; without a communicator, in this process."""

    def __init__(self, comm: Communicator | None, model: Sequential, loss: Loss, optimizer: Optimizer):
        if comm is not None and comm.size != 1:
            raise ValueError(f"Serial runs on one rank, not on {comm.size}; use DataParallel")
        super().__init__(LocalComm() if comm is None else comm, model, loss, optimizer)

    def step(self, batch: Batch) -> float:
        """Forward, loss, backward, update."""
        check_global_rows(self.comm, len(batch.x), batch.n)
        self.optimizer.zero_grad()
        y, saved = self.model.forward(batch.x, clock=self.clock)
        loss, dy = self.loss(y, batch.y, batch.n)
        self.model.backward(dy, saved, clock=self.clock)
        update(self.optimizer, self.clock)
        return loss
