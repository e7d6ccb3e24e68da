"""What every pipeline does: run its stages in the order of a schedule, and hand arrays from stage to stage."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...backend import get_xp
from ...data import shard
from ...nn.layer import Layer, nbytes
from ..checkpoint.state import named_arrays
from ..strategy import adopt
from ..tensor import DealtState, Place
from .params import Owners, sub_optimizer
from .schedule import SCHEDULES, Action, Schedule, check_schedule
from .schedule.traces import LANE, span_name
from .stage_comm import Wires, taker
from .stages import as_stages, cut

MICROBATCHES_PER_RANK = 4
"""By default: the bubble is then below a fifth (Huang et al. (2019), section 2.3: negligible from 4 on)."""


def _checked(schedule, n_ranks: int, n_microbatches) -> Schedule:
    """Return a schedule that is right; what cannot change is checked once, not by every simulated rank."""
    fixed = isinstance(schedule, (str, Schedule)) or schedule in SCHEDULES.values()
    return (_check_once if fixed else _check)(schedule, n_ranks, n_microbatches)


def _check(schedule, n_ranks, n_microbatches):
    return check_schedule(schedule, n_ranks, n_microbatches).require()


_check_once = lru_cache(maxsize=16)(_check)


class StagedModel(DealtState):
    """Some stages of a model on each rank, and micro-batches that go through them.

    `Pipeline` and `PipeDream` say what a step is; their docstrings explain the parameters.
    """

    rank, size = 0, 1  # of the data: every rank sees the whole batch
    alone = True  # no other ranks than the pipeline's; else their numbers are not those of stages, and spans say these

    def __init__(
        self,
        comm,
        model,
        loss,
        optimizer,
        *,
        schedule,
        n_microbatches=None,
        stages=None,
        shape=None,
        track_memory=False,
    ):
        adopt(self, model, loss, optimizer)
        self.comm, self.loss, self.clock = comm, loss, comm.clock
        if n_microbatches is None and (callable(schedule) or (isinstance(schedule, str) and schedule in SCHEDULES)):
            n_microbatches = MICROBATCHES_PER_RANK * comm.size
        self.schedule = _checked(schedule, comm.size, n_microbatches)
        self.n_microbatches = self.schedule.n_microbatches
        self.slices = as_stages(stages, model, self.schedule.n_stages, shape)
        pieces = [cut(model, part) for part in self.slices]
        self._rank_of = [self.schedule.rank_of(s) for s in range(len(pieces))]
        self.stages = {s: pieces[s] for s in self.schedule.stages_of(comm.rank)}
        self._owners = Owners(comm, model, pieces, self._rank_of)
        self.params = self._owners.params
        self.optimizer = sub_optimizer(type(self).__name__, optimizer, self.params, comm.size == 1)
        self._shapes, self._shapes_for = [], None
        self._track = track_memory
        self.peak_in_flight = self.peak_bytes = 0

    # -- the micro-batches of a step ---------------------------------------------------------------------------------
    def _begin(self, batch) -> None:
        """Cut the batch into micro-batches, and clear what is known of the step before."""
        self._batch, self._loss = batch, 0.0
        self._cut(batch.x)
        self._wires = Wires(self.comm, self.schedule, self._shape_of, self._xp)
        self._actions = [a for a in self.schedule.orders[self.comm.rank] if self._rows(a)]
        self._saved: dict[tuple[int, int], object] = {}  # (stage, micro-batch) -> what backward needs
        self.peak_in_flight = self.peak_bytes = 0

    def _run(self, on_grad=None) -> None:
        """Run this rank's actions in order; the receive of the next one is posted before an action computes.

        `on_grad(param)` is called during the last backward of the parameter's stage.
        """
        final = {a.stage: a for a in self._actions if a.kind == "B"}
        for i, action in enumerate(self._actions):
            x = self._input(action)
            for following in self._actions[i + 1 : i + 2]:
                self._wires.post(following)
            with self.clock.span(span_name(self.schedule, action, self.alone), lane=LANE):
                if action.kind == "F":
                    self._forward(action, x)
                else:
                    self._backward(action, x, on_grad if final[action.stage] == action else None)
        self._wires.finish()

    def _is_entry(self, action: Action) -> bool:
        """Whether an action takes samples."""
        return action.kind == "F" and action.stage == 0

    def _input(self, action: Action):
        """Return what an action takes: samples, activations or a gradient."""
        return self._batch.x[self._parts[action.microbatch]] if self._is_entry(action) else self._wires.take(action)

    def _forward(self, action: Action, x) -> None:
        """Run a stage forward, and the loss behind the last one."""
        y, saved = self.stages[action.stage].forward(x, clock=self.clock)
        self._saved[action.stage, action.microbatch] = saved
        self.peak_in_flight = max(self.peak_in_flight, len(self._saved))
        if self._track:
            self.peak_bytes = max(self.peak_bytes, nbytes(list(self._saved.values())))
        if action.stage + 1 < self.schedule.n_stages:
            self._require(action, y, self._shape_of(taker(action)))
            self._wires.give(action, y)
        else:
            loss, dy = self._loss_of(action, y, self._batch.y[self._parts[action.microbatch]])
            self._loss += loss
            self._wires.keep(action._replace(kind="B"), dy)

    def _loss_of(self, action: Action, y, labels):
        """Return a micro-batch's part of the batch's loss, and the gradient of what is to become small."""
        raise NotImplementedError

    def _backward(self, action: Action, dy, on_grad) -> None:
        """Run a stage backward."""
        saved = self._saved.pop((action.stage, action.microbatch))
        dx = self.stages[action.stage].backward(dy, saved, on_grad=on_grad, clock=self.clock)
        if action.stage:
            self._require(action, dx, self._shape_of(taker(action)))
            self._wires.give(action, dx)

    def _require(self, action: Action, x, expected) -> None:
        """Raise unless an array that goes to another stage is what that stage expects."""
        if x is None:
            raise ValueError(
                f"rank {self.comm.rank}: stage {action.stage}: its first layer gives no gradient of its input "
                f"({self.stages[action.stage].layers[0]!r}); put the layers before it on the same stage"
            )
        if (tuple(x.shape), x.dtype) != expected:
            raise ValueError(
                f"rank {self.comm.rank}: stage {action.stage}, {action}: gave {x.dtype} of shape {tuple(x.shape)}, "
                f"expected {expected[1]} of shape {expected[0]}"
            )

    def _total_loss(self) -> float:
        """Return the loss, which the last stage knows, on every rank."""
        loss = self._xp.array([self._loss], dtype=np.float64)
        return float(self.comm.broadcast(loss, self._rank_of[-1])[0])

    # -- shapes ------------------------------------------------------------------------------------------------------
    def _cut(self, x) -> None:
        """Cut a batch into micro-batches: pieces that differ by a sample at most, and may be empty."""
        self._parts = [shard(len(x), i, self.n_microbatches, allow_empty=True) for i in range(self.n_microbatches)]
        self._xp = get_xp(x)
        self._agree_on_shapes(x)

    def _rows(self, action: Action) -> int:
        """Samples of an action's micro-batch."""
        part = self._parts[action.microbatch]
        return part.stop - part.start

    def _shape_of(self, action: Action):
        """Shape and dtype of what an action takes."""
        tail, dtype = self._shapes[action.stage + (action.kind == "B")]
        return (self._rows(action), *tail), dtype

    def _agree_on_shapes(self, x) -> None:
        """Find shape (of a sample) and dtype at every cut: once, in a chain of small messages from the first stage."""
        if self._shapes_for == (x.shape[1:], x.dtype):
            return
        shapes = [(tuple(x.shape[1:]), x.dtype)]
        for s, stage in self.stages.items():
            if s and self._rank_of[s - 1] != self.comm.rank:
                shapes = self.comm.recv_obj(self._rank_of[s - 1])
            tail, dtype = shapes[-1]
            learned = [p.data.dtype for p in stage.params]
            shapes = [*shapes, (tuple(stage.output_shape((1, *tail))[1:]), learned[-1] if learned else dtype)]
            if s + 1 < len(self._rank_of) and self._rank_of[s + 1] != self.comm.rank:
                self.comm.send_obj(shapes, self._rank_of[s + 1])
        self._shapes = self.comm.broadcast_obj(shapes, self._rank_of[-1])
        self._shapes_for = (x.shape[1:], x.dtype)

    # -- the rest of a strategy --------------------------------------------------------------------------------------
    def predict(self, x):
        """Return the model's output for `x`, on every rank: micro-batches go through the stages one after another."""
        self._cut(x)
        wires = Wires(self.comm, self.schedule, self._shape_of, self._xp, lambda a: (a.stage, a.microbatch))
        tail, dtype = self._shapes[-1]
        output = self._xp.empty((len(x), *tail), dtype)
        for s, stage in self.stages.items():
            stage = stage.eval()
            for action in (Action("F", i, s) for i in range(self.n_microbatches)):
                if not self._rows(action):
                    continue
                part = self._parts[action.microbatch]
                y = stage.forward(x[part] if s == 0 else wires.take(action))[0]
                if s + 1 < len(self._rank_of):
                    wires.give(action, y)
                else:
                    output[part] = y
        wires.finish()
        return self.comm.broadcast(output, self._rank_of[-1])

    def counted(self, params) -> list:
        """Return those of `params` that this rank counts in a sum over ranks: one that stages share counts once."""
        return self._owners.counted(params)

    def ranks_with(self, param) -> tuple[int, ...]:
        """Return the ranks that hold a parameter: several if their stages share it."""
        return next((entry.ranks for entry in self._owners.entries if entry.name == param.name), ())

    def total(self, values):
        """Return `values`: every rank has seen all of the data."""
        return values

    def gather_params(self):
        """Collect the parameters of all stages on rank 0: a message for each that is not there."""
        return self._owners.gather()

    # -- checkpoints -------------------------------------------------------------------------------------------------
    def own_state(self) -> dict:
        """Return parameters and optimizer's memory of this rank's stages, by name."""
        return named_arrays(self.params, self.optimizer)

    def _places(self, live) -> dict[str, Place]:
        """Every rank has its parameters as a whole; of one that several ranks share, the values are equal."""
        return dict.fromkeys(live, Place())

    @property
    def names(self) -> list[str]:
        """Of the serial model's parameters."""
        return [entry.name for entry in self._owners.entries]

    @property
    def model(self) -> Layer:
        """What this rank holds, for looking at: its stages, one after another."""
        return _Stages(list(self.stages.values()))


class _Stages(Layer):
    """Stages under one roof, so that one can `walk` through all of them."""

    def __init__(self, stages):
        self._stages = stages

    @property
    def children(self):
        return self._stages
