r"""Pipeline parallelism: every rank holds some consecutive layers, and micro-batches flow through the ranks.

    batch --> micro-batches --> stage 0 --activations--> stage 1 --activations--> ... --> loss
                                stage 0 <---gradients--- stage 1 <---gradients--- ... <--

A single batch would keep one rank busy at a time. Cut into micro-batches, it keeps all of them busy but for the bubble
at both ends; the schedule says in which order a rank runs them (`distlearn.parallel.pipeline.schedule`). `StagedModel`
runs a schedule; `Pipeline` and `PipeDream` (`pipedream.py`) are the two ways to update the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array, get_xp
from ...nn.layer import walk
from ...shares import shares
from ..sharding import ShardSpec
from ..strategy import Strategy, check_whole, sub_optimizer, summed_norm, update
from .schedule import LANE, SCHEDULES, Action, Schedule, check_schedule
from .stages import StageComm, StageParams, agree_on_boundaries, as_stages

if TYPE_CHECKING:
    from ...comm.base import Communicator
    from ...data.batches import Batch
    from ...nn.container import Sequential
    from ...nn.loss import Loss
    from ...optim.optimizer import Optimizer

MICROBATCHES_PER_RANK = 4
"""By default: the bubble is then below a fifth (Huang et al. (2019), section 2.3: negligible from 4 on)."""


@lru_cache(maxsize=16)
def _check_once(schedule, n_ranks: int, n_microbatches) -> Schedule:
    return check_schedule(schedule, n_ranks, n_microbatches).require()


class StagedModel(Strategy):
    """Some stages of a model on each rank, and micro-batches that go through them."""

    # `Pipeline` and `PipeDream` define `step`; their docstrings explain the parameters.

    alone = True  # only the pipeline's ranks; else rank numbers are not stages', and spans name the stage

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        schedule: Any,
        n_microbatches: int | None = None,
        stages: Sequence[Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ):
        super().__init__(comm, model, loss, optimizer)
        if n_microbatches is None and (callable(schedule) or (isinstance(schedule, str) and schedule in SCHEDULES)):
            n_microbatches = MICROBATCHES_PER_RANK * comm.size
        fixed = isinstance(schedule, (str, Schedule)) or schedule in SCHEDULES.values()
        check = _check_once if fixed else _check_once.__wrapped__  # once, and not by every simulated rank
        self.schedule = check(schedule, comm.size, n_microbatches)
        self.n_microbatches = self.schedule.n_microbatches
        self.slices = as_stages(stages, model, self.schedule.n_stages, shape)
        pieces = [model.part(model.layers[part]) for part in self.slices]
        self._rank_of = [self.schedule.rank_of(s) for s in range(len(pieces))]
        drawn: dict[int, tuple] = {}  # which rank draws from a generator, and for which layer
        for piece, rank in zip(pieces, self._rank_of, strict=True):
            for layer in walk(piece):
                first, by = drawn.setdefault(id(layer.rng), (rank, layer)) if layer.rng is not None else (rank, None)
                if first != rank:
                    pair = f"layers {by.name!r} and {layer.name!r}, which are on different ranks"
                    raise ValueError(f"{type(self).__name__}: {pair}, draw from one generator; give each its own seed")
        self.stages = {s: pieces[s] for s in self.schedule.stages_of(comm.rank)}
        self._stage_params = StageParams(comm, model, pieces, self._rank_of)
        self.params = self._stage_params.params
        self.model = model.part([layer for stage in self.stages.values() for layer in stage.layers])
        self.optimizer = sub_optimizer(type(self).__name__, optimizer, self.params, comm.size)
        self.like = get_xp(model.params[0].data).zeros(0)  # of the whole model: a stage may have no parameters
        self.hold_in_shards(model, self.model)
        self._boundaries, self._boundaries_for = [], None
        self._cut_for = None
        self.peak_in_flight = 0

    # -- a batch and its micro-batches ---------------------------------------------------------------------------------
    def _cut_batch(self, x) -> None:
        """Cut a batch into micro-batches: pieces that differ by a sample at most, and may be empty."""
        if self._cut_for == (x.shape, x.dtype):  # as in the batch before
            return
        self._parts = shares(len(x), self.n_microbatches)
        self._actions = [a for a in self.schedule.orders[self.comm.rank] if self._rows(a)]
        self._last_backward = {a.stage: a for a in self._actions if a.kind in ("B", "W")}
        self._xp = get_xp(x)
        if self._boundaries_for != (x.shape[1:], x.dtype):
            self._boundaries = agree_on_boundaries(self.comm, self.stages, self._rank_of, x)
            self._boundaries_for = x.shape[1:], x.dtype
        self._cut_for = x.shape, x.dtype

    def _rows(self, action: Action) -> int:
        part = self._parts[action.microbatch]
        return part.stop - part.start

    def _shape_of(self, action: Action):
        tail, dtype = self._boundaries[action.stage + (action.kind != "F")]
        return (self._rows(action), *tail), dtype

    # -- a step --------------------------------------------------------------------------------------------------------
    def _run(self, batch, on_grad=None) -> None:
        """Run this rank's actions in order; the receive of the next one is posted before an action computes."""
        # `on_grad(param)` is called during the last backward of the parameter's stage.
        self._cut_batch(batch.x)
        self._batch, self._loss = batch, 0.0
        self._stage_comm = stage_comm = StageComm(self.comm, self.schedule, self._shape_of, self._xp)
        self._saved: dict[tuple[int, int], object] = {}  # (stage, micro-batch) -> values saved for backward
        handlers = {"F": self._forward, "B": self._backward, "I": self._backward, "W": self._weight_gradients}
        self.peak_in_flight = 0
        for action, following in zip_longest(self._actions, self._actions[1:]):
            if action.kind == "F" and action.stage == 0:
                x = batch.x[self._parts[action.microbatch]]
            else:
                x = None if action.kind == "W" else stage_comm.recv(action)
            if following is not None:
                stage_comm.post_recv(following)
            last = self._last_backward.get(action.stage) == action
            with self.clock.span(self.schedule.span_name(action, self.alone), lane=LANE):
                handlers[action.kind](action, x, on_grad if last else None)
        stage_comm.finish()

    def _forward(self, action: Action, x, on_grad) -> None:
        """Run a stage forward, and the loss after the last one."""
        y, saved = self.stages[action.stage].forward(x, clock=self.clock)
        self._saved[action.stage, action.microbatch] = saved
        self.peak_in_flight = max(self.peak_in_flight, len(self._saved))
        if action.stage + 1 < self.schedule.n_stages:
            self._send(action, y)
        else:
            loss, dy = self._loss_of(action, y, self._batch.y[self._parts[action.microbatch]])
            self._loss += loss
            self._stage_comm.keep(self.schedule.backward(action.microbatch, action.stage), dy)

    def _loss_of(self, action: Action, y, labels):
        """Return a micro-batch's part of the batch's loss, and the gradient of the minimized loss."""
        raise NotImplementedError

    def _backward(self, action: Action, dy, on_grad) -> None:
        """Run a stage backward; an I keeps the inputs of the weights' gradients for its W."""
        stage, key = self.stages[action.stage], (action.stage, action.microbatch)
        if action.kind == "I":
            later = []
            dx = stage.backward(dy, self._saved[key], later, clock=self.clock)
            self._saved[key] = later
        else:
            dx = stage.backward(dy, self._saved.pop(key), on_grad=on_grad, clock=self.clock)
        if action.stage:
            self._send(action, dx)

    def _weight_gradients(self, action: Action, x, on_grad) -> None:
        for add, *about in self._saved.pop((action.stage, action.microbatch)):
            add(*about)
        for p in reversed(self.stages[action.stage].params) if on_grad is not None else ():
            on_grad(p)

    def _send(self, action: Action, x) -> None:
        """Send an action's result to the next stage, or the one before; raise unless it is what that stage expects."""
        if x is None:
            where, first = f"rank {self.comm.rank}: stage {action.stage}", self.stages[action.stage].layers[0]
            raise ValueError(f"{where}: {first!r} has no gradient of its input; put the layers before it here")
        consumer = self.schedule.consumer(action)
        expected = self._shape_of(consumer)
        if (tuple(x.shape), x.dtype) != expected:
            where = f"rank {self.comm.rank}: stage {action.stage}, {action}"
            raise ValueError(f"{where}: gave {x.dtype} of shape {tuple(x.shape)}, expected {expected}")
        self._stage_comm.send(consumer, x)

    def _total_loss(self) -> float:
        """Return the loss, which the last stage knows, on every rank."""
        loss = self._xp.array([self._loss], dtype=np.float64)
        return float(self.comm.broadcast(loss, self._rank_of[-1])[0])

    # -- the rest of a strategy ----------------------------------------------------------------------------------------
    def predict(self, x: Array) -> Array:
        """Return the model's output for `x`, on every rank: micro-batches go through the stages one after another."""
        self._cut_batch(x)
        stage_comm = StageComm(self.comm, self.schedule, self._shape_of, self._xp, lambda a: (a.stage, a.microbatch))
        tail, dtype = self._boundaries[-1]
        output = self._xp.empty((len(x), *tail), dtype)
        for s, stage in self.stages.items():
            stage = stage.eval()
            for action in (Action("F", i, s) for i in range(self.n_microbatches)):
                if not self._rows(action):
                    continue
                part = self._parts[action.microbatch]
                y = stage.forward(x[part] if s == 0 else stage_comm.recv(action))[0]
                if s + 1 < len(self._rank_of):
                    stage_comm.send(self.schedule.consumer(action), y)
                else:
                    output[part] = y
        stage_comm.finish()
        return self.comm.broadcast(output, self._rank_of[-1])

    def counted(self, params: Any) -> list[Any]:
        return [p for p in params if self._stage_params.ranks_of[p.name][0] == self.comm.rank]

    def spec(self, name: str, shape: tuple[int, ...]) -> ShardSpec:
        return ShardSpec(tuple(shape), counts=self._stage_params.ranks_of[name][0] == self.comm.rank)


