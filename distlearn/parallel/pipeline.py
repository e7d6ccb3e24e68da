r"""Pipeline parallelism: every rank holds some consecutive layers, and micro-batches flow through the ranks.

    batch --> micro-batches --> stage 0 --activations--> stage 1 --activations--> ... --> loss
                                stage 0 <---gradients--- stage 1 <---gradients--- ... <--

A single batch would keep one rank busy at a time. Cut into micro-batches, it keeps all of them busy but for the bubble
at both ends; in which order a rank runs them is its schedule's business (`distlearn.parallel.schedule`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..backend import get_xp
from ..data import shard
from ..nn.base import nbytes
from ..optim.clip import global_norm
from .pipeline_params import Owners, restricted
from .pipeline_wires import Wires
from .schedule import SCHEDULES, Action, check_schedule
from .schedule.simulate import LANE, span_name
from .stages import as_stages, cut

MICROBATCHES_PER_RANK = 4
"""By default: the bubble is then below a fifth (Huang et al., section 2.3: negligible from 4 on)."""


class Pipeline:
    r"""Synchronous pipeline parallelism: equal to serial training, whatever the schedule.

    The loss of every micro-batch divides by the size of the *global* batch n, so the sum of the micro-batches'
    gradients is the serial gradient, however unequal they are:
    :math:`g = \sum_i \frac1n \sum_{j \in B_i} \nabla \ell_j`. All of them see the same weights, as the update comes
    after the last one (the flush).

    Parameters
    ----------
    comm : Communicator
    model : Sequential
        The whole model, the same on every rank. A rank keeps its own stages of it and no reference to the others.
    loss : callable
        `loss(output, labels, n) -> (loss, gradient)`, both divided by n.
    optimizer : Optimizer
        Of the whole model; a rank takes over what belongs to its stages.
    schedule : str, callable, list or Schedule
        "gpipe", "1f1b", "interleaved", a generator function or a text of your own: all that `make_schedule` takes. It
        is checked first.
    n_microbatches : int, optional
        Pieces of a batch; by default as many as a written schedule has, else 4 a rank. A batch need not divide evenly
        (pieces differ by one sample at most), nor even have so many samples (some pieces are then empty).
    stages : list of slice or list of float, optional
        The layers of each stage, or the cost of each layer; balanced by operations by default.
    shape : tuple of int, optional
        Of a batch of inputs. Without it, stages are balanced by their numbers of parameters.
    track_memory : bool
        Measure the bytes of activations in flight, which takes a little time.

    Attributes
    ----------
    stages : dict of int to Sequential
        This rank's.
    slices : list of slice
        The layers of all stages.
    params : list of Param
        This rank's, under their serial names.
    peak_in_flight, peak_bytes : int
        Of the last step: the most micro-batches (counted once for each stage) whose activations were held at one time,
        and their bytes (0 unless tracked).

    Notes
    -----
    Per step every rank sends, for each of its stages and micro-batches, the activations at its upper end and the
    gradients at its lower end to the neighbours, m messages each; in bytes, twice the activations at the cuts for the
    whole batch. One broadcast of the loss. A parameter that stages on different ranks share takes an all-reduce of its
    gradient among them. Parameters, gradients and the optimizer's memory are split over ranks; activations in flight
    are those of m micro-batches with GPipe, at most p - stage with 1F1B.

    Every rank sees the whole batch (`rank` 0 of `size` 1 for whoever deals out data), uses its inputs on the first
    stage and its labels on the last.

    What depends on the batch as a whole sees micro-batches: `BatchNorm` normalises each by its own mean and variance
    and moves its running ones once for each, so training equals serial training with gradients accumulated over the
    same micro-batches, not over the whole batch. `Dropout` drops what it drops in serial training if every such layer
    has a generator of its own and micro-batches go forward in order.

    References
    ----------
    Huang et al. (2019), GPipe. Narayanan et al. (2021), Megatron-LM, section 2.2.
    """

    rank, size = 0, 1

    def __init__(
        self,
        comm,
        model,
        loss,
        optimizer,
        *,
        schedule="1f1b",
        n_microbatches: int | None = None,
        stages=None,
        shape=None,
        track_memory: bool = False,
    ):
        self.comm, self.loss, self.clock = comm, loss, comm.clock
        if n_microbatches is None and (callable(schedule) or (isinstance(schedule, str) and schedule in SCHEDULES)):
            n_microbatches = MICROBATCHES_PER_RANK * comm.size
        self.schedule = self._check(schedule, n_microbatches)
        self.n_microbatches = self.schedule.n_microbatches
        self.slices = as_stages(stages, model, self.schedule.n_stages, shape)
        pieces = [cut(model, part) for part in self.slices]
        self._rank_of = [self.schedule.rank_of(s) for s in range(len(pieces))]
        self.stages = {s: pieces[s] for s in self.schedule.stages_of(comm.rank)}
        self._owners = Owners(comm, model, pieces, self._rank_of)
        self.params = self._owners.params
        self.optimizer = restricted(optimizer, self.params)
        self._clip_norm, self.optimizer.clip_norm = optimizer.clip_norm, None
        self._shapes, self._shapes_for = [], None
        self._track = track_memory
        self.peak_in_flight = self.peak_bytes = 0

    def _check(self, schedule, n_microbatches):
        """Return the schedule, if it can be run."""
        if isinstance(schedule, str) and schedule == "pipedream":
            raise ValueError("Pipeline: schedule 'pipedream' updates after every micro-batch; use PipeDream(...)")
        return check_schedule(schedule, self.comm.size, n_microbatches).require()

    # -- a step ------------------------------------------------------------------------------------------------------
    def step(self, batch) -> float:
        """Train on a batch; return its loss, on every rank."""
        loss = self.accumulate(batch)
        self.update()
        return loss

    def accumulate(self, batch, on_grad: Callable | None = None) -> float:
        """Run all micro-batches forward and backward; `p.grad` then holds this rank's part of the batch's gradient.

        Parameters
        ----------
        batch : Batch
            `x`, `y`, and n, the size of the global batch; the same on every rank of the pipeline.
        on_grad : callable, optional
            `on_grad(param)` is called for each of this rank's parameters as soon as its gradient is complete: during
            the last micro-batch's backward, or, if stages share it, after their sum. Data parallelism around the
            pipeline starts to communicate there.

        Returns
        -------
        loss : float
            Of this batch, divided by n; on every rank.
        """
        self._begin(batch)
        reported = set()

        def report(p):
            if on_grad is not None and id(p) not in reported:
                reported.add(id(p))
                on_grad(p)

        self._run(report)
        self._owners.sum_tied()
        for p in reversed(self.params):  # shared ones, and all of them if there was no sample
            report(p)
        return self._total_loss()

    def update(self) -> None:
        """Apply the gradients to this rank's parameters."""
        if self._clip_norm is not None:
            self._clip()
        flops, moved = self.optimizer.cost()
        with self.clock.span("update", flops=flops, nbytes=moved):
            self.optimizer.step()

    def _begin(self, batch) -> None:
        """Cut the batch into micro-batches, clear gradients and statistics."""
        parts = [shard(len(batch.x), i, self.n_microbatches, allow_empty=True) for i in range(self.n_microbatches)]
        self._batch, self._parts, self._loss = batch, parts, 0.0
        self._xp = get_xp(batch.x)
        self._agree_on_shapes(batch.x)
        self._wires = Wires(self.comm, self.schedule, self._shape_of, self._xp)
        self._saved: dict[tuple[int, int], object] = {}  # (stage, micro-batch) -> what backward needs
        self.peak_in_flight = self.peak_bytes = 0
        self.optimizer.zero_grad()

    def _run(self, on_grad) -> None:
        """Run this rank's actions in order; the receive of the next one is posted before an action computes."""
        actions = [a for a in self.schedule.orders[self.comm.rank] if self._rows(a)]
        final = {a.stage: a for a in actions if a.kind == "B"}
        tied = {id(p) for p in self._owners.tied}

        def complete(p):
            if id(p) not in tied:
                on_grad(p)

        for action, following in zip(actions, [*actions[1:], None], strict=True):
            x = self._input(action)
            if following is not None and not self._is_entry(following):
                self._wires.post(following)
            with self.clock.span(span_name(self.schedule, action), lane=LANE):
                if action.kind == "F":
                    self._forward(action, x)
                else:
                    self._backward(action, x, complete if final[action.stage] == action else None)
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
            self._require(action, y, self._shape_of(action._replace(stage=action.stage + 1)))
            self._wires.give(action, y)
        else:
            labels = self._batch.y[self._parts[action.microbatch]]
            loss, dy = self.loss(y, labels, self._divisor(action))
            self._loss += loss
            self._wires.keep(action._replace(kind="B"), dy)

    def _divisor(self, action: Action) -> int:
        """What the loss of a micro-batch is divided by: the size of the global batch."""
        return self._batch.n

    def _backward(self, action: Action, dy, on_grad) -> None:
        """Run a stage backward."""
        saved = self._saved.pop((action.stage, action.microbatch))
        dx = self.stages[action.stage].backward(dy, saved, on_grad=on_grad, clock=self.clock)
        if action.stage:
            self._require(action, dx, self._shape_of(action._replace(stage=action.stage - 1)))
            self._wires.give(action, dx)

    def _require(self, action: Action, x, expected) -> None:
        """Raise unless an array that goes to another stage is what that stage expects."""
        if x is None:
            raise ValueError(
                f"rank {self.comm.rank}, stage {action.stage}: its first layer gives no gradient of its input "
                f"({self.stages[action.stage].layers[0]!r}); put the layers before it on the same stage"
            )
        if (tuple(x.shape), x.dtype) != expected:
            raise ValueError(
                f"rank {self.comm.rank}, stage {action.stage}, {action}: gave {x.dtype} of shape {tuple(x.shape)}, "
                f"expected {expected[1]} of shape {expected[0]}"
            )

    def _total_loss(self) -> float:
        """Return the loss, which the last stage knows, on every rank."""
        loss = self._xp.array([self._loss], dtype=np.float64)
        return float(self.comm.broadcast(loss, self._rank_of[-1])[0])

    def _clip(self) -> None:
        """Shorten the gradients of the whole model to the length that the optimizer asks for."""
        squared = global_norm(self._owners.counted(self.optimizer.params)) ** 2
        norm = float(self.comm.all_reduce(self._xp.array([squared], dtype=np.float64))[0]) ** 0.5
        if norm > self._clip_norm:
            for p in self.optimizer.params:
                p.grad *= self._clip_norm / norm

    # -- shapes ------------------------------------------------------------------------------------------------------
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
        self._xp = get_xp(x)
        self._agree_on_shapes(x)
        self._parts = [shard(len(x), i, self.n_microbatches, allow_empty=True) for i in range(self.n_microbatches)]
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

    def total(self, values):
        """Return `values`: every rank has seen all of the data."""
        return values

    def gather_params(self):
        """Collect the parameters of all stages on rank 0: a message for each that is not there."""
        return self._owners.gather()
