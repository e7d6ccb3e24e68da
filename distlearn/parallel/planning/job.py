"""What is trained, and what a training step costs."""

from __future__ import annotations

from dataclasses import dataclass

from ...nn.container import Sequential
from ...nn.costs.memory import Memory
from ...optim import Optimizer
from .layout import Layout
from .work import Rates


@dataclass(frozen=True)
class Job:
    """What is trained: the same for all layouts.

    Parameters
    ----------
    model : Sequential
        Of meta arrays.
    shape : tuple of int
        Of a whole batch.
    rates : Rates
    rule : Rule
        Of the optimizer.
    cap_bytes : float
        Size of a bucket.
    schedule : str
        Of pipelines.
    n_microbatches : int, optional
        Of pipelines; four for every stage by default.
    """

    model: Sequential
    shape: tuple[int, ...]
    rates: Rates
    rule: object
    cap_bytes: float
    schedule: str = "1f1b"
    n_microbatches: int | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return self.model.params[0].data.dtype.itemsize

    def microbatches(self, pp: int, rows: int) -> int:
        """Return into how many micro-batches a replica cuts its rows."""
        return 1 if pp == 1 else min(rows, self.n_microbatches or 4 * pp)

    def update(self, params) -> float:
        """Seconds of the optimizer's step for some parameters."""
        return self.rates.span(*Optimizer(params, self.rule, 0.0).cost()) if params else 0.0


@dataclass(frozen=True)
class Cost:
    """Cost of a training step in one layout, by the cost model.

    Attributes
    ----------
    layout : Layout
    seconds : float
        The sum of the next three.
    computing : float
        On the busiest rank [s].
    communicating : float
        What sending adds to the step [s]: what is hidden behind computing is not in it.
    bubble : float
        What the schedule of a pipeline leaves idle, or the smaller share of other stages [s].
    nbytes : float
        That the rank which sends the most sends in a step.
    memory : Memory
        Of the rank that holds the most.
    n_microbatches : int
    """

    layout: Layout
    seconds: float
    computing: float
    communicating: float
    bubble: float
    nbytes: float
    memory: Memory
    n_microbatches: int = 1
