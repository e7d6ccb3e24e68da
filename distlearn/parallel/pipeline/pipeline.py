r"""Pipeline parallelism: every rank holds some consecutive layers, and micro-batches flow through the ranks.

    batch --> micro-batches --> stage 0 --activations--> stage 1 --activations--> ... --> loss
                                stage 0 <---gradients--- stage 1 <---gradients--- ... <--

A single batch would keep one rank busy at a time. Cut into micro-batches, it keeps all of them busy but for the bubble
at both ends; in which order a rank runs them is its schedule's business (`distlearn.parallel.pipeline.schedule`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..strategy import summed_norm
from .base import StagedModel


class Pipeline(StagedModel):
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
        The layers of each stage; or the cost of each layer, to be balanced, such as measured seconds
        (`[t.seconds for t in profile(model, x).layers]`). By default, operations are balanced.
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
    has a generator of its own and micro-batches go forward in order. Wrap layers in `Recompute` to keep nothing but
    their inputs, as GPipe does.

    References
    ----------
    Huang et al. (2019), GPipe. Narayanan et al. (2021), Megatron-LM, section 2.2.
    """

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
        if isinstance(schedule, str) and schedule == "pipedream":
            raise ValueError("Pipeline: schedule 'pipedream' updates after every micro-batch; use PipeDream(...)")
        options = {"n_microbatches": n_microbatches, "stages": stages, "shape": shape, "track_memory": track_memory}
        super().__init__(comm, model, loss, optimizer, schedule=schedule, **options)
        self._like = model.params[0].data if model.params else np.zeros(0)
        self.optimizer.norm = self._norm

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
        for p in self.params:  # not only the optimizer's: what stages share is summed
            p.zero_grad()
        reported, shared = set(), {id(p) for p in self._owners.tied}

        def report(p):
            if on_grad is not None and id(p) not in reported:
                reported.add(id(p))
                on_grad(p)

        self._run(lambda p: None if id(p) in shared else report(p))
        self._owners.sum_tied()
        # what no backward reported: all of them, if there was no sample, in the order of the replicas that had some
        late = [p for p in reversed(self.params) if id(p) not in shared]
        for p in [*late, *reversed(self._owners.tied)]:
            report(p)
        return self._total_loss()

    def _loss_of(self, action, y, labels):
        return self.loss(y, labels, self._batch.n)

    def update(self) -> None:
        """Apply the gradients to this rank's parameters."""
        flops, moved = self.optimizer.cost()
        with self.clock.span("update", flops=flops, nbytes=moved):
            self.optimizer.step()

    def _norm(self, params) -> float:
        """Return the length of the whole model's gradient: a parameter that stages share counts once."""
        return summed_norm(self.counted(params), [self.comm], self._like)