class Pipeline(StagedModel):
    r"""Synchronous pipeline parallelism: equal to serial training, whatever the schedule.

    The loss of every micro-batch divides by the size of the *global* batch n, so the sum of the micro-batches'
    gradients is the serial gradient, however unequal:
    :math:`g = \sum_i \frac1n \sum_{j \in B_i} \nabla \ell_j`. All of them see the same weights, as the update comes
    after the last one (the flush).

    Parameters
    ----------
    model, optimizer
        Of the whole model; a rank keeps its own stages and no reference to the others.
    schedule : str, callable, list or Schedule
        "gpipe", "1f1b", "interleaved", "zero_bubble", or any other argument of `make_schedule`: a generator function,
        or a text of your own.
    n_microbatches : int, optional
        Pieces of a batch; by default as many as a written schedule has, else 4 a rank. A batch need not divide evenly
        (pieces differ by one sample at most), nor even have that many samples (some pieces are then empty).
    stages : list of slice or list of float, optional
        The layers of each stage; or the cost of each layer, to be balanced, such as measured seconds
        (`[t.seconds for t in profile_sweep(model, sample, batch)[0].layers]`). By default, operations are balanced.
    shape : tuple of int, optional
        Of a batch of inputs. Without it, stages are balanced by their numbers of parameters.

    Attributes
    ----------
    stages : dict of int to Sequential
        This rank's; `params` are theirs, `slices` the layers of all stages.
    peak_in_flight : int
        Of the last step: the most micro-batches (counted once for each stage) whose activations were held at one time.

    Notes
    -----
    Per step every rank sends, for each of its stages and micro-batches, the activations at its upper end and the
    gradients at its lower end to the neighbours, m messages each; in bytes, twice the activations at the cuts for the
    whole batch. One broadcast of the loss. A parameter that stages on different ranks share takes an all-reduce of its
    gradient among them. Parameters, gradients and the optimizer's state are split over ranks; activations in flight
    are those of m micro-batches with GPipe, at most p - stage with 1F1B.

    Layers that depend on the batch as a whole see micro-batches: `BatchNorm` normalises each by its own mean and
    variance and moves its running ones once for each, so training equals serial training with gradients accumulated
    over the same micro-batches, not over the whole batch. `Dropout` drops the same values as in serial training if
    every such layer has its own generator and micro-batches go forward in order. Wrap layers in `Recompute` to keep
    nothing but their inputs, as GPipe does.

    References
    ----------
    Huang et al. (2019), GPipe. Narayanan et al. (2021), Megatron-LM, section 2.2.
    """

    def __init__(
        self,
        comm: Communicator,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        schedule: Any = "1f1b",
        n_microbatches: int | None = None,
        stages: Sequence[Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ):
        if isinstance(schedule, str) and schedule == "pipedream":
            raise ValueError("Pipeline: schedule 'pipedream' updates after every micro-batch; use PipeDream(...)")
        options = {"n_microbatches": n_microbatches, "stages": stages, "shape": shape}
        super().__init__(comm, model, loss, optimizer, schedule=schedule, **options)
        self.optimizer.norm = self._norm

    def step(self, batch: Batch) -> float:
        check_whole(self, batch, self.comm)
        loss = self.accumulate(batch)
        update(self.optimizer, self.clock)
        return loss

    def accumulate(self, batch: Batch, on_grad: Callable[..., Any] = lambda param: None) -> float:
        """Run all micro-batches forward and backward; `p.grad` then holds this rank's part of the batch's gradient."""
        # `on_grad(param)` is called once for each of this rank's parameters, when its gradient is complete: during the
        # last micro-batch's backward, or, if stages share it, after their sum. Data parallelism around the pipeline
        # starts to communicate there.
        for p in self.params:  # not only the optimizer's: shared ones are summed
            p.zero_grad()
        tied = self._stage_params.tied
        incomplete = {id(p) for p in self.params} - {id(p) for p in tied}

        def report(p):
            if id(p) in incomplete:
                incomplete.remove(id(p))
                on_grad(p)

        self._run(batch, report)
        self._stage_params.sum_tied()
        for p in reversed(self.params):  # without a sample no backward ran: same order as on replicas that had some
            report(p)
        for p in reversed(tied):
            on_grad(p)
        return self._total_loss()

    def _loss_of(self, action, y, labels):
        return self.loss(y, labels, self._batch.n)

    def _norm(self, params) -> float:
        """Return the length of the whole model's gradient: a parameter that stages share counts once."""
        return summed_norm(self.counted(params), [self.comm], self.like)
